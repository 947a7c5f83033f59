//! `lockstep replay`: computes captures again and names the stage that lied. It must never call a stage sound at which
//! nothing was observed.

use crate::{
    captures,
    exit::{self, Exit, Failure},
    flags::{BackendKind, EngineArgs, MachineArgs, ModelArgs, WeightsKind},
    record::{WEIGHTS, package_id},
    session::{open_backend, open_package},
    terminal::{Bars, Paint},
};
use lockstep_capture::{Capture, Found, ReplayError, Stage, Verdict, Witness, replay};
use lockstep_package::{Package, Progress as _};
use lockstep_server::{ChatModel, RequestReader, ServerConfig, judge_response};
use lockstep_step::Matcher;
use serde_json::{Value, json};
use std::{cell::Cell, path::PathBuf, process::ExitCode, sync::Arc};

const EXAMPLES: &str = "\
Each stage is computed again from what it really got, so that one that was fed nonsense and did the
right thing with it is innocent. The last line is the verdict.

Examples:
  curl -H \"x-api-key: $ADMIN\" $URL/captures/req_123 > incident.capture
  lockstep replay incident.capture -m ./model
  lockstep replay incident.capture -m ./model --isa scalar --threads 1
  lockstep replay ~/.local/state/lockstep/captures/1790000000-4711 -m ./model --json
  lockstep replay incident.capture --may-lack mask,stream

Exit codes: 0 every stage agrees, 1 one differs, 2 wrong command line, 3 no capture, or of another
package, 4 the replay itself failed, 5 nothing differs, but a stage was not observed.";

/// Computes a capture again, and names the first stage that differs.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// A capture, or the folder of a recording.
    #[arg(value_name = "FILE|DIR")]
    capture: PathBuf,
    /// Stages at which nothing may have been observed.
    #[arg(long, value_name = "STAGE,...", value_delimiter = ',', value_parser = stage)]
    may_lack: Vec<Stage>,
    /// Replays with files that are not those that were recorded.
    #[arg(long)]
    other_package: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Model")]
    model: ModelArgs,
    #[command(flatten, next_help_heading = "Machine")]
    machine: MachineArgs,
    #[command(flatten, next_help_heading = "Engine")]
    engine: EngineArgs,
}

fn stage(name: &str) -> Result<Stage, String> {
    let found = Stage::ALL.into_iter().find(|stage| stage.name() == name);
    found.ok_or_else(|| {
        let names = Stage::ALL.map(Stage::name).join(", ");
        format!("no stage is called {name:?}, expected one of {names}")
    })
}

/// Runs the command.
pub fn run(args: ReplayArgs) -> ExitCode {
    match judge(args) {
        Ok(exit) => exit,
        Err(failure) => exit::end(Err(failure)),
    }
}

fn judge(mut args: ReplayArgs) -> Result<ExitCode, Failure> {
    let capture = captures::open(&args.capture)?;
    let package = open_package(&args.model)?;
    check_package(&capture, &package, args.other_package)?;
    let option = |name: &str| {
        let options = capture.header.package.options.iter();
        let mut named = options.filter(|own| own.0 == name);
        named.next().map(|(_, value)| value.as_str())
    };
    args.machine.weights = match option(WEIGHTS) {
        Some("f32") => WeightsKind::F32,
        Some("q8") => WeightsKind::Q8,
        _ => args.machine.weights,
    };
    // Hashes in place of a model are replayed with hashes.
    if capture.header.backend == "fingerprint" {
        args.machine.backend = BackendKind::Fingerprint;
    }
    let backend = open_backend(&package, &args.machine, &args.engine)?;
    let about = backend.describe();
    let model = Arc::new(package);
    let reader = RequestReader::new(ServerConfig::new("replay"), model.clone());
    let matcher = |source: &str| -> Result<Option<Box<dyn Matcher>>, String> {
        let made = reader.matcher_of(source)?;
        Ok(made.map(|own| Box::new(own) as Box<dyn Matcher>))
    };
    let bars = Bars::default();
    bars.begin("sequences", capture.requests.len() as u64);
    let done = Cell::new(0);
    let progress = |now: u64, _: u64| bars.advance(now - done.replace(now));
    let served: Arc<dyn ChatModel> = model.clone();
    let witness = Witness {
        backend,
        vocabulary: Arc::new(lockstep_server::vocabulary(model.as_ref())),
        matcher: &matcher,
        response: &|bytes, choices| judge_response(&served, bytes, choices),
        num_seqs: args.engine.max_num_seqs,
        progress: &progress,
    };
    let replayed = replay(&capture, witness);
    bars.end();
    let verdict = replayed.map_err(fails)?.verdict;
    let lacking: Vec<&Found> = verdict
        .lacking()
        .filter(|found| !args.may_lack.contains(&found.stage))
        .collect();
    let is_damaged = capture.damage.is_some() || !capture.oddities.is_empty();
    let exit = match (verdict.guilty(), lacking.is_empty() && !is_damaged) {
        (Some(_), _) => ExitCode::FAILURE,
        (None, true) => ExitCode::SUCCESS,
        (None, false) => ExitCode::from(Exit::Unjudged as u8),
    };
    if args.json {
        println!("{}", report(&capture, &verdict, &about));
    } else {
        print(&capture, &verdict, &about, &lacking);
    }
    Ok(exit)
}

fn fails(error: ReplayError) -> Failure {
    match &error {
        ReplayError::Empty => Failure::input(error, "record requests first"),
        ReplayError::OtherVocabulary { .. } => Failure::input(error, "say which with -m"),
        ReplayError::TooSmall { .. } => Failure::input(error, "raise --kv-cache-gib"),
        ReplayError::NoOps => Failure::input(error, "record with --captures-ops"),
        ReplayError::Failed(_) => Failure::failed(error),
    }
}

/// Fails where the files are not those that were recorded.
fn check_package(capture: &Capture, package: &Package, may_differ: bool) -> Result<(), Failure> {
    let recorded = &capture.header.package;
    if may_differ || recorded.files.is_empty() {
        return Ok(());
    }
    let own = package_id(package, Vec::new())?;
    for file in &recorded.files {
        let same = own.files.iter().find(|own| own.name == file.name);
        let what = match same {
            None => format!("{} has no {}", package.name, file.name),
            Some(same) if same.size != file.size => {
                format!(
                    "{} has {} bytes, and had {}",
                    file.name, same.size, file.size
                )
            }
            Some(same) if same.sha256 != file.sha256 => {
                let (own, had) = (&same.sha256, &file.sha256);
                format!("{} has SHA-256 {own}, and had {had}", file.name)
            }
            Some(_) => continue,
        };
        let what = format!("the capture is of {}: {what}", recorded.name);
        let next = "give the recorded package with -m, or say --other-package";
        return Err(Failure::input(what, next));
    }
    Ok(())
}

fn request_of(capture: &Capture, seq: lockstep_step::SeqId) -> String {
    let request = capture.requests.get(&seq);
    request.map_or_else(
        || format!("{seq:?}"),
        |own| format!("request {}, choice {}", own.request_id, own.choice),
    )
}

fn where_is(capture: &Capture, first: &lockstep_capture::Divergence) -> String {
    let step = first.step.map(|step| format!(", step {step}"));
    let pos = first.pos.map(|pos| format!(", position {pos}"));
    let near = first.near.as_ref().map(|near| format!(", at {near}"));
    [Some(request_of(capture, first.seq)), step, pos, near]
        .into_iter()
        .flatten()
        .collect()
}

fn print(capture: &Capture, verdict: &Verdict, about: &str, lacking: &[&Found]) {
    let paint = Paint::stdout();
    let header = &capture.header;
    println!(
        "{} on {}: {} sequences, {} steps; replayed on {about}\n",
        header.build,
        header.backend,
        capture.requests.len(),
        capture.steps.len(),
    );
    for found in &verdict.stages {
        let name = format!("{:<11}", found.stage.name());
        let counts = format!("{} of {} agree", found.num_agreeing, found.num_compared);
        match (&found.first, found.is_unobserved()) {
            (_, true) => {
                let why = found
                    .unobserved
                    .as_deref()
                    .unwrap_or("nothing of the kind is there");
                println!("{name} {} {}", paint.yellow("not observed"), paint.dim(why));
            }
            (None, _) => println!("{name} {}", paint.green(&counts)),
            (Some(first), _) => {
                println!("{name} {}", paint.red(&counts));
                println!("            first: {}", where_is(capture, first));
                println!(
                    "            expected {}, found {}",
                    first.expected, first.found
                );
            }
        }
    }
    println!();
    match verdict.guilty() {
        Some((stage, first)) => {
            let place = where_is(capture, first);
            println!("{} {stage} lied first: {place}", paint.red("verdict:"));
        }
        None if lacking.is_empty() => {
            let lacks = verdict.lacking().count();
            let all = if lacks == 0 {
                "every stage"
            } else {
                "every stage that was observed"
            };
            println!("{} {all} agrees", paint.green("verdict:"));
        }
        None => {
            let names: Vec<&str> = lacking.iter().map(|found| found.stage.name()).collect();
            let names = names.join(", ");
            println!(
                "{} nothing differs; not observed: {names}",
                paint.yellow("verdict:")
            );
        }
    }
}

fn report(capture: &Capture, verdict: &Verdict, about: &str) -> Value {
    let place = |first: &lockstep_capture::Divergence| {
        let request = capture.requests.get(&first.seq);
        json!({
            "request_id": request.map(|own| own.request_id.as_str()),
            "choice": request.map(|own| own.choice),
            "step": first.step.map(|step| step.0),
            "position": first.pos,
            "expected": first.expected,
            "found": first.found,
            "near": first.near,
        })
    };
    let stages = verdict.stages.iter().map(|found| {
        json!({
            "stage": found.stage.name(),
            "compared": found.num_compared,
            "agreeing": found.num_agreeing,
            "observed": !found.is_unobserved(),
            "why_not": found.unobserved.as_ref().filter(|_| found.is_unobserved()),
            "first": found.first.as_ref().map(place),
        })
    });
    json!({
        "build": capture.header.build,
        "package": capture.header.package.name,
        "recorded_on": capture.header.backend,
        "replayed_on": about,
        "sequences": capture.requests.len(),
        "steps": capture.steps.len(),
        "damage": capture.damage.as_ref().map(ToString::to_string),
        "oddities": capture.oddities,
        "stages": stages.collect::<Vec<Value>>(),
        "guilty": verdict.guilty().map(|(stage, _)| stage.name()),
        "first": verdict.guilty().map(|(_, first)| place(first)),
    })
}
