//! `lockstep check-logits`: are a model's logits those of an oracle, and does the way they are computed not
//! matter? It must never pass where nothing was compared.

use crate::exit::{Failure, end};
use crate::flags::WeightsKind;
use crate::terminal::{Bars, Paint};
use clap::Args;
use lockstep_cpu::check::{ArrayReport, CheckError, CheckOptions, Report, check_logits};
use lockstep_cpu::{CpuOptions, WeightRule};
use lockstep_package::{NoProgress, Package};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares a model's logits with those of a reference file.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lockstep check-logits --reference reference.safetensors            the embedded model
  lockstep check-logits DIR --reference DIR/reference.safetensors    a Hugging Face directory
  lockstep check-logits DIR --reference FILE --weights q8            how far int8 weights are off
  lockstep check-logits DIR --reference FILE --json | jq .arrays

`tools/reference_logits.py` writes a reference file from an independent engine.
Ends with 1 where a figure is out of its bound, or where two ways to compute one sequence differ.")]
pub struct CheckLogitsArgs {
    /// A Hugging Face directory or a package; the embedded model when left out.
    #[arg(value_name = "MODEL")]
    pub path: Option<PathBuf>,
    /// The same, as other commands have it.
    #[arg(long, short = 'm', value_name = "DIR|FILE", conflicts_with = "path")]
    pub model: Option<PathBuf>,
    /// Tokens and logits of an oracle, as safetensors.
    #[arg(long, value_name = "FILE")]
    pub reference: PathBuf,
    /// Weights as stored, judged by the largest error; or int8, judged by the cosine
    /// [default: f32, or q8 for a package, which has no other].
    #[arg(long, value_enum)]
    pub weights: Option<WeightsKind>,
    /// The largest error that passes [default: 1e-4, or 5e-4 with delta net layers].
    #[arg(long, value_name = "X")]
    pub max_abs: Option<f32>,
    /// Threads that compute.
    #[arg(long, short = 't', value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: u32,
    /// Draws the random chunks.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &CheckLogitsArgs) -> ExitCode {
    match report(args).and_then(|report| print(args, &report).map(|()| report)) {
        Ok(report) if report.passed => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => end(Err(failure)),
    }
}

fn report(args: &CheckLogitsArgs) -> Result<Report, Failure> {
    let package = match args.path.as_ref().or(args.model.as_ref()) {
        Some(path) => Package::open(path, &NoProgress),
        None => Package::embedded(),
    };
    let next = "give a Hugging Face directory or a package";
    let package = package.map_err(|error| Failure::input(error, next))?;
    let default = match package.packed {
        Some(_) => WeightsKind::Q8,
        None => WeightsKind::F32,
    };
    let options = CheckOptions {
        cpu: CpuOptions {
            weights: match args.weights.unwrap_or(default) {
                WeightsKind::F32 => WeightRule::F32,
                WeightsKind::Q8 => WeightRule::Q8,
            },
            num_threads: args.threads as usize,
            ..CpuOptions::default()
        },
        max_abs_bound: args.max_abs,
        seed: args.seed,
    };
    check_logits(&package, &args.reference, &options, &Bars::default()).map_err(|error| match error
    {
        CheckError::Step(_) => Failure::failed(error),
        CheckError::Load(_) => {
            Failure::input(error, "`lockstep inspect --verify` looks at every tensor")
        }
        CheckError::Reference(_) | CheckError::Content { .. } => {
            Failure::input(error, "`tools/reference_logits.py` writes such a file")
        }
    })
}

fn print(args: &CheckLogitsArgs, report: &Report) -> Result<(), Failure> {
    let text = match args.json {
        true => serde_json::to_string_pretty(report).map_err(Failure::failed)?,
        false => table(report, Paint::stdout()),
    };
    // A reader that has seen enough, such as `head`, is no failure.
    drop(writeln!(std::io::stdout(), "{}", text.trim_end()));
    Ok(())
}

fn table(report: &Report, paint: Paint) -> String {
    let verdict = |passed| match passed {
        true => paint.green("ok"),
        false => paint.red("FAILED"),
    };
    let mut text = String::new();
    let head = format!("{}, weights {}", report.model, report.weights);
    let _ = writeln!(text, "{}", paint.bold(&head));
    let columns = format!(
        "{:<24} {:>5} {:>11} {:>11} {:>9} {:>9} {:>11}",
        "against the oracle", "rows", "max abs", "max logprob", "cos min", "cos med", "same argmax"
    );
    let _ = writeln!(text, "{}", paint.dim(&columns));
    for array in &report.arrays {
        let _ = writeln!(text, "{}  {}", array_line(array), verdict(array.passed));
    }
    for greedy in &report.greedy {
        let _ = writeln!(
            text,
            "{:<24} {:>5} tokens, {} equal, {} wrong beyond the bound  {}",
            greedy.name,
            greedy.num_tokens,
            greedy.num_equal,
            greedy.num_wrong,
            verdict(greedy.passed)
        );
    }
    for law in &report.laws {
        let _ = writeln!(
            text,
            "{:<24} {:>5} tokens: step by step {}, random chunks {}",
            law.name,
            law.num_tokens,
            verdict(law.steps_equal),
            verdict(law.chunks_equal)
        );
    }
    let bound = match report.weights.as_str() {
        "f32" => format!("max abs at most {:e}", report.max_abs_bound),
        _ => format!(
            "median cosine at least {}",
            lockstep_cpu::check::Q8_COSINE_MEDIAN
        ),
    };
    let _ = writeln!(text, "{} ({bound})", verdict(report.passed));
    text
}

fn array_line(array: &ArrayReport) -> String {
    let logprob = array
        .max_logprob_error
        .map_or("-".to_owned(), |error| format!("{error:.2e}"));
    let argmax = match (array.argmax_equal, array.argmax_wrong) {
        (Some(equal), Some(wrong)) => format!("{equal}, {wrong} wrong"),
        _ => "-".to_owned(),
    };
    format!(
        "{:<24} {:>5} {:>11.2e} {:>11} {:>9.5} {:>9.5} {:>11}",
        array.name,
        array.num_rows,
        array.max_abs_error,
        logprob,
        array.cosine_min,
        array.cosine_median,
        argmax
    )
}
