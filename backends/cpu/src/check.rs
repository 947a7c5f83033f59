//! Are the logits right? A model is run over the tokens of a reference file in three ways (all at once, token
//! by token, in random chunks) and compared with what an oracle wrote there. The three ways must agree to
//! the bit; the oracle must agree within a bound.
//!
//! A check that compared nothing is an error, never a pass.

mod compare;
mod reference;
mod run;

use crate::{CpuBackend, CpuOptions, LoadError, WeightRule};
use compare::Figures;
use lockstep_package::{LayerType, Package, PackageError, Progress};
use lockstep_step::BackendError;
use reference::{Case, Source};
use run::Runner;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What the median cosine between rows of q8 logits and the oracle's must reach. The median, since
/// single rows of a delta net can drop far below the others (most likely where a head's output is
/// close to zero and its norm magnifies the rounding); the least row is reported beside it.
pub const Q8_COSINE_MEDIAN: f64 = 0.998;

/// The same for the drafting head, which starts from outputs that are rounded already. It decides nothing
/// that is said.
pub const Q8_MTP_COSINE_MEDIAN: f64 = 0.995;

/// Why a check couldn't be done.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckError {
    /// The model can't be loaded.
    Load(LoadError),
    /// The reference file can't be read.
    Reference(PackageError),
    /// The reference file holds something else than was expected.
    Content {
        /// The tensor.
        tensor: String,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// A step failed.
    Step(BackendError),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckError::Load(error) => write!(f, "{error}"),
            CheckError::Reference(error) => write!(f, "{error}"),
            CheckError::Content {
                tensor,
                found,
                expected,
            } => write!(
                f,
                "reference tensor {tensor} is {found}, expected {expected}"
            ),
            CheckError::Step(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for CheckError {}

/// How one array compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrayReport {
    /// Its name in the reference file.
    pub name: String,
    /// Rows compared.
    pub num_rows: usize,
    /// The largest difference of two values.
    pub max_abs_error: f32,
    /// For logits: the largest difference of two log-probabilities.
    pub max_logprob_error: Option<f64>,
    /// The median cosine of two rows.
    pub cosine_median: f64,
    /// The least cosine of two rows.
    pub cosine_min: f64,
    /// For logits: rows whose highest value is at the same token.
    pub argmax_equal: Option<usize>,
    /// For logits: rows whose highest value is elsewhere although the oracle's own margin exceeds the error
    /// bound.
    pub argmax_wrong: Option<usize>,
    /// Whether it is inside the bounds.
    pub passed: bool,
}

/// How the tokens of a greedy run compare, each predicted from the oracle's tokens before it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GreedyReport {
    /// Its name in the reference file.
    pub name: String,
    /// Tokens compared.
    pub num_tokens: usize,
    /// Tokens that are the same.
    pub num_equal: usize,
    /// Tokens that differ although our own margin exceeds the error bound.
    pub num_wrong: usize,
    /// Whether none is wrong; under q8 this is not judged.
    pub passed: bool,
}

/// Whether the ways to compute one sequence agree, bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LawReport {
    /// The sequence: the name of its tokens in the reference file.
    pub name: String,
    /// Tokens of the sequence.
    pub num_tokens: usize,
    /// All at once, and token by token after the prompt.
    pub steps_equal: bool,
    /// All at once, and in random chunks; the drafting head too.
    pub chunks_equal: bool,
}

/// The figures of a whole check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// The weight rule.
    pub weights: String,
    /// What `max_abs_error` must not exceed; not judged under q8.
    pub max_abs_bound: f32,
    /// Logits and hidden states.
    pub arrays: Vec<ArrayReport>,
    /// Greedy runs.
    pub greedy: Vec<GreedyReport>,
    /// The law, per sequence.
    pub laws: Vec<LawReport>,
    /// Whether everything is inside its bounds, and something was compared.
    pub passed: bool,
}

/// What to check with.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Rule, threads and instruction set. Blocks, rows, the step's size and the drafting head are chosen to
    /// fit.
    pub cpu: CpuOptions,
    /// The largest error that passes; None is 1e-4 for attention alone and 5e-4 with delta net layers.
    pub max_abs_bound: Option<f32>,
    /// Seeds the random chunks.
    pub seed: u64,
}

/// Compares a model with a reference file.
///
/// # Errors
/// If the model can't be loaded, the file is no reference, or a step fails. Figures out of bounds are no
/// error but a report that says so.
pub fn check_logits(
    package: &Package,
    reference: &Path,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Report, CheckError> {
    let cases = reference::read(reference, package)?;
    let longest = cases
        .iter()
        .map(|case| case.tokens.len())
        .max()
        .unwrap_or(1);
    let mut cpu = options.cpu.clone();
    (cpu.num_blocks, cpu.num_rows) = Runner::needs(longest);
    cpu.query_tokens_max = longest as u32;
    cpu.mtp = package.has_mtp();
    let backend = CpuBackend::load(package, &cpu, progress).map_err(CheckError::Load)?;
    let hybrid = package
        .config
        .layer_types
        .contains(&LayerType::LinearAttention);
    let bound = options
        .max_abs_bound
        .unwrap_or(if hybrid { 5e-4 } else { 1e-4 });
    let mut report = Report {
        model: package.name.clone(),
        weights: cpu.weights.to_string(),
        max_abs_bound: bound,
        arrays: Vec::new(),
        greedy: Vec::new(),
        laws: Vec::new(),
        passed: false,
    };
    let judge = Judge {
        bound,
        exact: cpu.weights == WeightRule::F32,
    };
    let mut runner = Runner::new(backend, options.seed);
    for case in &cases {
        judge.case(&mut runner, case, &mut report)?;
    }
    let arrays = report.arrays.iter().map(|array| array.passed);
    let greedy = report.greedy.iter().map(|greedy| greedy.passed);
    let laws = report
        .laws
        .iter()
        .map(|law| law.steps_equal && law.chunks_equal);
    report.passed =
        !report.arrays.is_empty() && arrays.chain(greedy).chain(laws).all(|passed| passed);
    Ok(report)
}

struct Judge {
    bound: f32,
    // Whether errors are judged by their size; else by the cosine of logits.
    exact: bool,
}

impl Judge {
    fn case(
        &self,
        runner: &mut Runner,
        case: &Case,
        report: &mut Report,
    ) -> Result<(), CheckError> {
        let whole = runner.whole(&case.tokens)?;
        let steps = runner.steps(&case.tokens, case.num_prefill)?;
        let chunks = runner.chunks(&case.tokens)?;
        let vocab_size = runner.vocab_size();
        let from_steps = (case.num_prefill - 1) * vocab_size;
        report.laws.push(LawReport {
            name: case.name.clone(),
            num_tokens: case.tokens.len(),
            steps_equal: compare::same_bits(&whole.logits[from_steps..], &steps),
            chunks_equal: compare::same_bits(&whole.logits, &chunks.logits)
                && compare::same_bits(&whole.mtp_logits, &chunks.mtp_logits),
        });
        for expected in &case.expected {
            let (cosine, width, ours) = match expected.source {
                Source::Whole => (Some(Q8_COSINE_MEDIAN), vocab_size, &whole.logits[..]),
                Source::Steps => (Some(Q8_COSINE_MEDIAN), vocab_size, &steps[..]),
                Source::Mtp => (
                    Some(Q8_MTP_COSINE_MEDIAN),
                    vocab_size,
                    &whole.mtp_logits[..],
                ),
                Source::Hidden(layer) => {
                    let hidden = whole.hidden.get(layer).map_or(&[][..], |hidden| hidden);
                    (None, hidden.len() / case.tokens.len(), hidden)
                }
            };
            let first = expected.first_row * width;
            let Some(ours) = ours.get(first..first + expected.values.len()) else {
                return Err(CheckError::Content {
                    tensor: expected.name.clone(),
                    found: format!("{} values", expected.values.len()),
                    expected: format!("at most {}", ours.len().saturating_sub(first)),
                });
            };
            let figures = Figures::of(ours, &expected.values, width, self.bound);
            let (name, num_rows) = (expected.name.clone(), expected.values.len() / width);
            report
                .arrays
                .push(self.array(name, num_rows, cosine, &figures));
        }
        if let Some(greedy) = &case.greedy {
            let rows = &whole.logits[(greedy.first_pos - 1) * vocab_size..];
            let (mut num_equal, mut num_wrong) = (0, 0);
            for (row, &token) in rows.chunks_exact(vocab_size).zip(&greedy.tokens) {
                let (best, margin) = compare::argmax(row);
                if best == token as usize {
                    num_equal += 1;
                } else if margin > self.bound {
                    num_wrong += 1;
                }
            }
            report.greedy.push(GreedyReport {
                name: greedy.name.clone(),
                num_tokens: greedy.tokens.len(),
                num_equal,
                num_wrong,
                passed: !self.exact || num_wrong == 0,
            });
        }
        Ok(())
    }

    fn array(
        &self,
        name: String,
        num_rows: usize,
        // For logits: what the median cosine must reach under q8.
        cosine: Option<f64>,
        figures: &Figures,
    ) -> ArrayReport {
        let is_logits = cosine.is_some();
        let passed = if self.exact {
            figures.max_abs_error <= self.bound && !(is_logits && figures.argmax_wrong > 0)
        } else {
            cosine.is_none_or(|least| figures.cosine_median >= least)
        };
        ArrayReport {
            name,
            num_rows,
            max_abs_error: figures.max_abs_error,
            max_logprob_error: is_logits.then_some(figures.max_logprob_error),
            cosine_median: figures.cosine_median,
            cosine_min: figures.cosine_min,
            argmax_equal: is_logits.then_some(figures.argmax_equal),
            argmax_wrong: is_logits.then_some(figures.argmax_wrong),
            passed: passed && num_rows > 0,
        }
    }
}
