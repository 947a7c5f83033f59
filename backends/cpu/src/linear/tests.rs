//! Every instruction set, thread count and batch size gives the bits of the reference.

use super::*;
use proptest::prelude::*;
use std::convert::Infallible;

fn values(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed;
    (0..len)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let small = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
            // Some groups hold large values, some only zeros.
            match state >> 32 & 31 {
                0 => small * 1000.0,
                1..=3 => 0.0,
                _ => small,
            }
        })
        .collect()
}

fn pack(rule: WeightRule, n: usize, k: usize, row_parallel: bool, w: &[f32]) -> Linear {
    let packed = Linear::pack::<Infallible>(rule, n, k, row_parallel, &mut |row, out| {
        out.copy_from_slice(&w[row * k..(row + 1) * k]);
        Ok(())
    });
    packed.unwrap_or_else(|never| match never {})
}

fn check(rule: WeightRule, m: usize, n: usize, k: usize, row_parallel: bool, seed: u64) {
    let x = values(seed, m * k);
    let w = values(seed ^ 0x5555, n * k);
    let linear = pack(rule, n, k, row_parallel, &w);
    let dot = match rule {
        WeightRule::F32 => reference::dot_f32,
        WeightRule::Q8 => reference::dot_q8,
    };
    let expected: Vec<u32> = (0..m * n)
        .map(|at| {
            let (row, output) = (at / n, at % n);
            let x = &x[row * k..(row + 1) * k];
            dot(x, &w[output * k..(output + 1) * k], row_parallel).to_bits()
        })
        .collect();
    for isa in Isa::available() {
        for num_threads in [1, 3] {
            let mut y = vec![f32::NAN; m * n];
            linear.forward(isa, &Pool::new(num_threads), &x, m, &mut y);
            let got: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
            assert_eq!(
                got, expected,
                "{rule} {isa} ({m}, {n}, {k}), row parallel {row_parallel}"
            );
        }
    }
}

#[test]
fn shapes_of_real_layers() {
    for rule in [WeightRule::F32, WeightRule::Q8] {
        check(rule, 1, 48, 576, true, 1);
        check(rule, 9, 40, 1536, true, 2);
        check(rule, 17, 33, 192, false, 3);
        check(rule, 2, 16, 1024, true, 4);
    }
}

#[test]
fn zeros_stay_zeros() {
    for rule in [WeightRule::F32, WeightRule::Q8] {
        let linear = pack(rule, 20, 130, false, &vec![0.0; 20 * 130]);
        for isa in Isa::available() {
            let mut y = vec![f32::NAN; 20];
            linear.forward(isa, &Pool::new(1), &[0.0; 130], 1, &mut y);
            assert_eq!(y, [0.0; 20]);
        }
    }
}

#[test]
fn a_nan_among_the_inputs_reaches_the_outputs() {
    for rule in [WeightRule::F32, WeightRule::Q8] {
        let linear = pack(rule, 20, 130, false, &values(7, 20 * 130));
        let mut x = values(8, 2 * 130);
        x[130 + 129] = f32::NAN;
        for isa in Isa::available() {
            let mut y = vec![0.0; 40];
            linear.forward(isa, &Pool::new(1), &x, 2, &mut y);
            assert!(
                y[..20].iter().all(|y| y.is_finite()),
                "the other row is untouched"
            );
            assert!(y[20..].iter().all(|y| y.is_nan()), "{rule} {isa}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_bits_of_the_reference(
        q8: bool, m in 1usize..20, n in 1usize..70, k in 1usize..700, seed: u64,
    ) {
        let rule = if q8 { WeightRule::Q8 } else { WeightRule::F32 };
        check(rule, m, n, k, true, seed);
        check(rule, m, n, k, false, seed);
    }
}
