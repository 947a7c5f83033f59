//! Kernels against `reference.rs`, bit for bit, on every instruction set of this machine and at odd sizes.

use super::*;
use crate::cache::BLOCK;
use crate::reference;
use proptest::collection::vec;
use proptest::prelude::*;

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

fn same(kernel: impl Fn(Isa) -> Vec<f32>, reference: Vec<f32>) {
    for isa in Isa::available() {
        assert_eq!(bits(&kernel(isa)), bits(&reference), "{isa}");
    }
}

/// Values of several magnitudes.
fn values(len: usize) -> impl Strategy<Value = Vec<f32>> {
    vec(prop_oneof![-2.0f32..2.0, -30.0f32..30.0, Just(0.0)], len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn norms((x, w, z) in (1usize..200).prop_flat_map(|n| (values(n), values(n), values(n)))) {
        let eps = 1e-6;
        let run_rms = |isa| {
            let mut out = vec![0.0; x.len()];
            assert!(run(isa, RmsNorm { x: &x, weight: &w, eps, out: &mut out }));
            out
        };
        same(run_rms, reference::rms_norm(&x, &w, eps));
        let run_gated = |isa| {
            let mut out = vec![0.0; x.len()];
            run(isa, GatedRmsNorm { x: &x, weight: &w, gate: &z, eps, out: &mut out });
            out
        };
        same(run_gated, reference::gated_rms_norm(&x, &w, &z, eps));
        let run_l2 = |isa| {
            let mut out = x.clone();
            run(isa, L2Norm { x: &mut out, eps, scale: 0.125 });
            out
        };
        same(run_l2, reference::l2_norm(&x, eps, 0.125));
    }

    #[test]
    fn elementwise((x, y) in (1usize..200).prop_flat_map(|n| (values(n), values(n)))) {
        let run_silu = |isa| {
            let mut out = vec![0.0; x.len()];
            run(isa, SiluMul { gate: &x, up: &y, out: &mut out });
            out
        };
        same(run_silu, reference::silu_mul(&x, &y));
        let run_sigmoid = |isa| {
            let mut out = x.clone();
            run(isa, SigmoidMul { x: &mut out, gate: &y });
            out
        };
        same(run_sigmoid, reference::sigmoid_mul(&x, &y));
    }

    #[test]
    fn rotation((pairs, rest, x) in (1usize..40, 0usize..40)
        .prop_flat_map(|(pairs, rest)| (Just(pairs), Just(rest), values(4 * pairs + rest))))
    {
        let (head, table) = x.split_at(2 * pairs + rest);
        let (cos, sin) = table.split_at(pairs);
        let run_rotate = |isa| {
            let mut out = head.to_vec();
            run(isa, Rotate { head: &mut out, cos, sin });
            out
        };
        same(run_rotate, reference::rotate(head, cos, sin));
    }

    #[test]
    fn convolution((taps, n, x) in (1usize..=CONV_TAPS_MAX, 1usize..100)
        .prop_flat_map(|(taps, n)| (Just(taps), Just(n), values(2 * taps * n))))
    {
        let (inputs, weights) = x.split_at(taps * n);
        let inputs: Vec<&[f32]> = inputs.chunks_exact(n).collect();
        let run_conv = |isa| {
            let mut out = vec![0.0; n];
            run(isa, ConvSilu { inputs: &inputs, weights, out: &mut out });
            out
        };
        same(run_conv, reference::conv_silu(&inputs, weights));
    }

    #[test]
    fn gates(x in (1usize..40).prop_flat_map(|n| values(4 * n))) {
        let n = x.len() / 4;
        let (a, b, rate, bias) = (&x[..n], &x[n..2 * n], &x[2 * n..3 * n], &x[3 * n..]);
        let rate: Vec<f32> = rate.iter().map(|x| x.abs()).collect();
        let pairs: Vec<(f32, f32)> = (0..n)
            .map(|i| reference::delta_gates(a[i], b[i], rate[i], bias[i]))
            .collect();
        let run_gates = |isa| {
            let mut gates = [b, a].concat();
            run(isa, DeltaGates { gates: &mut gates, rate: &rate, bias });
            gates
        };
        let betas = pairs.iter().map(|pair| pair.1);
        same(run_gates, betas.chain(pairs.iter().map(|pair| pair.0)).collect());
    }

    #[test]
    fn delta_step((keys, n, x) in (1usize..40, 1usize..150)
        .prop_flat_map(|(keys, n)| (Just(keys), Just(n), values(keys * n + 2 * keys + n))))
    {
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
            let from = (!in_place).then_some(state);
            let step = DeltaStep {
                from, state: &mut after, query, key, value, decay, beta, out: &mut out,
            };
            run(isa, step);
            out.extend(after);
            out
        };
        same(|isa| run_step(isa, true), wanted.clone());
        same(|isa| run_step(isa, false), wanted);
    }

    #[test]
    fn attention((head_dim, num_positions, num_queries, skipped, seed) in
        (1usize..70, 1usize..200, 1usize..=7, 0usize..2, any::<u64>()))
    {
        let num_queries = num_queries.min(num_positions);
        check_attention(head_dim, num_positions, (num_queries, skipped), seed);
    }
}

/// The last queries of a sequence, all of one head, over blocks whose unused slots hold NaN. The first
/// position may be one that only its own query sees.
fn check_attention(
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

#[test]
fn finiteness_is_seen_anywhere() {
    for isa in Isa::available() {
        for len in [1, 15, 16, 17, 100] {
            let mut x = vec![1.0; len];
            assert!(run(isa, AllFinite { x: &x }));
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                x[len - 1] = value;
                assert!(!run(isa, AllFinite { x: &x }), "{isa}: {value} at {len}");
            }
        }
    }
}

#[test]
fn a_sum_of_squares_that_overflows_is_told() {
    let mut out = [0.0; 4];
    let (x, weight) = ([1e30; 4], [1.0; 4]);
    let norm = RmsNorm {
        x: &x,
        weight: &weight,
        eps: 1e-6,
        out: &mut out,
    };
    assert!(!run(Isa::detect(), norm));
}
