//! The q8 rule: int8 weights and activations, exact int32 dot products inside a group, float32 across
//! groups in run order, shards joined by a balanced tree.
//!
//! Weights are stored as unsigned bytes (`q + 128`), in panels of 16 outputs:
//! `[panel][group][quad of k][16 outputs][4]`, so that one 64-byte load feeds 16 dot products of 4.

use super::layout::{Layout, tree_sum};
use super::memory::HugeBuffer;
use super::panel::{PANEL, Panel};
use super::tasks::{Output, ROWS, Shape, for_each_block};
use crate::{Isa, Pool};
use lockstep_numerics::groups::GROUP;
use lockstep_numerics::lanes::{self, Lanes, dispatch_at};
use lockstep_numerics::quantize::quantize_group;
use std::cell::RefCell;

/// Independent sums of one token's dot product. Integers add up to the same in any order.
const CHAINS: usize = 8;
/// How far ahead of a single token's product weights are asked for.
const PREFETCH_BYTES: usize = 4096;

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
    quads: usize,
    num_groups: usize,
    // Four activations to a word. Per block of up to `ROWS` tokens: [quad][token], so that a kernel finds
    // all it needs for one quad of weights side by side. Padding is zero.
    words: Vec<i32>,
    // (m, num_groups)
    scales: Vec<f32>,
    // (m, num_groups): -128 * the sum of q over the group, which undoes the weights' offset
    corrections: Vec<i32>,
}

impl Activations {
    fn quantize(&mut self, isa: Isa, pool: &Pool, layout: &Layout, x: &[f32], m: usize) {
        self.quads = layout.padded_k / 4;
        self.num_groups = layout.num_groups();
        self.words.resize(m * self.quads, 0);
        self.scales.resize(m * self.num_groups, 0.0);
        self.corrections.resize(m * self.num_groups, 0);
        let words = Output::new(&mut self.words, layout.padded_k / 4);
        let scales = Output::new(&mut self.scales, layout.num_groups());
        let corrections = Output::new(&mut self.corrections, layout.num_groups());
        pool.run(m.div_ceil(ROWS), &|block| {
            let rows = block * ROWS..((block + 1) * ROWS).min(m);
            // SAFETY: each block of rows belongs to exactly one task.
            let out = unsafe {
                Quantized {
                    words: words.rows(rows.clone()),
                    scales: scales.rows(rows.clone()),
                    corrections: corrections.rows(rows.clone()),
                }
            };
            let x = &x[rows.start * layout.k..rows.end * layout.k];
            dispatch_at(isa.level(), QuantizeRows { layout, x, out });
        });
    }
}

/// Where the quantised values of one block of tokens go.
struct Quantized<'a> {
    words: &'a mut [i32],
    scales: &'a mut [f32],
    corrections: &'a mut [i32],
}

struct QuantizeRows<'a> {
    layout: &'a Layout,
    x: &'a [f32],
    out: Quantized<'a>,
}

impl lanes::Kernel for QuantizeRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let QuantizeRows { layout, x, out } = self;
        let num_groups = layout.num_groups();
        let num_rows = x.len() / layout.k;
        for (row, x) in x.chunks_exact(layout.k).enumerate() {
            for group in 0..num_groups {
                let mut q = [0i8; GROUP];
                let x = &x[layout.group(group)];
                // A NaN or an infinity makes the scale NaN, and with it every output of this row.
                out.scales[row * num_groups + group] = quantize_group::<L>(x, &mut q[..x.len()]);
                let sum: i32 = q.iter().map(|&q| i32::from(q)).sum();
                out.corrections[row * num_groups + group] = -128 * sum;
                for (quad, q) in layout.quads(group).zip(q.chunks_exact(4)) {
                    let word = i32::from_le_bytes([q[0] as u8, q[1] as u8, q[2] as u8, q[3] as u8]);
                    out.words[quad * num_rows + row] = word;
                }
            }
        }
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
    const STREAMS: bool = true;

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
            let x = self.x.words.as_ptr().add(row * self.x.quads);
            let mut partial = [[[P::splat(0.0); N]; M]; Layout::SHARDS_MAX];
            for (shard, groups) in layout.shards().enumerate() {
                let mut acc = [[P::splat(0.0); N]; M];
                for group in groups {
                    let dots = self.group::<M, N>(row, group, &w, x);
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
        x: *const i32,
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
                // One token leaves one chain of dependent sums per panel; more chains hide its latency.
                let mut chains = [[zero; N]; CHAINS];
                while quad + CHAINS <= quads.end {
                    for (u, chains) in chains.iter_mut().enumerate() {
                        let x = *x.add(quad + u);
                        for n in 0..N {
                            let w = w[n].add((quad + u) * 64);
                            P::prefetch(w.wrapping_add(PREFETCH_BYTES));
                            chains[n] = P::dot4(chains[n], P::load_weights(w), x);
                        }
                    }
                    quad += CHAINS;
                }
                for chain in chains {
                    for n in 0..N {
                        dots[0][n] = P::add_i32(dots[0][n], chain[n]);
                    }
                }
            }
            while quad < quads.end {
                let w: [P::W; N] = std::array::from_fn(|n| {
                    let w = w[n].add(quad * 64);
                    P::prefetch(w.wrapping_add(PREFETCH_BYTES));
                    P::load_weights(w)
                });
                for (m, dots) in dots.iter_mut().enumerate() {
                    let x = *x.add(quad * M + m);
                    for n in 0..N {
                        dots[n] = P::dot4(dots[n], w[n], x);
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
}
