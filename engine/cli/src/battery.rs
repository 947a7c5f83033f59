//! `lockstep battery`: how often a server's answers are well-formed calls, malformed ones, starved, or text that
//! nobody should see. Requests come from a file and are sent many times. It must never count what is no model
//! output as an outcome, and never end well where most of it was none.

mod body;
mod compare;
mod condition;
mod conformance;
mod judge;
mod markup;
mod plan;
mod record;
mod repetition;
mod reply;
mod report;
mod tally;

use crate::{
    client::{
        endpoint::Endpoint,
        pool,
        target::{Target, TargetArgs},
    },
    exit::{self, Exit, Failure},
    interrupt::Interrupt,
    terminal::Bars,
};
use condition::Condition;
use lockstep_package::Progress;
use plan::{Overrides, Plan, Request, Route};
use record::{Exchange, Place, Writer};
use reply::Raw;
use report::{Judged, Report, Verdict};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};
use tally::tally;

/// Keys shorter than this are no secrets, and would stand everywhere in a text.
const KEY_CHARS_MIN: usize = 6;

const EXAMPLES: &str = "\
A battery is TOML: requests with messages, tools and a name; docs/battery.md says what it may hold.

Examples:
  lockstep battery calls.toml                             against a server started here
  lockstep battery calls.toml --url http://127.0.0.1:8000/v1 --repeats 84 --out before.jsonl
  lockstep battery calls.toml --fail-if 'malformed > 0' --fail-if 'starved > 5 %'
  lockstep battery calls.toml --fail-if 'alarm: call < 95 %' --json
  lockstep battery compare before.jsonl after.jsonl

Exit codes: 0 done, and nothing of --fail-if holds; 1 something of it does; 2 wrong command line;
3 an input can't be used; 4 the server of this process failed; 5 too little was model output for
anything to be judged; 130 interrupted.";

/// Counts what a server's answers are, over many repeats.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true,
          subcommand_negates_reqs = true)]
pub struct BatteryArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// The requests.
    #[arg(value_name = "BATTERY.toml", required = true)]
    battery: Option<PathBuf>,
    /// Answers of each request, on each route [default: as the battery says, or 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeats: Option<u64>,
    /// Where requests go [default: as the battery says, or openai].
    #[arg(long, value_name = "NAME,…", value_enum, value_delimiter = ',')]
    route: Vec<Route>,
    /// Whether answers are streamed [default: as the battery says, or off].
    #[arg(long, value_enum, value_name = "WHEN")]
    stream: Option<Switch>,
    /// The seed of the first repeat; the others follow.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Requests that are under way at once.
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    concurrency: u64,
    /// Writes each exchange to this file, and goes on with what it holds already.
    #[arg(long, short = 'o', value_name = "FILE.jsonl")]
    out: Option<PathBuf>,
    /// Asks again for what the file holds that was no model output.
    #[arg(long, requires = "out")]
    retry_invalid: bool,
    /// Fails with 1 where this holds, as in 'malformed > 0' or 'alarm: starved >= 5 %'; may be repeated.
    #[arg(long, value_name = "CONDITION")]
    fail_if: Vec<Condition>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// Of the OpenAI API, of Anthropic's, or both.
    #[command(flatten)]
    server: TargetArgs,
}

/// What else can be done with results.
#[derive(clap::Subcommand, Debug)]
enum What {
    /// What differs between two results files, and what they are too small to see.
    Compare(compare::CompareArgs),
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    /// Streamed.
    On,
    /// Whole.
    Off,
}

/// Runs the command.
pub fn run(args: &BatteryArgs) -> ExitCode {
    exit::end(match &args.what {
        Some(What::Compare(args)) => compare::run(args),
        None => battery(args),
    })
}

fn battery(args: &BatteryArgs) -> Result<(), Failure> {
    let path = args.battery.as_deref().unwrap_or(Path::new(""));
    let plan = read(path, args)?;
    let target = Target::find(&args.server)?;
    let settings = json!({
        "about": target.about(),
        "url": args.server.url,
        "model": target.model,
        "seed": args.seed,
        "battery": plan.settings(),
    });
    let (mut writer, mut exchanges) = match &args.out {
        None => (None, Vec::new()),
        Some(out) => {
            let (writer, held) = Writer::open(out, &settings, args.retry_invalid)?;
            (Some(writer), held)
        }
    };
    ask_all(args, &plan, &target, (&mut writer, &mut exchanges))?;
    target.still_runs()?;
    let cells = tally(&settings, &exchanges);
    let mut why_unjudged = tally::why_unjudged(&cells);
    let mut conditions = Vec::new();
    for condition in &args.fail_if {
        match condition.judge(&cells) {
            (count, Some(holds)) => conditions.push(Judged {
                text: condition.text.clone(),
                count,
                holds,
            }),
            (_, None) => why_unjudged.push(format!("{}: nothing to count", condition.text)),
        }
    }
    let report = Report {
        settings: &settings,
        cells: &cells,
        conditions,
        why_unjudged,
        passed_over: &plan.unjudged,
        out: args.out.as_ref().map(|out| out.display().to_string()),
    };
    match args.json {
        true => println!("{:#}", report.json()),
        false => report.print(),
    }
    verdict(&report)
}

fn read(path: &Path, args: &BatteryArgs) -> Result<Plan, Failure> {
    let wrong = |what: String| {
        let next = "docs/battery.md says what a battery may hold";
        Failure::input(format!("{}: {what}", path.display()), next)
    };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let overrides = Overrides {
        repeats: args.repeats,
        routes: args.route.clone(),
        stream: args.stream.map(|switch| switch == Switch::On),
    };
    let plan = Plan::read(&text, &overrides).map_err(wrong)?;
    for condition in &args.fail_if {
        let name = condition.request.as_deref();
        if !name.is_none_or(|name| plan.requests.iter().any(|request| request.name == name)) {
            let what = format!("--fail-if {:?}: no request has this name", condition.text);
            return Err(Failure::usage(
                what,
                "name one of the battery, or none for all of them",
            ));
        }
    }
    Ok(plan)
}

/// Sends what the results don't hold yet. All requests take turns, so that what changes with time meets them
/// all alike.
fn ask_all(
    args: &BatteryArgs,
    plan: &Plan,
    target: &Target,
    (writer, exchanges): (&mut Option<Writer>, &mut Vec<Exchange>),
) -> Result<(), Failure> {
    let held: BTreeSet<Place> = exchanges.iter().map(|e| e.place.clone()).collect();
    let mut open = Vec::new();
    for repeat in 0..plan.repeats {
        for request in &plan.requests {
            for (route, stream) in request.cells.iter().copied() {
                let place = Place {
                    request: request.name.clone(),
                    route,
                    stream,
                    repeat,
                };
                if !held.contains(&place) {
                    open.push((request, place));
                }
            }
        }
    }
    if !held.is_empty() {
        eprintln!(
            "{} exchanges are there already, {} to go",
            held.len(),
            open.len()
        );
    }
    // Whoever interrupts finds what was answered by then in the results file.
    let _interrupt = Interrupt::listen()?;
    let bars = Bars::default();
    bars.begin("asking", open.len() as u64);
    let key = args.server.api_key.as_deref();
    let work = |idx: u64| {
        let (request, place) = &open[idx as usize];
        exchange(target, (request, place.clone()), args.seed, key)
    };
    let mut failure = None;
    pool::run(
        (args.concurrency, open.len() as u64),
        &work,
        &mut |exchange| {
            bars.advance(1);
            if let Some(Err(error)) = writer.as_mut().map(|writer| writer.exchange(&exchange)) {
                failure.get_or_insert(error);
            }
            exchanges.push(exchange);
            failure.is_none()
        },
    )
    .map_err(Failure::failed)?;
    bars.end();
    failure.map_or(Ok(()), Err)
}

/// Sends a request, and judges what comes back.
fn exchange(
    target: &Target,
    (request, place): (&Request, Place),
    first_seed: u64,
    key: Option<&str>,
) -> Exchange {
    let (route, stream) = (place.route, place.stream);
    let seed = request.seed(first_seed, place.repeat, (route, stream));
    let body = body::body(request, &target.model, route, stream, seed);
    let start = Instant::now();
    let raw = without_key(send(&target.endpoint, route, &body), key);
    let seconds = start.elapsed().as_secs_f64();
    let read = reply::read(route, stream, &raw).map(|reply| {
        let judged = judge::judge(request, &reply);
        (reply, judged)
    });
    Exchange {
        seconds,
        ..Exchange::new(place, seed, &raw, read)
    }
}

fn send(endpoint: &Endpoint, route: Route, body: &Value) -> Raw {
    let path = match route {
        Route::OpenAi => "/chat/completions",
        Route::Anthropic => "/messages",
    };
    match endpoint.post(path, body.to_string().as_bytes()) {
        Err(fault) => Raw {
            status: None,
            body: Vec::new(),
            broken: Some(format!("{}: {}", fault.code, fault.message)),
        },
        Ok(response) => {
            let status = Some(response.status);
            let (body, broken) = response.bytes();
            Raw {
                status,
                body,
                broken: broken.map(|fault| format!("{}: {}", fault.code, fault.message)),
            }
        }
    }
}

/// A server may say the key again, in an error: results are passed on.
fn without_key(raw: Raw, key: Option<&str>) -> Raw {
    let Some(key) = key.filter(|key| key.len() >= KEY_CHARS_MIN) else {
        return raw;
    };
    let text = String::from_utf8_lossy(&raw.body);
    if !text.contains(key) {
        return raw;
    }
    Raw {
        body: text.replace(key, "…").into_bytes(),
        ..raw
    }
}

fn verdict(report: &Report<'_>) -> Result<(), Failure> {
    match report.verdict() {
        Verdict::Fine => Ok(()),
        Verdict::Defect => {
            let held = report.conditions.iter().filter(|condition| condition.holds);
            let held: Vec<String> = held
                .map(|condition| {
                    let (k, n) = condition.count;
                    format!("{}: {k} of {n}", condition.text)
                })
                .collect();
            Err(Failure {
                exit: Exit::Check,
                what: held.join(", "),
                next: match &report.out {
                    Some(out) => format!("{out} has every answer, and what was wrong with it"),
                    // What a check of `bisect` says last is what its trial is listed with.
                    None => String::new(),
                },
            })
        }
        Verdict::Unjudged => Err(Failure {
            exit: Exit::Unjudged,
            what: report.why_unjudged.join("; "),
            next: match &report.out {
                Some(out) => format!("see {out}; --retry-invalid asks again for what failed"),
                None => "--out FILE.jsonl keeps what came instead".to_owned(),
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Raw, without_key};

    #[test]
    fn a_key_is_not_passed_on() {
        let raw = |body: &str| Raw {
            status: Some(401),
            body: body.as_bytes().to_vec(),
            broken: None,
        };
        let shown = |body, key| without_key(raw(body), key).body;
        assert_eq!(
            shown("wrong key sk-12345", Some("sk-12345")),
            "wrong key …".as_bytes()
        );
        assert_eq!(shown("a b", Some("b")), b"a b");
        assert_eq!(shown("a b", None), b"a b");
    }
}
