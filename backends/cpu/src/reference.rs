//! The definition of every operation besides linear layers (`linear/reference.rs` has those): plain scalar
//! loops, one output at a time, to be read against NUMERICS.md. Kernels must give the same bits. Nothing
//! here is fast, and nothing that serves calls it.

use crate::cache::BLOCK;
use lockstep_numerics::elementary::{exp, rsqrt, sigmoid, silu, softplus};

/// Sum of terms in lanes(64) order: 64 accumulators, then halving.
fn lanes64(n: usize, term: impl Fn(f32, usize) -> f32) -> f32 {
    let mut lanes = [0.0; 64];
    for i in 0..n {
        lanes[i % 64] = term(lanes[i % 64], i);
    }
    for half in [32, 16, 8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

fn sum_squares(x: &[f32]) -> f32 {
    lanes64(x.len(), |sum, i| x[i].mul_add(x[i], sum))
}

/// `x * (1 / sqrt(mean of squares + eps)) * weight`. Zero-centred norms pass `1 + w` as their weight.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let inverse = rsqrt(sum_squares(x) / x.len() as f32 + eps);
    x.iter().zip(weight).map(|(x, w)| x * inverse * w).collect()
}

/// `rms_norm(x) * silu(gate)`: the output norm of a delta net head.
pub fn gated_rms_norm(x: &[f32], weight: &[f32], gate: &[f32], eps: f32) -> Vec<f32> {
    let normed = rms_norm(x, weight, eps);
    normed.iter().zip(gate).map(|(x, &g)| x * silu(g)).collect()
}

/// `x * (1 / sqrt(sum of squares + eps)) * scale`: queries and keys of a delta net.
pub fn l2_norm(x: &[f32], eps: f32, scale: f32) -> Vec<f32> {
    let inverse = rsqrt(sum_squares(x) + eps);
    x.iter().map(|x| x * inverse * scale).collect()
}

/// Rotates element `i` with element `i + cos.len()`; later elements stay.
pub fn rotate(head: &[f32], cos: &[f32], sin: &[f32]) -> Vec<f32> {
    let pairs = cos.len();
    let mut out = head.to_vec();
    for i in 0..pairs {
        let (x1, x2) = (head[i], head[i + pairs]);
        out[i] = x1.mul_add(cos[i], -(x2 * sin[i]));
        out[i + pairs] = x2.mul_add(cos[i], x1 * sin[i]);
    }
    out
}

/// `silu(gate) * up`: inside an MLP.
pub fn silu_mul(gate: &[f32], up: &[f32]) -> Vec<f32> {
    gate.iter().zip(up).map(|(&g, u)| silu(g) * u).collect()
}

/// `x * sigmoid(gate)`: the output gate of Qwen3.5's attention.
pub fn sigmoid_mul(x: &[f32], gate: &[f32]) -> Vec<f32> {
    x.iter().zip(gate).map(|(x, &g)| x * sigmoid(g)).collect()
}

/// Attention of one query over the first `num_positions` keys and values, each (positions, head_dim), of
/// which the first `num_skipped` count for nothing, unless there is none but the last of them.
pub fn attention(
    query: &[f32],
    keys: &[Vec<f32>],
    values: &[Vec<f32>],
    num_positions: usize,
    num_skipped: usize,
    scale: f32,
) -> Vec<f32> {
    let (head_dim, num_skipped) = (query.len(), num_skipped.min(num_positions - 1));
    let (mut max, mut sum, mut acc) = (f32::NEG_INFINITY, 0.0f32, vec![0.0f32; head_dim]);
    for first in (0..num_positions).step_by(BLOCK) {
        let positions = first..num_positions.min(first + BLOCK);
        let scores: Vec<f32> = positions
            .clone()
            .map(|j| {
                if j < num_skipped {
                    return f32::NEG_INFINITY;
                }
                let dot = (0..head_dim).fold(0.0f32, |sum, d| query[d].mul_add(keys[j][d], sum));
                dot * scale
            })
            .collect();
        let block_max = scores
            .iter()
            .fold(f32::NEG_INFINITY, |m, &s| if s > m { s } else { m });
        let p: Vec<f32> = scores.iter().map(|s| exp(s - block_max)).collect();
        let block_sum = lanes64(p.len(), |sum, j| sum + p[j]);
        let new_max = if max > block_max { max } else { block_max };
        let (e, e_b) = (exp(max - new_max), exp(block_max - new_max));
        sum = sum.mul_add(e, block_sum * e_b);
        for (d, acc) in acc.iter_mut().enumerate() {
            let terms = positions.clone().zip(&p).filter(|(j, _)| *j >= num_skipped);
            let block = terms.fold(0.0f32, |sum, (j, p)| p.mul_add(values[j][d], sum));
            *acc = acc.mul_add(e, block * e_b);
        }
        max = new_max;
    }
    acc.iter().map(|acc| acc / sum).collect()
}

/// One token of the causal convolution: `inputs` and `weights` are (taps, channels), oldest first.
pub fn conv_silu(inputs: &[&[f32]], weights: &[f32]) -> Vec<f32> {
    let num_channels = inputs[0].len();
    (0..num_channels)
        .map(|c| {
            let taps = inputs.iter().enumerate();
            silu(taps.fold(0.0f32, |sum, (tap, input)| {
                input[c].mul_add(weights[tap * num_channels + c], sum)
            }))
        })
        .collect()
}

/// Decay and update strength of one head: `rate` is `exp(A_log)`, `bias` is `dt_bias`.
pub fn delta_gates(a: f32, b: f32, rate: f32, bias: f32) -> (f32, f32) {
    (exp(-(rate * softplus(a + bias))), sigmoid(b))
}

/// One token of one delta net head; `state` is (key_dim, value_dim). Returns the head's output.
pub fn delta_step(
    state: &mut [f32],
    query: &[f32],
    key: &[f32],
    value: &[f32],
    decay: f32,
    beta: f32,
) -> Vec<f32> {
    let (num_keys, num_values) = (key.len(), value.len());
    let mut out = vec![0.0; num_values];
    for v in 0..num_values {
        let mut memory = 0.0f32;
        for k in 0..num_keys {
            state[k * num_values + v] *= decay;
            memory = state[k * num_values + v].mul_add(key[k], memory);
        }
        let delta = (value[v] - memory) * beta;
        let mut sum = 0.0f32;
        for k in 0..num_keys {
            let s = key[k].mul_add(delta, state[k * num_values + v]);
            state[k * num_values + v] = s;
            sum = s.mul_add(query[k], sum);
        }
        out[v] = sum;
    }
    out
}
