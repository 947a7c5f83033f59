//! What stands on both sides, in Rust and in the `.cu` files, and must be the same: arguments, constants, limits.

use crate::kernel::Kernel;
use crate::ops::{
    HEAD_DIM_MAX, attention, delta, digest, draw, elementwise, embed, linear, logprobs, mtp, norm,
    place_kv, quantize,
};
use crate::program::{FILES, program_text};
use lockstep_numerics::coefficients as c;
use lockstep_numerics::digest as mixing;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// The arguments of a kernel as its file has them, without `const`.
fn arguments(file: &str, symbol: &str) -> Vec<(String, String)> {
    let text = program_text(file);
    let at = text
        .find(&format!("\n{symbol}("))
        .unwrap_or_else(|| panic!("{symbol} in {file}.cu"));
    let list = &text[at + symbol.len() + 2..];
    let list = &list[..list.find(") {").expect("the end of the arguments")];
    let argument = |argument: &str| {
        let words: Vec<&str> = argument
            .split_whitespace()
            .filter(|&word| word != "const")
            .collect();
        let (name, of) = words.split_last().expect("an argument has a name");
        let of = of
            .join(" ")
            .replace("i8", "signed char")
            .replace("u64", "unsigned long long");
        ((*name).to_owned(), of)
    };
    list.split(',').map(argument).collect()
}

fn check<K: Kernel>(seen: &mut BTreeSet<&'static str>) {
    let expected: Vec<(String, String)> = K::SIGNATURE
        .iter()
        .map(|&(name, of)| (name.to_owned(), of.to_owned()))
        .collect();
    assert_eq!(arguments(K::FILE, K::SYMBOL), expected, "{}", K::SYMBOL);
    assert!(seen.insert(K::SYMBOL), "{} has two wrappers", K::SYMBOL);
}

#[test]
fn every_kernel_has_a_wrapper_with_its_arguments() {
    let seen = &mut BTreeSet::new();
    check::<attention::Attention>(seen);
    check::<attention::AttentionBlocks>(seen);
    check::<attention::AttentionMerge>(seen);
    check::<delta::Convolve>(seen);
    check::<delta::DeltaGates>(seen);
    check::<delta::DeltaNet>(seen);
    check::<delta::GatedNorm>(seen);
    check::<digest::LogitsDigest>(seen);
    check::<draw::DrawTokens>(seen);
    check::<elementwise::AddCheck>(seen);
    check::<elementwise::SiluMul>(seen);
    check::<elementwise::SiluMulQuantize>(seen);
    check::<embed::Embed>(seen);
    check::<embed::ResolveTokens>(seen);
    check::<linear::LinearF32>(seen);
    check::<linear::LinearQ8Few>(seen);
    check::<linear::LinearQ8Many>(seen);
    check::<linear::LinearQ8Wgmma>(seen);
    check::<logprobs::Logprobs>(seen);
    check::<mtp::GatherRows>(seen);
    check::<mtp::KeepRows>(seen);
    check::<mtp::MtpEnter>(seen);
    check::<norm::RmsNorm>(seen);
    check::<norm::RmsNormQuantize>(seen);
    check::<place_kv::PlaceKv>(seen);
    check::<quantize::Quantize>(seen);
    let measuring = &mut BTreeSet::new();
    check::<crate::bench::Int8Peak>(measuring);
    check::<crate::bench::Int8PeakWgmma>(measuring);
    let mut exported = BTreeSet::new();
    for &(file, text) in FILES {
        let found = crate::program::symbols(text);
        assert!(!found.is_empty(), "{file}.cu exports nothing");
        let declared = text.matches("extern \"C\" __global__").count();
        assert_eq!(found.len(), declared, "{file}.cu exports what it declares");
        exported.extend(found);
    }
    assert_eq!(*seen, exported);
}

/// A float as C++ reads it, exactly: hexadecimal.
fn hex(x: f32) -> String {
    let (bits, sign) = (x.abs().to_bits(), if x < 0.0 { "-" } else { "" });
    assert!(x.is_normal(), "{x}");
    let (exponent, mantissa) = ((bits >> 23) as i32 - 127, (bits & 0x7f_ffff) << 1);
    format!("{sign}0x1.{mantissa:06x}p{exponent:+}f")
}

fn coefficients() -> String {
    let mut out = String::from(
        "// Generated from backends/numerics/src/coefficients.rs, which has the words to them: a test\n\
         // compares the two, and renews this file with BLESS=1. Arrays run from the highest power to the\n\
         // lowest.\n",
    );
    let scalars = [
        ("SHIFT", c::SHIFT),
        ("LOG2_E", c::LOG2_E),
        ("LN2_HI", c::LN2_HI),
        ("LN2_LO", c::LN2_LO),
        ("EXP_ARG_MAX", c::EXP_ARG_MAX),
        ("EXP_ARG_MIN", c::EXP_ARG_MIN),
    ];
    for (name, value) in scalars {
        let value = if value < 0.0 {
            format!("({})", hex(value))
        } else {
            hex(value)
        };
        writeln!(out, "#define {name} {value}").expect("a string");
    }
    writeln!(out, "#define SQRT_HALF_BITS {:#x}u", c::SQRT_HALF_BITS).expect("a string");
    for (name, values) in [("EXP", &c::EXP[..]), ("LOG", &c::LOG[..])] {
        let values: Vec<String> = values
            .iter()
            .map(|&value| format!("  {}", hex(value)))
            .collect();
        let values = values.join(", \\\n");
        writeln!(out, "#define {name}_COEFFICIENTS \\\n{values}").expect("a string");
    }
    out.push_str("// Of the digest.\n");
    let factors = [
        ("INDEX_FACTOR", mixing::INDEX_FACTOR),
        ("MIX_1", mixing::MIX_1),
        ("MIX_2", mixing::MIX_2),
    ];
    for (name, value) in factors {
        writeln!(out, "#define {name} {value:#x}ull").expect("a string");
    }
    out
}

#[test]
fn coefficients_are_those_of_the_law() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/coefficients.cuh");
    let generated = coefficients();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &generated).expect("a file to renew");
    }
    let found = std::fs::read_to_string(&path).expect("the file");
    assert_eq!(found, generated, "renew it with BLESS=1");
}

/// The number that a file defines a name as.
fn defined(file: &str, name: &str) -> usize {
    let text = program_text(file);
    let line = format!("#define {name} ");
    let value = text.lines().find_map(|text| text.strip_prefix(&line));
    let value = value.unwrap_or_else(|| panic!("{name} in {file}.cu"));
    value
        .parse()
        .unwrap_or_else(|_| panic!("{name} is {value}"))
}

#[test]
fn limits_are_the_same_on_both_sides() {
    assert_eq!(defined("delta", "HEAD_DIM_MAX"), HEAD_DIM_MAX);
    assert_eq!(
        defined("attention", "BLOCK_LEN"),
        lockstep_step::BLOCK_LEN as usize
    );
    assert_eq!(
        defined("quantize", "GROUP"),
        lockstep_numerics::groups::GROUP
    );
    assert_eq!(defined("linear_q8", "FEW_TOKENS"), linear::FEW_TOKENS);
    assert_eq!(defined("linear_q8", "MANY_OUTPUTS"), linear::TILE_OUTPUTS);
    let wgmma = |name| defined("linear_q8_wgmma", name);
    assert_eq!(wgmma("WGMMA_TOKENS"), linear::WGMMA_TOKENS);
    assert_eq!(wgmma("WGMMA_OUTPUTS"), linear::WGMMA_OUTPUTS);
    assert_eq!(wgmma("WGMMA_THREADS"), linear::WGMMA_THREADS);
    assert_eq!(wgmma("WGMMA_STAGES"), linear::WGMMA_STAGES);
    assert_eq!(
        defined("logprobs", "TOP_LOGPROBS_MAX"),
        logprobs::TOP_LOGPROBS_MAX
    );
}

/// Nothing in a kernel may round as it likes: only operations whose rounding is written out.
#[test]
fn kernels_use_no_function_that_is_not_exact() {
    let forbidden = [
        "expf(",
        "exp2f(",
        "logf(",
        "log1pf(",
        "tanhf(",
        "rsqrtf(",
        "sinf(",
        "cosf(",
        "powf(",
        "__expf",
        "__logf",
        "__fdividef",
        "sqrtf(",
        "fmaxf(",
        "fminf(",
        "fmaf(",
    ];
    for &(file, _) in FILES {
        let text = program_text(file);
        for line in text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            let found = forbidden.iter().find(|&&name| {
                line.match_indices(name)
                    .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
            });
            assert_eq!(found, None, "{file}.cu: {line}");
        }
    }
}
