//! `lockstep-fuzz`: lists fuzz targets, runs them on files, and runs each of them for a while. Guided by
//! coverage they run under libFuzzer: `just fuzz TARGET`.

use clap::{Parser, Subcommand};
use lockstep_fuzz::corpus::Input;
use lockstep_fuzz::execute::{Execution, execute, tell};
use lockstep_fuzz::smoke::{self, Tally};
use lockstep_fuzz::targets::{TARGETS, Target, find};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs fuzz targets: laws about bytes, which panic where they don't hold.
#[derive(Parser)]
#[command(name = "lockstep-fuzz", after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  lockstep-fuzz list
  lockstep-fuzz smoke                     each target as often as its table says
  lockstep-fuzz smoke --runs 500 tags     one target, 500 inputs made up
  lockstep-fuzz smoke --seconds 60 tags   one target for a minute
  lockstep-fuzz run tags fuzz/crashes/tags/*";

#[derive(Subcommand)]
enum Command {
    /// Prints each target with its law.
    List,
    /// Runs a target on inputs.
    Run {
        /// Its name.
        target: String,
        /// Files, one input each.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Runs targets on their corpus, their saved crashes, and inputs made out of these.
    Smoke {
        /// Targets; all of them if none is named.
        targets: Vec<String>,
        /// Inputs to make up for each target, in place of the number in its table.
        #[arg(long, conflicts_with = "seconds")]
        runs: Option<u64>,
        /// Seconds for each target, in place of a number of inputs.
        #[arg(long)]
        seconds: Option<u64>,
        /// Other seeds make up other inputs.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Prints an object of JSON per target.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::List => {
            for target in TARGETS {
                println!("{:<12} {}", target.name, target.law);
            }
            Ok(())
        }
        Command::Run { target, files } => named(&target).and_then(|target| replay(target, &files)),
        Command::Smoke {
            targets,
            runs,
            seconds,
            seed,
            json,
        } => chosen(&targets).and_then(|targets| {
            targets.into_iter().try_for_each(|target| {
                let begun = Instant::now();
                let num_max = runs.unwrap_or(u64::from(target.smoke_runs));
                let tally = match seconds.map(Duration::from_secs) {
                    Some(limit) => smoke::run(target, seed, |_| begun.elapsed() < limit),
                    None => smoke::run(target, seed, |num_made| num_made < num_max),
                }?;
                print(target, &tally, begun.elapsed(), json);
                Ok(())
            })
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    find(name).ok_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        format!(
            "there is no target {name:?}, expected one of {}",
            names.join(", ")
        )
    })
}

fn chosen(names: &[String]) -> Result<Vec<&'static Target>, String> {
    match names {
        [] => Ok(TARGETS.iter().collect()),
        names => names.iter().map(|name| named(name)).collect(),
    }
}

fn replay(target: &Target, files: &[PathBuf]) -> Result<(), String> {
    for path in files {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let path = path.clone();
        let input = Input { path, bytes };
        let told = match execute(target, &input.bytes) {
            Execution::Held => "the law holds",
            Execution::NoCase => "no case of this target",
            Execution::Failed { panics } => return Err(tell(target, &input.path, &panics)),
        };
        println!("{}: {told}", input.path.display());
    }
    Ok(())
}

fn print(target: &Target, tally: &Tally, took: Duration, as_json: bool) {
    let (num_executions, seconds) = (tally.num_executions(), took.as_secs_f64());
    let per_second = num_executions as f64 / seconds.max(1e-6);
    if as_json {
        let object = json!({
            "target": target.name,
            "executions": num_executions,
            "saved": tally.num_saved,
            "made": tally.num_made,
            "held": tally.num_held,
            "seconds": seconds,
        });
        println!("{object}");
    } else {
        println!(
            "{:<12} {num_executions:>7} executions ({} saved inputs, {} made up), law held {} \
             times, {seconds:.1} s, {per_second:.0}/s",
            target.name, tally.num_saved, tally.num_made, tally.num_held
        );
    }
}
