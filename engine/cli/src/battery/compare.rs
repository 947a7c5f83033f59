//! `lockstep battery compare`: two results files, what differs, and what they are too small to see. It must
//! never call a rate different without a test, nor equal because a test saw nothing.

use super::{
    judge::Outcome,
    record::{self, Results},
    tally::{self, Cell, GROUPS, Key, tally},
};
use crate::{
    exit::{Exit, Failure},
    statistics::exact::fisher_two_sided,
    terminal::Paint,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::PathBuf};

/// The chance at which a difference is taken for one, over all comparisons together.
const ALPHA: f64 = 0.05;

const EXAMPLES: &str = "\
Each outcome of each request is compared by Fisher's exact test, two-sided. p is that of the row
alone; `all` is p by Holm's rule, which allows for the number of comparisons: a difference counts
where it is below 0.05. What was seen in neither file is bounded, not ruled out.

Examples:
  lockstep battery compare before.jsonl after.jsonl
  lockstep battery compare before.jsonl after.jsonl --json

Exit codes: 0 no difference was shown, 1 there is one, 2 wrong command line, 3 a file can't be used,
5 too little in a file is model output.";

/// Compares two results files.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// The one, as --out wrote it.
    #[arg(value_name = "A.jsonl")]
    first: PathBuf,
    /// The other.
    #[arg(value_name = "B.jsonl")]
    second: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// An outcome of a request in both files.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: Key,
    name: &'static str,
    first: (u64, u64),
    second: (u64, u64),
    p: f64,
    p_all: f64,
}

impl Row {
    fn differs(&self) -> bool {
        self.p_all < ALPHA
    }
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let (a, b) = (Results::read(&args.first)?, Results::read(&args.second)?);
    let cells = [&a, &b].map(|results| tally(&results.settings, &results.exchanges));
    let rows = rows(&cells[0], &cells[1]);
    if rows.is_empty() {
        return Err(Failure::input(
            "the files have no request in common that was answered in both",
            "compare results of the same battery",
        ));
    }
    let differing = record::differing(&a.settings, &b.settings);
    let alone = alone(&cells);
    match args.json {
        true => println!("{:#}", as_json(&rows, &differing, &alone)),
        false => print(args, &rows, &differing, &alone),
    }
    let sides = [(&args.first, &cells[0]), (&args.second, &cells[1])];
    for (path, cells) in sides {
        if let Some(why) = tally::why_unjudged(cells).first() {
            return Err(Failure {
                exit: Exit::Unjudged,
                what: format!("{}: {why}", path.display()),
                next: "--retry-invalid asks again for what was no answer".to_owned(),
            });
        }
    }
    let num = rows.iter().filter(|row| row.differs()).count();
    match num {
        0 => Ok(()),
        num => Err(Failure {
            exit: Exit::Check,
            what: format!("{num} of {} comparisons show a difference", rows.len()),
            next: String::new(),
        }),
    }
}

/// Requests that only one file has answers to.
fn alone(cells: &[BTreeMap<Key, Cell>; 2]) -> Vec<String> {
    let only = |own: &BTreeMap<Key, Cell>, other: &BTreeMap<Key, Cell>| {
        let keys = own.keys().filter(|key| !other.contains_key(*key));
        keys.map(Key::name).collect::<Vec<String>>()
    };
    let mut names = only(&cells[0], &cells[1]);
    names.extend(only(&cells[1], &cells[0]));
    names
}

/// All comparisons: outcomes that were seen on one side at least, and the groups, seen or not.
fn rows(first: &BTreeMap<Key, Cell>, second: &BTreeMap<Key, Cell>) -> Vec<Row> {
    let mut rows = Vec::new();
    for (key, a) in first {
        let Some(b) = second.get(key) else {
            continue;
        };
        if a.num_valid() == 0 || b.num_valid() == 0 {
            continue;
        }
        let outcomes = Outcome::ALL.iter().map(|outcome| outcome.name());
        let seen = { outcomes }.filter(|name| a.count(name).0 + b.count(name).0 > 0);
        for name in seen.chain(GROUPS) {
            let (first, second) = (a.count(name), b.count(name));
            rows.push(Row {
                key: key.clone(),
                name,
                first,
                second,
                p: fisher_two_sided(first.0, first.1 - first.0, second.0, second.1 - second.0),
                p_all: 1.0,
            });
        }
    }
    holm(&mut rows);
    rows
}

/// Holm's rule: the smallest p counts as often as there are comparisons, the next once less, and none less than
/// the one before.
fn holm(rows: &mut [Row]) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| rows[*a].p.total_cmp(&rows[*b].p));
    let mut highest = 0.0_f64;
    for (rank, idx) in order.iter().enumerate() {
        let times = (rows.len() - rank) as f64;
        highest = highest.max((rows[*idx].p * times).min(1.0));
        rows[*idx].p_all = highest;
    }
}

/// The fewest of `n` that would have differed from none of `n_other`, by the test alone; none where not even
/// all of them would.
fn fewest_seen(n_other: u64, n: u64) -> Option<u64> {
    (1..=n).find(|k| fisher_two_sided(0, n_other, *k, n - k) < ALPHA)
}

/// What a row is too small to see, in words.
fn unseen(row: &Row) -> String {
    let ((a, n), (b, m)) = (row.first, row.second);
    let seen = match fewest_seen(n, m) {
        Some(fewest) => format!("0 of {n} against fewer than {fewest} of {m} would not have shown"),
        None => format!("0 of {n} against {m} of {m} would not have shown"),
    };
    match (a, b) {
        (0, 0) if n == m => format!("{} on either side; {seen}", tally::share_in_words((0, n))),
        (0, 0) => format!(
            "{}, {}; {seen}",
            tally::share_in_words((0, n)),
            tally::share_in_words((0, m))
        ),
        (0, _) => format!("{} in A", tally::share_in_words((0, n))),
        (_, 0) => format!("{} in B", tally::share_in_words((0, m))),
        _ => String::new(),
    }
}

fn as_json(rows: &[Row], differing: &[String], alone: &[String]) -> Value {
    let side = |count: (u64, u64)| tally::share_json(count);
    let list = rows.iter().map(|row| {
        let rate = |(k, n): (u64, u64)| k as f64 / n as f64;
        json!({
            "request": row.key.request,
            "route": row.key.route.name(),
            "stream": row.key.stream,
            "outcome": row.name,
            "a": side(row.first),
            "b": side(row.second),
            "difference": rate(row.second) - rate(row.first),
            "p": row.p,
            "p_all": row.p_all,
            "differs": row.differs(),
            "fewest_that_would_have_shown_beside_none": fewest_seen(row.first.1, row.second.1),
            "what_it_can_not_see": unseen(row),
        })
    });
    json!({
        "comparisons": list.collect::<Vec<Value>>(),
        "differences": rows.iter().filter(|row| row.differs()).count(),
        "settings_that_differ": differing,
        "requests_of_one_file_only": alone,
    })
}

fn print(args: &CompareArgs, rows: &[Row], differing: &[String], alone: &[String]) {
    let paint = Paint::stdout();
    println!("A  {}\nB  {}", args.first.display(), args.second.display());
    if !differing.is_empty() {
        println!("settings that differ: {}", differing.join(", "));
    }
    for name in alone {
        println!("{}", paint.yellow(&format!("in one file only: {name}")));
    }
    let mut last = None;
    for row in rows {
        if last != Some(&row.key) {
            println!("{}", paint.bold(&row.key.name()));
            last = Some(&row.key);
        }
        let ((a, n), (b, m)) = (row.first, row.second);
        if (a, b) == (0, 0) {
            println!(
                "  {}",
                paint.dim(&format!("{:<26} {}", row.name, unseen(row)))
            );
            continue;
        }
        let difference = (b as f64 / m as f64 - a as f64 / n as f64) * 100.0;
        let counts = (format!("{a}/{n}"), format!("{b}/{m}"));
        let (first, second) = counts;
        let line = format!(
            "{:<26} {first:>9} {second:>9}  {difference:>+6.1} %  p {:.4}  all {:.4}  {}",
            row.name,
            row.p,
            row.p_all,
            unseen(row)
        );
        let line = line.trim_end();
        println!(
            "  {}",
            if row.differs() {
                paint.red(line)
            } else {
                line.to_owned()
            }
        );
    }
    let num = rows.len();
    println!("{num} comparisons");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::plan::Route;

    fn row(p: f64) -> Row {
        Row {
            key: Key {
                request: "a".to_owned(),
                route: Route::OpenAi,
                stream: false,
            },
            name: "text",
            first: (0, 84),
            second: (0, 84),
            p,
            p_all: 1.0,
        }
    }

    #[test]
    fn holm_is_the_published_rule() {
        // As R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
        let mut rows = [row(0.01), row(0.04), row(0.03), row(0.005)];
        holm(&mut rows);
        for (row, expected) in rows.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((row.p_all - expected).abs() < 1e-12, "{row:?}");
        }
        let mut rows = [row(0.9), row(0.8)];
        holm(&mut rows);
        assert!(rows.iter().all(|row| row.p_all <= 1.0));
    }

    #[test]
    fn what_is_too_small_to_be_seen_is_said() {
        // 0 of 10 against 5 of 10 is 0.0325, against 4 of 10 it is 0.0867.
        assert_eq!(fewest_seen(10, 10), Some(5));
        assert_eq!(fewest_seen(84, 84), Some(6));
        assert_eq!(fewest_seen(1, 3), None);
        let words = unseen(&row(1.0));
        assert_eq!(
            words,
            "0 of 84 bounds the rate below 3.5 % on either side; 0 of 84 against fewer than 6 of 84 \
             would not have shown"
        );
        let one = Row {
            second: (4, 84),
            ..row(0.1)
        };
        assert_eq!(unseen(&one), "0 of 84 bounds the rate below 3.5 % in A");
    }
}
