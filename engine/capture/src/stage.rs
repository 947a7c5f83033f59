//! The stages of a token's life as a verdict names them, and what was found at each. A stage at which nothing was
//! observed is said to be so, and is never a pass.

use lockstep_step::{SeqId, StepId};
use std::fmt;

/// Where an engine can have lied, in the order of a token's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Which tokens a step computes, where they begin, and what it names.
    Schedule,
    /// What the blocks and rows hold that a step reads.
    StateRow,
    /// What is computed for a plan that is right.
    Logits,
    /// Which tokens a constraint allows.
    Mask,
    /// From logits and mask to a token.
    Draw,
    /// Which draws are committed.
    Verify,
    /// From tokens to text.
    Detokenize,
    /// Where an output ends, and what is counted.
    Stop,
    /// Reasoning, calls and errors out of text.
    Tags,
    /// The bytes of a response.
    Stream,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Stage; 10] = [
        Stage::Schedule,
        Stage::StateRow,
        Stage::Logits,
        Stage::Mask,
        Stage::Draw,
        Stage::Verify,
        Stage::Detokenize,
        Stage::Stop,
        Stage::Tags,
        Stage::Stream,
    ];

    /// Its name in tables and flags.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Schedule => "schedule",
            Stage::StateRow => "state_row",
            Stage::Logits => "logits",
            Stage::Mask => "mask",
            Stage::Draw => "draw",
            Stage::Verify => "verify",
            Stage::Detokenize => "detokenize",
            Stage::Stop => "stop",
            Stage::Tags => "tags",
            Stage::Stream => "stream",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The first place at which a stage said something else than it should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// The sequence.
    pub seq: SeqId,
    /// The step, where it belongs to one.
    pub step: Option<StepId>,
    /// The position of the token, where it belongs to one.
    pub pos: Option<u32>,
    /// What it should have been.
    pub expected: String,
    /// What was recorded.
    pub found: String,
    /// The nearest rule of plans, or operation of the model.
    pub near: Option<String>,
}

/// What was found at a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The stage.
    pub stage: Stage,
    /// How much was compared.
    pub num_compared: u64,
    /// How much of it agrees.
    pub num_agreeing: u64,
    /// The first that doesn't.
    pub first: Option<Divergence>,
    /// Why nothing was compared, where that is known.
    pub unobserved: Option<String>,
}

impl Found {
    /// Nothing yet.
    pub fn new(stage: Stage) -> Found {
        Found {
            stage,
            num_compared: 0,
            num_agreeing: 0,
            first: None,
            unobserved: None,
        }
    }

    /// Counts a comparison of what agrees.
    pub fn agree(&mut self) {
        self.num_compared += 1;
        self.num_agreeing += 1;
    }

    /// Counts a comparison; what differs is only asked for where it is the first, by step.
    pub fn count(&mut self, agrees: bool, differs: impl FnOnce() -> Divergence) {
        self.num_compared += 1;
        if agrees {
            self.num_agreeing += 1;
            return;
        }
        let divergence = differs();
        let order = |own: &Divergence| (own.step.map_or(u64::MAX, |step| step.0), own.pos, own.seq);
        let is_first = |first: &Divergence| order(&divergence) < order(first);
        if self.first.as_ref().is_none_or(is_first) {
            self.first = Some(divergence);
        }
    }

    /// Whether something was compared, and all of it agrees.
    pub fn passes(&self) -> bool {
        self.num_compared > 0 && self.num_agreeing == self.num_compared && self.first.is_none()
    }

    /// Whether nothing was compared.
    pub fn is_unobserved(&self) -> bool {
        self.num_compared == 0 && self.first.is_none()
    }
}

/// What was found at all stages.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// In the order of a token's life.
    pub stages: Vec<Found>,
}

impl Default for Verdict {
    fn default() -> Verdict {
        Verdict {
            stages: Stage::ALL.map(Found::new).to_vec(),
        }
    }
}

impl Verdict {
    /// What was found at one of them.
    pub fn of(&mut self, stage: Stage) -> &mut Found {
        &mut self.stages[stage as usize]
    }

    /// The same, to be looked at.
    pub fn at(&self, stage: Stage) -> &Found {
        &self.stages[stage as usize]
    }

    /// Notes why nothing is compared at a stage.
    pub fn unobserved(&mut self, stage: Stage, why: impl Into<String>) {
        self.of(stage).unobserved.get_or_insert(why.into());
    }

    /// The stage to blame: of those that differ the one that does so in the earliest step, and of these the first in
    /// the life of a token.
    pub fn guilty(&self) -> Option<(Stage, &Divergence)> {
        let differing = self.stages.iter();
        let differing = differing.filter_map(|own| Some((own.stage, own.first.as_ref()?)));
        differing.min_by_key(|(stage, first)| (first.step.map_or(u64::MAX, |step| step.0), *stage))
    }

    /// Stages at which nothing was observed.
    pub fn lacking(&self) -> impl Iterator<Item = &Found> {
        self.stages.iter().filter(|own| own.is_unobserved())
    }
}
