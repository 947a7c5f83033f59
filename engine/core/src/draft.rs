//! Who proposes drafts. A closed set; a drafter may change speed and never output. Drafts live in the plan
//! and in what is in flight, never in the sequence: a stale draft can't outlive its step.

use alloc::vec::Vec;
use lockstep_step::TokenId;

/// A source of drafts for one sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Drafter {
    /// Proposes nothing.
    #[default]
    Off,
    /// Proposes a recorded output, token by token, right or wrong. For tests and replays.
    Replay {
        /// The output that is expected, from its first token.
        output: Vec<TokenId>,
        /// Drafts per step, at most.
        depth_max: u32,
    },
}

impl Drafter {
    /// Drafts for the positions after the last committed token, of which `num_output` are output.
    pub(crate) fn propose(&self, num_output: u32, num_max: usize) -> &[TokenId] {
        match self {
            Drafter::Off => &[],
            Drafter::Replay { output, depth_max } => {
                let rest = output.get(num_output as usize..).unwrap_or(&[]);
                &rest[..rest.len().min(*depth_max as usize).min(num_max)]
            }
        }
    }
}
