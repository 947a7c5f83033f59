//! Attention of a few queries over one block of 64 positions, and the ordered merge of blocks.

use crate::cache::BLOCK;
use lockstep_numerics::elementary::exp;
use lockstep_numerics::lanes::{Kernel, Lanes};
use lockstep_numerics::reduce::sum_lanes64;
use lockstep_step::planted;

/// The widest head that the kernels hold on their stack.
pub(crate) const HEAD_DIM_MAX: usize = 256;
/// Queries that share one walk over the blocks.
pub(crate) const TILE: usize = 16;
/// Queries that share the registers of one block.
const GROUP: usize = 4;

/// What has been merged so far, for each query of a tile.
pub(crate) struct Tile {
    max: [f32; TILE],
    sum: [f32; TILE],
    acc: [f32; TILE * HEAD_DIM_MAX],
}

impl Tile {
    /// Nothing merged yet.
    pub(crate) fn new() -> Tile {
        Tile {
            max: [f32::NEG_INFINITY; TILE],
            sum: [0.0; TILE],
            acc: [0.0; TILE * HEAD_DIM_MAX],
        }
    }

    /// Writes the attention of a query: `out[d] = acc[d] / sum`.
    pub(crate) fn finish(&self, query: usize, out: &mut [f32]) {
        let acc = &self.acc[query * HEAD_DIM_MAX..][..out.len()];
        for (out, acc) in out.iter_mut().zip(acc) {
            *out = acc / self.sum[query];
        }
    }
}

/// Merges one block into a tile.
///
/// ```text
/// s[j] = (sum over d of q[d] * key[d][j]) * scale     run order over d
/// m_b = max s[j]      p[j] = exp(s[j] - m_b)          l_b = lanes(64) over p
/// a_b[d] = sum over j of p[j] * value[j][d]           run order over j
/// ```
/// Only the first `valid` positions of the block exist for a query; the others are never read.
pub(crate) struct AttendBlock<'a> {
    /// (head_dim, 64)
    pub(crate) keys: &'a [f32],
    /// (64, head_dim)
    pub(crate) values: &'a [f32],
    pub(crate) scale: f32,
    /// Each `head_dim` long; at most [`TILE`].
    pub(crate) queries: &'a [&'a [f32]],
    /// For each query, how many positions of this block it sees: 0 to 64, ascending.
    pub(crate) valid: &'a [usize],
    /// How many positions at the beginning of this block no query sees but the last that it could see.
    pub(crate) skipped: usize,
    pub(crate) tile: &'a mut Tile,
}

impl Kernel for AttendBlock<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let num_queries = self.queries.len();
        assert!(num_queries <= TILE && self.valid.len() == num_queries);
        let mut first = self.valid.iter().take_while(|&&valid| valid == 0).count();
        while first < num_queries {
            let count = (num_queries - first).min(GROUP);
            match count {
                1 => self.group::<L, 1>(first),
                2 => self.group::<L, 2>(first),
                3 => self.group::<L, 3>(first),
                _ => self.group::<L, GROUP>(first),
            }
            first += count;
        }
    }
}

/// The scores or the probabilities of `Q` queries.
type Scores<const Q: usize> = [[f32; BLOCK]; Q];

impl AttendBlock<'_> {
    #[inline(always)]
    fn group<L: Lanes, const Q: usize>(&mut self, first: usize) {
        let mut scores: Scores<Q> = [[0.0; BLOCK]; Q];
        // Registers per query: with 4 queries they fill half of the 32 zmm or 16 ymm that there are.
        if L::WIDTH >= 16 {
            self.scores::<L, 4, Q>(first, &mut scores);
        } else {
            self.scores::<L, 2, Q>(first, &mut scores);
        }
        let (mut max, mut sum) = ([0.0; Q], [0.0; Q]);
        for q in 0..Q {
            let valid = self.valid[first + q];
            // What lies in the unused slots may be anything.
            if planted!(NanPlusMinusInf) {
                // Planted: deepbeepmeep/Wan2GP#1628.
                scores[q][valid..]
                    .iter_mut()
                    .for_each(|score| *score += f32::NEG_INFINITY);
            } else {
                scores[q][valid..].fill(f32::NEG_INFINITY);
            }
            // `valid` is at least 1 here.
            scores[q][..self.skipped.min(valid - 1)].fill(f32::NEG_INFINITY);
            (max[q], sum[q]) = softmax::<L>(&mut scores[q]);
        }
        let head_dim = self.queries[first].len();
        let mut acc = [[0.0; HEAD_DIM_MAX]; Q];
        // Where some positions are skipped, by each query as it may, nothing is shared.
        let shared = if self.skipped == 0 {
            self.valid[first]
        } else {
            0
        };
        self.weigh::<L, Q>(&scores, 0..shared, &mut acc);
        for q in 0..Q {
            // The later queries of a group see a few positions more.
            let (scores, acc) = (&scores[q..=q], &mut acc[q..=q]);
            let (Ok(scores), Ok(acc)) = (scores.try_into(), acc.try_into()) else {
                unreachable!("slices of length one")
            };
            let valid = self.valid[first + q];
            let from = shared.max(self.skipped.min(valid - 1));
            self.weigh::<L, 1>(scores, from..valid, acc);
        }
        for q in 0..Q {
            self.merge::<L>(first + q, max[q], sum[q], &acc[q][..head_dim]);
        }
    }

    #[inline(always)]
    fn scores<L: Lanes, const R: usize, const Q: usize>(
        &self,
        first: usize,
        scores: &mut Scores<Q>,
    ) {
        let head_dim = self.queries[first].len();
        let queries: [&[f32]; Q] = std::array::from_fn(|q| &self.queries[first + q][..head_dim]);
        assert_eq!(self.keys.len(), head_dim * BLOCK, "keys of the block");
        for lane in (0..BLOCK).step_by(R * L::WIDTH) {
            let mut acc = [[L::splat(0.0); R]; Q];
            for (dim, keys) in self.keys.chunks_exact(BLOCK).enumerate() {
                let keys = &keys[lane..lane + R * L::WIDTH];
                let keys: [L; R] = std::array::from_fn(|r| L::load(&keys[r * L::WIDTH..]));
                for q in 0..Q {
                    let query = L::splat(queries[q][dim]);
                    for r in 0..R {
                        acc[q][r] = query.fma(keys[r], acc[q][r]);
                    }
                }
            }
            for q in 0..Q {
                let to = &mut scores[q][lane..lane + R * L::WIDTH];
                for r in 0..R {
                    acc[q][r]
                        .mul(L::splat(self.scale))
                        .store(&mut to[r * L::WIDTH..]);
                }
            }
        }
    }

    /// Adds `p[j] * value[j]` for the positions of a range to `acc`, in run order.
    #[inline(always)]
    fn weigh<L: Lanes, const Q: usize>(
        &self,
        p: &Scores<Q>,
        positions: std::ops::Range<usize>,
        acc: &mut [[f32; HEAD_DIM_MAX]; Q],
    ) {
        if positions.is_empty() {
            return;
        }
        let head_dim = self.values.len() / BLOCK;
        let mut dim = 0;
        if L::WIDTH >= 16 {
            while dim + 4 * L::WIDTH <= head_dim {
                self.weigh_dims::<L, 4, Q>(p, positions.clone(), dim, acc);
                dim += 4 * L::WIDTH;
            }
        }
        while dim + 2 * L::WIDTH <= head_dim {
            self.weigh_dims::<L, 2, Q>(p, positions.clone(), dim, acc);
            dim += 2 * L::WIDTH;
        }
        while dim + L::WIDTH <= head_dim {
            self.weigh_dims::<L, 1, Q>(p, positions.clone(), dim, acc);
            dim += L::WIDTH;
        }
        while dim < head_dim {
            self.weigh_dims::<f32, 1, Q>(p, positions.clone(), dim, acc);
            dim += 1;
        }
    }

    #[inline(always)]
    fn weigh_dims<L: Lanes, const R: usize, const Q: usize>(
        &self,
        p: &Scores<Q>,
        positions: std::ops::Range<usize>,
        dim: usize,
        acc: &mut [[f32; HEAD_DIM_MAX]; Q],
    ) {
        let head_dim = self.values.len() / BLOCK;
        let mut sums: [[L; R]; Q] = std::array::from_fn(|q| {
            std::array::from_fn(|r| L::load(&acc[q][dim + r * L::WIDTH..]))
        });
        let rows = self.values.chunks_exact(head_dim).enumerate();
        for (j, row) in rows.take(positions.end).skip(positions.start) {
            let row = &row[dim..dim + R * L::WIDTH];
            let row: [L; R] = std::array::from_fn(|r| L::load(&row[r * L::WIDTH..]));
            for q in 0..Q {
                let p = L::splat(p[q][j]);
                for r in 0..R {
                    sums[q][r] = p.fma(row[r], sums[q][r]);
                }
            }
        }
        for q in 0..Q {
            for r in 0..R {
                sums[q][r].store(&mut acc[q][dim + r * L::WIDTH..]);
            }
        }
    }

    /// `m' = max(m, m_b)`, and both sides scaled to it.
    #[inline(always)]
    fn merge<L: Lanes>(&mut self, query: usize, max: f32, sum: f32, acc: &[f32]) {
        let tile = &mut *self.tile;
        let old = tile.max[query];
        let new = Lanes::max(old, max);
        let (e, e_b) = (exp(old - new), exp(max - new));
        tile.max[query] = new;
        tile.sum[query] = tile.sum[query].mul_add(e, sum * e_b);
        let to = &mut tile.acc[query * HEAD_DIM_MAX..][..acc.len()];
        let whole = acc.len() - acc.len() % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let block = L::load(&acc[i..]).mul(L::splat(e_b));
            L::load(&to[i..])
                .fma(L::splat(e), block)
                .store(&mut to[i..]);
        }
        for i in whole..acc.len() {
            to[i] = to[i].mul_add(e, acc[i] * e_b);
        }
    }
}

/// Turns scores into `exp(s - max)`; returns the maximum and the sum.
#[inline(always)]
fn softmax<L: Lanes>(scores: &mut [f32; BLOCK]) -> (f32, f32) {
    let mut wide = L::splat(f32::NEG_INFINITY);
    for chunk in scores.chunks_exact(L::WIDTH) {
        wide = L::load(chunk).max(wide);
    }
    let mut lanes = [f32::NEG_INFINITY; BLOCK];
    wide.store(&mut lanes);
    let max = lanes[..L::WIDTH]
        .iter()
        .fold(f32::NEG_INFINITY, |max, &lane| Lanes::max(lane, max));
    for chunk in scores.chunks_exact_mut(L::WIDTH) {
        exp(L::load(chunk).sub(L::splat(max))).store(chunk);
    }
    (max, sum_lanes64::<L>(scores))
}
