//! A short run of every target: its corpus, its saved crashes, then inputs made out of these. It must never
//! call a target fine that was not run.

use crate::corpus::{Input, corpus, crashes};
use crate::execute::{Execution, execute, keep, tell};
use crate::mutate::Mutator;
use crate::targets::Target;

/// What a run of one target came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Inputs of the corpus and saved crashes.
    pub num_saved: u64,
    /// Inputs that were made up.
    pub num_made: u64,
    /// Of all, those that the law was held against.
    pub num_held: u64,
}

impl Tally {
    /// All executions.
    pub fn num_executions(&self) -> u64 {
        self.num_saved + self.num_made
    }
}

/// Runs a target as long as `goes_on` says, which is asked with the number of inputs made up so far.
///
/// # Errors
/// The first failure, in words; its input is kept. A target without a corpus, or whose law was held against
/// nothing, has failed too.
pub fn run(
    target: &Target,
    seed: u64,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Result<Tally, String> {
    let told = |error: std::io::Error| format!("target {}: {error}", target.name);
    let mut saved: Vec<Input> = corpus(target.name).map_err(told)?;
    if saved.is_empty() {
        return Err(format!(
            "target {} has no corpus: expected files in fuzz/corpus/{}",
            target.name, target.name
        ));
    }
    saved.extend(crashes(target.name).map_err(told)?);
    let mut tally = Tally::default();
    for input in &saved {
        tally.num_saved += 1;
        match execute(target, &input.bytes) {
            Execution::Held => tally.num_held += 1,
            Execution::NoCase => {}
            Execution::Failed { panics } => return Err(tell(target, &input.path, &panics)),
        }
    }
    let inputs: Vec<&[u8]> = saved.iter().map(|input| &input.bytes[..]).collect();
    let mut mutator = Mutator::new(seed, target.dictionary);
    while goes_on(tally.num_made) {
        let bytes = mutator.make(&inputs);
        tally.num_made += 1;
        match execute(target, &bytes) {
            Execution::Held => tally.num_held += 1,
            Execution::NoCase => {}
            Execution::Failed { panics } => {
                return Err(tell(target, &keep(target, &bytes), &panics));
            }
        }
    }
    match tally.num_held {
        0 => Err(format!(
            "target {} held its law against nothing in {} executions",
            target.name,
            tally.num_executions()
        )),
        _ => Ok(tally),
    }
}
