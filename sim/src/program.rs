//! The command line of the simulation.

use clap::{Parser, Subcommand};
use lockstep_sim::coverage::Coverage;
use lockstep_sim::options::Options;
use lockstep_sim::oracles::{ALL, Oracles, WRONG};
use lockstep_sim::planted;
use lockstep_sim::run::{Verdict, keep_panics, try_seed, try_seeds};
use lockstep_sim::tamper::unnoticed;
use lockstep_sim::world;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  lockstep-sim run 4711           one seed, with all that it is made of
  lockstep-sim seeds 2000         seeds 0 to 1999";

/// One of so many seeds is run twice, and must go the same way.
const TWICE_EVERY: u64 = 100;

/// The whole server in a simulated world.
#[derive(Parser)]
#[command(name = "lockstep-sim", after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one seed and prints what it is made of.
    Run {
        /// The seed.
        seed: u64,
        /// Prints every try of a client and every part of a step.
        #[arg(long)]
        trace: bool,
        /// With this planted fault switched on.
        #[arg(long)]
        planted: Option<String>,
    },
    /// Runs many seeds.
    Seeds {
        /// How many.
        count: u64,
        /// The first.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Seeds at a time.
        #[arg(long, default_value_t = 2)]
        threads: u64,
        /// Judges with an oracle that is wrong on purpose: this must fail.
        #[arg(long)]
        wrong_oracle: bool,
    },
    /// Runs the seeds of a file, one a line: those that once found something.
    Kept {
        /// The file.
        #[arg(default_value = "sim/seeds.txt")]
        file: std::path::PathBuf,
    },
    /// Looks whether the harness is fit to judge: the generator brings every pair of features, and each oracle
    /// notices when what it looks at is spoiled.
    Fit {
        /// Seeds in which every pair must occur.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
    },
    /// Looks whether planted faults are found, and the right stage blamed.
    Planted {
        /// Only this one.
        #[arg(long)]
        only: Option<String>,
        /// Seeds that may be tried for each.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// Faults at a time, each in a process of its own.
        #[arg(long, default_value_t = 2)]
        processes: usize,
    },
    /// One planted fault, in this process; prints what came of it as JSON.
    #[command(hide = true)]
    Hunt {
        /// The fault.
        id: String,
        /// Seeds that may be tried.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
    },
}

pub(crate) fn main() -> ExitCode {
    keep_panics();
    let is_good = match Args::parse().command {
        Command::Run {
            seed,
            trace,
            planted,
        } => planted.is_none_or(|id| planted::switch_on(&id)) && one(seed, trace),
        Command::Seeds {
            count,
            from,
            threads,
            wrong_oracle,
        } => many(
            (from, count),
            threads,
            if wrong_oracle { WRONG } else { ALL },
        ),
        Command::Kept { file } => kept(&file),
        Command::Fit { seeds } => fit(seeds),
        Command::Planted {
            only,
            seeds,
            processes,
        } => planted::table(only.as_deref(), seeds, processes),
        Command::Hunt { id, seeds } => planted::hunt_here(&id, seeds),
    };
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn one(seed: u64, trace: bool) -> bool {
    println!("{}", Options::of(seed));
    if trace && let Ok(run) = world::run(&Options::of(seed)) {
        lockstep_sim::trace::print(&run);
    }
    let verdict = try_seed(seed, ALL);
    report(&verdict);
    if let Some((stage, why)) = &verdict.blame {
        println!("to blame: {}: {why}", stage.name());
    }
    println!("digest {:016x}", verdict.digest);
    println!("compared {:?}", verdict.judgement.compared);
    println!("counted {:?}", verdict.counts);
    verdict.is_good()
}

/// A line is a seed, and what it found after it.
fn kept(file: &std::path::Path) -> bool {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            println!("{}: {error}", file.display());
            return false;
        }
    };
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let (mut num_tried, mut is_good) = (0, true);
    for line in lines {
        let Some(seed) = line.split(' ').next().and_then(|seed| seed.parse().ok()) else {
            println!("{}: {line:?} begins with no seed", file.display());
            return false;
        };
        let verdict = try_seed(seed, ALL);
        report(&verdict);
        num_tried += 1;
        is_good &= verdict.is_good();
    }
    println!("{num_tried} kept seeds");
    is_good && num_tried > 0
}

fn fit(seeds: u64) -> bool {
    let coverage = Coverage::of(seeds);
    let rarest = coverage.pairs.iter().min_by_key(|(_, count)| **count);
    let missing = coverage.missing();
    println!(
        "{} features, {} pairs in {seeds} seeds; the rarest pair is {rarest:?}",
        coverage.features.len(),
        coverage.pairs.len()
    );
    for what in &missing {
        println!("never: {what}");
    }
    let missed = unnoticed();
    for what in &missed {
        println!("spoiled, and {what}");
    }
    println!(
        "{} oracles were given spoiled runs, {} noticed nothing",
        ALL.len(),
        missed.len()
    );
    missing.is_empty() && missed.is_empty()
}

fn report(verdict: &Verdict) {
    if let Some(panic) = &verdict.panic {
        println!("seed {}: panic: {panic}", verdict.seed);
    }
    for complaint in &verdict.judgement.complaints {
        let request = complaint.request.as_deref().unwrap_or("-");
        println!(
            "seed {}: {} {request}: {}",
            verdict.seed, complaint.oracle, complaint.what
        );
    }
}

fn many((from, count): (u64, u64), threads: u64, oracles: Oracles) -> bool {
    let begun = Instant::now();
    let (mut bad, mut compared, mut counts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let (mut num_twice, mut digest) = (0, 0u64);
    try_seeds((from, count), threads, oracles, |verdict| {
        report(&verdict);
        digest = digest.rotate_left(5) ^ verdict.digest;
        let mut is_good = verdict.is_good();
        if verdict.seed % TWICE_EVERY == 0 {
            num_twice += 1;
            let again = try_seed(verdict.seed, oracles);
            if again.digest != verdict.digest {
                println!("seed {}: a second run went another way", verdict.seed);
                is_good = false;
            }
        }
        if !is_good {
            bad.push(verdict.seed);
        }
        for (oracle, number) in verdict.judgement.compared {
            *compared.entry(oracle).or_insert(0) += number;
        }
        for (name, number) in verdict.counts {
            *counts.entry(name).or_insert(0) += number;
        }
    });
    let idle: Vec<&str> = compared
        .iter()
        .filter(|(_, number)| **number == 0)
        .map(|(name, _)| *name)
        .collect();
    println!("compared {compared:?}");
    println!("counted {counts:?}");
    println!("{num_twice} seeds were run twice");
    for oracle in &idle {
        println!("the oracle {oracle} compared nothing");
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} seeds in {seconds:.1} s, digest {digest:016x}, {} of them bad: {bad:?}",
        bad.len()
    );
    bad.is_empty() && idle.is_empty() && !compared.is_empty()
}
