//! The text of the kernels: what the compiler sees is one text per file, with each header written out where it is
//! first included. `emulate/inline.py` does the same for the emulation, and a test compares the two.

/// The `.cu` files, without their ending.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("attention", include_str!("../../kernels/attention.cu")),
    ("delta", include_str!("../../kernels/delta.cu")),
    ("digest", include_str!("../../kernels/digest.cu")),
    ("draw", include_str!("../../kernels/draw.cu")),
    ("elementwise", include_str!("../../kernels/elementwise.cu")),
    ("embed", include_str!("../../kernels/embed.cu")),
    ("linear_f32", include_str!("../../kernels/linear_f32.cu")),
    ("linear_q8", include_str!("../../kernels/linear_q8.cu")),
    (
        "linear_q8_wgmma",
        include_str!("../../kernels/linear_q8_wgmma.cu"),
    ),
    ("logprobs", include_str!("../../kernels/logprobs.cu")),
    ("mtp", include_str!("../../kernels/mtp.cu")),
    ("norm", include_str!("../../kernels/norm.cu")),
    ("place_kv", include_str!("../../kernels/place_kv.cu")),
    ("quantize", include_str!("../../kernels/quantize.cu")),
];

/// Those that only a benchmark uses. Some have kernels of the same names as those above, with a free order of sums.
pub(crate) const MEASURING: &[(&str, &str)] = &[
    (
        "bench_linear_q8",
        include_str!("../../kernels/bench_linear_q8.cu"),
    ),
    (
        "bench_linear_q8_wgmma",
        include_str!("../../kernels/bench_linear_q8_wgmma.cu"),
    ),
    ("bench_peak", include_str!("../../kernels/bench_peak.cu")),
    (
        "bench_peak_wgmma",
        include_str!("../../kernels/bench_peak_wgmma.cu"),
    ),
];

/// The headers that they include, and the files that others are variants of.
const HEADERS: &[(&str, &str)] = &[
    (
        "coefficients.cuh",
        include_str!("../../kernels/coefficients.cuh"),
    ),
    ("common.cuh", include_str!("../../kernels/common.cuh")),
    (
        "exact_math.cuh",
        include_str!("../../kernels/exact_math.cuh"),
    ),
    ("linear_q8.cu", include_str!("../../kernels/linear_q8.cu")),
    (
        "linear_q8_wgmma.cu",
        include_str!("../../kernels/linear_q8_wgmma.cu"),
    ),
    ("lanes.cuh", include_str!("../../kernels/lanes.cuh")),
    ("norm.cuh", include_str!("../../kernels/norm.cuh")),
    ("quantize.cuh", include_str!("../../kernels/quantize.cuh")),
    ("rank.cuh", include_str!("../../kernels/rank.cuh")),
    ("shards.cuh", include_str!("../../kernels/shards.cuh")),
    ("wgmma.cuh", include_str!("../../kernels/wgmma.cuh")),
];

/// The whole text of a file.
///
/// # Panics
/// If it includes a header that there is not: found by the first test that compiles it.
pub(crate) fn program_text(file: &str) -> String {
    let mut all = FILES.iter().chain(MEASURING);
    let found = all.find(|(name, _)| *name == file);
    let (_, text) = found.unwrap_or_else(|| panic!("no file is called {file}.cu"));
    let mut out = String::new();
    inline(text, &mut Vec::new(), &mut out);
    out
}

/// Writes a text out; `seen` holds the headers that were written already.
fn inline<'a>(text: &'a str, seen: &mut Vec<&'a str>, out: &mut String) {
    for line in text.lines() {
        if line.trim() == "#pragma once" {
            continue;
        }
        let included = line
            .strip_prefix("#include \"")
            .and_then(|rest| rest.trim_end().strip_suffix('"'));
        let Some(included) = included else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        if seen.contains(&included) {
            continue;
        }
        seen.push(included);
        let found = HEADERS.iter().find(|(name, _)| *name == included);
        let (_, text) = found.unwrap_or_else(|| panic!("no header is called {included}"));
        inline(text, seen, out);
    }
}

/// The one architecture that a file says it is for; none where it is for all.
pub(crate) fn only_for(text: &str) -> Option<&str> {
    let named = text
        .lines()
        .find_map(|line| line.strip_prefix("KERNEL_ONLY("))?;
    named.split_once(')').map(|(architecture, _)| architecture)
}

/// The names of the kernels in a text: each is exported by a line of its own.
pub(crate) fn symbols(text: &str) -> Vec<&str> {
    let exported = text
        .lines()
        .filter_map(|line| line.strip_prefix("KERNEL_EXPORT("));
    exported
        .filter_map(|rest| rest.split_once(')'))
        .map(|(name, _)| name)
        .collect()
}
