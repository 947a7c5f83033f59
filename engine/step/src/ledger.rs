//! The rules of a plan that need the past: what every block and row holds. The ledger is told each step
//! that ran and refuses the next one if it reads what was never written, or a state of other tokens than
//! its blocks hold. It keeps tokens and no values, and knows no sequence: whose they were must not matter.

use crate::check::{PlanError, PlanRule, ensure};
use crate::{
    BLOCK_LEN, BackendLimits, BlockId, QueryToken, RowId, SeqPlan, StepPlan, TokenId, check_plan,
};
use alloc::{collections::BTreeMap, format, vec::Vec};

/// A token that something was computed from. None is a draw that the plan refers to: it could be any.
type Held = Option<TokenId>;

/// What blocks and rows hold, as far as the plans so far say.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    // The tokens computed into a block, from its first position.
    blocks: BTreeMap<BlockId, Vec<Held>>,
    // The whole prefix whose state a row holds.
    rows: BTreeMap<RowId, Vec<Held>>,
}

impl Ledger {
    /// A ledger of a backend that has computed nothing.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// Checks every rule, then notes what the step will have written.
    ///
    /// # Errors
    /// The first rule that is broken; the ledger is then unchanged.
    pub fn admit(&mut self, plan: &StepPlan, limits: &BackendLimits) -> Result<(), PlanError> {
        check_plan(plan, limits)?;
        let mut prefixes = Vec::with_capacity(plan.seqs.len());
        for seq in &plan.seqs {
            self.check_row_length(seq)?;
            let prefix = self.prefix(seq)?;
            self.check_row_tokens(seq, &prefix)?;
            prefixes.push(prefix);
        }
        for (seq, prefix) in plan.seqs.iter().zip(prefixes) {
            self.note(seq, prefix);
        }
        Ok(())
    }

    fn check_row_length(&self, seq: &SeqPlan) -> Result<(), PlanError> {
        let Some(row) = seq.rows.read else {
            return Ok(());
        };
        let held = self.rows.get(&row).map_or(0, Vec::len);
        ensure(
            held == seq.start.0 as usize,
            PlanRule::RowLength,
            seq.seq,
            || format!("row {row} holds {held} tokens, start is {}", seq.start),
        )
    }

    /// The tokens that a sequence's blocks hold before its query.
    fn prefix(&self, seq: &SeqPlan) -> Result<Vec<Held>, PlanError> {
        let mut prefix = Vec::with_capacity(seq.start.0 as usize + seq.query.len());
        for (idx, block) in seq.block_table.iter().enumerate() {
            let first = idx as u32 * BLOCK_LEN;
            let needed = seq.start.0.saturating_sub(first).min(BLOCK_LEN) as usize;
            let held = self.blocks.get(block).map_or(&[][..], Vec::as_slice);
            ensure(held.len() >= needed, PlanRule::BlockFilled, seq.seq, || {
                format!(
                    "block {block} holds {} positions, {needed} are read",
                    held.len()
                )
            })?;
            prefix.extend_from_slice(&held[..needed]);
        }
        Ok(prefix)
    }

    fn check_row_tokens(&self, seq: &SeqPlan, prefix: &[Held]) -> Result<(), PlanError> {
        let row = seq
            .rows
            .read
            .and_then(|row| Some((row, self.rows.get(&row)?)));
        let Some((row, held)) = row else {
            return Ok(());
        };
        let differs = |pair: (&Held, &Held)| matches!(pair, (Some(a), Some(b)) if a != b);
        let first = held.iter().zip(prefix).position(differs);
        ensure(first.is_none(), PlanRule::RowLength, seq.seq, || {
            let pos = first.unwrap_or(0);
            let (row_token, block_token) = (held[pos], prefix[pos]);
            format!("row {row} saw {row_token:?} at {pos}, the block there holds {block_token:?}")
        })
    }

    /// Notes what a sequence's part of a step writes.
    fn note(&mut self, seq: &SeqPlan, mut prefix: Vec<Held>) {
        let start = seq.start.0 as usize;
        prefix.extend(seq.query.iter().map(|token| match *token {
            QueryToken::Known(token) => Some(token),
            QueryToken::Drawn { .. } => None,
        }));
        let block_len = BLOCK_LEN as usize;
        for (idx, &block) in seq.block_table.iter().enumerate().skip(start / block_len) {
            let first = idx * block_len;
            let last = prefix.len().min(first + block_len);
            self.blocks.insert(block, prefix[first..last].to_vec());
        }
        for write in &seq.rows.writes {
            let len = start + write.query_idx as usize + 1;
            self.rows.insert(write.row, prefix[..len].to_vec());
        }
    }
}
