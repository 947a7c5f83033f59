//! Models that draft: each computes every plan too, into its own part of the same blocks and rows, and is
//! wrong now and then on purpose. It must never look at the model's own blocks and rows.

use crate::FingerprintConfig;
use crate::model::{Model, States, mix};
use crate::script::Scripts;
use lockstep_numerics::sampler::Sampler;
use lockstep_sampling::ProposalDraws;
use lockstep_step::{
    ModelDrafter, Pos, Proposal, QueryToken, RowPlan, ScoredPosition, SeqPlan, SeqProposalPlan,
    StepLayout, TokenId,
};

/// Those that the configuration names.
pub(crate) struct Drafters {
    drafters: Vec<Drafter>,
    // Of what is computed between two steps.
    layout: StepLayout,
}

struct Drafter {
    drafter: ModelDrafter,
    model: Model,
    seed: u64,
    wrong_per_mille: u32,
    vocab_size: u32,
    #[cfg(planted)]
    mistakes: crate::mistakes::DraftMistakes,
}

impl Drafters {
    pub(crate) fn new(config: &FingerprintConfig) -> Drafters {
        let drafters = config.drafters.iter().map(|drafting| {
            let (states, salt) = match drafting.drafter {
                ModelDrafter::Mtp => (States::in_slots(config), 1),
                ModelDrafter::DraftModel => (States::in_rows(config), 2),
            };
            // Planted: vllm-project/vllm#35548.
            #[cfg(planted)]
            let config = &FingerprintConfig {
                seed: config.seed ^ u64::from(lockstep_step::planted!(HeadWithoutWeights)),
                ..config.clone()
            };
            Drafter {
                drafter: drafting.drafter,
                model: Model::new(config, states),
                seed: mix(config.seed ^ salt),
                wrong_per_mille: drafting.wrong_per_mille,
                vocab_size: config.limits.vocab_size,
                #[cfg(planted)]
                mistakes: crate::mistakes::DraftMistakes::new(config.limits.seq_len_max),
            }
        });
        Drafters {
            drafters: drafters.collect(),
            layout: StepLayout::new(config.shape()),
        }
    }

    pub(crate) fn has(&self, drafter: ModelDrafter) -> bool {
        self.drafters.iter().any(|one| one.drafter == drafter)
    }

    /// Computes what the model has computed.
    pub(crate) fn mirror(&mut self, layout: &StepLayout) {
        for one in &mut self.drafters {
            #[cfg(planted)]
            one.mistakes.begin(layout, &one.model);
            one.model.compute(layout);
            #[cfg(planted)]
            one.mistakes.end(layout, &mut one.model);
        }
    }

    /// Answers one sequence's question; nothing if there is no such drafter.
    pub(crate) fn propose(
        &mut self,
        ask: &SeqProposalPlan,
        scripts: &Scripts,
        sampler: &mut Sampler,
    ) -> Proposal {
        let drafter = self
            .drafters
            .iter_mut()
            .find(|one| one.drafter == ask.drafter);
        let layout = &mut self.layout;
        Proposal {
            seq: ask.seq,
            tokens: drafter.map_or(Vec::new(), |one| one.propose(ask, layout, scripts, sampler)),
        }
    }
}

impl Drafter {
    fn propose(
        &mut self,
        ask: &SeqProposalPlan,
        layout: &mut StepLayout,
        scripts: &Scripts,
        sampler: &mut Sampler,
    ) -> Vec<TokenId> {
        let mut draws = ProposalDraws::new(ask);
        let (mut start, mut query) = (ask.start, ask.query.clone());
        let mut state = None;
        while !draws.is_over() {
            let part = part(ask, start, &query);
            layout.lay_out(std::slice::from_ref(&part), &query);
            let before = state.unwrap_or_else(|| self.model.state_before(layout, 0));
            self.model.fill(layout);
            let (contexts, after) = self.model.walk(layout, 0, before);
            let context = contexts[0];
            let mut logits = self.model.logits(context);
            scripts.apply(&part, query.len() as u32 - 1, &mut logits);
            let Some(token) = draws.next(sampler, &logits) else {
                break;
            };
            let token = self.spoilt(context, token);
            draws.push(token);
            (start, query, state) = (part.end(), vec![token], Some(after));
        }
        #[cfg(planted)]
        self.mistakes.proposed(ask, layout, &mut self.model);
        draws.into_tokens()
    }

    /// The token, or another one now and then.
    fn spoilt(&self, context: u64, token: TokenId) -> TokenId {
        let is_wrong = mix(context ^ self.seed) % 1000 < u64::from(self.wrong_per_mille);
        TokenId((token.0 + u32::from(is_wrong)) % self.vocab_size)
    }
}

/// A part of a plan that computes these tokens and scores the last of them. It writes no row: what comes
/// after it is handed on.
fn part(ask: &SeqProposalPlan, start: Pos, query: &[TokenId]) -> SeqPlan {
    SeqPlan {
        seq: ask.seq,
        start,
        query: query.iter().copied().map(QueryToken::Known).collect(),
        num_drafts: 0,
        block_table: ask.block_table.clone(),
        rows: RowPlan {
            read: ask.row,
            writes: Vec::new(),
        },
        scored: vec![ScoredPosition {
            query_idx: query.len() as u32 - 1,
            mask: None,
        }],
        sampling: ask.sampling.clone(),
        counts: Vec::new(),
    }
}
