//! How the outputs of a matrix are shared out: panels to tasks, and inside a task blocks of at most
//! eight tokens by two panels, which fill the registers. No cut touches a reduction, so none changes a bit.

use super::panel::{PANEL, Panel};
use crate::Pool;
use std::ops::Range;

/// Tokens of a block at most.
pub(super) const ROWS: usize = 8;

/// Tokens and panels of one product.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) m: usize,
    pub(super) num_panels: usize,
}

/// The outputs of one task.
pub(super) struct Block {
    m: usize,
    panels: Range<usize>,
}

/// Computes a block of `M` tokens by `N` panels.
pub(super) trait Kernel {
    /// Whether a single token is computed panel by panel, so that weights are read as one stream.
    const STREAMS: bool;

    /// # Safety
    /// The machine has the kernel's instruction set, the block lies inside the product, and no other
    /// thread writes it.
    unsafe fn block<const M: usize, const N: usize>(&self, row: usize, panel: usize);
}

/// Runs `compute` on blocks that cover the product, on the threads of the pool.
pub(super) fn for_each_block(pool: &Pool, shape: Shape, compute: &(dyn Fn(Block) + Sync)) {
    let panels_per_task = if pool.num_threads() == 1 {
        shape.num_panels
    } else {
        shape
            .num_panels
            .div_ceil(4 * pool.num_threads())
            .next_multiple_of(2)
    }
    .max(1);
    pool.run(shape.num_panels.div_ceil(panels_per_task), &|task| {
        let start = task * panels_per_task;
        let end = (start + panels_per_task).min(shape.num_panels);
        compute(Block {
            m: shape.m,
            panels: start..end,
        });
    });
}

impl Block {
    /// # Safety
    /// The machine has the kernel's instruction set, and no other thread writes these outputs.
    #[inline(always)]
    pub(super) unsafe fn run<K: Kernel>(&self, kernel: &K) {
        let mut panel = self.panels.start;
        while panel < self.panels.end {
            let pair = panel + 2 <= self.panels.end && !(K::STREAMS && self.m == 1);
            let mut row = 0;
            while row < self.m {
                let num_rows = (self.m - row).min(ROWS);
                // SAFETY: passed on; the rows and panels are inside this block.
                unsafe {
                    match (num_rows, pair) {
                        (1, true) => kernel.block::<1, 2>(row, panel),
                        (1, false) => kernel.block::<1, 1>(row, panel),
                        (2, true) => kernel.block::<2, 2>(row, panel),
                        (2, false) => kernel.block::<2, 1>(row, panel),
                        (3, true) => kernel.block::<3, 2>(row, panel),
                        (3, false) => kernel.block::<3, 1>(row, panel),
                        (4, true) => kernel.block::<4, 2>(row, panel),
                        (4, false) => kernel.block::<4, 1>(row, panel),
                        (5, true) => kernel.block::<5, 2>(row, panel),
                        (5, false) => kernel.block::<5, 1>(row, panel),
                        (6, true) => kernel.block::<6, 2>(row, panel),
                        (6, false) => kernel.block::<6, 1>(row, panel),
                        (7, true) => kernel.block::<7, 2>(row, panel),
                        (7, false) => kernel.block::<7, 1>(row, panel),
                        (_, true) => kernel.block::<8, 2>(row, panel),
                        (_, false) => kernel.block::<8, 1>(row, panel),
                    }
                }
                row += num_rows;
            }
            panel += if pair { 2 } else { 1 };
        }
    }
}

/// A matrix that several threads write, each its own part.
#[derive(Clone, Copy)]
pub(super) struct Output<T> {
    start: *mut T,
    len: usize,
    num_columns: usize,
}

// SAFETY: the parts that threads write are disjoint, by the contract of the methods.
unsafe impl<T: Send> Send for Output<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Output<T> {}

impl<T> Output<T> {
    /// `(len / num_columns, num_columns)`.
    pub(super) fn new(values: &mut [T], num_columns: usize) -> Output<T> {
        Output {
            start: values.as_mut_ptr(),
            len: values.len(),
            num_columns,
        }
    }

    /// # Safety
    /// No other reference to these rows may exist.
    pub(super) unsafe fn rows<'a>(&self, rows: Range<usize>) -> &'a mut [T] {
        assert!(
            rows.end * self.num_columns <= self.len,
            "rows {rows:?} of {} values",
            self.len
        );
        // SAFETY: inside the matrix, and exclusive by the contract.
        unsafe {
            let start = self.start.add(rows.start * self.num_columns);
            std::slice::from_raw_parts_mut(start, rows.len() * self.num_columns)
        }
    }
}

impl Output<f32> {
    /// Writes sixteen outputs of a token, or those that exist of the last panel.
    ///
    /// # Safety
    /// The machine has the panel's instruction set, and no other thread writes this panel of this row.
    #[inline(always)]
    pub(super) unsafe fn store_panel<P: Panel>(&self, row: usize, panel: usize, values: P::F) {
        let first = panel * PANEL;
        let num_values = PANEL.min(self.num_columns - first);
        let start = row * self.num_columns + first;
        debug_assert!(start + num_values <= self.len);
        // SAFETY: inside the matrix, and exclusive by the contract.
        unsafe {
            let to = self.start.add(start);
            if num_values == PANEL {
                P::store(to, values);
            } else {
                let mut whole = [0.0; PANEL];
                P::store(whole.as_mut_ptr(), values);
                std::ptr::copy_nonoverlapping(whole.as_ptr(), to, num_values);
            }
        }
    }
}
