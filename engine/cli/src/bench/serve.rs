//! `lockstep bench serve`: how fast a server answers many requests at once, measured from outside, over
//! HTTP. It must never print a figure without saying how many requests failed beside it.

mod arrivals;
mod counters;
mod load;
mod report;
mod stream;
mod table;
mod workload;

use super::{contention::Meter, host};
use crate::{
    client::{
        endpoint::{Endpoint, Fault},
        target::{Target, TargetArgs},
    },
    exit::{Exit, Failure},
    terminal::{Bars, Paint},
};
use clap::ValueEnum;
use counters::Counters;
use load::Pace;
use lockstep_package::{EMBEDDED_BATTERY, Progress};
use serde_json::{Value, json};
use std::{
    env, fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};
use workload::{Requests, Shape, Workload};

const EXAMPLES: &str = "\
Examples:
  lockstep bench serve
  lockstep bench serve --workload chat --concurrency 1,8,32 --requests 200 --save chat.json
  lockstep bench serve --rate 0.5,1,2 --requests 100 --seed 7
  lockstep bench serve --workload synthetic --prompt-tokens 512 -m models/smollm2-135m
  lockstep bench serve --url http://127.0.0.1:8000/v1 --api-key KEY --json

Run it from a release build, on an idle machine.
Without --url, server and clients share this process.";

/// Measures a server over HTTP.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LoadArgs {
    /// What is asked.
    #[arg(long, value_enum, default_value_t = Workload::ToolCall)]
    workload: Workload,
    /// Clients, each of which sends its next request when the last was answered; one run each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8],
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    concurrency: Vec<u64>,
    /// Requests per second that arrive whatever the server does, at random times; one run each.
    #[arg(long, value_name = "R,…", value_delimiter = ',', value_parser = rate,
          conflicts_with = "concurrency")]
    rate: Vec<f64>,
    /// Requests of each run.
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    requests: u64,
    /// Requests that are sent before each run and don't count.
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    warmup: u64,
    /// Orders the requests and draws their arrivals; the same seed sends the same again.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The most tokens of an answer; of synthetic ones, exactly so many.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// About so many tokens a prompt, for synthetic requests.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    prompt_tokens: u64,
    /// 0 takes the most likely token.
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f64,
    /// Who may find another's prompt in the server's prefix cache.
    #[arg(long, value_enum, default_value_t = SaltKind::Run)]
    cache_salt: SaltKind,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Writes the JSON to a file, with a line on every request.
    #[arg(long, value_name = "FILE.json")]
    save: Option<PathBuf>,
    /// Of the OpenAI API.
    #[command(flatten)]
    server: TargetArgs,
}

/// Which requests share a `cache_salt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SaltKind {
    /// All, and with everybody else's: none is sent, which also suits servers that don't know the field.
    None,
    /// Those of a run: each run begins with nothing cached.
    Run,
    /// No two.
    Request,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match (0.001..=100_000.0).contains(&rate) {
        true => Ok(rate),
        false => Err("expected a number from 0.001 to 100000".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    if cfg!(debug_assertions) && args.server.url.is_none() {
        let paint = Paint::stderr();
        let note = "this is a debug build: figures of a release build count";
        eprintln!("{}", paint.yellow(note));
    }
    if let Some(path) = &args.save {
        // Said before anything is measured; what an earlier run wrote stays until there is something new.
        let mut options = fs::OpenOptions::new();
        let opened = options.create(true).append(true).open(path);
        opened.map_err(|error| unwritable(path, &error))?;
    }
    let target = Target::find(&args.server)?;
    let requests = requests(args, &target)?;
    let loads: Vec<(Pace, Value)> = match args.rate.as_slice() {
        [] => args.concurrency.iter().map(|num| closed(*num)).collect(),
        rates => rates.iter().map(|rate| open(*rate, args)).collect(),
    };
    let mut runs = Vec::new();
    for (idx, (pace, about)) in loads.into_iter().enumerate() {
        let mut run = measure(args, &target, &requests, (idx, &pace))?;
        run["load"] = about;
        runs.push(run);
    }
    target.still_runs()?;
    let mut report = whole(args, &target, &requests, runs);
    if let Some(path) = &args.save {
        fs::write(path, format!("{report:#}\n")).map_err(|error| unwritable(path, &error))?;
    }
    for run in report["runs"].as_array_mut().into_iter().flatten() {
        run.as_object_mut().map(|run| run.remove("samples"));
    }
    if args.json {
        println!("{report:#}");
    } else {
        table::print(&report);
    }
    verdict(&report)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("--save {}: {error}", path.display());
    Failure::usage(what, "name a file in a folder that can be written")
}

fn closed(concurrency: u64) -> (Pace, Value) {
    let about = json!({"kind": "closed", "concurrency": concurrency});
    (Pace::Closed(concurrency), about)
}

fn open(rate: f64, args: &LoadArgs) -> (Pace, Value) {
    let times = arrivals::arrivals(rate, args.requests, args.seed);
    (Pace::Open(times), json!({"kind": "open", "rate": rate}))
}

fn requests(args: &LoadArgs, target: &Target) -> Result<Requests, Failure> {
    let shape = Shape {
        model: target.model.clone(),
        max_tokens: args.max_tokens,
        temperature: args.temperature,
        seed: args.seed,
    };
    if args.workload != Workload::Synthetic {
        return Requests::of_battery(EMBEDDED_BATTERY, args.workload, shape)
            .map_err(|error| Failure::failed(format!("the embedded battery: {error}")));
    }
    // How many tokens a word has is for the server's tokenizer to say.
    let count = |num_words| {
        prompt_tokens(&target.endpoint, num_words, &shape).map_err(|fault| {
            let what = format!("a prompt of {num_words} words: {}", fault.message);
            Failure::input(what, "synthetic requests need the usage of an answer")
        })
    };
    let (few, many) = (count(16)?, count(80)?);
    let per_word = (many - few).max(1.0) / 64.0;
    let more = (args.prompt_tokens as f64 - few) / per_word;
    Ok(Requests::of_words(
        (16.0 + more).round().max(1.0) as u64,
        shape,
    ))
}

/// Tokens of a prompt of so many words, as the server counts them.
fn prompt_tokens(endpoint: &Endpoint, num_words: u64, shape: &Shape) -> Result<f64, Fault> {
    let mut body = Requests::of_words(num_words, shape.clone()).body(u64::from(u32::MAX), None);
    body["max_tokens"] = json!(1);
    body["stream"] = json!(false);
    body.as_object_mut()
        .map(|body| body.remove("stream_options"));
    let answer = endpoint
        .post("/chat/completions", body.to_string().as_bytes())?
        .whole()?;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
    let found = answer["usage"]["prompt_tokens"].as_f64();
    found.ok_or_else(|| Fault::new("usage", "the answer has no usage.prompt_tokens"))
}

/// Warms up, then measures one load.
fn measure(
    args: &LoadArgs,
    target: &Target,
    requests: &Requests,
    (idx, pace): (usize, &Pace),
) -> Result<Value, Failure> {
    // No two runs may share a salt, even on a server that saw this very command before.
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let run_salt = format!("bench {idx} {}", since_1970.as_nanos());
    let salt = |request: u64| match args.cache_salt {
        SaltKind::None => None,
        // What warms up comes after what is measured, and must leave nothing behind.
        SaltKind::Run if request >= args.requests => Some(format!("{run_salt} warm")),
        SaltKind::Run => Some(run_salt.clone()),
        SaltKind::Request => Some(format!("{run_salt} {request}")),
    };
    let bars = Bars::default();
    let endpoint = &target.endpoint;
    bars.begin("warming up", args.warmup);
    let warm_pace = match pace {
        Pace::Closed(concurrency) => Pace::Closed(*concurrency),
        Pace::Open(_) => Pace::Closed(1),
    };
    // Others than those that are measured.
    let body = |request: u64| {
        let request = args.requests + request;
        requests.body(request, salt(request).as_deref())
    };
    load::run(endpoint, (&warm_pace, args.warmup), &body, &mut || {
        bars.advance(1)
    })
    .map_err(Failure::failed)?;
    bars.end();
    let before = endpoint.metrics().ok();
    let meter = Meter::start();
    bars.begin("measuring", args.requests);
    let body = |request: u64| requests.body(request, salt(request).as_deref());
    let run = load::run(endpoint, (pace, args.requests), &body, &mut || {
        bars.advance(1)
    })
    .map_err(Failure::failed)?;
    bars.end();
    let contention = meter.stop();
    let after = endpoint.metrics().ok();
    let mut report = report::of_run(&run);
    report["samples"] = report::samples(&run);
    report["server"] = match (before, after) {
        (Some(before), Some(after)) => Counters::read(&after)
            .since(&Counters::read(&before))
            .report(),
        _ => Value::Null,
    };
    // Only a server in this process is none of the others that used the processors.
    let own = target.local.is_some();
    report["contention"] = json!(own.then(|| contention.verdict()));
    report["others_share_of_processors"] = json!(contention.others.filter(|_| own));
    Ok(report)
}

fn whole(args: &LoadArgs, target: &Target, requests: &Requests, runs: Vec<Value>) -> Value {
    let synthetic = args.workload == Workload::Synthetic;
    json!({
        "benchmark": "serve",
        "version": env!("CARGO_PKG_VERSION"),
        "debug_build": cfg!(debug_assertions),
        "command_line": without_key(env::args().collect()),
        "machine": host::about(),
        "server": {
            "about": target.about(),
            "url": args.server.url,
            "model": target.model,
            "in_process": target.local.is_some(),
        },
        "settings": {
            "workload": args.workload.name(),
            "requests": args.requests,
            "different_requests": requests.num_different(),
            "warmup": args.warmup,
            "seed": args.seed,
            "max_tokens": args.max_tokens,
            "prompt_tokens": synthetic.then_some(args.prompt_tokens),
            "temperature": args.temperature,
            "cache_salt": format!("{:?}", args.cache_salt).to_lowercase(),
        },
        "runs": runs,
    })
}

/// The command line with its key left out: reports are passed on.
fn without_key(mut words: Vec<String>) -> Vec<String> {
    for idx in 1..words.len() {
        if words[idx - 1] == "--api-key" {
            "…".clone_into(&mut words[idx]);
        } else if words[idx].starts_with("--api-key=") {
            "--api-key=…".clone_into(&mut words[idx]);
        }
    }
    words
}

/// Fails if a run failed: figures of the few that were lucky mean nothing.
fn verdict(report: &Value) -> Result<(), Failure> {
    for run in report["runs"].as_array().into_iter().flatten() {
        let count = |name: &str| run["requests"][name].as_u64().unwrap_or(0);
        let (failed, sent) = (count("failed"), count("sent"));
        if failed * 2 > sent || count("succeeded") == 0 {
            return Err(Failure {
                exit: Exit::Failed,
                what: format!("{failed} of {sent} requests failed: these figures mean nothing"),
                next: "see the errors in the report; ask for less at a time, or fewer a second"
                    .to_owned(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{rate, verdict, without_key};
    use serde_json::json;

    #[test]
    fn a_run_that_failed_is_no_result() {
        let report = |sent: u64, failed: u64| {
            let good = json!({"requests": {"sent": 9, "succeeded": 9, "failed": 0}});
            let requests = json!({"sent": sent, "succeeded": sent - failed, "failed": failed});
            json!({"runs": [good, {"requests": requests}]})
        };
        assert!(verdict(&report(10, 5)).is_ok());
        for (sent, failed) in [(10, 6), (1, 1), (3, 2), (0, 0)] {
            let failure = verdict(&report(sent, failed)).expect_err("most of it failed");
            assert!(failure.what.contains("mean nothing"), "{failure:?}");
        }
    }

    #[test]
    fn a_key_is_not_passed_on() {
        let words = ["x", "--api-key", "secret", "--api-key=secret", "--json"];
        let words = without_key(words.map(str::to_owned).to_vec());
        assert_eq!(words, ["x", "--api-key", "…", "--api-key=…", "--json"]);
    }

    #[test]
    fn rates() {
        assert_eq!(rate("0.5"), Ok(0.5));
        for bad in ["0", "-1", "NaN", "inf", "x"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
