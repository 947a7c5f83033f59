//! What a battery is printed as: a page for people, JSON for programs. It must never print a rate without the
//! number of answers behind it.

use super::{
    judge::Outcome,
    tally::{self, Cell, GROUPS, INVALID, Key},
};
use crate::terminal::Paint;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What a battery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No condition of `--fail-if` holds.
    Fine,
    /// One does.
    Defect,
    /// Too little of it was model output.
    Unjudged,
}

impl Verdict {
    /// As it is written in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Fine => "fine",
            Verdict::Defect => "defect",
            Verdict::Unjudged => "unjudged",
        }
    }
}

/// A condition that was judged.
pub struct Judged {
    /// As it was written.
    pub text: String,
    /// So many of so many.
    pub count: (u64, u64),
    /// Whether it holds, which is a defect.
    pub holds: bool,
}

/// All there is to say.
pub struct Report<'a> {
    /// What was asked, and whom.
    pub settings: &'a Value,
    /// What was counted.
    pub cells: &'a BTreeMap<Key, Cell>,
    /// Conditions.
    pub conditions: Vec<Judged>,
    /// Why nothing can be judged; may be empty.
    pub why_unjudged: Vec<String>,
    /// Keywords of schemas that were passed over.
    pub passed_over: &'a [String],
    /// The results file.
    pub out: Option<String>,
}

impl Report<'_> {
    /// What it came to. Where too little is model output nothing is judged, also where a condition holds.
    pub fn verdict(&self) -> Verdict {
        match (
            self.why_unjudged.is_empty(),
            self.conditions.iter().any(|c| c.holds),
        ) {
            (false, _) => Verdict::Unjudged,
            (true, true) => Verdict::Defect,
            (true, false) => Verdict::Fine,
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let cells = self.cells.iter().map(|(key, cell)| {
            let mut row = json!({
                "request": key.request,
                "route": key.route.name(),
                "stream": key.stream,
            });
            if let (Some(row), Value::Object(more)) = (row.as_object_mut(), cell.json()) {
                row.extend(more);
            }
            row
        });
        let conditions = self.conditions.iter().map(|condition| {
            let (k, n) = condition.count;
            json!({"condition": condition.text, "k": k, "n": n, "holds": condition.holds})
        });
        let total = |name: &str| tally::share_json(tally::sum(self.cells.values(), name));
        let names = Outcome::ALL
            .iter()
            .map(|outcome| outcome.name())
            .chain(GROUPS);
        let totals: Map<String, Value> = names.map(|name| (name.to_owned(), total(name))).collect();
        let (invalid, num) = tally::sum(self.cells.values(), INVALID);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "settings": self.settings,
            "results_file": self.out,
            "exchanges": num,
            "invalid": invalid,
            "cells": cells.collect::<Vec<Value>>(),
            "totals": totals,
            "schema_keywords_not_judged": self.passed_over,
            "conditions": conditions.collect::<Vec<Value>>(),
            "why_unjudged": self.why_unjudged,
            "verdict": self.verdict().name(),
        })
    }

    /// For people.
    pub fn print(&self) {
        let paint = Paint::stdout();
        println!("{}", self.settings["about"].as_str().unwrap_or_default());
        for keyword in self.passed_over {
            println!("{}", paint.dim(&format!("not judged: {keyword}")));
        }
        for (key, cell) in self.cells {
            println!("{}", paint.bold(&key.name()));
            print_cell(cell, paint);
        }
        let (invalid, num) = tally::sum(self.cells.values(), INVALID);
        println!("{}", paint.bold(&format!("all {num} exchanges")));
        for name in [
            "call",
            "text",
            "malformed",
            "starved",
            "markup",
            "repetition",
        ] {
            let count = tally::sum(self.cells.values(), name);
            println!("  {name:<26} {}", tally::share_in_words(count));
        }
        match invalid {
            0 => println!("  every response is model output"),
            some => println!("  {some} of {num} responses are no model output, and not counted"),
        }
        for condition in &self.conditions {
            let (k, n) = condition.count;
            let line = format!("{}: {k} of {n}", condition.text);
            println!(
                "{}",
                match condition.holds {
                    true => paint.red(&format!("holds      {line}")),
                    false => paint.green(&format!("holds not  {line}")),
                }
            );
        }
    }
}

fn print_cell(cell: &Cell, paint: Paint) {
    if cell.num_invalid() > 0 {
        let kinds = cell.invalid.iter();
        let kinds = kinds.map(|(kind, num)| format!("{num} {}", kind.name()));
        let kinds = kinds.collect::<Vec<String>>().join(", ");
        let line = format!(
            "{} of {} no model output: {kinds}",
            cell.num_invalid(),
            cell.num
        );
        println!("  {}", paint.yellow(&line));
    }
    let seen = cell.seen();
    for name in &seen {
        let share = tally::share_in_words(cell.count(name));
        let line = format!("{name:<26} {share}");
        let is_expected = ["call", "text"].contains(name);
        let what = Outcome::of_name(name).filter(|_| !is_expected);
        let what = what.map_or(String::new(), |outcome| format!("  {}", outcome.what()));
        let line = if is_expected { line } else { paint.red(&line) };
        println!("  {line}{}", paint.dim(&what));
    }
    let unseen = GROUPS.into_iter().chain(["starved"]);
    let unseen: Vec<&str> = unseen.filter(|name| !seen.contains(name)).collect();
    if cell.num_valid() > 0 && !unseen.is_empty() {
        let bound = tally::share_in_words((0, cell.num_valid()));
        println!(
            "  {}",
            paint.dim(&format!("{}: {bound}", unseen.join(", ")))
        );
    }
    let num = cell.num_valid();
    match cell.is_identical() {
        Some(true) => {
            let line = format!("identical: all {num} answers are equal, and might differ");
            println!("  {}", paint.yellow(&line));
        }
        Some(false) => {
            let different = cell.num_different();
            println!(
                "  {}",
                paint.dim(&format!("{different} different answers of {num}"))
            );
        }
        None if !cell.may_differ && num > 1 => {
            let line = "one seed, or temperature 0: bounds hold for this answer, not for others";
            println!("  {}", paint.yellow(line));
        }
        None => {}
    }
}
