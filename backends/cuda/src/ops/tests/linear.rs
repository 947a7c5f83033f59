//! Linear layers: few tokens, many tokens by either instruction, and the f32 rule, all against one scalar definition.

use super::rows::same_quantized;
use super::{CASES, Case, agree};
use crate::memory::Ptr;
use crate::ops::linear::{
    FEW_TOKENS, LinearF32, ProductQ8, Q8Path, WGMMA_CAPABILITY, q8_path, tile_f32, tile_q8,
    tile_scales,
};
use crate::ops::quantize::{Quantize, quantized_len};
use crate::testing;
use lockstep_cpu::linear::reference::{dot_f32, quantize_row};
use lockstep_numerics::groups::{self, group_range, shard_groups, tree};

/// Shapes of a product: ragged ends, whole groups, as many shards as there can be.
struct Product {
    m: usize,
    n: usize,
    k: usize,
    num_shards: usize,
}

impl Product {
    fn random(case: &mut Case, tokens_max: usize) -> Product {
        let rng = &mut case.rng;
        let k = match rng.below(6) {
            0 => rng.pick(&[128, 256, 512, 1024, 2048, 4096]),
            1 => rng.between(2000, 6000),
            2 => rng.between(1, 130),
            3 => 128 * rng.between(1, 40),
            _ => rng.between(1, 1500),
        };
        let n = match rng.below(4) {
            0 => rng.pick(&[32, 64, 96]),
            _ => rng.between(1, 100),
        };
        let m = match rng.below(3) {
            0 => rng.between(1, tokens_max),
            1 => rng.between(1, tokens_max.min(20)),
            _ => tokens_max.min(rng.pick(&[1, 2, 3, 4, 8, 16, 64])),
        };
        // The sum of the shape, so that a long one is not wide as well.
        let n = if k * m > 20_000 { n.min(40) } else { n };
        let num_shards = if rng.flip() { groups::shards(k) } else { 1 };
        Product {
            m,
            n,
            k,
            num_shards,
        }
    }

    /// The groups of each shard.
    fn shards(&self) -> Vec<std::ops::Range<usize>> {
        match self.num_shards {
            1 => std::iter::once(0..groups::groups(self.k)).collect(),
            shards => (0..shards)
                .map(|shard| shard_groups(self.k, shard))
                .collect(),
        }
    }
}

/// Rows quantised one by one: (rows, k), and (rows, groups).
fn quantized(x: &[f32], k: usize) -> (Vec<i8>, Vec<f32>) {
    let rows = x.chunks_exact(k).map(quantize_row);
    let (q, scales): (Vec<_>, Vec<_>) = rows.unzip();
    (q.concat(), scales.concat())
}

/// One output of the q8 rule, from what was quantised before.
fn dot(product: &Product, (x, x_scales): (&[i8], &[f32]), (w, w_scales): (&[i8], &[f32])) -> f32 {
    let shards = product.shards().into_iter().map(|shard| {
        shard.fold(0.0f32, |acc, group| {
            let range = group_range(product.k, group);
            let dot: i32 = range.map(|k| i32::from(x[k]) * i32::from(w[k])).sum();
            (dot as f32).mul_add(x_scales[group] * w_scales[group], acc)
        })
    });
    tree(&shards.collect::<Vec<f32>>())
}

fn expected_q8(product: &Product, x: &[f32], w: &[f32]) -> Vec<f32> {
    let Product { m, n, k, .. } = *product;
    let groups = groups::groups(k);
    let ((x, x_scales), (w, w_scales)) = (quantized(x, k), quantized(w, k));
    let mut y = vec![0.0; m * n];
    for row in 0..m {
        for column in 0..n {
            y[row * n + column] = dot(
                product,
                (&x[row * k..][..k], &x_scales[row * groups..][..groups]),
                (
                    &w[column * k..][..k],
                    &w_scales[column * groups..][..groups],
                ),
            );
        }
    }
    y
}

/// Random operands of a product on the device, as steps leave them there, with nothing in `y`; and what `y` has to be.
fn operands(case: &mut Case, product: &Product) -> (ProductQ8, Vec<f32>) {
    let Product {
        m,
        n,
        k,
        num_shards,
    } = *product;
    let mut x = case.rng.floats(m * k, 3.0);
    let w = case.rng.floats(n * k, 0.5);
    if case.rng.below(8) == 0 {
        x[case.rng.below(m * k)] = f32::NAN;
    }
    if case.rng.below(8) == 0 {
        x.fill(0.0);
    }
    let quantize = Quantize {
        q: case.unwritten(quantized_len(m, k)),
        scales: case.unwritten(m * groups::groups(k)),
        x: case.filled(&x),
        m: m as i32,
        k: k as i32,
    };
    quantize.launch(&case.bench.queue).expect("a launch");
    let rows: Vec<Vec<f32>> = x.chunks_exact(k).map(<[f32]>::to_vec).collect();
    same_quantized(case, &rows, (quantize.q, quantize.scales));
    let (q, scales) = quantized(&w, k);
    let product_q8 = ProductQ8 {
        y: Ptr::null(),
        w: case.filled(&tile_q8(&q, n, k)),
        w_scales: case.filled(&tile_scales(&scales, n, groups::groups(k))),
        x: quantize.q,
        x_scales: quantize.scales,
        m,
        n,
        k,
        num_shards,
    };
    (product_q8, expected_q8(product, &x, &w))
}

/// Runs a product by one kernel and compares all of it.
fn same_by(case: &mut Case, path: Q8Path, product: &ProductQ8, expected: &[f32]) {
    let ProductQ8 {
        m,
        n,
        k,
        num_shards,
        ..
    } = *product;
    let y = case.unwritten(m * n);
    let product = ProductQ8 { y, ..*product };
    product
        .launch_by(path, &case.bench.queue)
        .expect("a launch");
    let found = case.read(y, m * n);
    let what = format!("{path:?} {m} x {n} x {k}, {num_shards} shards");
    case.same(&what, &found, expected);
}

#[test]
fn q8_products_are_the_definition_for_any_number_of_tokens() {
    agree(2 * CASES, |case| {
        let product = Product::random(case, 80);
        let (operands, expected) = operands(case, &product);
        same_by(case, Q8Path::Many, &operands, &expected);
        if product.m <= FEW_TOKENS {
            same_by(case, Q8Path::Few, &operands, &expected);
        }
    });
}

#[test]
fn by_wgmma_products_are_the_definition_for_any_number_of_tokens() {
    if testing::open_device().capability() != WGMMA_CAPABILITY {
        println!("this device has no wgmma: nothing was compared");
        return;
    }
    agree(CASES, |case| {
        // More than one block each way, and ends within a warp, a warpgroup and a tile.
        let product = Product::random(case, 150);
        let (operands, expected) = operands(case, &product);
        same_by(case, Q8Path::Wgmma, &operands, &expected);
    });
}

#[test]
fn the_kernel_is_chosen_by_the_number_of_tokens() {
    let on = |capability| [1, 8, 9, 64, 65, 5000].map(|m| q8_path(capability, m));
    let (few, many, wgmma) = (Q8Path::Few, Q8Path::Many, Q8Path::Wgmma);
    assert_eq!(on((9, 0)), [few, few, many, many, wgmma, wgmma]);
    for other in [(8, 0), (8, 9), (10, 0), (12, 0)] {
        assert_eq!(on(other), [few, few, many, many, many, many]);
    }
}

#[test]
fn f32_products_are_the_definition() {
    agree(CASES, |case| {
        let product = Product::random(case, 20);
        let Product {
            m,
            n,
            k,
            num_shards,
        } = product;
        let (x, w) = (case.rng.floats(m * k, 3.0), case.rng.floats(n * k, 0.5));
        let kernel = LinearF32 {
            y: case.unwritten(m * n),
            w: case.filled(&tile_f32(&w, n, k)),
            x: case.filled(&x),
            m: m as i32,
            n: n as i32,
            k: k as i32,
            num_shards: num_shards as i32,
        };
        kernel.launch(&case.bench.queue).expect("a launch");
        let mut expected = Vec::new();
        for x in x.chunks_exact(k) {
            expected.extend(w.chunks_exact(k).map(|w| dot_f32(x, w, num_shards > 1)));
        }
        let found = case.read(kernel.y, m * n);
        case.same(
            &format!("f32 {m} x {n} x {k}, {num_shards} shards"),
            &found,
            &expected,
        );
    });
}
