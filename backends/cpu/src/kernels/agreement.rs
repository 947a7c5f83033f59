//! Each kernel against `reference.rs`, bit for bit, on every instruction set of this machine: what property
//! tests and fuzzing assert. It must never be called by what computes.

use super::*;
use crate::cache::BLOCK;
use crate::reference;

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn same(kernel: impl Fn(Isa) -> Vec<f32>, reference: Vec<f32>) {
    for isa in Isa::available() {
        assert_eq!(bits(&kernel(isa)), bits(&reference), "{isa}");
    }
}

/// Norms of one row, its weights and its gate, all of one length.
pub fn norms(x: &[f32], weight: &[f32], gate: &[f32]) {
    let eps = 1e-6;
    let run_rms = |isa| {
        let mut out = vec![0.0; x.len()];
        let out_of = &mut out;
        let rms = RmsNorm {
            x,
            weight,
            eps,
            out: out_of,
        };
        assert!(run(isa, rms));
        out
    };
    same(run_rms, reference::rms_norm(x, weight, eps));
    let run_gated = |isa| {
        let mut out = vec![0.0; x.len()];
        let gated = GatedRmsNorm {
            x,
            weight,
            gate,
            eps,
            out: &mut out,
        };
        run(isa, gated);
        out
    };
    same(run_gated, reference::gated_rms_norm(x, weight, gate, eps));
    let run_l2 = |isa| {
        let mut out = x.to_vec();
        let scale = 0.125;
        run(
            isa,
            L2Norm {
                x: &mut out,
                eps,
                scale,
            },
        );
        out
    };
    same(run_l2, reference::l2_norm(x, eps, 0.125));
}

/// Products with gates, of two rows of one length.
pub fn gated_products(x: &[f32], y: &[f32]) {
    let run_silu = |isa| {
        let mut out = vec![0.0; x.len()];
        let (gate, up) = (x, y);
        run(
            isa,
            SiluMul {
                gate,
                up,
                out: &mut out,
            },
        );
        out
    };
    same(run_silu, reference::silu_mul(x, y));
    let run_sigmoid = |isa| {
        let mut out = x.to_vec();
        run(
            isa,
            SigmoidMul {
                x: &mut out,
                gate: y,
            },
        );
        out
    };
    same(run_sigmoid, reference::sigmoid_mul(x, y));
}

/// The rotation of a head by tables of as many pairs as they are long.
pub fn rotation(head: &[f32], cos: &[f32], sin: &[f32]) {
    let run_rotate = |isa| {
        let mut out = head.to_vec();
        let head = &mut out;
        run(isa, Rotate { head, cos, sin });
        out
    };
    same(run_rotate, reference::rotate(head, cos, sin));
}

/// A convolution over so many taps, 1 to [`TAPS_MAX`]: `x` holds (taps, n) inputs and as many weights.
pub fn convolution(taps: usize, n: usize, x: &[f32]) {
    let (inputs, weights) = x.split_at(taps * n);
    let inputs: Vec<&[f32]> = inputs.chunks_exact(n).collect();
    let run_conv = |isa| {
        let mut out = vec![0.0; n];
        let conv = ConvSilu {
            inputs: &inputs,
            weights,
            out: &mut out,
        };
        run(isa, conv);
        out
    };
    same(run_conv, reference::conv_silu(&inputs, weights));
}

/// The most taps of a convolution.
pub const TAPS_MAX: usize = CONV_TAPS_MAX;

/// The gates of a delta rule: `x` is four rows of one length.
pub fn delta_gates(x: &[f32]) {
    let n = x.len() / 4;
    let (a, b, rate, bias) = (&x[..n], &x[n..2 * n], &x[2 * n..3 * n], &x[3 * n..4 * n]);
    let rate: Vec<f32> = rate.iter().map(|x| x.abs()).collect();
    let pairs: Vec<(f32, f32)> = (0..n)
        .map(|i| reference::delta_gates(a[i], b[i], rate[i], bias[i]))
        .collect();
    let run_gates = |isa| {
        let mut gates = [b, a].concat();
        let rate = &rate;
        let kernel = DeltaGates {
            gates: &mut gates,
            rate,
            bias,
        };
        run(isa, kernel);
        gates
    };
    let betas = pairs.iter().map(|pair| pair.1);
    same(
        run_gates,
        betas.chain(pairs.iter().map(|pair| pair.0)).collect(),
    );
}

/// One step of a delta rule: `x` is a state of (keys, n), a query and a key of `keys`, and a value of `n`.
pub fn delta_step(keys: usize, n: usize, x: &[f32]) {
    let (state, rest) = x.split_at(keys * n);
    let (query, rest) = rest.split_at(keys);
    let (key, value) = rest.split_at(keys);
    let (decay, beta) = (0.75, 0.3);
    let mut after = state.to_vec();
    let mut wanted = reference::delta_step(&mut after, query, key, value, decay, beta);
    wanted.extend(after);
    let run_step = |isa, in_place| {
        let (mut after, mut out) = (vec![f32::NAN; state.len()], vec![0.0; n]);
        if in_place {
            after.copy_from_slice(state);
        }
        let step = DeltaStep {
            from: (!in_place).then_some(state),
            state: &mut after,
            query,
            key,
            value,
            decay,
            beta,
            out: &mut out,
        };
        run(isa, step);
        out.extend(after);
        out
    };
    same(|isa| run_step(isa, true), wanted.clone());
    same(|isa| run_step(isa, false), wanted);
}

/// The last queries of a sequence, all of one head, over blocks whose unused slots hold NaN. The first
/// position may be one that only its own query sees.
pub fn attention(
    head_dim: usize,
    num_positions: usize,
    (num_queries, skipped): (usize, usize),
    seed: u64,
) {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 22) as f32 - 2.0
    };
    let mut rows = |n: usize| -> Vec<Vec<f32>> {
        (0..n)
            .map(|_| (0..head_dim).map(|_| next()).collect())
            .collect()
    };
    let (keys, values) = (rows(num_positions), rows(num_positions));
    let queries = rows(num_queries);
    let num_blocks = num_positions.div_ceil(BLOCK);
    let mut key_blocks = vec![vec![f32::NAN; head_dim * BLOCK]; num_blocks];
    let mut value_blocks = key_blocks.clone();
    // What nobody sees stays NaN.
    let unseen = skipped.min(num_positions - num_queries);
    for pos in unseen..num_positions {
        let (block, at) = (pos / BLOCK, pos % BLOCK);
        for dim in 0..head_dim {
            key_blocks[block][dim * BLOCK + at] = keys[pos][dim];
            value_blocks[block][at * head_dim + dim] = values[pos][dim];
        }
    }
    let scale = 1.0 / (head_dim as f32).sqrt();
    let seen = |query: usize| num_positions - num_queries + query + 1;
    let wanted = queries.iter().enumerate().flat_map(|(idx, query)| {
        reference::attention(query, &keys, &values, seen(idx), skipped, scale)
    });
    let slices: Vec<&[f32]> = queries.iter().map(|query| &query[..]).collect();
    let run_attention = |isa| {
        let mut tile = Tile::new();
        for block in 0..num_blocks {
            let valid: Vec<usize> = (0..num_queries)
                .map(|query| seen(query).saturating_sub(block * BLOCK).min(BLOCK))
                .collect();
            let attend = AttendBlock {
                keys: &key_blocks[block],
                values: &value_blocks[block],
                scale,
                queries: &slices,
                valid: &valid,
                skipped: if block == 0 { skipped } else { 0 },
                tile: &mut tile,
            };
            run(isa, attend);
        }
        let mut out = vec![0.0; num_queries * head_dim];
        for (query, out) in out.chunks_exact_mut(head_dim).enumerate() {
            tile.finish(query, out);
        }
        out
    };
    same(run_attention, wanted.collect());
}
