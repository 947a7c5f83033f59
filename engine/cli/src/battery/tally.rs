//! Exchanges counted: how many answers of a request were what. It must never count a response that is no model
//! output among the answers.

use super::{judge::Outcome, plan::Route, record::Exchange, reply::InvalidKind};
use crate::statistics::exact::{Interval, stated_interval};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Groups that a report always has, seen or not.
pub const GROUPS: [&str; 3] = ["malformed", "markup", "repetition"];
/// All answers of a request equal, though they might differ.
pub const IDENTICAL: &str = "identical";
/// Responses that are no model output, of all.
pub const INVALID: &str = "invalid";

/// A request on a route, streamed or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The request's name.
    pub request: String,
    /// Where it was sent.
    pub route: Route,
    /// Whether the answer was streamed.
    pub stream: bool,
}

impl Key {
    /// In words.
    pub fn name(&self) -> String {
        let stream = if self.stream { "stream" } else { "whole" };
        format!("{}, {}, {stream}", self.request, self.route.name())
    }
}

/// What was counted of it.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Exchanges.
    pub num: u64,
    /// Of these, those that are no model output.
    pub invalid: BTreeMap<InvalidKind, u64>,
    /// Answers by outcome and by group.
    counts: BTreeMap<&'static str, u64>,
    /// How often each different answer came.
    said: BTreeMap<String, u64>,
    /// Whether its seeds differ and its temperature is not 0. Otherwise its answers are one answer, as often
    /// as it was asked for, and say nothing of others.
    pub may_differ: bool,
}

impl Cell {
    /// Answers: exchanges that are model output.
    pub fn num_valid(&self) -> u64 {
        self.num - self.num_invalid()
    }

    /// Exchanges that are none.
    pub fn num_invalid(&self) -> u64 {
        self.invalid.values().sum()
    }

    /// Different answers.
    pub fn num_different(&self) -> usize {
        self.said.len()
    }

    /// Whether all answers are equal, two at least; none where they may not differ.
    pub fn is_identical(&self) -> Option<bool> {
        let is_told = self.may_differ && self.num_valid() >= 2;
        is_told.then_some(self.said.len() == 1)
    }

    /// How many were what, of how many.
    pub fn count(&self, name: &str) -> (u64, u64) {
        let valid = self.num_valid();
        match name {
            INVALID => (self.num_invalid(), self.num),
            IDENTICAL if self.is_identical() == Some(true) => (valid, valid),
            name => (self.counts.get(name).copied().unwrap_or(0), valid),
        }
    }

    /// Outcomes and groups that were seen, in the order of reports.
    pub fn seen(&self) -> Vec<&'static str> {
        let mut names: Vec<&'static str> = Vec::new();
        for outcome in Outcome::ALL {
            let group = outcome.group();
            for name in group.into_iter().chain([outcome.name()]) {
                if self.counts.contains_key(name) && !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    fn add(&mut self, exchange: &Exchange) {
        self.num += 1;
        if let Some(kind) = exchange.invalid {
            *self.invalid.entry(kind).or_default() += 1;
            return;
        }
        let groups: BTreeSet<&'static str> = exchange
            .outcomes
            .iter()
            .filter_map(|outcome| outcome.group())
            .collect();
        for name in exchange
            .outcomes
            .iter()
            .map(|outcome| outcome.name())
            .chain(groups)
        {
            *self.counts.entry(name).or_default() += 1;
        }
        *self.said.entry(exchange.said()).or_default() += 1;
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let names = self.seen().into_iter().chain(GROUPS).chain(["starved"]);
        let outcomes: Map<String, Value> = names
            .map(|name| (name.to_owned(), share_json(self.count(name))))
            .collect();
        let invalid: Map<String, Value> = self
            .invalid
            .iter()
            .map(|(kind, num)| (kind.name().to_owned(), json!(num)))
            .collect();
        json!({
            "exchanges": self.num,
            "valid": self.num_valid(),
            "invalid": invalid,
            "different_answers": self.num_different(),
            "identical": self.is_identical(),
            "may_differ": self.may_differ,
            "outcomes": outcomes,
        })
    }
}

/// So many of so many, and the rates that go with it.
pub fn share_json((k, n): (u64, u64)) -> Value {
    let Interval { low, high } = stated_interval(k, n);
    json!({"k": k, "n": n, "low": low, "high": high})
}

/// A rate in words.
pub fn percent(rate: f64) -> String {
    let percent = rate * 100.0;
    match percent > 0.0 && percent < 0.95 {
        true => format!("{percent:.2} %"),
        false => format!("{percent:.1} %"),
    }
}

/// So many of so many in words, as in `0 of 84 bounds the rate below 3.5 %`.
pub fn share_in_words((k, n): (u64, u64)) -> String {
    let Interval { low, high } = stated_interval(k, n);
    match k {
        _ if n == 0 => "none of none: nothing is known".to_owned(),
        0 => format!("0 of {n} bounds the rate below {}", percent(high)),
        k if k == n => format!("{k} of {n} bounds the rate above {}", percent(low)),
        k => format!("{k} of {n}, 95 %: {} to {}", percent(low), percent(high)),
    }
}

/// Counts exchanges; the settings say which answers may differ.
pub fn tally(settings: &Value, exchanges: &[Exchange]) -> BTreeMap<Key, Cell> {
    let requests = settings["battery"]["requests"].as_array();
    let may_differ: BTreeSet<&str> = requests
        .into_iter()
        .flatten()
        .filter(|request| request["may_differ"] == true)
        .filter_map(|request| request["name"].as_str())
        .collect();
    let mut cells: BTreeMap<Key, Cell> = BTreeMap::new();
    for exchange in exchanges {
        let place = &exchange.place;
        let key = Key {
            request: place.request.clone(),
            route: place.route,
            stream: place.stream,
        };
        let cell = cells.entry(key).or_default();
        cell.may_differ = may_differ.contains(place.request.as_str());
        cell.add(exchange);
    }
    cells
}

/// So many of so many over several cells.
pub fn sum<'a>(cells: impl Iterator<Item = &'a Cell>, name: &str) -> (u64, u64) {
    let counts = cells.map(|cell| cell.count(name));
    counts.fold((0, 0), |(k, n), (more_k, more_n)| (k + more_k, n + more_n))
}

/// Why counts mean nothing; empty if they mean something. Half of the exchanges of a battery must be model
/// output, and one of each cell.
pub fn why_unjudged(cells: &BTreeMap<Key, Cell>) -> Vec<String> {
    let (invalid, num) = sum(cells.values(), INVALID);
    let mut why = Vec::new();
    if invalid * 2 > num || num == 0 {
        why.push(format!("{invalid} of {num} responses are no model output"));
    }
    for (key, cell) in cells {
        if cell.num_valid() == 0 {
            why.push(format!("no response to ({}) is model output", key.name()));
        }
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::record::Place;

    fn exchange(repeat: u64, outcome: Result<Outcome, InvalidKind>, content: &str) -> Exchange {
        Exchange {
            place: Place {
                request: "a".to_owned(),
                route: Route::OpenAi,
                stream: true,
                repeat,
            },
            seed: Some(repeat),
            invalid: outcome.err(),
            outcomes: outcome.into_iter().collect(),
            details: Vec::new(),
            status: None,
            finish: None,
            content: content.to_owned(),
            reasoning: String::new(),
            calls: Vec::new(),
            raw: None,
            seconds: 0.0,
        }
    }

    fn cell(may_differ: bool, exchanges: &[Exchange]) -> Cell {
        let settings = json!({"battery": {"requests": [{"name": "a", "may_differ": may_differ}]}});
        let cells = tally(&settings, exchanges);
        assert_eq!(cells.len(), 1);
        cells.into_values().next().expect("one")
    }

    #[test]
    fn answers_are_counted_and_other_responses_are_not() {
        let both = Exchange {
            outcomes: BTreeSet::from([Outcome::Schema, Outcome::MissingId]),
            ..exchange(3, Ok(Outcome::Schema), "")
        };
        let cell = cell(
            true,
            &[
                exchange(0, Ok(Outcome::Text), "x"),
                exchange(1, Err(InvalidKind::HttpStatus), ""),
                exchange(2, Ok(Outcome::Text), "y"),
                both,
            ],
        );
        assert_eq!((cell.num, cell.num_valid(), cell.num_invalid()), (4, 3, 1));
        assert_eq!(cell.count("text"), (2, 3));
        assert_eq!(cell.count("malformed"), (1, 3));
        assert_eq!(cell.count("malformed.schema"), (1, 3));
        assert_eq!(cell.count("starved"), (0, 3));
        assert_eq!(cell.count(INVALID), (1, 4));
        assert_eq!(cell.is_identical(), Some(false));
        let seen = [
            "text",
            "malformed",
            "malformed.schema",
            "malformed.missing_id",
        ];
        assert_eq!(cell.seen(), seen);
        assert_eq!(cell.json()["outcomes"]["starved"]["n"], 3);
    }

    #[test]
    fn identical_says_something_only_where_answers_may_differ() {
        let same: Vec<Exchange> = (0..3)
            .map(|r| exchange(r, Ok(Outcome::Text), "x"))
            .collect();
        assert_eq!(cell(true, &same).is_identical(), Some(true));
        assert_eq!(cell(true, &same).count(IDENTICAL), (3, 3));
        assert_eq!(cell(false, &same).is_identical(), None);
        assert_eq!(cell(false, &same).count(IDENTICAL), (0, 3));
        assert_eq!(cell(true, &same[..1]).is_identical(), None);
    }

    #[test]
    fn rates_in_words() {
        assert_eq!(
            share_in_words((0, 84)),
            "0 of 84 bounds the rate below 3.5 %"
        );
        assert_eq!(
            share_in_words((84, 84)),
            "84 of 84 bounds the rate above 96.5 %"
        );
        assert_eq!(share_in_words((3, 10)), "3 of 10, 95 %: 6.7 % to 65.2 %");
        assert_eq!(share_in_words((1, 100)), "1 of 100, 95 %: 0.03 % to 5.4 %");
        assert_eq!(share_in_words((0, 0)), "none of none: nothing is known");
    }

    #[test]
    fn what_is_mostly_invalid_means_nothing() {
        let half = [
            exchange(0, Ok(Outcome::Text), "x"),
            exchange(1, Err(InvalidKind::Transport), ""),
        ];
        let why = |exchanges: &[Exchange]| why_unjudged(&tally(&Value::Null, exchanges));
        assert!(why(&half).is_empty());
        let most = [&half[..], &[exchange(2, Err(InvalidKind::Transport), "")]].concat();
        assert_eq!(why(&most), ["2 of 3 responses are no model output"]);
        let mut other = exchange(0, Err(InvalidKind::OtherShape), "");
        other.place.stream = false;
        let more = exchange(3, Ok(Outcome::Text), "x");
        let cells = [&half[..], &[more, other]].concat();
        assert_eq!(
            why(&cells),
            ["no response to (a, openai, whole) is model output"]
        );
        assert_eq!(why(&[]).len(), 1);
    }
}
