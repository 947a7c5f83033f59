//! What must be true of every run, one file each. An oracle counts what it compared, and one that compared
//! nothing in all runs together fails them. It must never look at how the engine came to an answer where it
//! judges the answer.

mod canary;
mod conservation;
mod contents;
mod hits;
mod liveness;
mod metrics;
mod plain;
mod streams;
mod usage;

use crate::reference::Answers;
use crate::world::Run;
use std::collections::BTreeMap;

/// What an oracle found wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Complaint {
    /// The oracle.
    pub oracle: &'static str,
    /// The request's id with its try, where it is about one.
    pub request: Option<String>,
    /// What is wrong.
    pub what: String,
}

/// What all oracles say of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// How much each of them compared.
    pub compared: BTreeMap<&'static str, u64>,
    /// What is wrong.
    pub complaints: Vec<Complaint>,
}

/// An oracle's hands.
pub struct Bench<'a> {
    oracle: &'static str,
    judgement: &'a mut Judgement,
}

impl Bench<'_> {
    /// Something was compared. Complains if it was wrong.
    pub fn check(&mut self, request: Option<&str>, result: Result<(), String>) {
        *self.judgement.compared.entry(self.oracle).or_default() += 1;
        if let Err(what) = result {
            self.judgement.complaints.push(Complaint {
                oracle: self.oracle,
                request: request.map(str::to_owned),
                what,
            });
        }
    }
}

/// An oracle.
pub type Oracle = fn(&Run, &Answers, &mut Bench<'_>);

/// Oracles by name.
pub type Oracles = &'static [(&'static str, Oracle)];

/// All of them, by name.
pub const ALL: Oracles = &[
    ("plain", plain::judge),
    ("streams", streams::judge),
    ("usage", usage::judge),
    ("contents", contents::judge),
    ("canary", canary::judge),
    ("conservation", conservation::judge),
    ("liveness", liveness::judge),
    ("hits", hits::judge),
    ("metrics", metrics::judge),
];

/// One that is wrong on purpose: with it every run must fail, or nobody would hear of a failure.
pub const WRONG: Oracles = &[("wrong", wrong)];

fn wrong(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    for exchange in &run.exchanges {
        bench.check(
            Some(&exchange.wish.id),
            Err("it was asked at all".to_owned()),
        );
    }
}

/// Asks oracles about a run.
pub fn judge(run: &Run, answers: &Answers, oracles: Oracles) -> Judgement {
    let mut judgement = Judgement::default();
    for &(oracle, ask) in oracles {
        judgement.compared.insert(oracle, 0);
        let mut bench = Bench {
            oracle,
            judgement: &mut judgement,
        };
        ask(run, answers, &mut bench);
    }
    judgement
}
