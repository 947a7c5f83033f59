//! `lockstep law`: puts the law to the test on this machine. Draws requests and deployments with everything
//! switched on that may not matter, and holds what each request says against what it says plainly. It must
//! never compare with anything but `==`, and never end well where it tried nothing.

mod axes;
mod compare;
mod cover;
mod crowd;
mod dice;
mod llama;
mod models;
mod recording;
mod report;
mod tally;
mod trial;
mod watch;
mod wish;

use crate::{
    cuda,
    exit::{self, Failure},
    flags::CudaArgs,
    terminal::Bars,
};
use axes::{Axis, Deployment, Rule};
use cover::{Cover, Space};
use lockstep_cuda::Device;
use lockstep_package::Progress;
use models::{BUILT_IN, LawModel};
use report::Report;
use std::{path::PathBuf, process::ExitCode, thread, time::Instant};
use tally::{Feature, Tally};
use trial::{Bench, Only};
use watch::Sabotage;

const EXAMPLES: &str = "\
The law: the output of a request is a function of (package, prompt, parameters, seed) and of nothing
else. A run is a request in some deployment: with drafts, in company, with a warm cache, in little
room. It must say what it says alone in a fresh engine with all of that off: events, bytes, tokens,
log-probabilities, digests, usage and finish. Runs cover every pair of values of any two axes, and
every triple of those that touch speculation. A value or a feature that was never met is a failure.
The last line is `N runs, M mismatches`.

Examples:
  lockstep law                            everything, in minutes
  lockstep law --reduced                  every pair, in a minute
  lockstep law --runs 20000 --seed 7      more runs, others
  lockstep law -m ./SmolLM2-135M-Instruct --reduced
  lockstep law --only 17.3                one run again, with its request
  lockstep law --report docs/law.md

Exit codes: 0 no mismatch and nothing left out, 1 a mismatch or a gap, 2 wrong command line,
3 a model can't be used.";

/// Tries whether anything changes a byte that may not.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LawArgs {
    /// Runs at least: what covers everything, then random ones.
    #[arg(long, value_name = "N", default_value_t = 0)]
    runs: usize,
    /// Another seed draws other runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Covers pairs only.
    #[arg(long)]
    reduced: bool,
    /// embedded, llama, fingerprint, or a Hugging Face directory or package; may be repeated
    /// [default: the first three].
    #[arg(long = "model", short = 'm', value_name = "NAME|DIR|FILE")]
    models: Vec<String>,
    /// What computes in deployments. What a request says plainly is always computed on the CPU.
    #[arg(long, value_enum, default_value_t = LawBackend::Cpu)]
    backend: LawBackend,
    /// Deployments that run at once [default: one per core].
    #[arg(long, short = 't', value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// One run, by the id that a mismatch is printed with.
    #[arg(long, value_name = "ID")]
    only: Option<Only>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// Writes the table into this Markdown file, between its marks.
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    report: Option<PathBuf>,
    /// Breaks something on purpose, to see that it is noticed.
    #[arg(long, hide = true, value_enum)]
    sabotage: Option<Sabotage>,
}

/// What computes in deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LawBackend {
    /// The CPU.
    Cpu,
    /// The first GPU, by CUDA.
    Cuda,
}

/// Runs the command.
pub fn run(args: &LawArgs) -> ExitCode {
    match law(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => exit::end(Err(failure)),
    }
}

/// Whether the law held, and was tried.
fn law(args: &LawArgs) -> Result<bool, Failure> {
    let start = Instant::now();
    let models = open_models(args)?;
    let rules: Vec<Rule> = models
        .iter()
        .enumerate()
        .flat_map(|(idx, model)| model.rules(idx))
        .collect();
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let cover = draw((args.seed, args.runs, args.reduced), &names, &rules);
    let bench = Bench {
        models: &models,
        names: &names,
        groups: &cover.groups,
        seed: args.seed,
        sabotage: args.sabotage,
    };
    if let Some(only) = args.only {
        return bench.run_only(only);
    }
    let mut tally = Tally::default();
    let bars = Bars::default();
    bars.begin(
        "runs",
        cover
            .groups
            .iter()
            .map(|group| group.members.len() as u64)
            .sum(),
    );
    bench.run_all(threads(args), |done| {
        bars.advance(done.num_runs);
        tally.merge(done);
    });
    bars.end();
    let gaps = tally.gaps(&names, models.iter().any(LawModel::has_rows));
    let flags = flags(args);
    for mismatch in tally.mismatches.iter().take(MISMATCHES_SHOWN) {
        eprintln!("mismatch {}: {}", mismatch.id, mismatch.values);
        eprintln!("  {}", mismatch.difference);
        eprintln!("  again: lockstep law{flags} --only {}", mismatch.id);
    }
    let report = Report {
        models: &names,
        rules: &rules,
        cover: &cover,
        tally: &tally,
        gaps: &gaps,
        flags: &flags,
        seconds: start.elapsed().as_secs(),
    };
    if let Some(path) = &args.report {
        report.save(path)?;
    }
    match args.json {
        true => println!("{:#}", report.json()),
        false => report.print(),
    }
    Ok(tally.mismatches.is_empty() && gaps.is_empty())
}

/// Mismatches that are printed; where there are more, they have the same cause.
const MISMATCHES_SHOWN: usize = 20;

fn open_models(args: &LawArgs) -> Result<Vec<LawModel>, Failure> {
    let built_in = BUILT_IN.map(str::to_owned).to_vec();
    let names = if args.models.is_empty() {
        &built_in
    } else {
        &args.models
    };
    let device = match args.backend {
        LawBackend::Cpu => None,
        LawBackend::Cuda => Some(cuda::open(&CudaArgs::default())?),
    };
    let open = |name: &String| LawModel::open(name, device.as_ref());
    names.iter().map(open).collect()
}

/// Deployments that are to be tried on a device.
pub struct Sample {
    /// The models, as `lockstep law` knows them.
    pub models: Vec<String>,
    /// How many: the first ones of those that cover every pair of values.
    pub num_deployments: usize,
    /// Draws them.
    pub seed: u64,
}

/// What came of them.
pub struct Tried {
    /// Requests that were compared with what the CPU says to them plainly.
    pub num_runs: u64,
    /// Their tokens, each with the digest of its logits.
    pub num_tokens: u64,
    /// Steps of the device.
    pub num_steps: u64,
    /// Drafts that were right.
    pub num_accepted: u64,
    /// What said something else.
    pub mismatches: Vec<String>,
}

/// Tries some deployments on a device, one after another.
///
/// # Errors
/// A model that can't be used.
pub fn sample(device: &Device, sample: &Sample) -> Result<Tried, Failure> {
    let open = |name: &String| LawModel::open(name, Some(device));
    let models: Vec<LawModel> = sample.models.iter().map(open).collect::<Result<_, _>>()?;
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let rules: Vec<Rule> = models
        .iter()
        .enumerate()
        .flat_map(|(idx, model)| model.rules(idx))
        .collect();
    let mut cover = draw((sample.seed, 0, true), &names, &rules);
    cover.groups.truncate(sample.num_deployments);
    let bench = Bench {
        models: &models,
        names: &names,
        groups: &cover.groups,
        seed: sample.seed,
        sabotage: None,
    };
    let bars = Bars::default();
    bars.begin("deployments", cover.groups.len() as u64);
    let mut tally = Tally::default();
    bench.run_all(1, |done| {
        bars.advance(1);
        tally.merge(done);
    });
    bars.end();
    let count = |feature| tally.features.get(&feature).copied().unwrap_or(0);
    Ok(Tried {
        num_runs: tally.num_runs,
        num_tokens: count(Feature::Tokens),
        num_steps: count(Feature::Steps),
        num_accepted: count(Feature::Accepted),
        mismatches: tally
            .mismatches
            .iter()
            .map(|mismatch| {
                format!(
                    "{}: {}\n  {}",
                    mismatch.id, mismatch.values, mismatch.difference
                )
            })
            .collect(),
    })
}

/// Runs that cover every pair of values of any two axes, and where they are not `reduced`, every triple of those
/// that touch speculation.
fn draw((seed, num_runs, reduced): (u64, usize, bool), names: &[String], rules: &[Rule]) -> Cover {
    let triples = match reduced {
        true => Vec::new(),
        false => Axis::SPECULATION.map(|axis| axis as usize).to_vec(),
    };
    let part = |(axis, value): &(Axis, u8)| (*axis as usize, *value);
    let space = Space {
        num_values: Axis::ALL
            .iter()
            .map(|axis| axis.values(names).len())
            .collect(),
        num_shared: Axis::NUM_SHARED,
        triples,
        forbidden: rules
            .iter()
            .map(|rule| rule.values.iter().map(part).collect())
            .collect(),
        group_size: &Deployment::num_requests,
    };
    cover::cover(&space, seed, num_runs)
}

fn threads(args: &LawArgs) -> usize {
    let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
    args.threads.map_or_else(cores, |threads| threads as usize)
}

/// The flags that draw the same runs.
fn flags(args: &LawArgs) -> String {
    let mut flags = String::new();
    if args.seed != 1 {
        flags.push_str(&format!(" --seed {}", args.seed));
    }
    if args.reduced {
        flags.push_str(" --reduced");
    }
    if args.backend == LawBackend::Cuda {
        flags.push_str(" --backend cuda");
    }
    if args.runs > 0 {
        flags.push_str(&format!(" --runs {}", args.runs));
    }
    for model in &args.models {
        flags.push_str(&format!(" -m {model}"));
    }
    flags
}
