//! The command line of the simulation.

use clap::{Parser, Subcommand};
use lockstep_sim::options::Options;
use lockstep_sim::planted;
use lockstep_sim::run::{Verdict, keep_panics, try_seed, try_seeds};
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
        Command::Run { seed } => one(seed),
        Command::Seeds {
            count,
            from,
            threads,
        } => many(from, count, threads),
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

fn one(seed: u64) -> bool {
    println!("{}", Options::of(seed));
    let verdict = try_seed(seed);
    report(&verdict);
    if let Some((stage, why)) = &verdict.blame {
        println!("to blame: {}: {why}", stage.name());
    }
    println!("digest {:016x}", verdict.digest);
    println!("compared {:?}", verdict.judgement.compared);
    println!("counted {:?}", verdict.counts);
    verdict.is_good()
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

fn many(from: u64, count: u64, threads: u64) -> bool {
    let begun = Instant::now();
    let (mut bad, mut compared, mut counts) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let mut num_twice = 0;
    try_seeds(from, count, threads, |verdict| {
        report(&verdict);
        let mut is_good = verdict.is_good();
        if verdict.seed % TWICE_EVERY == 0 {
            num_twice += 1;
            let again = try_seed(verdict.seed);
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
        "{count} seeds in {seconds:.1} s, {} of them bad: {bad:?}",
        bad.len()
    );
    bad.is_empty() && idle.is_empty() && !compared.is_empty()
}
