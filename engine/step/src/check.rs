//! The rules of a plan that can be seen in the plan alone. A plan that breaks one is refused with the
//! rule's name and never reaches a kernel. Rules that need the past are in `ledger.rs`.

use crate::{BLOCK_LEN, BackendLimits, BlockId, RowId, SeqId, SeqPlan, StepPlan};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec,
};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The rules, by name. `docs/ARCHITECTURE.md` lists the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanRule {
    /// Sequences are in ascending order of id, each once.
    SeqsAscend,
    /// Each sequence computes at least one token, and the step no more than the backend takes.
    QuerySize,
    /// Positions stay inside the model's longest sequence.
    SeqLen,
    /// Drafts are a proper suffix of the query: the first query token is always committed.
    DraftSuffix,
    /// The block table covers the positions exactly, with blocks that exist, each once.
    BlockTable,
    /// A block that is written appears in no other sequence's table.
    WrittenBlockShared,
    /// Rows are named exactly where the model has recurrent state, they exist, and the last committed
    /// query token and each draft after it leave one behind.
    Rows,
    /// A row that is read or written by one sequence is written by no other, nor by its own reader.
    WrittenRowShared,
    /// Scored positions are inside the query and ascend without gaps over the drafts.
    Scored,
    /// Mask rows and constrained scored positions match one to one.
    MaskRows,
    /// Known tokens are inside the vocabulary.
    TokenRange,
    /// A row that is read holds the state after exactly the `start` tokens that the table's blocks hold.
    RowLength,
    /// Blocks before `start` hold computed positions, all of them.
    BlockFilled,
}

impl PlanRule {
    /// Every rule, for documentation and for tests.
    pub const ALL: [PlanRule; 13] = [
        PlanRule::SeqsAscend,
        PlanRule::QuerySize,
        PlanRule::SeqLen,
        PlanRule::DraftSuffix,
        PlanRule::BlockTable,
        PlanRule::WrittenBlockShared,
        PlanRule::Rows,
        PlanRule::WrittenRowShared,
        PlanRule::Scored,
        PlanRule::MaskRows,
        PlanRule::TokenRange,
        PlanRule::RowLength,
        PlanRule::BlockFilled,
    ];

    /// The rule's name in errors and documents.
    pub fn name(self) -> &'static str {
        match self {
            PlanRule::SeqsAscend => "seqs_ascend",
            PlanRule::QuerySize => "query_size",
            PlanRule::SeqLen => "seq_len",
            PlanRule::DraftSuffix => "draft_suffix",
            PlanRule::BlockTable => "block_table",
            PlanRule::WrittenBlockShared => "written_block_shared",
            PlanRule::Rows => "rows",
            PlanRule::WrittenRowShared => "written_row_shared",
            PlanRule::Scored => "scored",
            PlanRule::MaskRows => "mask_rows",
            PlanRule::TokenRange => "token_range",
            PlanRule::RowLength => "row_length",
            PlanRule::BlockFilled => "block_filled",
        }
    }
}

/// A plan that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanError {
    /// The rule.
    pub rule: PlanRule,
    /// The sequence whose part breaks it.
    pub seq: SeqId,
    /// The numbers.
    pub detail: String,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?}): {}", self.rule.name(), self.seq, self.detail)
    }
}

pub(crate) fn ensure(
    holds: bool,
    rule: PlanRule,
    seq: SeqId,
    detail: impl FnOnce() -> String,
) -> Result<(), PlanError> {
    if holds {
        Ok(())
    } else {
        Err(PlanError {
            rule,
            seq,
            detail: detail(),
        })
    }
}

/// Checks every rule that can be seen in the plan alone.
///
/// # Errors
/// The first rule that is broken, in the order of [`PlanRule::ALL`] within a sequence.
pub fn check_plan(plan: &StepPlan, limits: &BackendLimits) -> Result<(), PlanError> {
    let mut num_query_tokens = 0;
    for (idx, seq) in plan.seqs.iter().enumerate() {
        let ascends = idx == 0 || plan.seqs[idx - 1].seq < seq.seq;
        ensure(ascends, PlanRule::SeqsAscend, seq.seq, || {
            format!("at index {idx}")
        })?;
        num_query_tokens += seq.query.len();
        ensure(
            !seq.query.is_empty() && num_query_tokens <= limits.query_tokens_max as usize,
            PlanRule::QuerySize,
            seq.seq,
            || {
                let (own, max) = (seq.query.len(), limits.query_tokens_max);
                format!("{own} tokens, {num_query_tokens} in the step so far, at most {max}")
            },
        )?;
        check_lengths(seq, limits)?;
        check_block_table(seq, limits)?;
        check_rows(seq, limits)?;
        check_scored(seq)?;
        check_tokens(seq, limits)?;
    }
    check_written_blocks(plan)?;
    check_written_rows(plan)?;
    check_mask_rows(plan)
}

fn check_lengths(seq: &SeqPlan, limits: &BackendLimits) -> Result<(), PlanError> {
    let end = u64::from(seq.start.0) + seq.query.len() as u64;
    ensure(
        end <= u64::from(limits.seq_len_max),
        PlanRule::SeqLen,
        seq.seq,
        || format!("ends at {end}, at most {}", limits.seq_len_max),
    )?;
    ensure(
        (seq.num_drafts as usize) < seq.query.len(),
        PlanRule::DraftSuffix,
        seq.seq,
        || format!("{} drafts in {} tokens", seq.num_drafts, seq.query.len()),
    )
}

fn check_block_table(seq: &SeqPlan, limits: &BackendLimits) -> Result<(), PlanError> {
    let needed = seq.end().0.div_ceil(BLOCK_LEN) as usize;
    let rule = PlanRule::BlockTable;
    ensure(seq.block_table.len() == needed, rule, seq.seq, || {
        format!(
            "{} blocks for {} positions",
            seq.block_table.len(),
            seq.end()
        )
    })?;
    let mut seen = BTreeSet::new();
    for &block in &seq.block_table {
        ensure(block.0 < limits.num_blocks, rule, seq.seq, || {
            format!("block {block} of {}", limits.num_blocks)
        })?;
        ensure(seen.insert(block), rule, seq.seq, || {
            format!("block {block} twice")
        })?;
    }
    Ok(())
}

fn check_rows(seq: &SeqPlan, limits: &BackendLimits) -> Result<(), PlanError> {
    let rule = PlanRule::Rows;
    if limits.num_rows == 0 {
        let none = seq.rows.read.is_none() && seq.rows.writes.is_empty();
        return ensure(none, rule, seq.seq, || {
            "the model has no recurrent state".into()
        });
    }
    ensure(
        seq.rows.read.is_some() == (seq.start.0 > 0),
        rule,
        seq.seq,
        || format!("start {} reads {:?}", seq.start, seq.rows.read),
    )?;
    let named = seq
        .rows
        .read
        .into_iter()
        .chain(seq.rows.writes.iter().map(|write| write.row));
    for row in named {
        ensure(row.0 < limits.num_rows, rule, seq.seq, || {
            format!("row {row} of {}", limits.num_rows)
        })?;
    }
    let query_len = seq.query.len() as u32;
    for pair in seq.rows.writes.windows(2) {
        ensure(pair[0].query_idx < pair[1].query_idx, rule, seq.seq, || {
            format!(
                "writes after {} and {}",
                pair[0].query_idx, pair[1].query_idx
            )
        })?;
    }
    // The last committed token and every draft: wherever the commit may end, its state must exist.
    for query_idx in query_len - 1 - seq.num_drafts..query_len {
        let written = seq
            .rows
            .writes
            .iter()
            .any(|write| write.query_idx == query_idx);
        ensure(written, rule, seq.seq, || {
            format!("no row after query token {query_idx}")
        })?;
    }
    let last = seq.rows.writes.last().map_or(0, |write| write.query_idx);
    ensure(last < query_len, rule, seq.seq, || {
        format!("a row after query token {last} of {query_len}")
    })
}

fn check_scored(seq: &SeqPlan) -> Result<(), PlanError> {
    let rule = PlanRule::Scored;
    let query_len = seq.query.len() as u32;
    if seq.scored.is_empty() {
        return ensure(seq.num_drafts == 0, rule, seq.seq, || {
            format!("{} drafts and nothing is scored", seq.num_drafts)
        });
    }
    // Either nothing, or exactly the last committed token and every draft.
    let first = query_len - 1 - seq.num_drafts;
    let wanted = first..query_len;
    let matches = seq.scored.len() == wanted.len()
        && seq
            .scored
            .iter()
            .zip(wanted.clone())
            .all(|(scored, idx)| scored.query_idx == idx);
    ensure(matches, rule, seq.seq, || {
        format!("{:?} where {wanted:?} was expected", seq.scored)
    })
}

fn check_tokens(seq: &SeqPlan, limits: &BackendLimits) -> Result<(), PlanError> {
    for (idx, token) in seq.query.iter().enumerate() {
        if let crate::QueryToken::Known(token) = token {
            ensure(
                token.0 < limits.vocab_size,
                PlanRule::TokenRange,
                seq.seq,
                || {
                    format!(
                        "query token {idx} is {token}, vocabulary {}",
                        limits.vocab_size
                    )
                },
            )?;
        }
    }
    Ok(())
}

fn check_written_blocks(plan: &StepPlan) -> Result<(), PlanError> {
    let mut users: BTreeMap<BlockId, u32> = BTreeMap::new();
    for seq in &plan.seqs {
        for &block in &seq.block_table {
            *users.entry(block).or_default() += 1;
        }
    }
    for seq in &plan.seqs {
        let first_written = (seq.start.0 / BLOCK_LEN) as usize;
        for block in &seq.block_table[first_written..] {
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

fn check_written_rows(plan: &StepPlan) -> Result<(), PlanError> {
    let mut named: BTreeMap<RowId, u32> = BTreeMap::new();
    for seq in &plan.seqs {
        for row in seq
            .rows
            .read
            .into_iter()
            .chain(seq.rows.writes.iter().map(|write| write.row))
        {
            *named.entry(row).or_default() += 1;
        }
    }
    for seq in &plan.seqs {
        for write in &seq.rows.writes {
            ensure(
                named[&write.row] == 1,
                PlanRule::WrittenRowShared,
                seq.seq,
                || {
                    format!(
                        "row {} is written and named {} times",
                        write.row, named[&write.row]
                    )
                },
            )?;
        }
    }
    Ok(())
}

fn check_mask_rows(plan: &StepPlan) -> Result<(), PlanError> {
    let mut used = vec![false; plan.num_mask_rows as usize];
    for seq in &plan.seqs {
        for scored in &seq.scored {
            let Some(row) = scored.mask else { continue };
            let free = used.get(row.0 as usize) == Some(&false);
            ensure(free, PlanRule::MaskRows, seq.seq, || {
                format!(
                    "mask row {row} of {} is missing or taken",
                    plan.num_mask_rows
                )
            })?;
            used[row.0 as usize] = true;
        }
    }
    if let (Some(idx), Some(seq)) = (used.iter().position(|used| !used), plan.seqs.first()) {
        return ensure(false, PlanRule::MaskRows, seq.seq, || {
            format!("mask row {idx} is unused")
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
