//! Scalar, AVX2 and AVX-512 give the same bits, and these are the bits of every machine.

use crate::elementary::{Function, Map};
use crate::lanes::{Kernel, Lanes, Level, dispatch_at};
use crate::philox::draw_u64;
use crate::quantize::quantize_row_lanes;
use crate::reduce::{Sum, Term};
use crate::{digest, digest::mix64};

/// Encodings without NaN: random ones of all magnitudes, ordinary values, and special ones.
fn inputs() -> Vec<f32> {
    let random = (0..40_000).map(|i| f32::from_bits(draw_u64(1, i) as u32));
    let ordinary = (0..40_000).map(|i| (draw_u64(2, i) >> 40) as f32 / 32_768.0 - 256.0);
    let small = (0..40_000).map(|i| (draw_u64(3, i) >> 40) as f32 / 8_388_608.0 - 1.0);
    let inf = f32::INFINITY;
    let tiny = f32::MIN_POSITIVE;
    let special = [
        0.0,
        inf,
        tiny,
        f32::from_bits(1),
        tiny.next_down(),
        f32::MAX,
        1.0,
        0.625,
    ];
    let special = special
        .into_iter()
        .flat_map(|x| [x, -x, x.next_up(), x.next_down()]);
    let all = random.chain(ordinary).chain(small).chain(special);
    // An odd number of values: every level has a tail.
    let mut all: Vec<f32> = all.filter(|x| !x.is_nan()).collect();
    all.truncate(all.len() - (1 - all.len() % 2));
    all
}

/// The encodings of results, all NaN as one: their payload is not part of any definition.
fn encodings(values: &[f32]) -> Vec<u32> {
    values
        .iter()
        .map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() })
        .collect()
}

#[test]
fn elementary_functions() {
    let inputs = inputs();
    let mut pins = 0u64;
    for function in Function::ALL {
        let at = |level| {
            let mut values = inputs.clone();
            dispatch_at(
                level,
                Map {
                    function,
                    values: &mut values,
                },
            );
            encodings(&values)
        };
        let scalar = at(Level::Scalar);
        for level in Level::available() {
            for (i, (got, want)) in at(level).iter().zip(&scalar).enumerate() {
                assert_eq!(got, want, "{function:?}({:e}) at {level:?}", inputs[i]);
            }
        }
        let row: Vec<f32> = scalar.iter().map(|&b| f32::from_bits(b)).collect();
        pins = mix64(pins ^ digest(&row));
    }
    assert_eq!(
        pins, PIN_ELEMENTARY,
        "a function gives other bits than those of the law: {pins:#x}"
    );
}

/// A digest of every result above. It changes only with a definition.
const PIN_ELEMENTARY: u64 = 0x1873_22d8_cb70_bb7b;
/// The same for sums.
const PIN_SUMS: u64 = 0x383c_298b_9d63_8245;
/// The same for quantised rows.
const PIN_QUANTISED: u64 = 0xda1e_e51e_1c7d_e63a;

#[test]
fn sums() {
    let inputs: Vec<f32> = inputs().into_iter().filter(|x| x.abs() < 1e6).collect();
    let mut pins = 0u64;
    for n in [0, 1, 5, 63, 64, 65, 127, 128, 576, 1000, 4096, 20_000] {
        for offset in [0, 1, 7] {
            let values = &inputs[40_000 + offset..][..n];
            for term in [Term::Plain, Term::Square, Term::Exp(255.0)] {
                let scalar = dispatch_at(Level::Scalar, Sum { term, values });
                for level in Level::available() {
                    let got = dispatch_at(level, Sum { term, values });
                    assert_eq!(
                        got.to_bits(),
                        scalar.to_bits(),
                        "{term:?} of {n} at {level:?}"
                    );
                }
                pins = mix64(pins ^ u64::from(scalar.to_bits()));
            }
        }
    }
    assert_eq!(
        pins, PIN_SUMS,
        "a sum gives other bits than those of the law: {pins:#x}"
    );
}

struct Quantize<'a>(&'a [f32], &'a mut [i8], &'a mut [f32]);

impl Kernel for Quantize<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        quantize_row_lanes::<L>(self.0, self.1, self.2).expect("finite values");
    }
}

#[test]
fn quantised_rows() {
    let inputs: Vec<f32> = inputs().into_iter().filter(|x| x.is_finite()).collect();
    let mut pins = 0u64;
    for n in [1, 17, 128, 129, 576, 30_000] {
        for exponent in [0, -140, -60] {
            let scale = 2f32.powi(exponent / 2) * 2f32.powi(exponent - exponent / 2);
            let x: Vec<f32> = inputs[41_000..][..n].iter().map(|x| x * scale).collect();
            let at = |level| {
                let mut q = vec![0; n];
                let mut scales = vec![0.0; crate::groups::groups(n)];
                dispatch_at(level, Quantize(&x, &mut q, &mut scales));
                (q, encodings(&scales))
            };
            let scalar = at(Level::Scalar);
            for level in Level::available() {
                assert_eq!(at(level), scalar, "{n} values at {level:?}");
            }
            let row: Vec<f32> = scalar.0.iter().map(|&q| f32::from(q)).collect();
            let scales: Vec<f32> = scalar.1.iter().map(|&b| f32::from_bits(b)).collect();
            pins = mix64(pins ^ digest(&row)) ^ digest(&scales);
        }
    }
    assert_eq!(
        pins, PIN_QUANTISED,
        "quantisation gives other bits than the law: {pins:#x}"
    );
}

/// Every primitive of the trait that the functions above may not reach.
struct Primitives<'a>(&'a [f32], &'a [f32]);

impl Kernel for Primitives<'_> {
    type Output = Vec<u32>;
    #[inline(always)]
    fn run<L: Lanes>(self) -> Vec<u32> {
        let mut out = Vec::new();
        let mut buffer = [0.0; 16];
        let mut bytes = [0i8; 16];
        for (a, b) in self
            .0
            .chunks_exact(L::WIDTH)
            .zip(self.1.chunks_exact(L::WIDTH))
        {
            let (x, y) = (L::load(a), L::load(b));
            let holds = |m: L::Mask| L::select(m, L::splat(1.0), L::splat(2.0));
            let results = [
                x.min(y),
                x.max(y),
                x.neg(),
                x.copysign(y),
                holds(x.lt(y)),
                holds(x.le(y)),
                holds(x.gt(y)),
                holds(x.ge(y)),
                holds(x.equal(y)),
                L::from_bits(L::bits_and(x.to_bits(), y.to_bits())),
                L::from_int(L::bits_sra::<3>(x.to_bits())),
                L::from_int(L::bits_shl::<5>(x.to_bits())),
            ];
            for result in results {
                result.store(&mut buffer);
                out.extend(encodings(&buffer[..L::WIDTH]));
            }
            let integers: Vec<i8> = a.iter().map(|x| x.to_bits() as i8).collect();
            L::load_i8(&integers).store_i8(&mut bytes);
            assert_eq!(&bytes[..L::WIDTH], &integers[..]);
            let halves: Vec<u16> = a.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
            L::load_bf16(&halves).store(&mut buffer);
            let widened: Vec<f32> = halves
                .iter()
                .map(|&h| crate::narrow::bf16_to_f32(h))
                .collect();
            assert_eq!(encodings(&buffer[..L::WIDTH]), encodings(&widened));
        }
        // Bring the per-register blocks of 12 results into one order for all widths.
        let block = 12 * L::WIDTH;
        let per_result = out.len() / 12;
        let mut sorted = Vec::with_capacity(out.len());
        for i in 0..12 {
            for v in 0..per_result {
                sorted.push(out[v / L::WIDTH * block + i * L::WIDTH + v % L::WIDTH]);
            }
        }
        sorted
    }
}

#[test]
fn primitives() {
    let mut a = inputs();
    a.truncate(a.len() / 64 * 64);
    let mut b = a.clone();
    b.rotate_left(7);
    b[..100].copy_from_slice(&a[..100]);
    for (x, y) in [(0.0, -0.0), (-0.0, 0.0), (f32::NAN, 1.0), (1.0, f32::NAN)] {
        let last = a.len() - 1;
        a.rotate_left(1);
        b.rotate_left(1);
        (a[last], b[last]) = (x, y);
    }
    let scalar = dispatch_at(Level::Scalar, Primitives(&a, &b));
    for level in Level::available() {
        let got = dispatch_at(level, Primitives(&a, &b));
        for (i, (got, want)) in got.iter().zip(&scalar).enumerate() {
            let (result, at) = (i / a.len(), i % a.len());
            assert_eq!(
                got, want,
                "result {result} of {:e}, {:e} at {level:?}",
                a[at], b[at]
            );
        }
    }
}
