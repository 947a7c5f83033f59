//! How a matrix is cut: groups of 128 along the reduction, shards of whole groups, panels of 16 outputs.

use super::panel::{PANEL, Panel};
use lockstep_numerics::groups::{self, group_range, shard_groups};
use std::ops::Range;

/// The cut of one matrix of `n` outputs and `k` inputs.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) n: usize,
    pub(super) k: usize,
    /// `k` up to a multiple of four, so that a quad never straddles the end.
    pub(super) padded_k: usize,
    shards: Vec<Range<usize>>,
}

impl Layout {
    pub(super) const SHARDS_MAX: usize = groups::SHARDS_MAX;

    /// A row-parallel matrix is cut into the shards of its `k`, any other is one shard.
    pub(super) fn new(n: usize, k: usize, row_parallel: bool) -> Layout {
        let shards = if row_parallel {
            (0..groups::shards(k))
                .map(|shard| shard_groups(k, shard))
                .collect()
        } else {
            std::iter::once(0..groups::groups(k)).collect()
        };
        Layout {
            n,
            k,
            padded_k: k.next_multiple_of(4),
            shards,
        }
    }

    pub(super) fn num_panels(&self) -> usize {
        self.n.div_ceil(PANEL)
    }

    pub(super) fn num_groups(&self) -> usize {
        groups::groups(self.k)
    }

    pub(super) fn num_shards(&self) -> usize {
        self.shards.len()
    }

    /// The groups of each shard, in order.
    pub(super) fn shards(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.shards.iter().cloned()
    }

    /// The inputs of a group.
    pub(super) fn group(&self, group: usize) -> Range<usize> {
        group_range(self.k, group)
    }

    /// The quads of inputs of a group.
    pub(super) fn quads(&self, group: usize) -> Range<usize> {
        let range = self.group(group);
        range.start / 4..range.end.div_ceil(4)
    }
}

/// The sums of each shard, for a block of `M` tokens by `N` panels.
pub(super) type Partial<P, const M: usize, const N: usize> =
    [[[<P as Panel>::F; N]; M]; Layout::SHARDS_MAX];

/// Balanced binary tree over the first `num_shards` partial sums, a power of two.
#[inline(always)]
pub(super) unsafe fn tree_sum<P: Panel, const M: usize, const N: usize>(
    partial: &mut Partial<P, M, N>,
    num_shards: usize,
) -> [[P::F; N]; M] {
    let mut stride = 1;
    while stride < num_shards {
        let mut left = 0;
        while left < num_shards {
            let right = partial[left + stride];
            for (left, right) in partial[left].iter_mut().zip(right) {
                for (left, right) in left.iter_mut().zip(right) {
                    // SAFETY: the caller has the instruction set.
                    *left = unsafe { P::add(*left, right) };
                }
            }
            left += 2 * stride;
        }
        stride *= 2;
    }
    partial[0]
}
