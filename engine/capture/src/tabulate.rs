//! Defects against facts: how often one thing holds of a sequence's part of a step, or of a request, where another
//! holds and where it doesn't. Counts and no judgement; whoever asks computes how likely they are by chance.
//!
//! It must never take a fact that is not known for one that doesn't hold.

mod expression;
mod facts;
mod parse;

use crate::capture::Capture;
use crate::record::Redaction;
use crate::replay::Place;
pub use expression::Predicate;
pub use facts::{Fact, Kind};
use facts::{Facts, Part};
use lockstep_step::{SeqId, StepId};
pub use parse::ExpressionError;
use std::collections::BTreeMap;
use std::fmt;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Parts of steps that count.
    Part,
    /// Sequences of requests: something holds of one if it holds of any of its parts.
    Request,
}

/// How many have the defect, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Those that have it.
    pub num_defects: u64,
    /// All.
    pub num: u64,
}

impl Share {
    fn count(&mut self, has_defect: bool) {
        self.num += 1;
        self.num_defects += u64::from(has_defect);
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.num_defects, self.num)
    }
}

/// The defect where a predicate holds, and where it doesn't.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Where it holds.
    pub holds: Share,
    /// Where it doesn't.
    pub otherwise: Share,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tabulated {
    /// The defect in all.
    pub all: Share,
    /// A table for each predicate, in their order.
    pub tables: Vec<Table>,
    /// Sequences no part of which counts: they are in no table.
    pub num_without_parts: u64,
    /// Wrong plans: of what follows from them only parts are counted that begin where their sequence stands.
    pub wrong_plans: Vec<String>,
}

/// Why nothing can be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TabulateError {
    /// No part of any step counts.
    NoPart,
    /// Without token ids nothing tells which parts count.
    TokensLeftOut,
    /// A fact that is asked for is not known.
    Unknown {
        /// The fact.
        fact: Fact,
        /// The step.
        step: StepId,
        /// The sequence.
        seq: SeqId,
        /// Why.
        why: String,
    },
}

impl fmt::Display for TabulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TabulateError::NoPart => {
                write!(
                    f,
                    "no part of any step counts, so that there is nothing to tabulate"
                )
            }
            TabulateError::TokensLeftOut => write!(
                f,
                "token ids are left out of the capture, and without them nothing tells which parts \
                 count"
            ),
            TabulateError::Unknown {
                fact,
                step,
                seq,
                why,
            } => write!(f, "{fact} of {seq:?} in step {step} is not known: {why}"),
        }
    }
}

impl std::error::Error for TabulateError {}

/// Counts, one capture after the other.
#[derive(Clone, Debug)]
pub struct Tabulation {
    defect: Predicate,
    by: Vec<Predicate>,
    unit: Unit,
    facts: Vec<Fact>,
    counted: Tabulated,
}

impl Tabulation {
    /// Nothing yet.
    pub fn new(defect: Predicate, by: Vec<Predicate>, unit: Unit) -> Tabulation {
        let facts = by.iter().flat_map(Predicate::facts);
        let mut facts: Vec<Fact> = defect.facts().into_iter().chain(facts).collect();
        facts.sort_unstable();
        facts.dedup();
        Tabulation {
            counted: Tabulated {
                tables: vec![Table::default(); by.len()],
                ..Tabulated::default()
            },
            defect,
            by,
            unit,
            facts,
        }
    }

    /// Counts a capture. `places` are those of its replay, where there was one.
    ///
    /// # Errors
    /// If a fact that is asked for is not known of one of its parts.
    pub fn add(
        &mut self,
        capture: &Capture,
        places: Option<&[Place]>,
    ) -> Result<(), TabulateError> {
        if capture.header.redaction == Redaction::Tokens {
            return Err(TabulateError::TokensLeftOut);
        }
        let facts = Facts::new(capture, places);
        self.counted.wrong_plans.extend(facts.wrong_plan());
        // Per sequence: the defect, and each predicate.
        let mut requests: BTreeMap<SeqId, Vec<bool>> = BTreeMap::new();
        for part in facts.parts() {
            let holds = self.judge(&part)?;
            match requests.get_mut(&part.seq()) {
                Some(any) => any
                    .iter_mut()
                    .zip(&holds)
                    .for_each(|(any, own)| *any |= own),
                None => drop(requests.insert(part.seq(), holds.clone())),
            }
            if self.unit == Unit::Part {
                self.count(&holds);
            }
        }
        self.counted.num_without_parts += (capture.requests.len() - requests.len()) as u64;
        if self.unit == Unit::Request {
            requests.values().for_each(|holds| self.count(holds));
        }
        Ok(())
    }

    /// Whether the defect holds of a part, and then each predicate.
    fn judge(&self, part: &Part<'_>) -> Result<Vec<bool>, TabulateError> {
        // All that is asked for has to be known, whatever an expression would come to without it.
        for &fact in &self.facts {
            part.value(fact).map_err(|why| TabulateError::Unknown {
                fact,
                step: part.step(),
                seq: part.seq(),
                why: why.to_string(),
            })?;
        }
        let all = [&self.defect].into_iter().chain(&self.by);
        Ok(all.map(|own| own.holds(part)).collect())
    }

    fn count(&mut self, holds: &[bool]) {
        let (defect, by) = (holds[0], &holds[1..]);
        self.counted.all.count(defect);
        for (table, holds) in self.counted.tables.iter_mut().zip(by) {
            match holds {
                true => table.holds.count(defect),
                false => table.otherwise.count(defect),
            }
        }
    }

    /// What was counted.
    ///
    /// # Errors
    /// If that is nothing.
    pub fn finish(self) -> Result<Tabulated, TabulateError> {
        match self.counted.all.num {
            0 => Err(TabulateError::NoPart),
            _ => Ok(self.counted),
        }
    }
}
