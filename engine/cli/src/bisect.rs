//! `lockstep bisect`: the smallest set of differing settings that turns good into bad, whatever is set and
//! whatever is checked. It must never search before both ends were seen to be what they are called.

mod report;
mod search;
mod settings;
mod trial;

use crate::{
    exit::{self, Exit, Failure},
    interrupt::Interrupt,
    terminal::{Bars, Paint},
};
use lockstep_package::Progress;
use report::{Report, Trial};
use search::{Limits, Outcome, Search, Step};
use serde_json::json;
use settings::Ends;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};
use trial::Checker;

const EXAMPLES: &str = "\
A settings file is TOML; a difference is one dotted key. CMD is run by sh with the path of a file
between the two: {} in it becomes the path, which LOCKSTEP_SETTINGS holds as well. It ends with 0
for good, 1 for bad, and anything else if it could not say, as `lockstep battery` does.

Examples:
  lockstep bisect --good old.toml --bad new.toml --check './check.sh {}'
  lockstep bisect --good a.toml --bad b.toml --check 'timeout 600 ./check.sh {}' --repeats 5
  lockstep bisect --good a.toml --bad b.toml --check ./check.sh --keep trials --json

Exit codes: 0 a set was found, 2 wrong command line, 3 a file can't be used, or both say the same,
4 the machine failed, 5 what had to be judged could not be, 6 the check is unstable, or an end is
not what it is called, 130 interrupted.";

/// Finds the smallest set of settings that turns good into bad.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BisectArgs {
    /// Settings with which all is well.
    #[arg(long, value_name = "FILE.toml")]
    good: PathBuf,
    /// Settings with which it is not.
    #[arg(long, value_name = "FILE.toml")]
    bad: PathBuf,
    /// What says which: a shell command.
    #[arg(long, value_name = "CMD")]
    check: String,
    /// Trials of both ends, of what is found, and of what is found with one setting less: a check that
    /// doesn't say the same each time is no check.
    #[arg(long, value_name = "K", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Smaller sets that are tried at most, to show that none of them does.
    #[arg(long, value_name = "N", default_value_t = 128)]
    exhaustive_max: u64,
    /// Ends at the first trial that could not be judged, rather than passing it over.
    #[arg(long)]
    stop_at_unjudged: bool,
    /// Keeps the settings file and the output of each trial in this folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &BisectArgs) -> ExitCode {
    exit::end(bisect(args))
}

fn bisect(args: &BisectArgs) -> Result<(), Failure> {
    let ends = Ends::new(read(&args.good)?, read(&args.bad)?);
    if ends.differences.is_empty() {
        let (good, bad) = (args.good.display(), args.bad.display());
        return Err(Failure::input(
            format!("{good} and {bad} hold the same settings"),
            "what turns good into bad is not in these files",
        ));
    }
    let checker = Checker::new(&args.check, args.keep.as_deref())?;
    let limits = Limits {
        repeats: args.repeats as usize,
        exhaustive_max: args.exhaustive_max,
        stop_at_unjudged: args.stop_at_unjudged,
    };
    let mut trials = Vec::new();
    let outcome = search(&ends, &checker, limits, &mut trials)?;
    let report = Report {
        given: json!({
            "good": args.good,
            "bad": args.bad,
            "check": args.check,
            "repeats": args.repeats,
            "exhaustive_max": args.exhaustive_max,
            "stop_at_unjudged": args.stop_at_unjudged,
            "version": env!("CARGO_PKG_VERSION"),
        }),
        ends: &ends,
        trials: &trials,
        outcome: outcome.as_ref(),
    };
    match args.json {
        true => println!("{:#}", report.json()),
        false => report.print(),
    }
    verdict(&ends, outcome)
}

/// Runs trials until the search is over; none if it was interrupted.
fn search(
    ends: &Ends,
    checker: &Checker,
    limits: Limits,
    trials: &mut Vec<Trial>,
) -> Result<Option<Outcome>, Failure> {
    let interrupt = Interrupt::listen()?;
    interrupt.begin();
    let mut search = Search::new(ends.differences.len(), limits);
    let (bars, paint) = (Bars::default(), Paint::stderr());
    loop {
        let (subset, purpose) = match search.step() {
            Step::Done(outcome) => return Ok(Some(outcome)),
            Step::Try(subset, purpose) => (subset, purpose),
        };
        let settings = toml::to_string(&ends.between(&subset))
            .map_err(|error| Failure::failed(format!("a settings file: {error}")))?;
        let number = trials.len() + 1;
        let set = report::set_in_words(ends, &subset);
        bars.begin(&format!("trial {number}, {}: {set}", purpose.name()), 0);
        let ran = checker.run(number, &settings)?;
        bars.end();
        if interrupt.is_asked() {
            // The check was interrupted as well: what it said is no verdict.
            return Ok(None);
        }
        search.tell(subset.clone(), ran.verdict);
        let trial = Trial {
            subset,
            purpose,
            ran,
        };
        eprintln!(
            "{}",
            paint.dim(&report::trial_in_words(ends, number, &trial))
        );
        trials.push(trial);
    }
}

/// What the program ends with.
fn verdict(ends: &Ends, outcome: Option<Outcome>) -> Result<(), Failure> {
    let unstable = |what: String, next: &str| Failure {
        exit: Exit::Unstable,
        what,
        next: next.to_owned(),
    };
    let Some(outcome) = outcome else {
        return Err(Failure {
            exit: Exit::Interrupted,
            what: "interrupted before anything was found".to_owned(),
            next: String::new(),
        });
    };
    Err(match outcome {
        Outcome::Found(_) => return Ok(()),
        Outcome::GoodIsBad { swapped: true } => unstable(
            "the good file is bad and the bad one good, every time".to_owned(),
            "swap --good and --bad; or the check ends with 0 where it should end with 1",
        ),
        Outcome::GoodIsBad { swapped: false } => unstable(
            "the good file is bad, every time".to_owned(),
            "what is wrong doesn't come from these differences, or the check reads no settings",
        ),
        Outcome::BadIsGood => unstable(
            "the bad file is good, every time".to_owned(),
            "what is wrong doesn't come from these differences, or the check doesn't see it",
        ),
        Outcome::Unstable(set) => unstable(
            format!(
                "the check itself is unstable: good once and bad another time with {}",
                report::set_in_words(ends, &set)
            ),
            "make it say the same each time: more requests, fixed seeds, a clear bound",
        ),
        Outcome::Unjudged(set) => Failure {
            exit: Exit::Unjudged,
            what: format!("could not be judged: {}", report::set_in_words(ends, &set)),
            next: "see how its trial ended; --keep DIR keeps what the check wrote".to_owned(),
        },
    })
}

fn read(path: &Path) -> Result<toml::Table, Failure> {
    let failure = |what: String| {
        let next = "settings are TOML: tables and dotted keys of values";
        Failure::input(format!("{}: {what}", path.display()), next)
    };
    let text = fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    text.parse()
        .map_err(|error: toml::de::Error| failure(error.to_string().trim_end().to_owned()))
}
