//! How the reduction axis of a linear layer is cut: groups of 128, and shards of whole groups.
//!
//! Must never depend on the number of ranks or threads: shards are a property of the length alone.
//!
//! A partial last group belongs to the last shard: k = 576 has 4 whole groups and half a one, hence
//! 4 shards of 1, 1, 1 and 2 groups.

use core::ops::Range;

/// Length of a group.
pub const GROUP: usize = 128;
/// The most shards that a reduction is cut into, hence the highest tensor-parallel degree.
pub const SHARDS_MAX: usize = 8;

/// Number of groups of a reduction of length `k`, the partial one included.
pub const fn groups(k: usize) -> usize {
    k.div_ceil(GROUP)
}

/// The indices of group `g` of a reduction of length `k`.
pub fn group_range(k: usize, g: usize) -> Range<usize> {
    g * GROUP..k.min((g + 1) * GROUP)
}

/// Number of shards: the largest power of two <= 8 that divides the number of whole groups, and 1
/// where there is no whole group.
pub const fn shards(k: usize) -> usize {
    let whole = k / GROUP;
    if whole == 0 {
        return 1;
    }
    let mut shards = SHARDS_MAX;
    while !whole.is_multiple_of(shards) {
        shards /= 2;
    }
    shards
}

/// The groups of shard `s` of a reduction of length `k`. The last shard has the partial group too.
pub fn shard_groups(k: usize, s: usize) -> Range<usize> {
    let n = shards(k);
    assert!(
        s < n,
        "shard {s} of a reduction of length {k}, which has {n}"
    );
    let each = k / GROUP / n;
    s * each..if s + 1 == n {
        groups(k)
    } else {
        (s + 1) * each
    }
}

/// Sums a power of two of values by the balanced binary tree of neighbours: `(0+1) + (2+3)`.
///
/// Neighbours are paired, so that a rank that owns consecutive shards sums a whole subtree.
#[inline(always)]
pub fn tree(values: &[f32]) -> f32 {
    let n = values.len();
    assert!(
        n.is_power_of_two() && n <= SHARDS_MAX,
        "a tree of {n} shards"
    );
    let mut sums = [0.0f32; SHARDS_MAX];
    sums[..n].copy_from_slice(values);
    let mut n = n;
    while n > 1 {
        n /= 2;
        for i in 0..n {
            sums[i] = sums[2 * i] + sums[2 * i + 1];
        }
    }
    sums[0]
}
