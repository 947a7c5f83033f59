//! The definition of both rules, scalar, one output at a time, to be read against NUMERICS.md.

use lockstep_numerics::groups::{self, group_range, shard_groups, tree};
use lockstep_numerics::quantize::quantize_group;

/// One output of the f32 rule: `x` and `w` of the same length; `row_parallel` as the matrix was packed.
pub fn dot_f32(x: &[f32], w: &[f32], row_parallel: bool) -> f32 {
    sum_shards(x.len(), row_parallel, |group, acc| {
        let range = group_range(x.len(), group);
        let sum = range.fold(0.0f32, |sum, k| x[k].mul_add(w[k], sum));
        acc + sum
    })
}

/// One output of the q8 rule, from unquantised inputs.
pub fn dot_q8(x: &[f32], w: &[f32], row_parallel: bool) -> f32 {
    let (qx, x_scales) = quantize_row(x);
    let (qw, w_scales) = quantize_row(w);
    sum_shards(x.len(), row_parallel, |group, acc| {
        let range = group_range(x.len(), group);
        let dot: i32 = range.map(|k| i32::from(qx[k]) * i32::from(qw[k])).sum();
        (dot as f32).mul_add(x_scales[group] * w_scales[group], acc)
    })
}

/// Quantises a row by groups: `len` integers, one scale per group.
pub fn quantize_row(x: &[f32]) -> (Vec<i8>, Vec<f32>) {
    let mut q = vec![0; x.len()];
    let pairs = x.chunks(groups::GROUP).zip(q.chunks_mut(groups::GROUP));
    let scales = pairs.map(|(x, q)| quantize_group::<f32>(x, q)).collect();
    (q, scales)
}

/// Run order over the groups of a shard, balanced binary tree over shards.
fn sum_shards(k: usize, row_parallel: bool, add_group: impl Fn(usize, f32) -> f32) -> f32 {
    if !row_parallel {
        return (0..groups::groups(k)).fold(0.0, |acc, group| add_group(group, acc));
    }
    let sums: Vec<f32> = (0..groups::shards(k))
        .map(|shard| shard_groups(k, shard).fold(0.0, |acc, group| add_group(group, acc)))
        .collect();
    tree(&sums)
}
