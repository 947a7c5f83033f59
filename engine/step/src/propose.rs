//! Asks a model that drafts for tokens: the checkpoint's own head, or a smaller model beside it. Between two
//! steps, so that everything it starts from is committed. What comes back may be wrong, and may never
//! matter to what is said.
//!
//! Such a model computes every plan too, into its own part of the same blocks and rows. So it has computed
//! what the model has, and whatever is shared, kept or given up is so for both.

use crate::check::{PlanError, PlanRule, ensure};
use crate::{BLOCK_LEN, BackendError, BackendLimits, BlockId, Pos, RowId, SamplingParams, SeqId};
use crate::{TokenCount, TokenId};
use alloc::{collections::BTreeMap, format, vec::Vec};
use serde::{Deserialize, Serialize};

/// A model that drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelDrafter {
    /// The checkpoint's own head for tokens after the next.
    Mtp,
    /// A smaller model with the same tokenizer.
    DraftModel,
}

/// What is asked between two steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProposalPlan {
    /// The sequences that want drafts, in ascending order of their id.
    pub seqs: Vec<SeqProposalPlan>,
}

/// One sequence's question.
///
/// ```text
/// positions   0 ......... start ................ start + query.len() ...... + num_max
///             | computed  | committed | drafts  | proposed                |
///             | in blocks | <------ query ----> |
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeqProposalPlan {
    /// Whose drafts these will be.
    pub seq: SeqId,
    /// Who is asked.
    pub drafter: ModelDrafter,
    /// Position of the first query token: the length of the prefix that is computed.
    pub start: Pos,
    /// What is known from there: the committed token, then drafts of others, from which to go on.
    pub query: Vec<TokenId>,
    /// Tokens that are wanted, at most; at least 1.
    pub num_max: u32,
    /// Block `i` holds positions `64 * i .. 64 * (i + 1)`; covers `0 .. start + query.len() + num_max - 1`.
    /// The drafter writes its part of the slots from `start` on; later steps write them again.
    pub block_table: Vec<BlockId>,
    /// Holds the state after exactly `start` tokens. It is read; no row is written.
    pub row: Option<RowId>,
    /// How tokens will be drawn: a drafter does well to draw likewise, with the same noise.
    pub sampling: SamplingParams,
    /// For penalties: every token at or before the last query token, counted, in ascending order of token id.
    /// Empty where no penalty is set.
    pub counts: Vec<TokenCount>,
}

/// What was proposed for a sequence: at most as many tokens as were wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The sequence.
    pub seq: SeqId,
    /// The tokens that may follow the query.
    pub tokens: Vec<TokenId>,
}

/// Fails unless a question keeps the rules and somebody of whom something is asked is there. One request that names a
/// drafter that isn't there takes no drafts from the others.
///
/// # Errors
/// The rule that is broken, or the first drafter that isn't there.
pub fn admit_proposals(
    plan: &ProposalPlan,
    limits: &BackendLimits,
    is_there: impl Fn(ModelDrafter) -> bool,
) -> Result<(), BackendError> {
    check_proposals(plan, limits).map_err(BackendError::Refused)?;
    match plan.seqs.first() {
        Some(first) if !plan.seqs.iter().any(|ask| is_there(ask.drafter)) => {
            Err(BackendError::Device(format!(
                "sequence {} asks {:?}, which is not loaded",
                first.seq, first.drafter
            )))
        }
        _ => Ok(()),
    }
}

/// Checks what can be seen in the question alone: the names of the rules are those of plans.
///
/// # Errors
/// The first rule that is broken.
pub fn check_proposals(plan: &ProposalPlan, limits: &BackendLimits) -> Result<(), PlanError> {
    let mut users: BTreeMap<BlockId, u32> = BTreeMap::new();
    for (idx, seq) in plan.seqs.iter().enumerate() {
        let ascends = idx == 0 || plan.seqs[idx - 1].seq < seq.seq;
        ensure(ascends, PlanRule::SeqsAscend, seq.seq, || {
            format!("at index {idx}")
        })?;
        let wanted = !seq.query.is_empty() && seq.num_max > 0;
        ensure(wanted, PlanRule::QuerySize, seq.seq, || {
            format!("{} tokens, {} wanted", seq.query.len(), seq.num_max)
        })?;
        let end = seq.start.0 as usize + seq.query.len() + seq.num_max as usize - 1;
        let fits = end <= limits.seq_len_max as usize;
        ensure(fits, PlanRule::SeqLen, seq.seq, || {
            format!("ends at {end}, at most {}", limits.seq_len_max)
        })?;
        let needed = end.div_ceil(BLOCK_LEN as usize);
        let (table, rule) = (&seq.block_table, PlanRule::BlockTable);
        let exist = table.iter().all(|block| block.0 < limits.num_blocks);
        ensure(table.len() == needed && exist, rule, seq.seq, || {
            format!(
                "{table:?} for {end} positions of {} blocks",
                limits.num_blocks
            )
        })?;
        for &block in table {
            *users.entry(block).or_default() += 1;
        }
        let row_is_right = match seq.row {
            Some(row) => row.0 < limits.num_rows && seq.start.0 > 0,
            None => limits.num_rows == 0 || seq.start.0 == 0,
        };
        ensure(row_is_right, PlanRule::Rows, seq.seq, || {
            format!(
                "start {} reads {:?} of {}",
                seq.start, seq.row, limits.num_rows
            )
        })?;
        let outside = seq.query.iter().find(|token| token.0 >= limits.vocab_size);
        ensure(outside.is_none(), PlanRule::TokenRange, seq.seq, || {
            format!("{outside:?}, vocabulary {}", limits.vocab_size)
        })?;
    }
    for seq in &plan.seqs {
        for block in &seq.block_table[(seq.start.0 / BLOCK_LEN) as usize..] {
            let num_users = users[block];
            ensure(
                num_users == 1,
                PlanRule::WrittenBlockShared,
                seq.seq,
                || format!("block {block} is written and in {num_users} tables"),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BackendLimits = BackendLimits {
        vocab_size: 100,
        num_blocks: 8,
        num_rows: 4,
        seq_len_max: 200,
        query_tokens_max: 64,
    };

    fn ask(seq: u64, blocks: &[u32], row: u32) -> SeqProposalPlan {
        SeqProposalPlan {
            seq: SeqId(seq),
            drafter: ModelDrafter::Mtp,
            start: Pos(62),
            query: [5, 6].map(TokenId).to_vec(),
            num_max: 3,
            block_table: blocks.iter().copied().map(BlockId).collect(),
            row: Some(RowId(row)),
            sampling: SamplingParams::greedy(),
            counts: Vec::new(),
        }
    }

    #[test]
    fn each_rule_refuses_its_own_fault() {
        type Spoil = fn(&mut ProposalPlan);
        let plan = || ProposalPlan {
            seqs: [ask(1, &[0, 1], 0), ask(2, &[2, 3], 1)].to_vec(),
        };
        assert_eq!(check_proposals(&plan(), &LIMITS), Ok(()));
        let faults: [(PlanRule, Spoil); 11] = [
            (PlanRule::SeqsAscend, |plan| plan.seqs.swap(0, 1)),
            (PlanRule::QuerySize, |plan| plan.seqs[0].query.clear()),
            (PlanRule::QuerySize, |plan| plan.seqs[0].num_max = 0),
            (PlanRule::SeqLen, |plan| plan.seqs[1].num_max = 138),
            (PlanRule::BlockTable, |plan| plan.seqs[0].num_max = 100),
            (PlanRule::BlockTable, |plan| {
                plan.seqs[0].block_table[1].0 = 8
            }),
            (PlanRule::Rows, |plan| plan.seqs[0].row = None),
            (PlanRule::Rows, |plan| plan.seqs[0].row = Some(RowId(4))),
            (PlanRule::Rows, |plan| plan.seqs[0].start = Pos(0)),
            (PlanRule::TokenRange, |plan| plan.seqs[0].query[1].0 = 100),
            (PlanRule::WrittenBlockShared, |plan| {
                plan.seqs[0].block_table[1] = BlockId(3);
            }),
        ];
        for (idx, (rule, spoil)) in faults.into_iter().enumerate() {
            let mut plan = plan();
            spoil(&mut plan);
            if rule == PlanRule::Rows && plan.seqs[0].start.0 == 0 {
                plan.seqs[0].block_table.truncate(1);
            }
            let refused = check_proposals(&plan, &LIMITS).map_err(|error| error.rule);
            assert_eq!(refused, Err(rule), "fault {idx}");
        }
    }
}
