//! Conditions of `--fail-if`, such as `malformed > 0` or `alarm: starved >= 5 %`. It must never hold a battery
//! against a name that nothing is counted by.

use super::{
    judge::Outcome,
    tally::{self, Cell, GROUPS, IDENTICAL, INVALID, Key},
};
use std::{collections::BTreeMap, str::FromStr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    More,
    AtLeast,
    Less,
    AtMost,
    Equal,
    Unequal,
}

/// In this order, so that the longer is found first.
const RELATIONS: [(&str, Relation); 6] = [
    (">=", Relation::AtLeast),
    ("<=", Relation::AtMost),
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    (">", Relation::More),
    ("<", Relation::Less),
];

/// A condition under which a battery fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// As it was written.
    pub text: String,
    /// The request that it is about; all of them without one.
    pub request: Option<String>,
    name: String,
    relation: Relation,
    limit: f64,
    in_percent: bool,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let relation = RELATIONS.iter().find(|(word, _)| text.contains(word));
        let (word, relation) = relation.ok_or("expected a comparison, as in `malformed > 0`")?;
        let (left, right) = text.split_once(word).unwrap_or_default();
        let (request, name) = match left.rsplit_once(':') {
            Some((request, name)) => (Some(request.trim().to_owned()), name.trim()),
            None => (None, left.trim()),
        };
        let outcomes = Outcome::ALL.iter().map(|outcome| outcome.name());
        let known: Vec<&str> = [INVALID, IDENTICAL]
            .into_iter()
            .chain(GROUPS)
            .chain(outcomes)
            .collect();
        if !known.contains(&name) {
            return Err(format!(
                "{name:?} is no outcome: expected one of {}",
                known.join(", ")
            ));
        }
        let right = right.trim();
        let (number, in_percent) = match right.strip_suffix('%') {
            Some(number) => (number.trim(), true),
            None => (right, false),
        };
        let limit: f64 = number
            .parse()
            .map_err(|_| format!("{right:?} is no number of answers and no percentage"))?;
        if !(0.0..=1e9).contains(&limit) {
            return Err(format!("{right:?} is out of range"));
        }
        Ok(Condition {
            text: text.trim().to_owned(),
            request,
            name: name.to_owned(),
            relation: *relation,
            limit,
            in_percent,
        })
    }
}

impl Condition {
    /// How many were what of how many, and whether that is a failure; none of none is nothing to judge.
    pub fn judge(&self, cells: &BTreeMap<Key, Cell>) -> ((u64, u64), Option<bool>) {
        let is_meant = |key: &Key| {
            self.request
                .as_ref()
                .is_none_or(|name| *name == key.request)
        };
        let meant = cells.iter().filter(|(key, _)| is_meant(key));
        let (k, n) = tally::sum(meant.map(|(_, cell)| cell), &self.name);
        if n == 0 {
            return ((k, n), None);
        }
        let value = match self.in_percent {
            true => k as f64 * 100.0 / n as f64,
            false => k as f64,
        };
        let holds = match self.relation {
            Relation::More => value > self.limit,
            Relation::AtLeast => value >= self.limit,
            Relation::Less => value < self.limit,
            Relation::AtMost => value <= self.limit,
            Relation::Equal => value == self.limit,
            Relation::Unequal => value != self.limit,
        };
        ((k, n), Some(holds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::{plan::Route, record::Exchange, record::Place};
    use std::collections::BTreeSet;

    fn cells() -> BTreeMap<Key, Cell> {
        let exchange = |request: &str, repeat: u64, outcome: Outcome| Exchange {
            place: Place {
                request: request.to_owned(),
                route: Route::OpenAi,
                stream: false,
                repeat,
            },
            seed: None,
            invalid: None,
            outcomes: BTreeSet::from([outcome]),
            details: Vec::new(),
            status: None,
            finish: None,
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            raw: None,
            seconds: 0.0,
        };
        let exchanges = [
            exchange("a", 0, Outcome::Text),
            exchange("a", 1, Outcome::Schema),
            exchange("b", 0, Outcome::Text),
            exchange("b", 1, Outcome::Starved),
        ];
        tally::tally(&serde_json::Value::Null, &exchanges)
    }

    #[test]
    fn conditions_hold_or_not() {
        let rows = [
            ("malformed > 0", (1, 4), Some(true)),
            ("malformed>1", (1, 4), Some(false)),
            ("malformed >= 25 %", (1, 4), Some(true)),
            ("malformed > 25%", (1, 4), Some(false)),
            ("b: malformed > 0", (0, 2), Some(false)),
            ("a:malformed.schema == 50%", (1, 2), Some(true)),
            ("b:text < 2", (1, 2), Some(true)),
            ("text <= 1", (2, 4), Some(false)),
            ("starved != 1", (1, 4), Some(false)),
            ("invalid > 0", (0, 4), Some(false)),
            ("identical > 0", (0, 4), Some(false)),
            ("c: text < 1", (0, 0), None),
        ];
        for (text, count, holds) in rows {
            let condition: Condition = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(condition.judge(&cells()), (count, holds), "{text}");
        }
    }

    #[test]
    fn what_is_no_condition() {
        let rows = [
            ("malformed", "a comparison"),
            ("misformed > 0", "is no outcome"),
            ("malformed > some", "is no number"),
            ("malformed > -1", "out of range"),
            ("malformed > NaN", "out of range"),
            ("> 0", "is no outcome"),
            ("malformed > 1 > 0", "is no number"),
        ];
        for (text, part) in rows {
            let error = text.parse::<Condition>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
