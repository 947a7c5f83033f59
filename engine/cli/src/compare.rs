//! `lockstep compare`: two captures of the same requests, stage by stage. It must never end well where something
//! differs, where something could not be compared, or where nothing was.

use crate::captures;
use crate::exit::{Exit, Failure, end};
use crate::terminal::{Bars, Paint};
use clap::Args;
use lockstep_capture::{Alone, Capture, Compared, Divergence, Found, compare};
use lockstep_package::Progress;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Sequences without a partner that are shown; `--json` has all.
const ALONE_MAX: usize = 10;

/// Compares two captures of the same requests, stage by stage.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lockstep compare monday.capture tuesday.capture
  lockstep compare cpu/ cuda/                              folders of two recordings
  lockstep compare good.capture bad.capture --json | jq .first

Sequences are paired by what they were asked, and compared by position of their output to the first
token that differs. What two runs may differ in (steps, blocks, rows, cached tokens, time) is not
compared. See docs/CAPTURE.md.

Exit codes: 0 all that was compared agrees; 1 something differs; 3 a file can't be read, no two
sequences were asked the same, or nothing of them can be compared; 5 nothing differs, but a file is
damaged or one of its plans is wrong, so that not all of it could be compared.")]
pub struct CompareArgs {
    /// The capture that the other is held against.
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The other.
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Write what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> ExitCode {
    match compared(args) {
        Ok(code) => code,
        Err(failure) => end(Err(failure)),
    }
}

fn compared(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let bars = Bars::default();
    bars.begin("reading captures", 2);
    let open = |path: &Path| {
        let capture = captures::open(path)?;
        bars.advance(1);
        Ok(capture)
    };
    let (a, b) = (open(&args.a)?, open(&args.b)?);
    bars.end();
    bars.begin("comparing", 0);
    let compared = compare(&a, &b);
    bars.end();
    let compared = compared.map_err(|error| {
        let next = "both must hold the same requests; give each a seed, or a temperature of 0";
        Failure::input(error, next)
    })?;
    let text = match args.json {
        true => {
            serde_json::to_string_pretty(&report(&compared, [&a, &b])).map_err(Failure::failed)?
        }
        false => table(&compared, [(&args.a, &a), (&args.b, &b)], Paint::stdout()),
    };
    // A reader that has seen enough, such as `head`, is no failure.
    drop(writeln!(std::io::stdout(), "{}", text.trim_end()));
    let is_damaged = [&a, &b]
        .iter()
        .any(|own| own.damage.is_some() || !own.oddities.is_empty());
    Ok(match &compared.first {
        Some(_) => ExitCode::FAILURE,
        None if compared.agrees() && !is_damaged => ExitCode::SUCCESS,
        None => ExitCode::from(Exit::Unjudged as u8),
    })
}

/// A request and its choice, as its response carries it.
fn who(capture: &Capture, seq: lockstep_step::SeqId) -> String {
    let request = capture.requests.get(&seq);
    request.map_or(format!("{seq:?}"), |own| match own.choice {
        0 => own.request_id.clone(),
        choice => format!("{}, choice {choice}", own.request_id),
    })
}

fn report(compared: &Compared, [a, b]: [&Capture; 2]) -> Value {
    let damage = |own: &Capture| own.damage.as_ref().map(ToString::to_string);
    let divergence = |own: &Divergence| {
        json!({
            "request": who(a, own.seq),
            "seq": own.seq.0,
            "pos": own.pos,
            "a": own.expected,
            "b": own.found,
            "near": own.near,
        })
    };
    let stage = |found: &Found| {
        json!({
            "stage": found.stage.name(),
            "compared": found.num_compared,
            "agreeing": found.num_agreeing,
            "first": found.first.as_ref().map(divergence),
            "unobserved": found.unobserved.as_ref().filter(|_| found.is_unobserved()),
        })
    };
    let alone = |own: &Alone| {
        json!({
            "capture": own.side.to_string(),
            "seq": own.seq.0,
            "request": own.request_id,
            "choice": own.choice,
            "why": own.why,
        })
    };
    let settings = compared.settings.iter();
    let settings = settings.map(|own| json!({"name": own.name, "a": own.of_a, "b": own.of_b}));
    let first = compared.first.as_ref().map(|(at, first)| {
        let mut value = divergence(first);
        value["stage"] = json!(at.name());
        value
    });
    json!({
        "agrees": compared.agrees(),
        "pairs": compared.pairs.len(),
        "alone": compared.alone.iter().map(alone).collect::<Vec<_>>(),
        "settings": settings.collect::<Vec<_>>(),
        "left_out": compared.left_out,
        "damage": {"a": damage(a), "b": damage(b)},
        "stages": compared.verdict.stages.iter().map(stage).collect::<Vec<_>>(),
        "first": first,
    })
}

fn table(compared: &Compared, sides: [(&PathBuf, &Capture); 2], paint: Paint) -> String {
    let mut text = String::new();
    for (name, (path, capture)) in ["A", "B"].into_iter().zip(sides) {
        let path = paint.bold(&path.display().to_string());
        let (num, steps) = (capture.requests.len(), capture.steps.len());
        let (build, backend) = (&capture.header.build, &capture.header.backend);
        let _ = writeln!(
            text,
            "{name}  {path}  {num} sequences, {steps} steps, {build}, {backend}"
        );
    }
    for own in &compared.settings {
        let say = |own: &Option<String>| own.clone().unwrap_or_else(|| "nothing".to_owned());
        let (a, b) = (say(&own.of_a), say(&own.of_b));
        let _ = writeln!(
            text,
            "   {} {a} | {b}",
            paint.dim(&format!("{:<24}", own.name))
        );
    }
    let pairs = match compared.pairs.len() {
        1 => "1 pair of sequences".to_owned(),
        num => format!("{num} pairs of sequences"),
    };
    let _ = writeln!(text, "{pairs}, {} without a partner", compared.alone.len());
    for own in compared.alone.iter().take(ALONE_MAX) {
        let who = format!("{}: {}", own.side, own.request_id);
        let _ = writeln!(text, "   {who}, choice {}: {}", own.choice, own.why);
    }
    if compared.alone.len() > ALONE_MAX {
        let _ = writeln!(text, "   and {} more", compared.alone.len() - ALONE_MAX);
    }
    for own in &compared.left_out {
        let _ = writeln!(text, "{} {own}", paint.yellow("not compared:"));
    }
    for found in &compared.verdict.stages {
        let _ = writeln!(text, "{:<12} {}", found.stage.name(), said(found, paint));
    }
    if let Some((stage, first)) = &compared.first {
        let who = who(sides[0].1, first.seq);
        let pos = first
            .pos
            .map_or(String::new(), |pos| format!(" at position {pos}"));
        let _ = writeln!(text, "{} {stage} of {who}{pos}", paint.red("first:"));
        let _ = writeln!(text, "   A {}\n   B {}", first.expected, first.found);
        if let Some(near) = &first.near {
            let _ = writeln!(text, "   {}", paint.dim(near));
        }
    }
    text
}

fn said(found: &Found, paint: Paint) -> String {
    if found.is_unobserved() {
        let why = found.unobserved.as_deref().unwrap_or("nothing of the kind");
        return paint.dim(&format!("not compared  {why}"));
    }
    let text = format!("{} of {} agree", found.num_agreeing, found.num_compared);
    match found.passes() {
        true => paint.green(&text),
        false => paint.red(&text),
    }
}
