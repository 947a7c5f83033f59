//! Properties of reductions, groups, quantisation, conversions and rotary tables.

use proptest::prelude::*;

use crate::groups::{GROUP, group_range, groups, shard_groups, shards, tree};
use crate::narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16};
use crate::quantize::{NotFinite, quantize_row, quantize_weights};
use crate::reduce::{Term, dot_run, log_sum_exp, sum};
use crate::rotary::{Rotary, RotaryScaling};

/// lanes(64) as NUMERICS.md words it, one lane after the other.
fn lanes64_by_the_book(terms: impl Fn(f32, usize) -> f32, n: usize) -> f32 {
    let mut lanes = [0.0f32; 64];
    for (l, lane) in lanes.iter_mut().enumerate() {
        for i in (l..n).step_by(64) {
            *lane = terms(*lane, i);
        }
    }
    for half in [32, 16, 8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
    }
    lanes[0]
}

proptest! {
    #[test]
    fn sums_follow_their_order(x in prop::collection::vec(-1e3f32..1e3, 0..700)) {
        let plain = lanes64_by_the_book(|acc, i| acc + x[i], x.len());
        prop_assert_eq!(sum(Term::Plain, &x).to_bits(), plain.to_bits());
        let square = lanes64_by_the_book(|acc, i| x[i].mul_add(x[i], acc), x.len());
        prop_assert_eq!(sum(Term::Square, &x).to_bits(), square.to_bits());
    }

    #[test]
    fn sums_are_near_float64(x in prop::collection::vec(-1e3f32..1e3, 1..3000)) {
        let wide = |f: &dyn Fn(f64) -> f64| x.iter().map(|&v| f(f64::from(v))).sum::<f64>();
        // Each lane adds at most n / 64 terms and the tree 6 more.
        let steps = (x.len() / 64 + 7) as f64 * 2f64.powi(-24);
        let plain = f64::from(sum(Term::Plain, &x));
        prop_assert!((plain - wide(&|v| v)).abs() <= steps * wide(&f64::abs));
        let square = f64::from(sum(Term::Square, &x));
        prop_assert!((square - wide(&|v| v * v)).abs() <= steps * wide(&|v| v * v));
        let run = f64::from(dot_run(&x, &x));
        prop_assert!((run - wide(&|v| v * v)).abs() <= x.len() as f64 * 2f64.powi(-24) * run);
    }

    #[test]
    fn log_sum_exp_is_near_float64(x in prop::collection::vec(-40f32..40.0, 1..2000)) {
        let (max, log_sum) = log_sum_exp(&x);
        let want = x.iter().map(|&v| f64::from(v - max).exp()).sum::<f64>().ln();
        prop_assert!((f64::from(log_sum) - want).abs() <= 1e-6 + want * 1e-6);
    }

    #[test]
    fn quantisation_errs_by_half_a_step(
        x in prop::collection::vec(-1e4f32..1e4, 1..600),
        exponent in -120i32..100,
    ) {
        let x: Vec<f32> = x.iter().map(|v| v * 2f32.powi(exponent)).collect();
        let mut q = vec![0; x.len()];
        let mut scales = vec![0.0; groups(x.len())];
        quantize_row(&x, &mut q, &mut scales).expect("finite values");
        for (g, &scale) in scales.iter().enumerate() {
            let group = group_range(x.len(), g);
            let amax = x[group.clone()].iter().fold(0.0f32, |m, v| m.max(v.abs()));
            prop_assert_eq!(scale.to_bits(), (amax / 127.0).to_bits());
            for i in group {
                let want = (x[i] / scale).round_ties_even().clamp(-127.0, 127.0);
                prop_assert_eq!(f32::from(q[i]), want);
                let error = f64::from(x[i]) - f64::from(q[i]) * f64::from(scale);
                prop_assert!(error.abs() <= f64::from(scale) * 0.500_01);
            }
        }
    }

    #[test]
    fn bf16_rounds_to_the_nearest_even(bits in any::<u32>()) {
        let x = f32::from_bits(bits);
        let got = f32_to_bf16(x);
        if x.is_nan() {
            prop_assert!(bf16_to_f32(got).is_nan());
        } else {
            let below = (bits >> 16) as u16;
            // Encodings are monotone in magnitude, so nearness can be read off the low half.
            let want = match (bits & 0xffff).cmp(&0x8000) {
                core::cmp::Ordering::Less => below,
                core::cmp::Ordering::Greater => below + 1,
                core::cmp::Ordering::Equal => below + (below & 1),
            };
            prop_assert_eq!(got, want);
        }
    }
}

#[test]
fn quantised_zeros_ties_and_tiny_groups() {
    let mut q = [1; 4];
    let mut scale = [1.0];
    quantize_row(&[0.0, -0.0, 0.0, 0.0], &mut q, &mut scale).expect("finite values");
    assert_eq!((q, scale), ([0; 4], [0.0]));
    quantize_row(&[127.0, 0.5, 1.5, -2.5], &mut q, &mut scale).expect("finite values");
    assert_eq!((q, scale), ([127, 0, 2, -2], [1.0]));
    // amax / 127 underflows to zero.
    let least = f32::from_bits(1);
    quantize_row(&[least, 0.0, 0.0, -least], &mut q, &mut scale).expect("finite values");
    assert_eq!((q, scale), ([0; 4], [0.0]));
    // A subnormal scale is rounded so coarsely that the quotient must be clamped.
    let x = f32::from_bits(190);
    quantize_row(&[x, -x, 0.0, least], &mut q, &mut scale).expect("finite values");
    assert_eq!((q, scale), ([127, -127, 0, 1], [least]));
}

#[test]
fn values_that_are_not_finite_are_named() {
    for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in [0, 5, 127, 128, 299] {
            let mut x = vec![1.0; 600];
            x[300 + place] = value;
            let error = quantize_weights(&x, 2, 300).expect_err("a value that is not finite");
            let NotFinite {
                row,
                index,
                value: named,
            } = error;
            assert_eq!((row, index, named.to_bits()), (1, place, value.to_bits()));
        }
    }
    let error = NotFinite {
        row: 3,
        index: 7,
        value: f32::NAN,
    };
    assert_eq!(
        error.to_string(),
        "row 3, column 7 is NaN, expected a finite value"
    );
}

#[test]
fn weights_have_a_scale_per_row_and_group() {
    let x: Vec<f32> = (0..3 * 300).map(|i| (i as f32 - 450.0) / 7.0).collect();
    let q8 = quantize_weights(&x, 3, 300).expect("finite values");
    assert_eq!((q8.values.len(), q8.scales.len()), (900, 9));
    let amax = x[300 + 256..600].iter().fold(0.0f32, |m, v| m.max(v.abs()));
    assert_eq!(q8.scales[5], amax / 127.0);
}

#[test]
fn f16_widens_exactly() {
    for bits in 0..=u16::MAX {
        let (exponent, mantissa) = ((bits >> 10) & 31, f64::from(bits & 1023));
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let got = f16_to_f32(bits);
        let want = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => {
                assert!(got.is_nan(), "{bits:#x}");
                continue;
            }
            e => (1.0 + mantissa / 1024.0) * 2f64.powi(i32::from(e) - 15),
        };
        assert_eq!(
            f64::from(got).to_bits(),
            (sign * want).to_bits(),
            "{bits:#x}"
        );
    }
}

#[test]
fn bf16_round_trips() {
    for bits in 0..=u16::MAX {
        let x = bf16_to_f32(bits);
        assert_eq!(f32_to_bf16(x), if x.is_nan() { bits | 0x40 } else { bits });
    }
}

#[test]
fn shards_cut_whole_groups_evenly() {
    for (k, want) in [
        (1, 1),
        (127, 1),
        (128, 1),
        (256, 2),
        (384, 1),
        (576, 4),
        (1024, 8),
        (1536, 4),
        (4096, 8),
    ] {
        assert_eq!(shards(k), want, "shards of {k}");
    }
    assert_eq!(shard_groups(576, 3), 3..5);
    for k in 1..5000 {
        let n = shards(k);
        assert!(n == 8 || k / GROUP == 0 || !(k / GROUP).is_multiple_of(2 * n));
        let cut: Vec<usize> = (0..n).flat_map(|s| shard_groups(k, s)).collect();
        assert_eq!(cut, (0..groups(k)).collect::<Vec<_>>(), "shards of {k}");
        let covered: usize = (0..groups(k)).map(|g| group_range(k, g).len()).sum();
        assert_eq!(covered, k);
    }
}

#[test]
fn the_tree_pairs_neighbours() {
    let v = [1e8, 1.0, -1e8, 3.0, 0.1, 0.2, 0.3, 0.4f32];
    assert_eq!(tree(&v[..1]), v[0]);
    assert_eq!(tree(&v[..4]), (v[0] + v[1]) + (v[2] + v[3]));
    // Ranks that own consecutive shards sum their subtree, then the sums.
    for ranks in [1, 2, 4, 8] {
        let each: Vec<f32> = v.chunks(8 / ranks).map(tree).collect();
        assert_eq!(tree(&each), tree(&v));
    }
}

/// Largest distance of a table from float64, in units of 2^-25 (half an ulp of values near 1).
fn rotary_error(rotary: &Rotary, inv_freq: &[f64], positions: &[u64]) -> f64 {
    let n = rotary.pairs();
    let (mut cos, mut sin) = (vec![0.0; n], vec![0.0; n]);
    let mut worst = 0.0f64;
    for &p in positions {
        rotary.fill(p, &mut cos, &mut sin);
        for i in 0..n {
            let x = p as f64 * inv_freq[i];
            worst = worst.max((f64::from(cos[i]) - x.cos()).abs());
            worst = worst.max((f64::from(sin[i]) - x.sin()).abs());
        }
    }
    worst * 2f64.powi(25)
}

#[test]
fn rotary_tables_are_near_float64() {
    let positions: Vec<u64> = (0..300).chain([8191, 131_071, 1_048_575]).collect();
    for (theta, dim) in [(10_000.0, 64), (500_000.0, 128), (1e7, 64), (100_000.0, 24)] {
        let want: Vec<f64> = (0..dim / 2)
            .map(|i| f64::powf(theta, -((2 * i) as f64) / dim as f64))
            .collect();
        let default = Rotary::new(theta, dim, RotaryScaling::Default);
        for (a, b) in default.inv_freq().iter().zip(&want) {
            assert!((a / b - 1.0).abs() < 4e-15, "{a} {b}");
        }
        let error = rotary_error(&default, &want, &positions);
        assert!(error < 1.1, "theta {theta}, dim {dim}: {error}");
        let linear = Rotary::new(theta, dim, RotaryScaling::Linear { factor: 4.0 });
        let want: Vec<f64> = want.iter().map(|f| f / 4.0).collect();
        assert!(rotary_error(&linear, &want, &positions) < 1.1);
    }
}

#[test]
fn llama3_scaling_has_three_bands() {
    let scaling = RotaryScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192.0,
    };
    let plain = Rotary::new(500_000.0, 128, RotaryScaling::Default);
    let scaled = Rotary::new(500_000.0, 128, scaling);
    let ratios: Vec<f64> = plain
        .inv_freq()
        .iter()
        .zip(scaled.inv_freq())
        .map(|(p, s)| p / s)
        .collect();
    assert_eq!((ratios[0], ratios[63]), (1.0, 8.0));
    assert!(
        ratios.windows(2).all(|w| w[0] <= w[1] + 1e-12),
        "{ratios:?}"
    );
    let between = ratios
        .iter()
        .filter(|&&r| r > 1.0 + 1e-9 && r < 8.0 - 1e-9)
        .count();
    assert!((3..12).contains(&between), "{between} blended frequencies");
    let table = scaled.table(20);
    let (mut cos, mut sin) = (vec![0.0; 64], vec![0.0; 64]);
    scaled.fill(19, &mut cos, &mut sin);
    assert_eq!(table.row(19), (&cos[..], &sin[..]));
}

/// The tables of every machine: they change only with a definition.
#[test]
fn rotary_bits_are_pinned() {
    let table = Rotary::new(1e6, 128, RotaryScaling::Default).table(4096);
    let pin = crate::digest::mix64(crate::digest(&table.cos)) ^ crate::digest(&table.sin);
    assert_eq!(
        pin, 0x073a_fae4_c905_02b4,
        "rotary tables have other bits than those of the law: {pin:#x}"
    );
}
