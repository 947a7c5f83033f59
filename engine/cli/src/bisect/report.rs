//! What a bisection is printed as: a page for people, JSON for programs. It must never say smallest where only
//! minimal was shown.

use super::{
    search::{Found, Outcome, Purpose, Smaller, Subset},
    settings::{Difference, Ends},
    trial::Ran,
};
use crate::terminal::Paint;
use serde_json::{Value, json};

/// The most characters of a value that a page shows.
const VALUE_CHARS_MAX: usize = 48;

/// A trial that was run.
pub struct Trial {
    /// What was taken from the bad file.
    pub subset: Subset,
    /// Why.
    pub purpose: Purpose,
    /// What it came to.
    pub ran: Ran,
}

/// All there is to say.
pub struct Report<'a> {
    /// Files and command, as they were given.
    pub given: Value,
    /// The files.
    pub ends: &'a Ends,
    /// In the order in which they were run.
    pub trials: &'a [Trial],
    /// How it ended; none if it was interrupted.
    pub outcome: Option<&'a Outcome>,
}

/// A set in words, as in `2 of 7: a.b, c`.
pub fn set_in_words(ends: &Ends, subset: &Subset) -> String {
    let num = ends.differences.len();
    match subset.len() {
        0 => "none: the good file".to_owned(),
        all if all == num => format!("all {num}: the bad file"),
        some => format!("{some} of {num}: {}", names(ends, subset).join(", ")),
    }
}

fn names(ends: &Ends, subset: &Subset) -> Vec<String> {
    let name = |idx: &usize| ends.differences[*idx].name();
    subset.iter().map(name).collect()
}

fn change(difference: &Difference) -> String {
    let shown = |value: &Option<toml::Value>| match value {
        None => "(not set)".to_owned(),
        Some(value) => {
            let text = value.to_string().replace('\n', " ");
            match text.chars().count() > VALUE_CHARS_MAX {
                true => text.chars().take(VALUE_CHARS_MAX).chain(['…']).collect(),
                false => text,
            }
        }
    };
    let (good, bad) = (shown(&difference.good), shown(&difference.bad));
    format!("{}: {good} → {bad}", difference.name())
}

/// How an outcome is named in JSON.
fn outcome_name(outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        None => "interrupted",
        Some(Outcome::Found(_)) => "found",
        Some(Outcome::GoodIsBad { swapped: true }) => "swapped",
        Some(Outcome::GoodIsBad { swapped: false }) => "good_is_bad",
        Some(Outcome::BadIsGood) => "bad_is_good",
        Some(Outcome::Unstable(_)) => "unstable",
        Some(Outcome::Unjudged(_)) => "unjudged",
    }
}

/// What was shown of smaller sets, in words.
fn shown_in_words(ends: &Ends, found: &Found) -> Vec<String> {
    let mut lines = match &found.smaller {
        Smaller::AllGood if found.set.len() == 1 => {
            vec!["smallest: one setting is enough, and none is not".to_owned()]
        }
        Smaller::AllGood => vec!["smallest: every smaller set was tried and is good".to_owned()],
        Smaller::SomeUnjudged(open) => vec![format!(
            "1-minimal: every smaller set was tried and none is bad, but {} could not be judged",
            open.len()
        )],
        Smaller::TooMany { below, needed } => vec![
            "1-minimal: leaving any one of them out makes it good".to_owned(),
            match below {
                1 => format!("smaller sets were not tried: --exhaustive-max {needed} tries all"),
                _ => format!(
                    "no set of fewer than {below} is bad; --exhaustive-max {needed} tries all \
                     that are smaller"
                ),
            },
        ],
    };
    for idx in &found.unjudged_without {
        let name = ends.differences[*idx].name();
        lines.push(format!("without {name} it could not be judged"));
    }
    lines
}

impl Report<'_> {
    /// For programs.
    pub fn json(&self) -> Value {
        let trials = self.trials.iter().enumerate().map(|(idx, trial)| {
            json!({
                "trial": idx + 1,
                "purpose": trial.purpose.name(),
                "settings": names(self.ends, &trial.subset),
                "verdict": trial.ran.verdict.name(),
                "how": trial.ran.how,
                "last_line": trial.ran.last_line,
                "seconds": trial.ran.seconds,
            })
        });
        let differences = self.ends.differences.iter().map(|difference| {
            json!({
                "setting": difference.name(),
                "good": difference.good.as_ref().map(as_json),
                "bad": difference.bad.as_ref().map(as_json),
            })
        });
        let mut report = json!({
            "given": self.given,
            "outcome": outcome_name(self.outcome),
            "differences": differences.collect::<Vec<Value>>(),
            "trials": trials.collect::<Vec<Value>>(),
        });
        match self.outcome {
            Some(Outcome::Found(found)) => {
                report["set"] = json!(names(self.ends, &found.set));
                report["unjudged_without"] = json!(names(
                    self.ends,
                    &found.unjudged_without.iter().copied().collect()
                ));
                report["shown"] = match &found.smaller {
                    Smaller::AllGood => json!({"smallest": true}),
                    Smaller::SomeUnjudged(open) => {
                        let open = open.iter().map(|set| names(self.ends, set));
                        json!({"smallest": false, "unjudged": open.collect::<Vec<_>>()})
                    }
                    Smaller::TooMany { below, needed } => json!({
                        "smallest": false,
                        "none_of_fewer_than": below,
                        "exhaustive_max_needed": needed,
                    }),
                };
            }
            Some(Outcome::Unstable(set) | Outcome::Unjudged(set)) => {
                report["set"] = json!(names(self.ends, set));
            }
            _ => {}
        }
        report
    }

    /// For people. How it ended badly is said elsewhere, as an error.
    pub fn print(&self) {
        let paint = Paint::stdout();
        let num = self.ends.differences.len();
        println!("{}", paint.bold(&format!("{num} settings differ")));
        for difference in &self.ends.differences {
            println!("  {}", change(difference));
        }
        println!("{}", paint.bold(&format!("{} trials", self.trials.len())));
        for (idx, trial) in self.trials.iter().enumerate() {
            println!("  {}", trial_in_words(self.ends, idx + 1, trial));
        }
        if let Some(Outcome::Found(found)) = self.outcome {
            let what = match found.set.len() {
                1 => "1 setting turns good into bad".to_owned(),
                num => format!("{num} settings together turn good into bad"),
            };
            println!("{}", paint.bold(&what));
            for idx in &found.set {
                println!("  {}", paint.red(&change(&self.ends.differences[*idx])));
            }
            for line in shown_in_words(self.ends, found) {
                println!("  {line}");
            }
        }
    }
}

/// A trial as a line.
pub fn trial_in_words(ends: &Ends, number: usize, trial: &Trial) -> String {
    let (ran, purpose) = (&trial.ran, trial.purpose.name());
    let set = set_in_words(ends, &trial.subset);
    let line = match ran.last_line.as_str() {
        "" => String::new(),
        line => format!("  | {line}"),
    };
    let verdict = ran.verdict.name();
    let (how, seconds) = (&ran.how, ran.seconds);
    format!("{number:>4}  {purpose:<8}  {verdict:<8}  {how:<7}  {seconds:>6.1} s  {set}{line}")
}

/// A value of TOML in JSON; dates are texts, and what JSON has no number for is one too.
fn as_json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) if number.is_finite() => json!(number),
        toml::Value::Float(_) | toml::Value::Datetime(_) => json!(value.to_string()),
        toml::Value::Boolean(flag) => json!(flag),
        toml::Value::Array(items) => items.iter().map(as_json).collect(),
        toml::Value::Table(members) => {
            let member = |(key, value): (&String, &toml::Value)| (key.clone(), as_json(value));
            Value::Object(members.iter().map(member).collect())
        }
    }
}
