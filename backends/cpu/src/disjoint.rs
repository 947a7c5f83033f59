//! A buffer that the tasks of one loop write at places that never overlap. It must never outlive the loop
//! that it was made for, and it decides nothing about who writes where.

use crate::pool::Pool;
use std::marker::PhantomData;

/// A mutable slice that is shared between tasks.
pub(crate) struct Disjoint<'a> {
    first: *mut f32,
    len: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the only access is `slice`, whose callers promise that no two live results overlap.
unsafe impl Sync for Disjoint<'_> {}
// SAFETY: as above; a float may be touched from any thread.
unsafe impl Send for Disjoint<'_> {}

impl<'a> Disjoint<'a> {
    pub(crate) fn new(slice: &'a mut [f32]) -> Disjoint<'a> {
        Disjoint {
            first: slice.as_mut_ptr(),
            len: slice.len(),
            borrow: PhantomData,
        }
    }

    /// The `len` floats from `start`.
    ///
    /// # Safety
    /// No two results that are alive at the same time may overlap.
    #[expect(clippy::mut_from_ref, reason = "the point of this type; see Safety")]
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &mut [f32] {
        assert!(
            start <= self.len && len <= self.len - start,
            "{start}..+{len} of {}",
            self.len
        );
        // SAFETY: inside the slice that is borrowed for 'a; the caller promises no overlap.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), len) }
    }

    /// The `len` floats from `start`, to read.
    ///
    /// # Safety
    /// While the result lives, nothing may hold a mutable slice of this range.
    pub(crate) unsafe fn read(&self, start: usize, len: usize) -> &[f32] {
        assert!(
            start <= self.len && len <= self.len - start,
            "{start}..+{len} of {}",
            self.len
        );
        // SAFETY: inside the slice that is borrowed for 'a; the caller promises that nobody writes.
        unsafe { std::slice::from_raw_parts(self.first.add(start), len) }
    }
}

/// Runs `task(row, slice)` for every row of a buffer of `width` floats per row, `rows_per_task` at a time.
pub(crate) fn for_rows(
    pool: &Pool,
    buffer: &mut [f32],
    width: usize,
    rows_per_task: usize,
    task: &(dyn Fn(usize, &mut [f32]) + Sync),
) {
    let num_rows = buffer.len() / width;
    let shared = Disjoint::new(buffer);
    pool.run(num_rows.div_ceil(rows_per_task), &|chunk| {
        let first = chunk * rows_per_task;
        for row in first..num_rows.min(first + rows_per_task) {
            // SAFETY: each row is visited by exactly one task, once.
            task(row, unsafe { shared.slice(row * width, width) });
        }
    });
}

/// The first `len` floats of a buffer that is kept between steps and only ever grows. Their contents are
/// whatever the last use left there.
pub(crate) fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}
