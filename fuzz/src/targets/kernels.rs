//! Every kernel of every instruction set gives the bits of its scalar definition, whatever the shape and the
//! values: those of `backends/cpu`, and the functions of `backends/numerics` that they are made of.

use super::note_held;
use crate::decode::{between, byte};
use arbitrary::Unstructured;
use lockstep_cpu::{Isa, Linear, Pool, WeightRule, kernel_agreement, linear};
use lockstep_numerics::elementary::{Function, Map};
use lockstep_numerics::quantize::quantize_row_lanes;
use lockstep_numerics::reduce::{Sum, Term};
use lockstep_numerics::{Kernel, Lanes, Level, dispatch_at};
use std::convert::Infallible;

/// Which kernel, its shape, and values.
pub fn kernels(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let kind = byte(&mut input) % 12;
    let wild = matches!(kind, 9..);
    note_held();
    match kind {
        0 => {
            let n = between(&mut input, 1, 200) as usize;
            let x = values(&mut input, 3 * n, wild);
            kernel_agreement::norms(&x[..n], &x[n..2 * n], &x[2 * n..]);
        }
        1 => {
            let n = between(&mut input, 1, 200) as usize;
            let x = values(&mut input, 2 * n, wild);
            kernel_agreement::gated_products(&x[..n], &x[n..]);
        }
        2 => {
            let pairs = between(&mut input, 1, 40) as usize;
            let rest = between(&mut input, 0, 40) as usize;
            let x = values(&mut input, 4 * pairs + rest, wild);
            let (head, table) = x.split_at(2 * pairs + rest);
            let (cos, sin) = table.split_at(pairs);
            kernel_agreement::rotation(head, cos, sin);
        }
        3 => {
            let taps = between(&mut input, 1, kernel_agreement::TAPS_MAX as u32) as usize;
            let n = between(&mut input, 1, 100) as usize;
            let x = values(&mut input, 2 * taps * n, wild);
            kernel_agreement::convolution(taps, n, &x);
        }
        4 => {
            let n = between(&mut input, 1, 60) as usize;
            kernel_agreement::delta_gates(&values(&mut input, 4 * n, wild));
        }
        5 => {
            let keys = between(&mut input, 1, 40) as usize;
            let n = between(&mut input, 1, 150) as usize;
            let x = values(&mut input, keys * n + 2 * keys + n, wild);
            kernel_agreement::delta_step(keys, n, &x);
        }
        6 => {
            let head_dim = between(&mut input, 1, 70) as usize;
            let num_positions = between(&mut input, 1, 200) as usize;
            let num_queries = (between(&mut input, 1, 7) as usize).min(num_positions);
            let skipped = usize::from(byte(&mut input) & 1);
            let seed = input.arbitrary().unwrap_or(0);
            let queries = (num_queries, skipped);
            kernel_agreement::attention(head_dim, num_positions, queries, seed);
        }
        7 | 8 => products(&mut input, kind == 7),
        9 => functions(&mut input),
        10 => sums(&mut input),
        _ => quantised(&mut input),
    }
}

/// Values that repeat what is left of the input: any encodings but NaN, or ordinary magnitudes.
fn values(input: &mut Unstructured<'_>, len: usize, wild: bool) -> Vec<f32> {
    let bytes = std::mem::replace(input, Unstructured::new(&[])).take_rest();
    let source: Vec<f32> = match wild {
        true => {
            let (words, _) = bytes.as_chunks::<4>();
            let words = words.iter().map(|word| f32::from_le_bytes(*word));
            words.filter(|value| !value.is_nan()).collect()
        }
        false => {
            let (words, _) = bytes.as_chunks::<2>();
            let words = words.iter().map(|word| i16::from_le_bytes(*word));
            words.map(|word| f32::from(word) / 1024.0).collect()
        }
    };
    let source = if source.is_empty() { vec![0.5] } else { source };
    // Each round a little different, so that a shape is not one value over and over.
    let scaled = (0..len).map(|idx| {
        let round = (idx / source.len()) as f32;
        source[idx % source.len()] * (1.0 - round / 512.0)
    });
    scaled.collect()
}

/// Linear layers, by both rules.
fn products(input: &mut Unstructured<'_>, is_q8: bool) {
    let (m, n) = (
        between(input, 1, 18) as usize,
        between(input, 1, 70) as usize,
    );
    let k = between(input, 1, 520) as usize;
    let flags = byte(input);
    let is_row_parallel = flags & 1 != 0;
    let num_threads = if flags & 2 != 0 { 3 } else { 1 };
    let x = values(input, m * k + n * k, false);
    let (x, weights) = x.split_at(m * k);
    let rule = if is_q8 {
        WeightRule::Q8
    } else {
        WeightRule::F32
    };
    let packed = Linear::pack::<Infallible>(rule, n, k, is_row_parallel, &mut |row, out| {
        out.copy_from_slice(&weights[row * k..(row + 1) * k]);
        Ok(())
    });
    let packed = packed.unwrap_or_else(|never| match never {});
    let dot = match rule {
        WeightRule::F32 => linear::reference::dot_f32,
        WeightRule::Q8 => linear::reference::dot_q8,
    };
    let expected: Vec<u32> = (0..m * n)
        .map(|at| {
            let (row, output) = (at / n, at % n);
            let weights = &weights[output * k..(output + 1) * k];
            dot(&x[row * k..(row + 1) * k], weights, is_row_parallel).to_bits()
        })
        .collect();
    let pool = Pool::new(num_threads);
    for isa in Isa::available() {
        let mut y = vec![f32::NAN; m * n];
        packed.forward(isa, &pool, x, m, &mut y);
        let got: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
        assert_eq!(got, expected, "{rule} {isa} ({m}, {n}, {k})");
    }
}

/// The encodings of results, all NaN as one: their payload is no part of a definition.
fn encodings(values: &[f32]) -> Vec<u32> {
    let encoding = |value: &f32| match value.is_nan() {
        true => u32::MAX,
        false => value.to_bits(),
    };
    values.iter().map(encoding).collect()
}

fn functions(input: &mut Unstructured<'_>) {
    let function = Function::ALL[usize::from(byte(input)) % Function::ALL.len()];
    let len = between(input, 1, 70) as usize;
    let inputs = values(input, len, true);
    let at = |level| {
        let mut values = inputs.clone();
        let values_of = &mut values;
        let map = Map {
            function,
            values: values_of,
        };
        dispatch_at(level, map);
        encodings(&values)
    };
    let scalar = at(Level::Scalar);
    for level in Level::available() {
        assert_eq!(at(level), scalar, "{function:?} at {level:?} of {inputs:?}");
    }
}

fn sums(input: &mut Unstructured<'_>) {
    let kind = byte(input);
    let len = between(input, 0, 700) as usize;
    let inputs = values(input, len, true);
    let term = [Term::Plain, Term::Square, Term::Exp(1.0)][usize::from(kind) % 3];
    let at = |level| {
        let values = &inputs;
        encodings(&[dispatch_at(level, Sum { term, values })])
    };
    let scalar = at(Level::Scalar);
    for level in Level::available() {
        assert_eq!(at(level), scalar, "{term:?} at {level:?} of {inputs:?}");
    }
}

struct Quantize<'a>(&'a [f32], &'a mut [i8], &'a mut [f32]);

impl Kernel for Quantize<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        quantize_row_lanes::<L>(self.0, self.1, self.2).is_ok()
    }
}

fn quantised(input: &mut Unstructured<'_>) {
    let len = between(input, 1, 700) as usize;
    let inputs = values(input, len, true);
    let at = |level| {
        let mut q = vec![0; len];
        let mut scales = vec![0.0; lockstep_numerics::groups::groups(len)];
        let fine = dispatch_at(level, Quantize(&inputs, &mut q, &mut scales));
        fine.then(|| (q, encodings(&scales)))
    };
    let scalar = at(Level::Scalar);
    for level in Level::available() {
        assert_eq!(at(level), scalar, "at {level:?} of {inputs:?}");
    }
}
