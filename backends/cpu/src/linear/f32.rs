//! The f32 rule: inside a group, run order over k from zero with fma; then `acc = acc + group`; shards
//! joined by a balanced tree. Panels are `[panel][k][16 outputs]`.

use super::layout::{Layout, tree_sum};
use super::memory::HugeBuffer;
use super::panel::{PANEL, Panel};
use super::tasks::{Kernel, Output, Shape, for_each_block};
use crate::{Isa, Pool};

/// Packed weights of one matrix.
pub(super) struct F32Weights {
    pub(super) layout: Layout,
    // [panel][k][16]
    values: HugeBuffer<f32>,
}

impl F32Weights {
    pub(super) fn zeroed(layout: Layout) -> F32Weights {
        let values = HugeBuffer::zeroed(layout.num_panels() * layout.k * PANEL);
        F32Weights { layout, values }
    }

    pub(super) fn set_row(&mut self, row: usize, w: &[f32]) {
        let base = row / PANEL * self.layout.k * PANEL + row % PANEL;
        let values = self.values.as_mut_slice();
        for (k, &w) in w.iter().enumerate() {
            values[base + k * PANEL] = w;
        }
    }

    pub(super) fn forward(&self, isa: Isa, pool: &Pool, x: &[f32], m: usize, y: &mut [f32]) {
        let output = Output::new(y, self.layout.n);
        let shape = Shape {
            m,
            num_panels: self.layout.num_panels(),
        };
        for_each_block(pool, shape, &|block| match isa {
            Isa::Scalar => {
                // SAFETY: plain Rust needs no instruction set; blocks are disjoint.
                unsafe {
                    block.run(&F32Kernel::<super::panel::ScalarPanel>::new(
                        self, x, output,
                    ))
                }
            }
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` is only made on a machine that has it; blocks are disjoint.
            Isa::Avx2 => unsafe { x86::avx2(self, x, output, block) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 => unsafe { x86::avx512(self, x, output, block) },
            #[cfg(not(target_arch = "x86_64"))]
            other => unreachable!("{other} on a machine that has none"),
        });
    }
}

struct F32Kernel<'a, P: Panel> {
    weights: &'a F32Weights,
    x: &'a [f32],
    y: Output<f32>,
    panel: std::marker::PhantomData<P>,
}

impl<'a, P: Panel> F32Kernel<'a, P> {
    fn new(weights: &'a F32Weights, x: &'a [f32], y: Output<f32>) -> Self {
        F32Kernel {
            weights,
            x,
            y,
            panel: std::marker::PhantomData,
        }
    }
}

impl<P: Panel> Kernel for F32Kernel<'_, P> {
    // The order of a sum is fixed, so that a second panel is all that hides its latency.
    const STREAMS: bool = false;

    #[inline(always)]
    unsafe fn block<const M: usize, const N: usize>(&self, row: usize, panel: usize) {
        // SAFETY: every pointer below stays inside the packed buffer and inside `x`, whose sizes follow
        // from the same layout; the caller has the instruction set and owns this block of the output.
        unsafe {
            let layout = &self.weights.layout;
            let w: [*const f32; N] = std::array::from_fn(|n| {
                self.weights
                    .values
                    .as_slice()
                    .as_ptr()
                    .add((panel + n) * layout.k * PANEL)
            });
            let x: [*const f32; M] =
                std::array::from_fn(|m| self.x.as_ptr().add((row + m) * layout.k));
            let mut partial = [[[P::splat(0.0); N]; M]; Layout::SHARDS_MAX];
            for (shard, groups) in layout.shards().enumerate() {
                let mut acc = [[P::splat(0.0); N]; M];
                for group in groups {
                    let mut sums = [[P::splat(0.0); N]; M];
                    for k in layout.group(group) {
                        let w: [P::F; N] = std::array::from_fn(|n| P::load(w[n].add(k * PANEL)));
                        for m in 0..M {
                            let x = P::splat(*x[m].add(k));
                            for n in 0..N {
                                sums[m][n] = P::fma(x, w[n], sums[m][n]);
                            }
                        }
                    }
                    for m in 0..M {
                        for n in 0..N {
                            acc[m][n] = P::add(acc[m][n], sums[m][n]);
                        }
                    }
                }
                partial[shard] = acc;
            }
            let sum = tree_sum::<P, M, N>(&mut partial, layout.num_shards());
            for (m, sums) in sum.iter().enumerate() {
                for (n, &sum) in sums.iter().enumerate() {
                    self.y.store_panel::<P>(row + m, panel + n, sum);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! One entry per instruction set; everything it calls is inlined into it.
    use super::super::panel::{Avx2Panel, Avx512Panel};
    use super::super::tasks::Block;
    use super::*;

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(w: &F32Weights, x: &[f32], y: Output<f32>, block: Block) {
        // SAFETY: passed on from the caller.
        unsafe { block.run(&F32Kernel::<Avx2Panel>::new(w, x, y)) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
    pub(super) unsafe fn avx512(w: &F32Weights, x: &[f32], y: Output<f32>, block: Block) {
        // SAFETY: passed on from the caller.
        unsafe { block.run(&F32Kernel::<Avx512Panel>::new(w, x, y)) }
    }
}
