//! What the runs came to, as a table for people, a section of a document, or JSON. It must never say more
//! than was counted.

use super::{
    axes::{Axis, Rule},
    cover::Cover,
    tally::{Feature, Tally},
};
use crate::{exit::Failure, terminal::Paint};
use lockstep_core::DraftSource;
use serde_json::{Value, json};
use std::{
    fmt::Write,
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// Where the section of a document begins and ends.
const BEGIN: &str = "<!-- law: begin -->";
const END: &str = "<!-- law: end -->";

/// All that a report says.
pub struct Report<'a> {
    /// The names of the models.
    pub models: &'a [String],
    /// What can't occur together.
    pub rules: &'a [Rule],
    /// What was drawn.
    pub cover: &'a Cover,
    /// What became of it.
    pub tally: &'a Tally,
    /// What was never tried.
    pub gaps: &'a [String],
    /// How it was asked for, as flags.
    pub flags: &'a str,
    /// Seconds that it took.
    pub seconds: u64,
}

/// The columns of a value.
const COLUMNS: [&str; 5] = ["runs", "tokens", "drafts", "accepted", "mismatches"];

impl Report<'_> {
    /// The last line.
    pub fn last_line(&self) -> String {
        let num_mismatches = self.tally.mismatches.len();
        format!("{} runs, {num_mismatches} mismatches", self.tally.num_runs)
    }

    /// Each axis and value, with its columns.
    fn rows(&self) -> Vec<(&'static str, String, [u64; 5])> {
        let mut rows = Vec::new();
        for axis in Axis::ALL {
            for (value, name) in axis.values(self.models).into_iter().enumerate() {
                let row = self.tally.values.get(&(axis, value as u8));
                let row = row.copied().unwrap_or_default();
                let columns = [
                    row.num_runs,
                    row.num_tokens,
                    row.num_drafts,
                    row.num_accepted,
                    row.num_mismatches,
                ];
                rows.push((axis.name(), name, columns));
            }
        }
        rows
    }

    /// What happened, by name.
    fn facts(&self) -> Vec<(String, u64)> {
        let feature = |feature: &Feature| {
            let num = self.tally.features.get(feature).copied().unwrap_or(0);
            (feature.name().to_owned(), num)
        };
        let mut facts: Vec<(String, u64)> = Feature::ALL.iter().map(feature).collect();
        for source in DraftSource::ALL {
            let own = self.tally.sources.get(&source).copied().unwrap_or_default();
            let name = source.as_str();
            facts.push((format!("drafts from {name}"), own.0));
            facts.push((format!("drafts from {name}, accepted"), own.1));
        }
        facts.push((
            "runs that filled a cache, compared too".to_owned(),
            self.tally.num_warming,
        ));
        facts
    }

    fn coverage(&self) -> String {
        let Cover {
            groups,
            num_pairs,
            num_triples,
            num_impossible,
        } = self.cover;
        format!(
            "{} deployments; every pair of values ({num_pairs}), every triple of those that touch \
             speculation ({num_triples}); {num_impossible} combinations are impossible",
            groups.len()
        )
    }

    /// For people.
    pub fn print(&self) {
        let paint = Paint::stdout();
        let head: String = COLUMNS.iter().map(|name| format!(" {name:>10}")).collect();
        println!(
            "{}",
            paint.dim(&format!("{:<16} {:<12}{head}", "axis", "value"))
        );
        let mut last = "";
        for (axis, value, columns) in self.rows() {
            let name = if axis == last { "" } else { axis };
            let numbers: String = columns.iter().map(|num| format!(" {num:>10}")).collect();
            println!(
                "{} {value:<12}{numbers}",
                paint.cyan(&format!("{name:<16}"))
            );
            last = axis;
        }
        println!();
        for (name, num) in self.facts() {
            println!("{num:>12}  {name}");
        }
        println!();
        println!("{}", self.coverage());
        for rule in self.rules {
            println!("impossible: {}", rule.why);
        }
        for gap in self.gaps {
            println!("{} {gap}", paint.red("never tried:"));
        }
        println!("{}", self.last_line());
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let values = self.rows().into_iter().map(|(axis, value, columns)| {
            let mut row = json!({"axis": axis, "value": value});
            for (name, num) in COLUMNS.iter().zip(columns) {
                row[*name] = json!(num);
            }
            row
        });
        let mismatches = self.tally.mismatches.iter().map(|mismatch| {
            json!({
                "id": mismatch.id,
                "values": mismatch.values,
                "at": mismatch.difference.at,
                "field": mismatch.difference.field,
                "expected": mismatch.difference.expected,
                "got": mismatch.difference.got,
            })
        });
        let facts = self
            .facts()
            .into_iter()
            .map(|(name, num)| json!({"name": name, "count": num}));
        json!({
            "runs": self.tally.num_runs,
            "mismatches": mismatches.collect::<Vec<_>>(),
            "deployments": self.cover.groups.len(),
            "pairs": self.cover.num_pairs,
            "triples": self.cover.num_triples,
            "impossible": self.cover.num_impossible,
            "rules": self.rules.iter().map(|rule| rule.why.as_str()).collect::<Vec<_>>(),
            "never_tried": self.gaps,
            "values": values.collect::<Vec<_>>(),
            "facts": facts.collect::<Vec<_>>(),
        })
    }

    /// Writes it as Markdown between the marks of a document, or as a document of its own.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        let problem = |error: std::io::Error| {
            Failure::usage(format!("--report {}: {error}", path.display()), "")
        };
        let section = self.markdown();
        let text = match fs::read_to_string(path) {
            Ok(text) => replaced(&text, &section).ok_or_else(|| {
                let what = format!("--report {} has no {BEGIN} and {END}", path.display());
                Failure::usage(what, "put both into it, or name a file that isn't there")
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                format!("{BEGIN}\n{section}{END}\n")
            }
            Err(error) => return Err(problem(error)),
        };
        fs::write(path, text).map_err(problem)
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        let minutes = self.seconds / 60;
        let date = date(SystemTime::now());
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "`lockstep law{}` on {date}, {minutes} min {} s: **{}**.\n",
            self.flags,
            self.seconds % 60,
            self.last_line()
        );
        let _ = writeln!(text, "{}.\n", self.coverage());
        let _ = writeln!(text, "| axis | value | {} |", COLUMNS.join(" | "));
        let _ = writeln!(text, "| --- | --- |{}", " ---: |".repeat(COLUMNS.len()));
        let mut last = "";
        for (axis, value, columns) in self.rows() {
            let name = if axis == last { "" } else { axis };
            let numbers = columns.map(|num| num.to_string()).join(" | ");
            let _ = writeln!(text, "| {name} | {value} | {numbers} |");
            last = axis;
        }
        let _ = writeln!(text, "\n| what happened | times |\n| --- | ---: |");
        for (name, num) in self.facts() {
            let _ = writeln!(text, "| {name} | {num} |");
        }
        if !self.rules.is_empty() {
            let _ = writeln!(text, "\nImpossible, and left out:\n");
        }
        for rule in self.rules {
            let _ = writeln!(text, "- {}", rule.why);
        }
        for gap in self.gaps {
            let _ = writeln!(text, "\n**Never tried:** {gap}");
        }
        text
    }
}

/// A document with another section; None if it has no marks.
fn replaced(text: &str, section: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{section}{END}{after}"))
}

/// The day in UTC, as year-month-day.
fn date(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut days = since.as_secs() / 86_400;
    let mut year = 1970;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    loop {
        let len = if is_leap(year) { 366 } else { 365 };
        if days < len {
            break;
        }
        days -= len;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_the_section_is_replaced() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&text, "new\n").expect("it has marks");
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert_eq!(replaced("a", "new"), None);
    }

    #[test]
    fn days_have_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (20_787, "2026-11-30"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(days * 86_400 + 5);
            assert_eq!(date(time), expected);
        }
    }
}
