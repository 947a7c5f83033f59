//! `lockstep pins`: what is carried from elsewhere, compared with where it came from. It must never call a
//! pin the same that it did not read, and never reach for a network: upstreams are folders that are given.

mod check;
mod diff;
mod file;
mod upstream;

use crate::exit::{Exit, Failure, end};
use crate::terminal::{Bars, Paint};
use check::{Checked, Copy, Verdict, check};
use clap::{Args, Subcommand};
use file::Pin;
use lockstep_package::Progress;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use upstream::Upstream;

/// Lines of a difference that are shown; `--json` has all.
const DIFF_LINES_MAX: usize = 200;

const EXAMPLES: &str = "\
Examples:
  lockstep pins check --upstream ../upstream.git      pins.toml, all from one git directory
  lockstep pins check third_party/pins.toml --upstream ../unpacked-release
  lockstep pins check --upstream https://example.org/a=../a --upstream ORG/B=../b.git
  lockstep pins check --upstream ../upstream.git --json | jq .pins[].verdict

An upstream is a git directory (bare or with files) or a plain folder; nothing is fetched, so
bring it up to date before. docs/pins.md says what a pin is made of.

Exit codes: 0 all the same and every own copy as pinned; 1 something moved, is gone, or an own
copy changed; 3 nothing of that, but something could not be checked, or there are no pins to read.";

/// Compares what is carried from elsewhere with where it came from.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PinsArgs {
    #[command(subcommand)]
    command: PinsCommand,
}

#[derive(Subcommand, Debug)]
enum PinsCommand {
    Check(CheckArgs),
}

/// Says of each pin whether its upstream still has it: same, moved, gone, or could not be checked.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
struct CheckArgs {
    /// The list of pins.
    #[arg(value_name = "FILE", default_value = "pins.toml")]
    file: PathBuf,
    /// Where a source lies here: a git directory or a folder of files. Without a source, for all pins whose
    /// source has no upstream of its own.
    #[arg(long, value_name = "[SOURCE=]DIR")]
    upstream: Vec<String>,
    /// Write the verdicts as JSON.
    #[arg(long)]
    json: bool,
}

/// What the whole check came to.
#[derive(Serialize)]
struct Report<'a> {
    /// One for each pin, in the order of the file.
    pins: Vec<Checked<'a>>,
    same: usize,
    moved: usize,
    gone: usize,
    unchecked: usize,
    /// Own copies that are not as pinned.
    copies_changed: usize,
    /// Whether all are the same and every own copy is as pinned.
    passed: bool,
}

/// Runs the command.
pub fn run(args: &PinsArgs) -> ExitCode {
    let PinsCommand::Check(args) = &args.command;
    match check_all(args) {
        Ok(code) => code,
        Err(failure) => end(Err(failure)),
    }
}

fn check_all(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let next = "docs/pins.md says what a pin is made of";
    let text = std::fs::read_to_string(&args.file).map_err(|error| {
        let what = format!("{}: {error}", args.file.display());
        Failure::input(what, "give the path of a pins.toml")
    })?;
    let pins = file::parse(&args.file, &text).map_err(|error| Failure::input(error, next))?;
    let upstreams = Upstreams::of(&args.upstream, &pins)?;
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let bars = Bars::default();
    bars.begin("checking pins", pins.len() as u64);
    let checked = pins.iter().map(|pin| {
        let checked = check(pin, folder, upstreams.of_pin(pin));
        bars.advance(1);
        checked
    });
    let report = Report::of(checked.collect());
    bars.end();
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).map_err(Failure::failed)?,
        false => table(&report, Paint::stdout()),
    };
    // A reader that has seen enough, such as `head`, is no failure.
    drop(writeln!(std::io::stdout(), "{}", text.trim_end()));
    Ok(report.exit())
}

/// Where each source lies.
struct Upstreams {
    by_source: BTreeMap<String, Result<Upstream, String>>,
    other: Option<Result<Upstream, String>>,
}

impl Upstreams {
    fn of(flags: &[String], pins: &[Pin]) -> Result<Upstreams, Failure> {
        let (mut by_source, mut other) = (BTreeMap::new(), None);
        for flag in flags {
            // The path may contain the sign, too; one that is there is taken for what it is.
            let named = flag.rsplit_once('=').filter(|_| !Path::new(flag).exists());
            let Some((source, folder)) = named else {
                if other.replace(Upstream::open(Path::new(flag))).is_some() {
                    let what = format!("--upstream {flag}: another one has no source either");
                    return Err(Failure::usage(what, "give all but one as SOURCE=DIR"));
                }
                continue;
            };
            if !pins.iter().any(|pin| pin.source == source) {
                let what = format!("--upstream {flag}: no pin has the source {source:?}");
                return Err(Failure::usage(
                    what,
                    "write it as the pins do, or as DIR alone",
                ));
            }
            let opened = Upstream::open(Path::new(folder));
            if by_source.insert(source.to_owned(), opened).is_some() {
                let what = format!("--upstream {flag}: {source} has one already");
                return Err(Failure::usage(what, "give one upstream for each source"));
            }
        }
        Ok(Upstreams { by_source, other })
    }

    fn of_pin(&self, pin: &Pin) -> Result<&Upstream, String> {
        let own = self.by_source.get(&pin.source).or(self.other.as_ref());
        match own {
            Some(opened) => opened.as_ref().map_err(String::clone),
            None => Err(format!(
                "no upstream was given for {}; say where it lies with --upstream {}=DIR",
                pin.source, pin.source
            )),
        }
    }
}

impl<'a> Report<'a> {
    fn of(pins: Vec<Checked<'a>>) -> Report<'a> {
        let count = |verdict| pins.iter().filter(|pin| pin.verdict == verdict).count();
        let is_changed = |pin: &&Checked<'_>| pin.own_copy.verdict != Copy::AsPinned;
        let (same, copies_changed) = (count(Verdict::Same), pins.iter().filter(is_changed).count());
        Report {
            same,
            moved: count(Verdict::Moved),
            gone: count(Verdict::Gone),
            unchecked: count(Verdict::Unchecked),
            copies_changed,
            passed: !pins.is_empty() && same == pins.len() && copies_changed == 0,
            pins,
        }
    }

    fn exit(&self) -> ExitCode {
        let is_unread = |pin: &Checked<'_>| pin.own_copy.verdict == Copy::Unchecked;
        let found = self.moved + self.gone + self.copies_changed;
        match found - self.pins.iter().filter(|pin| is_unread(pin)).count() {
            0 if self.passed => ExitCode::SUCCESS,
            0 => ExitCode::from(Exit::Input as u8),
            _ => ExitCode::FAILURE,
        }
    }
}

fn table(report: &Report<'_>, paint: Paint) -> String {
    let mut text = String::new();
    for pin in &report.pins {
        let verdict = match pin.verdict {
            Verdict::Same => paint.green("same"),
            Verdict::Moved => paint.yellow("moved"),
            Verdict::Gone => paint.red("gone"),
            Verdict::Unchecked => paint.red("could not be checked"),
        };
        let _ = writeln!(text, "{verdict}  {}", paint.bold(&plain(pin.path)));
        let from = format!("{} {}, {}", pin.source, pin.reference, pin.file);
        let head = pin.head.as_deref().map(|head| format!(", head {head}"));
        let from = plain(&format!("{from}{}", head.unwrap_or_default()));
        let _ = writeln!(text, "  from {}", paint.dim(&from));
        if let Some(reason) = &pin.reason {
            let _ = writeln!(text, "  {}", plain(reason));
        }
        if let (Verdict::Moved, Some(found)) = (pin.verdict, &pin.upstream) {
            let _ = writeln!(text, "  head has git blob {}", found.git_blob);
            let _ = writeln!(text, "           sha256   {}", found.sha256);
        }
        if let Some(diff) = &pin.diff {
            write_diff(&mut text, diff, paint);
        }
        write_copy(&mut text, pin, paint);
    }
    let verdict = match report.passed {
        true => paint.green("all as pinned"),
        false => paint.red("not as pinned"),
    };
    let _ = writeln!(
        text,
        "{verdict}: {} pins, {} same, {} moved, {} gone, {} could not be checked; \
         {} own copies not as pinned",
        report.pins.len(),
        report.same,
        report.moved,
        report.gone,
        report.unchecked,
        report.copies_changed
    );
    text
}

fn write_copy(text: &mut String, pin: &Checked<'_>, paint: Paint) {
    let own = &pin.own_copy;
    let verdict = match own.verdict {
        Copy::AsPinned => return,
        Copy::Changed => "changed",
        Copy::Gone => "gone",
        Copy::Unchecked => "could not be checked",
    };
    let _ = writeln!(text, "  own copy {}", paint.red(verdict));
    if let Some(reason) = &own.reason {
        let _ = writeln!(text, "  {}", plain(reason));
    }
    if let Some(found) = &own.hashes {
        let _ = writeln!(text, "  it has   git blob {}", found.git_blob);
        let _ = writeln!(text, "  expected git blob {}", pin.pinned.git_blob);
    }
    if let Some(diff) = &own.diff {
        write_diff(text, diff, paint);
    }
}

fn write_diff(text: &mut String, diff: &str, paint: Paint) {
    for line in diff.lines().take(DIFF_LINES_MAX) {
        let shown = plain(line);
        let shown = match line.as_bytes().first() {
            Some(b'+') => paint.green(&shown),
            Some(b'-') => paint.red(&shown),
            Some(b'@') => paint.cyan(&shown),
            _ => shown,
        };
        let _ = writeln!(text, "    {shown}");
    }
    let more = diff.lines().count().saturating_sub(DIFF_LINES_MAX);
    if more > 0 {
        let _ = writeln!(text, "    and {more} lines more (--json has them all)");
    }
}

/// A text that can't command a terminal.
fn plain(text: &str) -> String {
    let is_fine = |c: char| c == '\t' || !c.is_control();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_fine(c) {
            true => out.push(c),
            false => out.extend(c.escape_default()),
        }
    }
    out
}
