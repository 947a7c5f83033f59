//! The definition of both rules, scalar, one output at a time, to be read against NUMERICS.md.

use lockstep_numerics::groups::{GROUP, shard_groups};
use lockstep_numerics::quantize::quantize_group;

/// One output of the f32 rule: `x` and `w` of the same length, `shards` as the matrix was packed.
pub fn dot_f32(x: &[f32], w: &[f32], shards: usize) -> f32 {
    sum_shards(x.len(), shards, |group, acc| {
        let range = group * GROUP..((group + 1) * GROUP).min(x.len());
        let sum = range.fold(0.0f32, |sum, k| x[k].mul_add(w[k], sum));
        acc + sum
    })
}

/// One output of the q8 rule, from unquantised inputs.
pub fn dot_q8(x: &[f32], w: &[f32], shards: usize) -> f32 {
    let (qx, x_scales) = quantize_row(x);
    let (qw, w_scales) = quantize_row(w);
    sum_shards(x.len(), shards, |group, acc| {
        let range = group * GROUP..((group + 1) * GROUP).min(x.len());
        let dot: i32 = range.map(|k| i32::from(qx[k]) * i32::from(qw[k])).sum();
        (dot as f32).mul_add(x_scales[group] * w_scales[group], acc)
    })
}

/// Quantises a row by groups: `len` integers, one scale per group.
pub fn quantize_row(x: &[f32]) -> (Vec<i8>, Vec<f32>) {
    let mut q = vec![0; x.len()];
    let scales = x
        .chunks(GROUP)
        .zip(q.chunks_mut(GROUP))
        .map(|(x, q)| quantize_group(x, q))
        .collect();
    (q, scales)
}

/// Run order over the groups of a shard, balanced binary tree over shards.
fn sum_shards(k: usize, shards: usize, add_group: impl Fn(usize, f32) -> f32) -> f32 {
    let mut sums: Vec<f32> = shard_groups(k, shards)
        .into_iter()
        .map(|groups| groups.fold(0.0, |acc, group| add_group(group, acc)))
        .collect();
    while sums.len() > 1 {
        sums = sums.chunks(2).map(|pair| pair[0] + pair[1]).collect();
    }
    sums[0]
}
