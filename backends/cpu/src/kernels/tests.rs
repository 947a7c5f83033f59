//! Kernels against `reference.rs` at odd sizes.

use super::agreement;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Values of several magnitudes.
fn values(len: usize) -> impl Strategy<Value = Vec<f32>> {
    vec(prop_oneof![-2.0f32..2.0, -30.0f32..30.0, Just(0.0)], len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn norms((x, w, z) in (1usize..200).prop_flat_map(|n| (values(n), values(n), values(n)))) {
        agreement::norms(&x, &w, &z);
    }

    #[test]
    fn elementwise((x, y) in (1usize..200).prop_flat_map(|n| (values(n), values(n)))) {
        agreement::gated_products(&x, &y);
    }

    #[test]
    fn rotation((pairs, rest, x) in (1usize..40, 0usize..40)
        .prop_flat_map(|(pairs, rest)| (Just(pairs), Just(rest), values(4 * pairs + rest))))
    {
        let (head, table) = x.split_at(2 * pairs + rest);
        let (cos, sin) = table.split_at(pairs);
        agreement::rotation(head, cos, sin);
    }

    #[test]
    fn convolution((taps, n, x) in (1usize..=CONV_TAPS_MAX, 1usize..100)
        .prop_flat_map(|(taps, n)| (Just(taps), Just(n), values(2 * taps * n))))
    {
        agreement::convolution(taps, n, &x);
    }

    #[test]
    fn gates(x in (1usize..40).prop_flat_map(|n| values(4 * n))) {
        agreement::delta_gates(&x);
    }

    #[test]
    fn delta_step((keys, n, x) in (1usize..40, 1usize..150)
        .prop_flat_map(|(keys, n)| (Just(keys), Just(n), values(keys * n + 2 * keys + n))))
    {
        agreement::delta_step(keys, n, &x);
    }

    #[test]
    fn attention((head_dim, num_positions, num_queries, skipped, seed) in
        (1usize..70, 1usize..200, 1usize..=7, 0usize..2, any::<u64>()))
    {
        let num_queries = num_queries.min(num_positions);
        agreement::attention(head_dim, num_positions, (num_queries, skipped), seed);
    }
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
