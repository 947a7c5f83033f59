//! The rules of a plan that can be seen in the plan alone. A plan that breaks one is refused with the
//! rule's name and never reaches a kernel. Rules that need the past are in `ledger.rs`.

mod uses;

use crate::{BLOCK_LEN, BackendLimits, BlockId, QueryToken, RowId, SeqId, SeqPlan, StepPlan};
use alloc::{format, string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};
use uses::Uses;

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

/// Checks every rule that can be seen in the plan alone. Whoever checks one plan after another does so with
/// a [`PlanChecker`], which says the same.
///
/// # Errors
/// The first rule that is broken, in the order of [`PlanRule::ALL`] within a sequence.
pub fn check_plan(plan: &StepPlan, limits: &BackendLimits) -> Result<(), PlanError> {
    PlanChecker::default().check(plan, limits)
}

/// Checks plans, and remembers nothing of them but where it notes who names what.
#[derive(Clone, Debug, Default)]
pub struct PlanChecker {
    blocks: Uses,
    rows: Uses,
    /// Which mask rows a scored position names.
    mask_rows: Vec<bool>,
}

impl PlanChecker {
    /// As [`check_plan`].
    ///
    /// # Errors
    /// As there.
    pub fn check(&mut self, plan: &StepPlan, limits: &BackendLimits) -> Result<(), PlanError> {
        self.blocks.begin(limits.num_blocks, plan.seqs.len());
        self.rows.begin(limits.num_rows, plan.seqs.len());
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
            self.check_block_table(idx, seq, limits)?;
            self.check_rows(idx, seq, limits)?;
            check_scored(seq)?;
            check_tokens(seq, limits)?;
        }
        self.check_written_blocks(plan)?;
        self.check_written_rows(plan)?;
        self.check_mask_rows(plan)
    }

    fn check_block_table(
        &mut self,
        idx: usize,
        seq: &SeqPlan,
        limits: &BackendLimits,
    ) -> Result<(), PlanError> {
        let needed = seq.end().0.div_ceil(BLOCK_LEN) as usize;
        let rule = PlanRule::BlockTable;
        ensure(seq.block_table.len() == needed, rule, seq.seq, || {
            format!(
                "{} blocks for {} positions",
                seq.block_table.len(),
                seq.end()
            )
        })?;
        for &block in &seq.block_table {
            ensure(block.0 < limits.num_blocks, rule, seq.seq, || {
                format!("block {block} of {}", limits.num_blocks)
            })?;
            ensure(self.blocks.note(block.0, idx), rule, seq.seq, || {
                format!("block {block} twice")
            })?;
        }
        Ok(())
    }

    fn check_rows(
        &mut self,
        idx: usize,
        seq: &SeqPlan,
        limits: &BackendLimits,
    ) -> Result<(), PlanError> {
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
        for row in rows(seq) {
            ensure(row.0 < limits.num_rows, rule, seq.seq, || {
                format!("row {row} of {}", limits.num_rows)
            })?;
            self.rows.note(row.0, idx);
        }
        check_row_indices(seq)
    }

    fn check_written_blocks(&self, plan: &StepPlan) -> Result<(), PlanError> {
        for seq in &plan.seqs {
            let first_written = (seq.start.0 / BLOCK_LEN) as usize;
            for &block in &seq.block_table[first_written..] {
                let is_own = !self.blocks.is_shared(block.0);
                ensure(is_own, PlanRule::WrittenBlockShared, seq.seq, || {
                    let num_users = num_tables_with(plan, block);
                    format!("block {block} is written and in {num_users} tables")
                })?;
            }
        }
        Ok(())
    }

    fn check_written_rows(&self, plan: &StepPlan) -> Result<(), PlanError> {
        for seq in &plan.seqs {
            for write in &seq.rows.writes {
                let row = write.row;
                let is_own = !self.rows.is_shared(row.0);
                ensure(is_own, PlanRule::WrittenRowShared, seq.seq, || {
                    let named = plan.seqs.iter().flat_map(rows);
                    let num_named = named.filter(|&named| named == row).count();
                    format!("row {row} is written and named {num_named} times")
                })?;
            }
        }
        Ok(())
    }

    fn check_mask_rows(&mut self, plan: &StepPlan) -> Result<(), PlanError> {
        let used = &mut self.mask_rows;
        used.clear();
        used.resize(plan.num_mask_rows as usize, false);
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
}

/// Every row that a sequence names.
fn rows(seq: &SeqPlan) -> impl Iterator<Item = RowId> + '_ {
    let writes = seq.rows.writes.iter().map(|write| write.row);
    seq.rows.read.into_iter().chain(writes)
}

fn num_tables_with(plan: &StepPlan, block: BlockId) -> usize {
    let tables = plan.seqs.iter().map(|seq| &seq.block_table);
    tables.filter(|table| table.contains(&block)).count()
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

/// Where in the query rows are written.
fn check_row_indices(seq: &SeqPlan) -> Result<(), PlanError> {
    let rule = PlanRule::Rows;
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
    let wanted = query_len - 1 - seq.num_drafts..query_len;
    let is_wanted = |write: &&crate::RowWrite| write.query_idx >= wanted.start;
    let mut written = seq.rows.writes.iter().skip_while(|write| !is_wanted(write));
    for query_idx in wanted.clone() {
        let is_next = written
            .next()
            .is_some_and(|write| write.query_idx == query_idx);
        ensure(is_next, rule, seq.seq, || {
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
        if let QueryToken::Known(token) = token {
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

#[cfg(test)]
mod tests;
