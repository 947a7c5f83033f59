//! The q8 rule: int8 weights and activations, exact int32 dot products inside a group, float32 across
//! groups in run order, shards joined by a balanced tree.
//!
//! Weights are stored as unsigned bytes (`q + 128`), in panels of 16 outputs:
//! `[panel][group][quad of k][16 outputs][4]`, so that one 64-byte load feeds 16 dot products of 4.

use super::layout::{Layout, tree_sum};
use super::memory::HugeBuffer;
use super::panel::{PANEL, Panel};
use super::tasks::{Output, Shape, for_each_block};
use crate::{Isa, Pool};
use std::cell::RefCell;

/// Packed weights of one matrix.
pub(super) struct Q8Weights {
    pub(super) layout: Layout,
    // [panel][layout.padded_k / 4][16][4]
    bytes: HugeBuffer<u8>,
    // [panel][group][16]
    scales: HugeBuffer<f32>,
}

impl Q8Weights {
    pub(super) fn zeroed(layout: Layout) -> Q8Weights {
        let num_panels = layout.num_panels();
        let mut bytes = HugeBuffer::<u8>::zeroed(num_panels * layout.padded_k * PANEL);
        bytes.as_mut_slice().fill(128);
        let scales = HugeBuffer::zeroed(num_panels * layout.num_groups() * PANEL);
        Q8Weights {
            layout,
            bytes,
            scales,
        }
    }

    /// Writes one row: `q` holds `k` quantised weights, `scales` one scale per group.
    pub(super) fn set_row(&mut self, row: usize, q: &[i8], scales: &[f32]) {
        let (panel, lane) = (row / PANEL, row % PANEL);
        let layout = &self.layout;
        let base = panel * layout.padded_k * PANEL;
        let bytes = self.bytes.as_mut_slice();
        for (k, &q) in q.iter().enumerate() {
            bytes[base + (k / 4 * PANEL + lane) * 4 + k % 4] = (i16::from(q) + 128) as u8;
        }
        let base = panel * layout.num_groups() * PANEL;
        for (group, &scale) in scales.iter().enumerate() {
            self.scales.as_mut_slice()[base + group * PANEL + lane] = scale;
        }
    }

    pub(super) fn forward(&self, isa: Isa, pool: &Pool, x: &[f32], m: usize, y: &mut [f32]) {
        ACTIVATIONS.with_borrow_mut(|activations| {
            activations.quantize(isa, pool, &self.layout, x, m);
            let output = Output::new(y, self.layout.n);
            let shape = Shape {
                m,
                num_panels: self.layout.num_panels(),
            };
            for_each_block(pool, shape, &|block| match isa {
                Isa::Scalar => {
                    // SAFETY: plain Rust needs no instruction set; blocks are disjoint.
                    unsafe {
                        block.run(&Q8Kernel::<super::panel::ScalarPanel>::new(
                            self,
                            activations,
                            output,
                        ))
                    }
                }
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` is only made on a machine that has it; blocks are disjoint.
                Isa::Avx2 => unsafe { x86::avx2(self, activations, output, block) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Isa::Avx512 => unsafe { x86::avx512(self, activations, output, block) },
                #[cfg(not(target_arch = "x86_64"))]
                other => unreachable!("{other} on a machine that has none"),
            });
        });
    }
}

thread_local! {
    // Reused from call to call: a step has hundreds of them.
    static ACTIVATIONS: RefCell<Activations> = RefCell::default();
}

/// Quantised activations of a batch.
#[derive(Default)]
struct Activations {
    padded_k: usize,
    num_groups: usize,
    // (m, padded_k); padding is zero
    q: Vec<i8>,
    // (m, num_groups)
    scales: Vec<f32>,
    // (m, num_groups): -128 * the sum of q over the group, which undoes the weights' offset
    corrections: Vec<i32>,
}

impl Activations {
    fn quantize(&mut self, isa: Isa, pool: &Pool, layout: &Layout, x: &[f32], m: usize) {
        self.padded_k = layout.padded_k;
        self.num_groups = layout.num_groups();
        self.q.clear();
        self.q.resize(m * self.padded_k, 0);
        self.scales.clear();
        self.scales.resize(m * self.num_groups, 0.0);
        self.corrections.clear();
        self.corrections.resize(m * self.num_groups, 0);
        let q = Output::new(&mut self.q, layout.padded_k);
        let scales = Output::new(&mut self.scales, layout.num_groups());
        let corrections = Output::new(&mut self.corrections, layout.num_groups());
        let rows_per_task = m.div_ceil(4 * pool.num_threads()).max(4);
        pool.run(m.div_ceil(rows_per_task), &|task| {
            for row in task * rows_per_task..((task + 1) * rows_per_task).min(m) {
                let x = &x[row * layout.k..(row + 1) * layout.k];
                // SAFETY: each row belongs to exactly one task.
                let (q, scales, corrections) =
                    unsafe { (q.row(row), scales.row(row), corrections.row(row)) };
                match isa {
                    Isa::Scalar => quantize_row(layout, x, q, scales, corrections),
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: an `Isa` is only made on a machine that has it.
                    Isa::Avx2 => unsafe { x86::quantize_avx2(layout, x, q, scales, corrections) },
                    #[cfg(target_arch = "x86_64")]
                    // SAFETY: as above.
                    Isa::Avx512 => unsafe {
                        x86::quantize_avx512(layout, x, q, scales, corrections);
                    },
                    #[cfg(not(target_arch = "x86_64"))]
                    other => unreachable!("{other} on a machine that has none"),
                }
            }
        });
    }
}

/// `lockstep_numerics::quantize`'s rule for activations, in loops that vectorise. A NaN among `x` makes
/// the scale NaN, and with it the outputs.
#[inline(always)]
fn quantize_row(
    layout: &Layout,
    x: &[f32],
    q: &mut [i8],
    scales: &mut [f32],
    corrections: &mut [i32],
) {
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even.
    const ROUND: f32 = 12_582_912.0;
    for group in 0..layout.num_groups() {
        let range = layout.group(group);
        let x = &x[range.clone()];
        // Absolute values order as their bits do, and integers may be compared in any order.
        let amax_bits = x
            .iter()
            .fold(0, |max: u32, x| max.max(x.to_bits() & 0x7fff_ffff));
        let scale = f32::from_bits(amax_bits) / 127.0;
        scales[group] = scale;
        if scale == 0.0 {
            continue;
        }
        let q = &mut q[range];
        let mut sum = 0i32;
        for (q, x) in q.iter_mut().zip(x) {
            let rounded = (x / scale + ROUND) - ROUND;
            let clamped = if rounded > 127.0 { 127.0 } else { rounded };
            let clamped = if clamped < -127.0 { -127.0 } else { clamped };
            // In range after the clamp, except for NaN: then the scale is NaN and q does not matter.
            let value = (clamped + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32;
            *q = value as i8;
            sum = value.wrapping_add(sum);
        }
        corrections[group] = sum.wrapping_mul(-128);
    }
}

struct Q8Kernel<'a, P: Panel> {
    weights: &'a Q8Weights,
    x: &'a Activations,
    y: Output<f32>,
    panel: std::marker::PhantomData<P>,
}

impl<'a, P: Panel> Q8Kernel<'a, P> {
    fn new(weights: &'a Q8Weights, x: &'a Activations, y: Output<f32>) -> Self {
        Q8Kernel {
            weights,
            x,
            y,
            panel: std::marker::PhantomData,
        }
    }
}

impl<P: Panel> super::tasks::Kernel for Q8Kernel<'_, P> {
    #[inline(always)]
    unsafe fn block<const M: usize, const N: usize>(&self, row: usize, panel: usize) {
        // SAFETY: every pointer below stays inside the packed buffers, whose sizes follow from the same
        // layout; the caller has the instruction set and owns this block of the output.
        unsafe {
            let layout = &self.weights.layout;
            let num_groups = layout.num_groups();
            let panel_bytes = layout.padded_k * PANEL;
            let w: [*const u8; N] = std::array::from_fn(|n| {
                self.weights
                    .bytes
                    .as_slice()
                    .as_ptr()
                    .add((panel + n) * panel_bytes)
            });
            let w_scales: [*const f32; N] = std::array::from_fn(|n| {
                self.weights
                    .scales
                    .as_slice()
                    .as_ptr()
                    .add((panel + n) * num_groups * PANEL)
            });
            let x: [*const i8; M] =
                std::array::from_fn(|m| self.x.q.as_ptr().add((row + m) * self.x.padded_k));
            let mut partial = [[[P::splat(0.0); N]; M]; Layout::SHARDS_MAX];
            for (shard, groups) in layout.shards().enumerate() {
                let mut acc = [[P::splat(0.0); N]; M];
                for group in groups {
                    let dots = self.group::<M, N>(row, group, &w, &x);
                    for m in 0..M {
                        let x_scale = P::splat(self.x.scales[(row + m) * num_groups + group]);
                        for n in 0..N {
                            let w_scale = P::load(w_scales[n].add(group * PANEL));
                            let scale = P::mul(x_scale, w_scale);
                            acc[m][n] = P::fma(P::to_f32(dots[m][n]), scale, acc[m][n]);
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

impl<P: Panel> Q8Kernel<'_, P> {
    /// The exact dot products of one group.
    #[inline(always)]
    unsafe fn group<const M: usize, const N: usize>(
        &self,
        row: usize,
        group: usize,
        w: &[*const u8; N],
        x: &[*const i8; M],
    ) -> [[P::I; N]; M] {
        // SAFETY: as in `block`.
        unsafe {
            let quads = self.weights.layout.quads(group);
            let zero = P::splat_i32(0);
            let mut dots = [[zero; N]; M];
            if P::BIASED {
                for (m, dots) in dots.iter_mut().enumerate() {
                    let correction = self.x.corrections[(row + m) * self.x.num_groups + group];
                    *dots = [P::splat_i32(correction); N];
                }
            }
            let mut quad = quads.start;
            if M == 1 {
                // One token leaves one chain of dependent sums per panel; four chains hide its latency.
                let mut more = [[zero; N]; 3];
                while quad + 4 <= quads.end {
                    let at: [i32; 4] = std::array::from_fn(|u| {
                        x[0].add((quad + u) * 4).cast::<i32>().read_unaligned()
                    });
                    for n in 0..N {
                        dots[0][n] = P::dot4(dots[0][n], w[n].add(quad * 64), at[0]);
                        for u in 1..4 {
                            more[u - 1][n] =
                                P::dot4(more[u - 1][n], w[n].add((quad + u) * 64), at[u]);
                        }
                    }
                    quad += 4;
                }
                for n in 0..N {
                    let pair = P::add_i32(more[0][n], more[1][n]);
                    dots[0][n] = P::add_i32(P::add_i32(dots[0][n], more[2][n]), pair);
                }
            }
            while quad < quads.end {
                for m in 0..M {
                    let x = x[m].add(quad * 4).cast::<i32>().read_unaligned();
                    for n in 0..N {
                        dots[m][n] = P::dot4(dots[m][n], w[n].add(quad * 64), x);
                    }
                }
                quad += 1;
            }
            dots
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
    pub(super) unsafe fn avx2(w: &Q8Weights, x: &Activations, y: Output<f32>, block: Block) {
        // SAFETY: passed on from the caller.
        unsafe { block.run(&Q8Kernel::<Avx2Panel>::new(w, x, y)) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]
    pub(super) unsafe fn avx512(w: &Q8Weights, x: &Activations, y: Output<f32>, block: Block) {
        // SAFETY: passed on from the caller.
        unsafe { block.run(&Q8Kernel::<Avx512Panel>::new(w, x, y)) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn quantize_avx2(
        layout: &Layout,
        x: &[f32],
        q: &mut [i8],
        scales: &mut [f32],
        corrections: &mut [i32],
    ) {
        quantize_row(layout, x, q, scales, corrections);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
    pub(super) unsafe fn quantize_avx512(
        layout: &Layout,
        x: &[f32],
        q: &mut [i8],
        scales: &mut [f32],
        corrections: &mut [i32],
    ) {
        quantize_row(layout, x, q, scales, corrections);
    }
}
