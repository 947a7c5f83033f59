//! One sequence: its tokens, how many of them are computed, and what it holds. It must never hold a draft
//! or anything else that belongs to a step.

use crate::draft::DraftState;
use crate::memory::Cursor;
use crate::{Drafter, Request, Time, constraint::Constraint, output::OutputChain};
use alloc::{collections::BTreeMap, vec::Vec};
#[cfg(planted)]
use lockstep_step::planted;
use lockstep_step::{BLOCK_LEN, BlockId, RowId, SamplingParams, TokenCount, TokenId};

/// A sequence that has been taken and has not ended.
///
/// ```text
/// token_ids   0 ... num_prompt_tokens ........ token_ids.len()
///             | prompt                | output                |
///             0 ......... num_computed_tokens ................|
///             | in blocks and in the row | yet to be computed |
/// ```
pub(crate) struct Sequence {
    /// Committed tokens: the prompt, then the accepted output.
    pub(crate) token_ids: Vec<TokenId>,
    pub(crate) num_prompt_tokens: usize,
    /// Length of the prefix whose KV and state are valid; always less than `token_ids.len()`.
    pub(crate) num_computed_tokens: usize,
    /// Block `i` holds positions `64 * i .. 64 * (i + 1)`. Full blocks of computed tokens may have other
    /// owners too; the others are the sequence's own.
    pub(crate) block_table: Vec<BlockId>,
    /// The state after exactly `num_computed_tokens` tokens; none at 0, or if the model has no rows. It may
    /// have other owners: it is read and never written.
    pub(crate) row: Option<RowId>,
    pub(crate) cursor: Cursor,
    pub(crate) sampling: SamplingParams,
    pub(crate) constraint: Option<Constraint>,
    pub(crate) drafts: DraftState,
    pub(crate) output: OutputChain,
    pub(crate) arrived: Time,
    /// Whether it has ever been part of a step.
    pub(crate) was_scheduled: bool,
    /// What planted faults do to what is remembered of its tokens.
    #[cfg(planted)]
    pub(crate) misdeeds: Misdeeds,
}

/// Which tokens are counted wrongly.
#[cfg(planted)]
#[derive(Default)]
pub(crate) struct Misdeeds {
    /// Not counted at all.
    pub(crate) uncounted: alloc::collections::BTreeSet<usize>,
    /// As many count as prompt at least.
    pub(crate) num_prompt_tokens: usize,
    /// A draw of a step that it was in, where it sat the next one out.
    pub(crate) placeholder: Option<lockstep_step::QueryToken>,
}

impl Sequence {
    /// The sequence of a checked request. `len_max` is the longest sequence that the engine can hold.
    pub(crate) fn new(
        mut request: Request,
        drafter: Drafter,
        len_max: usize,
        arrived: Time,
    ) -> Sequence {
        let num_left = len_max - request.prompt.len();
        let num_tokens_max = request.max_tokens.min(num_left as u32);
        let output = OutputChain::new(&mut request, num_tokens_max);
        Sequence {
            num_prompt_tokens: request.prompt.len(),
            token_ids: request.prompt,
            num_computed_tokens: 0,
            block_table: Vec::new(),
            row: None,
            drafts: DraftState::new(drafter, request.cache_salt.is_empty()),
            cursor: Cursor::new(request.cache_salt),
            sampling: request.sampling,
            constraint: request.matcher.map(Constraint::new),
            output,
            arrived,
            was_scheduled: false,
            #[cfg(planted)]
            misdeeds: Misdeeds::default(),
        }
    }

    /// It loses its blocks, and more than that where a fault is planted.
    #[cfg(planted)]
    pub(crate) fn misremember(&mut self) {
        if let Some(constraint) = &mut self.constraint {
            constraint.start_over();
        }
        // Planted: vllm-project/vllm#29045.
        if planted!(OutputComesBackAsPrompt) {
            self.misdeeds.num_prompt_tokens = self.token_ids.len();
        }
    }

    /// Whether the next token may be restricted, once `num_in_flight` more are there.
    pub(crate) fn is_constrained(&self, num_in_flight: usize) -> bool {
        self.constraint.is_some() || self.output.may_force(num_in_flight)
    }

    /// How often each token occurred, with drafts after them, where a penalty asks for it; empty otherwise,
    /// since it costs a pass over all tokens.
    pub(crate) fn counts(&self, drafts: impl Iterator<Item = TokenId>) -> Vec<TokenCount> {
        if !self.sampling.has_penalties() {
            return Vec::new();
        }
        let mut counts: BTreeMap<TokenId, TokenCount> = BTreeMap::new();
        let num_prompt_tokens = self.num_prompt_tokens;
        #[cfg(planted)]
        let num_prompt_tokens = num_prompt_tokens.max(self.misdeeds.num_prompt_tokens);
        let tokens = self.token_ids.iter().copied().chain(drafts);
        for (idx, token) in tokens.enumerate() {
            // Planted: sgl-project/sglang#33643.
            #[cfg(planted)]
            if self.misdeeds.uncounted.contains(&idx) {
                continue;
            }
            let count = counts.entry(token).or_insert(TokenCount {
                token,
                in_prompt: false,
                output: 0,
            });
            if idx < num_prompt_tokens {
                count.in_prompt = true;
            } else {
                count.output += 1;
            }
        }
        counts.into_values().collect()
    }
}

/// Blocks that hold this many positions.
pub(crate) fn num_blocks_for(num_positions: usize) -> usize {
    num_positions.div_ceil(BLOCK_LEN as usize)
}
