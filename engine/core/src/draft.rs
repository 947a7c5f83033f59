//! Who proposes drafts. A closed set; a drafter may change speed and never output. Drafts live in the plan
//! and in what is in flight, never in the sequence: a stale draft can't outlive its step.

use crate::constraint::Constraint;
use alloc::vec::Vec;
use lockstep_step::TokenId;

/// A source of drafts for one sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Drafter {
    /// Proposes nothing.
    #[default]
    Off,
    /// Proposes what the sequence's matcher expects, where the constraint leaves the text no choice.
    Forced {
        /// Drafts per step, at most.
        depth_max: u32,
    },
    /// Proposes a recorded output, token by token, right or wrong. For tests and replays.
    Replay {
        /// The output that is expected, from its first token.
        output: Vec<TokenId>,
        /// Drafts per step, at most.
        depth_max: u32,
    },
}

/// What a proposal must keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftBounds {
    /// Drafts, at most.
    pub(crate) num_max: usize,
    /// Tokens that exist: a draft outside ends the proposal.
    pub(crate) vocab_size: u32,
}

impl Drafter {
    /// Drafts for the positions after the last committed token, of which `num_output` are output.
    pub(crate) fn propose(
        &self,
        num_output: u32,
        constraint: Option<&mut Constraint>,
        bounds: DraftBounds,
    ) -> Vec<TokenId> {
        let num_max = |depth_max: u32| bounds.num_max.min(depth_max as usize);
        let mut drafts = match self {
            Drafter::Off => Vec::new(),
            Drafter::Forced { depth_max } => constraint.map_or(Vec::new(), |constraint| {
                constraint.forced(num_max(*depth_max))
            }),
            Drafter::Replay { output, depth_max } => {
                let rest = output.get(num_output as usize..).unwrap_or(&[]);
                rest[..rest.len().min(num_max(*depth_max))].to_vec()
            }
        };
        let inside = |draft: &TokenId| draft.0 < bounds.vocab_size;
        let num_inside = drafts.iter().take_while(|draft| inside(draft)).count();
        drafts.truncate(num_inside);
        drafts
    }

    /// Whether the drafts are what a matcher expects.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(self, Drafter::Forced { .. })
    }
}
