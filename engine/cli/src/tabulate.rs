//! `lockstep tabulate`: how often a defect comes with something else, in the parts of steps that captures hold. It must
//! never end well where it had nothing to count.

use crate::captures;
use crate::exit::{Exit, Failure, end};
use crate::statistics::exact::fisher_two_sided;
use crate::terminal::{Bars, Paint};
use clap::{Args, ValueEnum};
use lockstep_capture::{
    ExpressionError, Fact, Kind, Predicate, Share, Table, TabulateError, Tabulated, Tabulation,
    Unit,
};
use lockstep_package::Progress;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Counts how often a defect comes with something else.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lockstep tabulate run.capture --defect 'error = malformed_call' --by shorter
  lockstep tabulate *.capture --unit request --defect 'finish = length' \\
      --by 'temperature > 900' --by 'is_constrained and num_drafts > 2'
  lockstep tabulate recording/ --defect 'num_accepted = 0 and num_drafts > 0' \\
      --by 'previous_num_accepted > num_drafts' --json | jq .tables

An expression compares facts of a sequence's part of a step: = != < <= > >=, and, or, not,
parentheses, whole numbers and names. `--facts` lists the facts; docs/CAPTURE.md says more.
A line says `15 of 17 / 0 of 52`: the defect in 15 of 17 where the expression holds, and in 0 of 52
where it doesn't; p is the chance of a table as unlikely as this one if neither had to do with the
other (Fisher's exact test, two-sided). Whoever tries many expressions finds small p by chance.

Exit codes: 0 counted; 2 an expression is wrong; 3 a file can't be read, or a fact is not known of
it; 5 no part of any step counts, so that there is nothing to tabulate.")]
pub struct TabulateArgs {
    /// Captures, or folders of recordings.
    #[arg(value_name = "FILE", required_unless_present = "facts")]
    files: Vec<PathBuf>,
    /// What is wrong.
    #[arg(long, value_name = "EXPR", required_unless_present = "facts")]
    defect: Option<String>,
    /// What it may come from; repeated, it is one line each.
    #[arg(long, value_name = "EXPR", required_unless_present = "facts")]
    by: Vec<String>,
    /// What is counted.
    #[arg(long, value_enum, default_value_t = UnitKind::Part)]
    unit: UnitKind,
    /// List the facts instead.
    #[arg(long, conflicts_with_all = ["files", "defect", "by"])]
    facts: bool,
    /// Write the counts as JSON.
    #[arg(long)]
    json: bool,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UnitKind {
    /// Sequences' parts of steps.
    Part,
    /// Sequences: something holds of one if it holds of any of its parts.
    Request,
}

impl UnitKind {
    fn name(self) -> &'static str {
        match self {
            UnitKind::Part => "parts of steps",
            UnitKind::Request => "sequences",
        }
    }
}

/// Runs the command.
pub fn run(args: &TabulateArgs) -> ExitCode {
    let text = match args.facts {
        true => Ok(facts(args.json)),
        false => tabulated(args),
    };
    end(text.map(|text| {
        // A reader that has seen enough, such as `head`, is no failure.
        drop(writeln!(std::io::stdout(), "{}", text.trim_end()));
    }))
}

fn tabulated(args: &TabulateArgs) -> Result<String, Failure> {
    let predicate = |flag: &str, text: &str| {
        text.parse::<Predicate>().map_err(|error: ExpressionError| {
            let column = error.column.saturating_sub(1);
            // Columns are of characters, and what is no character of one line would move the mark.
            let line: String = text
                .chars()
                .map(|own| if own.is_control() { ' ' } else { own })
                .collect();
            let place = format!("{line}\n  {}^", " ".repeat(column));
            Failure::usage(
                format!("--{flag}: {error}\n  {place}"),
                "`lockstep tabulate --facts` lists the facts",
            )
        })
    };
    let defect = predicate("defect", args.defect.as_deref().unwrap_or_default())?;
    let by: Result<Vec<Predicate>, Failure> =
        args.by.iter().map(|text| predicate("by", text)).collect();
    let unit = match args.unit {
        UnitKind::Part => Unit::Part,
        UnitKind::Request => Unit::Request,
    };
    let mut tabulation = Tabulation::new(defect, by?, unit);
    let bars = Bars::default();
    bars.begin("reading captures", args.files.len() as u64);
    for path in &args.files {
        let capture = captures::open(path)?;
        let added = tabulation.add(&capture, None);
        added.map_err(|error| {
            Failure::input(
                format!("{}: {error}", path.display()),
                "leave out the fact, or the file",
            )
        })?;
        bars.advance(1);
    }
    bars.end();
    let counted = tabulation.finish().map_err(|error| match error {
        TabulateError::NoPart => Failure {
            exit: Exit::Unjudged,
            what: error.to_string(),
            next: "give captures in which steps were computed".to_owned(),
        },
        error => Failure::input(error, ""),
    })?;
    match args.json {
        true => serde_json::to_string_pretty(&report(args, &counted)).map_err(Failure::failed),
        false => Ok(table(args, &counted, Paint::stdout())),
    }
}

fn p(table: &Table) -> f64 {
    let (holds, otherwise) = (table.holds, table.otherwise);
    fisher_two_sided(
        holds.num_defects,
        holds.num - holds.num_defects,
        otherwise.num_defects,
        otherwise.num - otherwise.num_defects,
    )
}

fn report(args: &TabulateArgs, counted: &Tabulated) -> Value {
    let share = |own: Share| json!({"defects": own.num_defects, "of": own.num});
    let tables = args.by.iter().zip(&counted.tables);
    let tables = tables.map(|(by, table)| {
        json!({
            "by": by,
            "holds": share(table.holds),
            "otherwise": share(table.otherwise),
            "p": p(table),
        })
    });
    json!({
        "defect": args.defect,
        "unit": args.unit.to_possible_value().map(|own| own.get_name().to_owned()),
        "all": share(counted.all),
        "tables": tables.collect::<Vec<_>>(),
        "sequences_without_parts": counted.num_without_parts,
        "wrong_plans": counted.wrong_plans,
    })
}

fn table(args: &TabulateArgs, counted: &Tabulated, paint: Paint) -> String {
    let mut text = String::new();
    let defect = paint.bold(args.defect.as_deref().unwrap_or_default());
    let _ = writeln!(text, "{defect}: {} {}", counted.all, args.unit.name());
    let rows = args.by.iter().zip(&counted.tables).map(|(by, table)| {
        let shares = format!("{} / {}", table.holds, table.otherwise);
        let note = match (table.holds.num, table.otherwise.num) {
            (0, _) => "it never holds",
            (_, 0) => "it always holds",
            _ => "",
        };
        (by, shares, format!("p = {:.2e}", p(table)), note)
    });
    let rows: Vec<_> = rows.collect();
    let widths = rows.iter().map(|own| (own.0.chars().count(), own.1.len()));
    let (by_width, share_width) =
        widths.fold((0, 0), |max, own| (max.0.max(own.0), max.1.max(own.1)));
    for (by, shares, p, note) in &rows {
        let line = format!(
            "  {by:<by_width$}  {shares:>share_width$}  {p:<12} {}",
            paint.dim(note)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if counted.num_without_parts > 0 {
        let what = format!(
            "{} sequences have no part that counts",
            counted.num_without_parts
        );
        let _ = writeln!(text, "{}", paint.dim(&what));
    }
    for own in &counted.wrong_plans {
        let _ = writeln!(
            text,
            "{} {own}: later parts are counted where they begin where their sequence stands",
            paint.yellow("a wrong plan:")
        );
    }
    text
}

/// The facts that expressions can ask for.
fn facts(as_json: bool) -> String {
    let kind = |fact: Fact, kind: Kind| match kind {
        Kind::Number => "a whole number".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Name => fact.names().join(", "),
    };
    if as_json {
        let all = Fact::ALL.iter().map(|&(fact, name, own)| {
            json!({"fact": name, "kind": kind(fact, own), "meaning": fact.meaning()})
        });
        return Value::Array(all.collect()).to_string();
    }
    let mut text = String::new();
    for (fact, name, own) in Fact::ALL {
        let _ = writeln!(text, "{name:<24} {}", fact.meaning());
        if own == Kind::Name {
            let _ = writeln!(text, "{:<24} {}", "", kind(fact, own));
        }
    }
    text
}
