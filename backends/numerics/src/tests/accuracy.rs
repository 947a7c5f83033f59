//! Measures each elementary function against float64 and holds the documented figures.
//!
//! The reference is the platform's float64 library, whose own error is far below what is measured.

use crate::double;
use crate::elementary::{Function, apply};

/// Values checked per call of a function.
const CHUNK: usize = 4096;

/// The error of `got` in ulp of `want` (of 2^-149 where `want` is subnormal).
#[inline(always)]
fn ulp_error(got: f32, want: f64) -> f64 {
    let exponent = ((want.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    let ulp_exponent = exponent.max(-126) - 23;
    let per_ulp = f64::from_bits(((1023 - ulp_exponent) as u64) << 52);
    (f64::from(got) - want).abs() * per_ulp
}

/// The largest error over the encodings `first..=last` in steps, on two threads.
fn worst(
    function: Function,
    (first, last): (f32, f32),
    step: usize,
    want: impl Fn(f64) -> f64 + Sync,
) -> f64 {
    let (first, last) = (first.to_bits(), last.to_bits());
    assert!(
        first <= last && first >> 31 == last >> 31,
        "a range of one sign"
    );
    let half = |odd: usize| {
        let want = &want;
        move || {
            let mut worst = 0.0f64;
            let mut values = [0.0f32; CHUNK];
            let mut results = [0.0f32; CHUNK];
            let all = (first..=last).step_by(step * CHUNK);
            for start in all.skip(odd).step_by(2) {
                for (i, v) in values.iter_mut().enumerate() {
                    let bits = u64::from(start) + (i * step) as u64;
                    *v = f32::from_bits(bits.min(u64::from(last)) as u32);
                }
                results = values;
                apply(function, &mut results);
                for (&x, &got) in values.iter().zip(&results) {
                    let error = ulp_error(got, want(f64::from(x)));
                    // A NaN must not hide: it compares as worse.
                    if error > worst || error.is_nan() {
                        worst = if error.is_nan() { f64::INFINITY } else { error };
                    }
                }
            }
            worst
        }
    };
    std::thread::scope(|s| {
        let other = s.spawn(half(1));
        half(0)().max(other.join().expect("a measuring thread"))
    })
}

/// Asserts that the measured error is what is documented: no more, and not by far less.
fn holds(what: &str, measured: f64, documented: f64) {
    println!("{what}: {measured:.4} ulp measured, {documented} documented");
    assert!(
        measured <= documented,
        "{what}: {measured} ulp, documented {documented}"
    );
    assert!(
        measured > documented - 0.2,
        "{what}: {measured} ulp, documented {documented}"
    );
}

#[test]
fn smoke() {
    for (f, x, y) in [
        (Function::Exp, 1.0, 1f64.exp()),
        (Function::Log, 10.0, 10f64.ln()),
        (Function::Log1p, 0.3, 0.3f64.ln_1p()),
        (Function::Tanh, 0.7, 0.7f64.tanh()),
    ] {
        let mut v = [x as f32];
        apply(f, &mut v);
        println!("{f:?} {v:?} {y}");
    }
    println!("{} {}", double::exp(1.0), double::log(10.0));
}

#[test]
fn measure() {
    use Function::*;
    let big = f32::MAX;
    let t = f32::from_bits(1);
    let sig = |x: f64| 1.0 / (1.0 + (-x).exp());
    let sp = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    println!("exp + {}", worst(Exp, (1e-8, 88.722), 16, f64::exp));
    println!("exp - {}", worst(Exp, (-1e-8, -104.), 16, f64::exp));
    println!("log {}", worst(Log, (t, big), 16, f64::ln));
    println!("log1p + {}", worst(Log1p, (t, big), 16, f64::ln_1p));
    println!(
        "log1p - {}",
        worst(Log1p, (-0.0, -0.99999994), 16, f64::ln_1p)
    );
    println!("sigmoid + {}", worst(Sigmoid, (0., 110.), 16, sig));
    println!("sigmoid - {}", worst(Sigmoid, (-0., -87.), 16, sig));
    println!("silu + {}", worst(Silu, (0., 110.), 16, |x| x * sig(x)));
    println!("silu - {}", worst(Silu, (-0., -87.), 16, |x| x * sig(x)));
    println!("silu -- {}", worst(Silu, (-87., -110.), 16, |x| x * sig(x)));
    println!("softplus + {}", worst(Softplus, (0., 110.), 16, sp));
    println!("softplus - {}", worst(Softplus, (-0., -87.), 16, sp));
    println!("softplus -- {}", worst(Softplus, (-87., -110.), 16, sp));
    println!("tanh {}", worst(Tanh, (0., big), 16, f64::tanh));
    println!("rsqrt {}", worst(Rsqrt, (t, big), 16, |x| 1.0 / x.sqrt()));
}
