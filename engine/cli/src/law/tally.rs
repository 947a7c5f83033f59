//! What was tried and what really happened, counted. A value that was never tried, or a feature that was
//! never met, is a failure: a check that had nothing to look at says nothing. It must never forget a
//! mismatch.

use super::{
    axes::{Axis, DraftKind},
    compare::Difference,
    crowd::{CrowdOutcome, Outcome},
    watch::SeqDrafts,
};
use lockstep_core::{DraftSource, EventKind, Finish};
use std::collections::BTreeMap;

/// A run that said something else.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The deployment, and the request in it: `--only` takes it.
    pub id: String,
    /// The values of all axes.
    pub values: String,
    /// Where it begins.
    pub difference: Difference,
}

/// What became of the runs that had a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct ValueTally {
    /// Runs.
    pub num_runs: u64,
    /// Output tokens that were compared.
    pub num_tokens: u64,
    /// Drafts that were verified.
    pub num_drafts: u64,
    /// Of these, those that were drawn.
    pub num_accepted: u64,
    /// Runs that said something else.
    pub num_mismatches: u64,
}

/// A run that was compared.
pub struct Compared<'a> {
    /// Its values, in the order of the axes.
    pub values: &'a [u8],
    /// What it said.
    pub outcome: &'a Outcome,
    /// Its drafts.
    pub drafts: SeqDrafts,
    /// Whether it said something else.
    pub is_mismatch: bool,
}

/// Everything counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// By axis and value.
    pub values: BTreeMap<(Axis, u8), ValueTally>,
    /// By name, in the order of the table.
    pub features: BTreeMap<Feature, u64>,
    /// Drafts by source: verified, and accepted.
    pub sources: BTreeMap<DraftSource, (u64, u64)>,
    /// Runs.
    pub num_runs: u64,
    /// Runs before those, that filled the cache; compared as well.
    pub num_warming: u64,
    /// Runs that said something else, in the order of their ids.
    pub mismatches: Vec<Mismatch>,
}

/// Names of what must have happened.
macro_rules! features {
    ($($feature:ident = $text:literal,)+) => {
        /// Something that must have happened, so that the law was put to the test.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each is named by its text")]
        pub enum Feature { $($feature,)+ }

        impl Feature {
            /// All of them.
            pub const ALL: &[Feature] = &[$(Feature::$feature,)+];

            /// As it is called in the table.
            pub fn name(self) -> &'static str {
                match self { $(Feature::$feature => $text,)+ }
            }
        }
    };
}

features! {
    Tokens = "output tokens compared",
    Logprobs = "of these, tokens with log-probabilities",
    Reasoning = "of these, reasoning tokens",
    Calls = "whole calls",
    EndTokens = "runs that ended by a token",
    StopStrings = "runs that ended by a stop string",
    Lengths = "runs that ended by their length",
    CallEnds = "runs that ended with calls",
    Errors = "runs that ended with an error of their own",
    Steps = "steps",
    Drafts = "drafts verified",
    Accepted = "drafts accepted",
    Rejected = "drafts rejected",
    Overlapped = "steps begun while another ran",
    Referring = "parts of steps that refer to tokens not drawn yet",
    Void = "parts of steps that were void, since a draft before them was wrong",
    Switched = "times that overlapping was switched in the middle",
    Questions = "questions to models that draft",
    Shorter = "steps that verify fewer drafts than the step before accepted",
    Masks = "mask rows filled",
    MasksLeftOut = "mask rows left out after a rejected draft",
    RolledBack = "tokens that matchers took and gave back",
    Padding = "rows of padding in static buffers",
    Rows = "rows of state written",
    Preemptions = "preemptions",
    CachedTokens = "prompt tokens found in the cache",
    RecoveredTokens = "tokens found again after a preemption",
    EvictedBlocks = "cached blocks evicted",
    EvictedRows = "cached rows evicted",
    Aborts = "clients that went away",
    FullSteps = "deployments with a step of 24 sequences or more",
}

impl Tally {
    /// Counts a run.
    pub fn add(&mut self, run: &Compared<'_>) {
        self.num_runs += 1;
        let is_token = |event: &&(u32, EventKind)| matches!(event.1, EventKind::Token { .. });
        let num_tokens = run.outcome.iter().filter(is_token).count() as u64;
        for (axis, &value) in Axis::ALL.into_iter().zip(run.values) {
            let row = self.values.entry((axis, value)).or_default();
            row.num_runs += 1;
            row.num_tokens += num_tokens;
            row.num_drafts += run.drafts.num;
            row.num_accepted += run.drafts.num_accepted;
            row.num_mismatches += u64::from(run.is_mismatch);
        }
        self.note(Feature::Tokens, num_tokens);
        for (_, kind) in run.outcome {
            match kind {
                EventKind::Token { logprobs, .. } => {
                    self.note(Feature::Logprobs, u64::from(logprobs.is_some()));
                }
                EventKind::CallEnd { .. } => self.note(Feature::Calls, 1),
                EventKind::Finished(finished) => {
                    let reasoning = finished.usage.reasoning_tokens;
                    self.note(Feature::Reasoning, u64::from(reasoning));
                    let feature = match finished.finish {
                        Finish::EndToken(_) => Feature::EndTokens,
                        Finish::StopString(_) => Feature::StopStrings,
                        Finish::Length => Feature::Lengths,
                        Finish::ToolCalls => Feature::CallEnds,
                        Finish::Aborted => Feature::Aborts,
                        Finish::Error(_) => Feature::Errors,
                    };
                    self.note(feature, 1);
                }
                _ => {}
            }
        }
    }

    /// Counts what a deployment did.
    pub fn add_crowd(&mut self, crowd: &CrowdOutcome) {
        let (totals, counts) = (crowd.totals, crowd.counts);
        let num_rejected = totals.num_drafts - totals.num_drafts_accepted;
        for (feature, num) in [
            (Feature::Steps, totals.num_steps),
            (Feature::Drafts, totals.num_drafts),
            (Feature::Accepted, totals.num_drafts_accepted),
            (Feature::Rejected, num_rejected),
            (Feature::Overlapped, counts.num_begun_early),
            (Feature::Referring, counts.num_referring),
            (Feature::Void, totals.num_void_parts),
            (Feature::Switched, crowd.num_switched),
            (Feature::Questions, counts.num_questions),
            (Feature::Shorter, counts.num_shorter),
            (Feature::Masks, counts.num_masks),
            (Feature::MasksLeftOut, totals.num_mask_rows_left_out),
            (Feature::RolledBack, totals.num_rolled_back),
            (Feature::Padding, counts.num_padding),
            (Feature::Rows, counts.num_rows),
            (Feature::Preemptions, totals.num_preemptions),
            (Feature::CachedTokens, totals.num_cached_tokens),
            (Feature::RecoveredTokens, totals.num_recovered_tokens),
            (Feature::EvictedBlocks, totals.num_evicted_blocks),
            (Feature::EvictedRows, totals.num_evicted_rows),
            (Feature::Aborts, crowd.num_aborted),
            (Feature::FullSteps, u64::from(counts.num_seqs_max >= 24)),
        ] {
            self.note(feature, num);
        }
        for source in DraftSource::ALL {
            let own = self.sources.entry(source).or_default();
            own.0 += totals.drafts.proposed(source);
            own.1 += totals.drafts.accepted(source);
        }
    }

    /// Notes that something happened so many times.
    pub fn note(&mut self, feature: Feature, num: u64) {
        *self.features.entry(feature).or_default() += num;
    }

    /// Adds what another part of the runs came to.
    pub fn merge(&mut self, other: Tally) {
        for (key, row) in other.values {
            let own = self.values.entry(key).or_default();
            own.num_runs += row.num_runs;
            own.num_tokens += row.num_tokens;
            own.num_drafts += row.num_drafts;
            own.num_accepted += row.num_accepted;
            own.num_mismatches += row.num_mismatches;
        }
        for (feature, num) in other.features {
            self.note(feature, num);
        }
        for (source, (num, num_accepted)) in other.sources {
            let own = self.sources.entry(source).or_default();
            own.0 += num;
            own.1 += num_accepted;
        }
        self.num_runs += other.num_runs;
        self.num_warming += other.num_warming;
        self.mismatches.extend(other.mismatches);
    }

    /// What was never put to the test, in words. Only models with recurrent state can show what rows do.
    pub fn gaps(&self, models: &[String], has_rows: bool) -> Vec<String> {
        let mut gaps = Vec::new();
        for axis in Axis::ALL {
            for (value, name) in axis.values(models).into_iter().enumerate() {
                let row = self.values.get(&(axis, value as u8)).copied();
                let row = row.unwrap_or_default();
                let mut lacks = |what: &str, num: u64| {
                    if num == 0 {
                        gaps.push(format!("no {what} with {} {name}", axis.name()));
                    }
                };
                lacks("run", row.num_runs);
                lacks("token", row.num_tokens);
                if axis == Axis::Drafter && DraftKind::ALL[value] != DraftKind::Off {
                    lacks("draft", row.num_drafts);
                    lacks("accepted draft", row.num_accepted);
                    let num_rejected = row.num_drafts - row.num_accepted;
                    // What is recorded is right.
                    if DraftKind::ALL[value] != DraftKind::Random {
                        lacks("rejected draft", num_rejected);
                    }
                }
            }
        }
        for feature in Feature::ALL {
            let is_needed = match feature {
                // A good model makes none.
                Feature::Errors => false,
                Feature::Rows | Feature::EvictedRows => has_rows,
                _ => true,
            };
            if is_needed && self.features.get(feature).copied().unwrap_or(0) == 0 {
                gaps.push(format!("no {}", feature.name()));
            }
        }
        for source in DraftSource::ALL {
            let (num, num_accepted) = self.sources.get(&source).copied().unwrap_or_default();
            for (what, num) in [
                ("draft", num),
                ("accepted draft", num_accepted),
                ("rejected draft", num - num_accepted),
            ] {
                if num == 0 {
                    gaps.push(format!("no {what} from {}", source.as_str()));
                }
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_tried_is_a_gap() {
        let models = ["a".to_owned()];
        let values = |axis: Axis| axis.values(&models).len();
        let num_values: usize = Axis::ALL.into_iter().map(values).sum();
        let num_drafters = DraftKind::ALL.len() - 1;
        let gaps = Tally::default().gaps(&models, true);
        let from = num_drafters + DraftSource::ALL.len();
        // A random drafter is never wrong, and nobody needs errors.
        let wanted = 2 * num_values + Feature::ALL.len() - 1 + 3 * from - 1;
        assert_eq!(gaps.len(), wanted, "{gaps:?}");
        let mut tally = Tally::default();
        for feature in Feature::ALL {
            tally.note(*feature, 1);
        }
        for source in DraftSource::ALL {
            tally.sources.insert(source, (2, 1));
        }
        for axis in Axis::ALL {
            for value in 0..values(axis) {
                let row = ValueTally {
                    num_runs: 1,
                    num_tokens: 1,
                    num_drafts: 2,
                    num_accepted: 1,
                    num_mismatches: 0,
                };
                tally.values.insert((axis, value as u8), row);
            }
        }
        assert_eq!(tally.gaps(&models, true), Vec::<String>::new());
    }
}
