//! Whatever treats rows one by one.

use super::{CASES, Case, agree};
use crate::memory::Ptr;
use crate::ops::digest::LogitsDigest;
use crate::ops::elementwise::{AddCheck, SiluMul, SiluMulQuantize};
use crate::ops::embed::{Embed, ResolveTokens, TableKind};
use crate::ops::norm::{RmsNorm, RmsNormQuantize};
use crate::ops::quantize::{Quantize, quantized_len};
use lockstep_cpu::linear::reference::quantize_row;
use lockstep_cpu::reference;
use lockstep_numerics::groups::groups;
use lockstep_numerics::reduce::{Term, sum};
use lockstep_numerics::{digest, narrow};
use lockstep_step::NO_ID;

/// Widths with ragged ends, now and then a long one.
fn width(case: &mut Case) -> usize {
    match case.rng.below(8) {
        0 => case.rng.between(4000, 9000),
        1 => case.rng.pick(&[16, 128, 256, 4096]),
        _ => case.rng.between(1, 700),
    }
}

/// Compares quantised tiles and scales with quantised rows.
pub(super) fn same_quantized(case: &mut Case, rows: &[Vec<f32>], (q, scales): (Ptr<i8>, Ptr<f32>)) {
    let (m, k) = (rows.len(), rows[0].len());
    let chunks = k.div_ceil(16);
    let mut tiles = vec![0i8; quantized_len(m, k)];
    let mut expected = Vec::new();
    for (row, x) in rows.iter().enumerate() {
        let (quantized, scales) = quantize_row(x);
        for (at, &value) in quantized.iter().enumerate() {
            let tile = (row / 16 * chunks + at / 16) * 16 + row % 16;
            // What stands beside a scale that is not a number means nothing.
            let counts = !scales[at / 128].is_nan();
            tiles[tile * 16 + at % 16] = if counts { value } else { 0 };
        }
        expected.extend(scales);
    }
    let found = case.read(scales, m * groups(k));
    case.same("scales", &found, &expected);
    let found = case.read(q, tiles.len());
    case.equal("quantised", &found, &tiles);
}

fn rows_of(x: &[f32], n: usize) -> Vec<Vec<f32>> {
    x.chunks_exact(n).map(<[f32]>::to_vec).collect()
}

#[test]
fn tokens_are_resolved_and_embedded() {
    agree(CASES, |case| {
        let (m, n, vocab) = (case.rng.between(1, 200), width(case), 50);
        let known: Vec<u32> = (0..m).map(|_| case.rng.below(vocab) as u32).collect();
        let drawn: Vec<u32> = (0..8)
            .map(|_| {
                if case.rng.below(4) == 0 {
                    NO_ID
                } else {
                    case.rng.below(vocab) as u32
                }
            })
            .collect();
        let refs: Vec<u32> = (0..m)
            .map(|_| {
                if case.rng.flip() {
                    NO_ID
                } else {
                    case.rng.below(8) as u32
                }
            })
            .collect();
        let mut expected: Vec<u32> = known.clone();
        for (token, &from) in expected.iter_mut().zip(&refs) {
            if from != NO_ID {
                *token = Some(drawn[from as usize])
                    .filter(|&token| token != NO_ID)
                    .unwrap_or(0);
            }
        }
        let tokens = case.unwritten::<u32>(m);
        let resolve = ResolveTokens {
            tokens,
            known: case.filled(&known),
            refs: case.filled(&refs),
            drawn: case.filled(&drawn),
            num_rows: m as i32,
        };
        resolve.launch(&case.bench.queue).expect("a launch");
        let found = case.read(tokens, m);
        case.equal("tokens", &found, &expected);
        embed(case, &mut expected, n, vocab);
    });
}

fn embed(case: &mut Case, tokens: &mut [u32], n: usize, vocab: usize) {
    for token in tokens.iter_mut() {
        if case.rng.below(5) == 0 {
            *token = NO_ID;
        }
    }
    let kind = case
        .rng
        .pick(&[TableKind::F32, TableKind::Bf16, TableKind::F16]);
    let bits: Vec<u32> = (0..vocab * n).map(|_| case.rng.next() as u32).collect();
    let (table, widened): (Vec<u8>, Vec<f32>) = match kind {
        TableKind::F32 => (
            bits.iter().flat_map(|bits| bits.to_le_bytes()).collect(),
            bits.iter().map(|&bits| f32::from_bits(bits)).collect(),
        ),
        TableKind::Bf16 | TableKind::F16 => (
            bits.iter()
                .flat_map(|&bits| (bits as u16).to_le_bytes())
                .collect(),
            bits.iter()
                .map(|&bits| match kind {
                    TableKind::Bf16 => narrow::bf16_to_f32(bits as u16),
                    _ => narrow::f16_to_f32(bits as u16),
                })
                .collect(),
        ),
    };
    let out = case.unwritten::<f32>(tokens.len() * n);
    let embed = Embed {
        out,
        table: case.filled(&table),
        tokens: case.filled(tokens),
        kind: kind as i32,
        n: n as i32,
    };
    embed
        .launch(&case.bench.queue, tokens.len())
        .expect("a launch");
    let expected: Vec<f32> = tokens
        .iter()
        .flat_map(|&token| match token {
            NO_ID => vec![0.0; n],
            token => widened[token as usize * n..][..n].to_vec(),
        })
        .collect();
    let found = case.read(out, expected.len());
    case.same("embedding", &found, &expected);
}

#[test]
fn rms_norms_are_the_definition_and_note_what_overflows() {
    agree(CASES, |case| {
        let (num_x, m, n) = (
            case.rng.between(1, 20),
            case.rng.between(1, 40),
            width(case),
        );
        let mut x = case.rng.floats(num_x * n, 8.0);
        let overflows = case.rng.below(num_x);
        if case.rng.flip() {
            x[overflows * n + case.rng.below(n)] = case.rng.pick(&[3e38, f32::NAN, f32::INFINITY]);
        }
        let weight = case.rng.floats(n, 2.0);
        let rows: Option<Vec<u32>> = case.rng.flip().then(|| {
            let row = |_| {
                if case.rng.below(4) == 0 {
                    NO_ID
                } else {
                    case.rng.below(num_x) as u32
                }
            };
            (0..m).map(row).collect()
        });
        let chosen = rows.clone().unwrap_or_else(|| (0..num_x as u32).collect());
        let mut faults = vec![NO_ID; num_x];
        let expected: Vec<Vec<f32>> = chosen
            .iter()
            .map(|&row| {
                if row == NO_ID {
                    return vec![0.0; n];
                }
                let x = &x[row as usize * n..][..n];
                if !sum(Term::Square, x).is_finite() {
                    faults[row as usize] = 7;
                }
                reference::rms_norm(x, &weight, 1e-5)
            })
            .collect();
        let found_faults = case.filled(&vec![NO_ID; num_x]);
        let norm = RmsNorm {
            out: case.unwritten(chosen.len() * n),
            x: case.filled(&x),
            rows: rows.map_or(Ptr::null(), |rows| case.filled(&rows)),
            weight: case.filled(&weight),
            eps: 1e-5,
            n: n as i32,
            faults: found_faults,
            op: 7,
        };
        norm.launch(&case.bench.queue, chosen.len())
            .expect("a launch");
        let found = case.read(norm.out, chosen.len() * n);
        case.same("norm", &found, &expected.concat());
        let found = case.read(found_faults, num_x);
        case.equal("faults", &found, &faults);
        let fused = RmsNormQuantize {
            q: case.unwritten(quantized_len(chosen.len(), n)),
            scales: case.unwritten(chosen.len() * groups(n)),
            out: if case.rng.flip() {
                case.unwritten(chosen.len() * n)
            } else {
                Ptr::null()
            },
            x: norm.x,
            rows: norm.rows,
            weight: norm.weight,
            eps: 1e-5,
            m: chosen.len() as i32,
            n: n as i32,
            faults: case.filled(&vec![NO_ID; num_x]),
            op: 7,
        };
        fused.launch(&case.bench.queue).expect("a launch");
        same_quantized(case, &expected, (fused.q, fused.scales));
        let found = case.read(fused.faults, num_x);
        case.equal("faults of the fused norm", &found, &faults);
        if fused.out.address() != 0 {
            let found = case.read(fused.out, chosen.len() * n);
            case.same("norm beside its quantised form", &found, &expected.concat());
        }
    });
}

#[test]
fn quantised_rows_are_the_definition() {
    agree(CASES, |case| {
        let (m, k) = (case.rng.between(1, 40), width(case));
        let scale = case.rng.pick(&[1.0, 1e-42, 1e30, 0.0]);
        let mut x = case.rng.floats(m * k, scale);
        if case.rng.below(4) == 0 {
            let at = case.rng.below(m * k);
            x[at] = case.rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        }
        let quantize = Quantize {
            q: case.unwritten(quantized_len(m, k)),
            scales: case.unwritten(m * groups(k)),
            x: case.filled(&x),
            m: m as i32,
            k: k as i32,
        };
        quantize.launch(&case.bench.queue).expect("a launch");
        same_quantized(case, &rows_of(&x, k), (quantize.q, quantize.scales));
    });
}

#[test]
fn sums_are_checked() {
    agree(CASES, |case| {
        let (m, n) = (case.rng.between(1, 30), width(case));
        let mut x = case.rng.floats(m * n, 4.0);
        let mut y = case.rng.floats(m * n, 4.0);
        if case.rng.flip() {
            let at = case.rng.below(m * n);
            (x[at], y[at]) = case
                .rng
                .pick(&[(3e38, 3e38), (f32::NAN, 1.0), (f32::INFINITY, 0.0)]);
        }
        let mut faults: Vec<u32> = (0..m).map(|_| case.rng.pick(&[2, 9, NO_ID])).collect();
        let add = AddCheck {
            x: case.filled(&x),
            y: case.filled(&y),
            n: n as i32,
            faults: case.filled(&faults),
            op: 5,
        };
        add.launch(&case.bench.queue, m).expect("a launch");
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        for (fault, row) in faults.iter_mut().zip(expected.chunks_exact(n)) {
            if row.iter().any(|x| !x.is_finite()) {
                *fault = (*fault).min(5);
            }
        }
        let found = case.read(add.x, m * n);
        case.same("sums", &found, &expected);
        let found = case.read(add.faults, m);
        case.equal("faults", &found, &faults);
    });
}

#[test]
fn gated_products_are_the_definition() {
    agree(CASES, |case| {
        let (m, n) = (case.rng.between(1, 20), width(case));
        // Any number at all: this is also where silu meets its definition.
        let any = case.rng.flip();
        let projected: Vec<f32> = (0..m * 2 * n)
            .map(|_| {
                if any {
                    case.rng.finite_bits()
                } else {
                    case.rng.float() * 90.0
                }
            })
            .collect();
        let expected: Vec<Vec<f32>> = projected
            .chunks_exact(2 * n)
            .map(|row| reference::silu_mul(&row[..n], &row[n..]))
            .collect();
        let plain = SiluMul {
            out: case.unwritten(m * n),
            projected: case.filled(&projected),
            n: n as i32,
        };
        plain.launch(&case.bench.queue, m).expect("a launch");
        let found = case.read(plain.out, m * n);
        case.same("products", &found, &expected.concat());
        let fused = SiluMulQuantize {
            q: case.unwritten(quantized_len(m, n)),
            scales: case.unwritten(m * groups(n)),
            projected: plain.projected,
            m: m as i32,
            n: n as i32,
        };
        fused.launch(&case.bench.queue).expect("a launch");
        same_quantized(case, &expected, (fused.q, fused.scales));
    });
}

#[test]
fn digests_are_the_definition_and_note_what_is_not_finite() {
    agree(CASES, |case| {
        let (m, n) = (
            case.rng.between(1, 9),
            case.rng.pick(&[1, 64, 4096, 4097, 9000]),
        );
        let mut logits = case.rng.floats(m * n, 30.0);
        if case.rng.flip() {
            let at = case.rng.below(m * n);
            logits[at] = case.rng.pick(&[f32::NAN, f32::INFINITY]);
        }
        let rows: Vec<u32> = (0..m as u32)
            .map(|i| if i == 4 { NO_ID } else { 20 - i })
            .collect();
        let mut faults = vec![NO_ID; 21];
        let mut expected = vec![0; m];
        for (i, row) in logits.chunks_exact(n).enumerate() {
            if rows[i] == NO_ID {
                continue;
            }
            expected[i] = digest(row);
            if row.iter().any(|x| !x.is_finite()) {
                faults[rows[i] as usize] = 3;
            }
        }
        let kernel = LogitsDigest {
            digests: case.filled(&vec![0u64; m]),
            logits: case.filled(&logits),
            rows: case.filled(&rows),
            n: n as i32,
            faults: case.filled(&[NO_ID; 21]),
            op: 3,
        };
        kernel.launch(&case.bench.queue, m).expect("a launch");
        let found = case.read(kernel.digests, m);
        case.equal("digests", &found, &expected);
        let found = case.read(kernel.faults, 21);
        case.equal("faults", &found, &faults);
    });
}
