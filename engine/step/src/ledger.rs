//! The rules of a plan that need the past: what every block and row holds. The ledger is told each step
//! that ran and refuses the next one if it reads what was never written, or a state of other tokens than
//! its blocks hold. It keeps tokens and no values, and knows no sequence: whose they were must not matter.

use crate::check::{PlanError, PlanRule, ensure};
use crate::{
    BLOCK_LEN, BackendLimits, BlockId, QueryToken, RowId, SeqId, SeqPlan, StepId, StepOutput,
    StepPlan, TokenId, check_plan,
};
use alloc::{collections::BTreeMap, format, vec::Vec};

/// A token that something was computed from. None is a draw that the plan refers to and that was not noted: it
/// could be any.
type Held = Option<TokenId>;

/// What one sequence's part of a step wrote with a draw among its tokens.
#[derive(Clone, Debug)]
struct Unknown {
    seq: SeqId,
    /// The step that draws it, and the index among its draws.
    step: StepId,
    scored_idx: u32,
    /// The position that it takes.
    pos: usize,
    block: BlockId,
    rows: Vec<RowId>,
}

/// What blocks and rows hold, as far as the plans so far say.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    // The tokens computed into a block, from its first position.
    blocks: BTreeMap<BlockId, Vec<Held>>,
    // The whole prefix whose state a row holds.
    rows: BTreeMap<RowId, Vec<Held>>,
    // What refers to steps that were not answered yet.
    unknown: Vec<Unknown>,
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

    /// Notes what a step drew, for the plans that refer to it. Draws of steps that nobody refers to don't matter.
    pub fn note_draws(&mut self, output: &StepOutput) {
        let (own, others) = core::mem::take(&mut self.unknown)
            .into_iter()
            .partition::<Vec<_>, _>(|unknown| unknown.step == output.step);
        self.unknown = others;
        for unknown in own {
            let found = output
                .seqs
                .binary_search_by_key(&unknown.seq, |seq| seq.seq);
            let draws = found
                .ok()
                .and_then(|at| output.seqs[at].draws.as_ref().ok());
            let draw = draws.and_then(|draws| draws.get(unknown.scored_idx as usize));
            let token = draw.map(|draw| draw.token);
            let in_block = self.blocks.get_mut(&unknown.block);
            let in_block = in_block.and_then(|held| held.get_mut(unknown.pos % BLOCK_LEN as usize));
            if let Some(held) = in_block {
                *held = token;
            }
            for row in unknown.rows {
                let held = self.rows.get_mut(&row);
                if let Some(held) = held.and_then(|held| held.get_mut(unknown.pos)) {
                    *held = token;
                }
            }
        }
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
        for (query_idx, token) in seq.query.iter().enumerate() {
            let QueryToken::Drawn { step, scored_idx } = *token else {
                continue;
            };
            let writes = seq.rows.writes.iter();
            let after = writes.filter(|write| write.query_idx as usize >= query_idx);
            self.unknown.push(Unknown {
                seq: seq.seq,
                step,
                scored_idx,
                pos: start + query_idx,
                block: seq.block_table[(start + query_idx) / block_len],
                rows: after.map(|write| write.row).collect(),
            });
        }
    }
}
