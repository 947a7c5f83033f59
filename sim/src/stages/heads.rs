//! A model that drafts, asked about a few tokens that it has just read, where nothing was ever drafted or taken
//! back: what it proposes wrongly then is no matter of speculation, but of what it was loaded with.

use crate::model::ToyModel;
use crate::options::{Computes, Options};
use lockstep_step::planted::{self, Planted};
use lockstep_step::{
    Backend, BlockId, MaskSet, ModelDrafter, Pos, Proposal, ProposalPlan, QueryToken, RowId,
    RowPlan, RowWrite, SamplingParams, ScoredPosition, SeqId, SeqPlan, SeqProposalPlan, StepId,
    StepPlan, TokenId,
};

/// Tokens that are read before the question.
const NUM_READ: u32 = 5;

/// Questions, each about other tokens.
const NUM_ASKED: u32 = 4;

/// Whether a drafter of a run, with whatever is planted in it, proposes something else than its twin.
pub(super) fn are_others(options: &Options, fault: Option<Planted>) -> bool {
    if options.computes() != Computes::Fingerprint {
        return false;
    }
    let mut drafters = options.drafters.iter();
    drafters.any(|&(drafter, _)| {
        (0..NUM_ASKED).any(|nth| {
            planted::set(fault);
            let told = proposed(options, drafter, nth);
            planted::set(None);
            told != proposed(options, drafter, nth)
        })
    })
}

/// What a fresh drafter proposes. None if it can't be asked.
fn proposed(options: &Options, drafter: ModelDrafter, nth: u32) -> Option<Vec<Proposal>> {
    let model = ToyModel::new(options.format);
    let drafting = lockstep_fingerprint::Drafting {
        drafter,
        wrong_per_mille: 0,
    };
    let mut backend = model.hashes(options.limits, vec![drafting], false);
    let has_rows = options.limits.num_rows > 0;
    let token = |idx: u32| TokenId(u32::from(b'a') + (idx + nth) % 26);
    let plan = StepPlan {
        step: StepId(0),
        seqs: vec![SeqPlan {
            seq: SeqId(0),
            start: Pos(0),
            query: (0..NUM_READ)
                .map(|idx| QueryToken::Known(token(idx)))
                .collect(),
            num_drafts: 0,
            block_table: vec![BlockId(0)],
            rows: RowPlan {
                read: None,
                writes: Vec::from_iter(has_rows.then_some(RowWrite {
                    query_idx: NUM_READ - 1,
                    row: RowId(0),
                })),
            },
            scored: vec![ScoredPosition {
                query_idx: NUM_READ - 1,
                mask: None,
            }],
            sampling: SamplingParams::greedy(),
            counts: Vec::new(),
        }],
        num_mask_rows: 0,
    };
    let forward = backend.forward(&plan).ok()?;
    backend.sample(forward, &MaskSet::default()).ok()?;
    let ask = SeqProposalPlan {
        seq: SeqId(0),
        drafter,
        start: Pos(NUM_READ),
        query: vec![token(NUM_READ)],
        num_max: 1,
        block_table: vec![BlockId(0)],
        row: has_rows.then_some(RowId(0)),
        sampling: SamplingParams::greedy(),
        counts: Vec::new(),
    };
    backend.propose(&ProposalPlan { seqs: vec![ask] }).ok()
}
