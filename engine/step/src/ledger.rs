//! The rules of a plan that need the past: what every block and row holds. The ledger is told each step
//! that ran and refuses the next one if it reads what was never written. It keeps no values, only lengths.

use crate::check::{PlanError, PlanRule, ensure};
use crate::{BLOCK_LEN, BackendLimits, BlockId, RowId, SeqId, StepPlan, check_plan};
use alloc::{collections::BTreeMap, format};

/// What blocks and rows hold, as far as the plans so far say.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    // Computed positions of a block, counted from its first.
    filled: BTreeMap<BlockId, u32>,
    // The sequence a row belongs to, and how many of its tokens the state has seen.
    rows: BTreeMap<RowId, (SeqId, u32)>,
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
        for seq in &plan.seqs {
            if let Some(row) = seq.rows.read {
                let held = self.rows.get(&row).copied();
                ensure(
                    held == Some((seq.seq, seq.start.0)),
                    PlanRule::RowLength,
                    seq.seq,
                    || format!("row {row} holds {held:?}, start is {}", seq.start),
                )?;
            }
            for (idx, block) in seq.block_table.iter().enumerate() {
                let first = idx as u32 * BLOCK_LEN;
                let needed = seq.start.0.saturating_sub(first).min(BLOCK_LEN);
                let filled = self.filled.get(block).copied().unwrap_or(0);
                ensure(filled >= needed, PlanRule::BlockFilled, seq.seq, || {
                    format!("block {block} holds {filled} positions, {needed} are read")
                })?;
            }
        }
        for seq in &plan.seqs {
            for (idx, &block) in seq.block_table.iter().enumerate() {
                let first = idx as u32 * BLOCK_LEN;
                if seq.end().0 > first && seq.start.0 < first + BLOCK_LEN {
                    self.filled
                        .insert(block, (seq.end().0 - first).min(BLOCK_LEN));
                }
            }
            for write in &seq.rows.writes {
                self.rows
                    .insert(write.row, (seq.seq, seq.start.0 + write.query_idx + 1));
            }
        }
        Ok(())
    }
}
