//! Measures each elementary function against float64 and holds the documented figures.
//!
//! The reference is the platform's float64 library, whose own error is far below what is measured.
//! `exp` is checked over every float32; the others over every 241st encoding of their range, while
//! the documented figures were measured once over all of them (by `STRIDE = 1`).

use crate::double;
use crate::elementary::{Function, Function::*, apply};

/// Step between the encodings checked, for all but `exp`: a prime, so that every pattern of low
/// mantissa bits occurs.
const STRIDE: usize = 241;
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

/// The largest `error(x, f(x))` over the encodings `first..=last` in steps, on two threads. An
/// error of NaN counts as infinite.
fn worst(
    function: Function,
    (first, last): (u32, u32),
    step: usize,
    error: impl Fn(f32, f32) -> f64 + Sync,
) -> f64 {
    assert!(first <= last);
    let half = |odd: usize| {
        let error = &error;
        move || {
            let mut worst = 0.0f64;
            let mut values = [0.0f32; CHUNK];
            for start in (first..=last).step_by(step * CHUNK).skip(odd).step_by(2) {
                for (i, v) in values.iter_mut().enumerate() {
                    let bits = u64::from(start) + (i * step) as u64;
                    *v = f32::from_bits(bits.min(u64::from(last)) as u32);
                }
                let arguments = values;
                apply(function, &mut values);
                for (&x, &got) in arguments.iter().zip(&values) {
                    let error = error(x, got);
                    worst = if error <= worst { worst } else { error };
                    if error.is_nan() {
                        return f64::INFINITY;
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

/// Asserts a condition on the result for every encoding of `first..=last`, on two threads.
fn always(function: Function, (first, last): (u32, u32), holds: impl Fn(f32) -> bool + Sync) {
    let half = |odd: usize| {
        let holds = &holds;
        move || {
            let mut values = [0.0f32; CHUNK];
            for start in (first..=last).step_by(CHUNK).skip(odd).step_by(2) {
                for (i, v) in values.iter_mut().enumerate() {
                    *v = f32::from_bits(start.saturating_add(i as u32).min(last));
                }
                apply(function, &mut values);
                // Without an early exit, so that the check is vectorised.
                let all = values.iter().fold(true, |all, &got| all & holds(got));
                assert!(all, "{function:?} in {CHUNK} encodings from {start:#x}");
            }
        }
    };
    std::thread::scope(|s| {
        s.spawn(half(1));
        half(0)();
    });
}

/// The largest error in ulp over `[from, to]`, both of one sign, the smaller magnitude first.
fn ulps(
    function: Function,
    from: f32,
    to: f32,
    step: usize,
    want: impl Fn(f64) -> f64 + Sync,
) -> f64 {
    let range = (from.to_bits(), to.to_bits());
    worst(function, range, step, |x, got| {
        ulp_error(got, want(f64::from(x)))
    })
}

/// Asserts that the measured errors stay within the documented figure, and that the figure is not
/// an idle one: the largest must come within 0.3 ulp of it.
fn holds(what: &str, documented: f64, measured: &[f64]) {
    println!("{what}: measured {measured:.3?}, documented {documented}");
    let largest = measured.iter().fold(0.0f64, |a, &b| a.max(b));
    assert!(
        largest <= documented,
        "{what}: {largest} ulp, documented {documented}"
    );
    assert!(
        largest > documented - 0.3,
        "{what}: {largest} ulp, documented {documented}"
    );
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[test]
fn exp_over_every_float32() {
    const SIGN: u32 = 1 << 31;
    // Up to here e^x rounds to 1 on both sides of zero.
    let small = 2f32.powi(-25).to_bits();
    // The last argument whose exponential is finite in float32.
    let last = 88.722_83f32.to_bits();
    let lowest = 104.0f32.to_bits();
    let infinity = f32::INFINITY.to_bits();
    always(Exp, (0, small), |got| got == 1.0);
    always(Exp, (SIGN, SIGN | small), |got| got == 1.0);
    always(Exp, (last + 1, infinity), |got| got == f32::INFINITY);
    always(Exp, (SIGN | (lowest + 1), SIGN | infinity), |got| {
        got.to_bits() == 0
    });
    always(Exp, (infinity + 1, SIGN - 1), f32::is_nan);
    always(Exp, (SIGN | (infinity + 1), u32::MAX), f32::is_nan);
    let by_libm = |x: f32, got: f32| ulp_error(got, f64::from(x).exp());
    let measured = [
        worst(Exp, (small + 1, last), 1, by_libm),
        worst(Exp, (SIGN | (small + 1), SIGN | lowest), 1, by_libm),
    ];
    holds("exp", 0.89, &measured);
}

#[test]
fn log_and_log1p() {
    let least = f32::from_bits(1);
    holds("log", 0.86, &[ulps(Log, least, f32::MAX, STRIDE, f64::ln)]);
    let almost = (-1.0f32).next_up();
    let measured = [
        ulps(Log1p, least, f32::MAX, STRIDE, f64::ln_1p),
        ulps(Log1p, -0.0, almost, STRIDE, f64::ln_1p),
    ];
    holds("log1p", 0.86, &measured);
}

#[test]
fn sigmoid_silu_softplus() {
    let measured = [
        ulps(Sigmoid, 0.0, 110.0, STRIDE, sigmoid),
        ulps(Sigmoid, -0.0, -87.0, STRIDE, sigmoid),
    ];
    holds("sigmoid", 2.41, &measured);
    let silu = |x: f64| x * sigmoid(x);
    let measured = [
        ulps(Silu, 0.0, 110.0, STRIDE, silu),
        ulps(Silu, -0.0, -87.0, STRIDE, silu),
    ];
    holds("silu", 3.22, &measured);
    let tail = ulps(Silu, -87.0, -110.0, 1, silu);
    assert!(
        tail <= 53.0,
        "silu of subnormal results: {tail} units of 2^-149"
    );
    let measured = [
        ulps(Softplus, 0.0, 110.0, STRIDE, softplus),
        ulps(Softplus, -0.0, -110.0, STRIDE, softplus),
    ];
    holds("softplus", 1.7, &measured);
}

#[test]
fn tanh_gelu_rsqrt() {
    holds("tanh", 1.33, &[ulps(Tanh, 0.0, 30.0, STRIDE, f64::tanh)]);
    let rsqrt = |x: f64| 1.0 / x.sqrt();
    holds(
        "rsqrt",
        1.5,
        &[ulps(Rsqrt, f32::from_bits(1), f32::MAX, STRIDE, rsqrt)],
    );
    let gelu = |x: f64| {
        let u = (2.0 / core::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        0.5 * x * (1.0 + u.tanh())
    };
    // In units of |x| * 2^-24, since the function nears zero on one side.
    let error = |x: f32, got: f32| {
        let x = f64::from(x);
        (f64::from(got) - gelu(x)).abs() / (x.abs() * 2f64.powi(-24))
    };
    let range = |from: f32, to: f32| (from.to_bits(), to.to_bits());
    let measured = [
        worst(Gelu, range(1e-30, 30.0), STRIDE, error),
        worst(Gelu, range(-1e-30, -30.0), STRIDE, error),
    ];
    holds("gelu", 2.5, &measured);
}

#[test]
fn values_at_the_edges() {
    let inf = f32::INFINITY;
    let cases: [(Function, f32, f32); 22] = [
        (Exp, 0.0, 1.0),
        (Exp, -0.0, 1.0),
        (Exp, inf, inf),
        (Exp, -inf, 0.0),
        (Log, 1.0, 0.0),
        (Log, 0.0, -inf),
        (Log, -0.0, -inf),
        (Log, inf, inf),
        (Log1p, 0.0, 0.0),
        (Log1p, -0.0, -0.0),
        (Log1p, -1.0, -inf),
        (Log1p, inf, inf),
        (Sigmoid, 0.0, 0.5),
        (Sigmoid, inf, 1.0),
        (Sigmoid, -inf, 0.0),
        (Silu, 0.0, 0.0),
        (Silu, 300.0, 300.0),
        (Softplus, 300.0, 300.0),
        (Softplus, -300.0, 0.0),
        (Tanh, inf, 1.0),
        (Tanh, -inf, -1.0),
        (Rsqrt, 4.0, 0.5),
    ];
    for (function, x, want) in cases {
        let mut value = [x];
        apply(function, &mut value);
        assert_eq!(
            value[0].to_bits(),
            want.to_bits(),
            "{function:?}({x}) = {}",
            value[0]
        );
    }
    for (function, x) in [
        (Log, -1.0),
        (Log1p, -1.5),
        (Log, f32::NAN),
        (Log1p, f32::NAN),
    ] {
        let mut value = [x];
        apply(function, &mut value);
        assert!(value[0].is_nan(), "{function:?}({x}) = {}", value[0]);
    }
}

/// The error in ulp of float64, given a reference whose own error is about half of one.
fn ulp_error_f64(got: f64, want: f64) -> f64 {
    (got - want).abs() / (want.abs().next_up() - want.abs())
}

#[test]
fn exp_and_log_in_float64() {
    let (mut exp, mut log) = (0.0f64, 0.0f64);
    for i in 0..400_000 {
        let x = -40.0 + f64::from(i) * 1.999_7e-4;
        exp = exp.max(ulp_error_f64(double::exp(x), x.exp()));
        let y = 1e-3 * 1.000_07f64.powi(i);
        log = log.max(ulp_error_f64(double::log(y), y.ln()));
    }
    println!("float64: exp {exp:.3}, log {log:.3}");
    assert!(
        exp <= 1.1 && log <= 1.1,
        "exp {exp}, log {log} ulp of float64"
    );
}

#[test]
fn sin_cos_rounds_to_the_nearest_float32() {
    let mut worst = 0.0f64;
    for i in 0..1_000_000u32 {
        let x = f64::from(i) * 0.731_058_578_63;
        let (sin, cos) = double::sin_cos(x);
        worst = worst
            .max(ulp_error(sin as f32, x.sin()))
            .max(ulp_error(cos as f32, x.cos()));
    }
    assert!(worst <= 0.500_001, "{worst} ulp of float32");
}
