//! One sequence through the backend, cut into steps in whatever way is asked for.

use super::CheckError;
use crate::{CpuBackend, Probe};
use lockstep_numerics::draw_u64;
use lockstep_step::{
    BLOCK_LEN, Backend, BlockId, Pos, QueryToken, RowId, RowPlan, RowWrite, SamplingParams, SeqId,
    SeqPlan, StepId, StepPlan, TokenId,
};

/// Rows that a sequence alternates between: one is read while the other is written.
const NUM_ROWS: u32 = 2;
/// The longest random chunk, in tokens. Longer than a block would hide nothing, shorter finds more.
const CHUNK_MAX: u64 = 40;

pub(super) struct Runner {
    backend: CpuBackend,
    seed: u64,
    num_draws: u64,
    num_steps: u64,
}

impl Runner {
    /// Blocks and rows for one sequence of this length.
    pub(super) fn needs(num_tokens: usize) -> (u32, u32) {
        ((num_tokens as u32).div_ceil(BLOCK_LEN), NUM_ROWS)
    }

    pub(super) fn new(backend: CpuBackend, seed: u64) -> Runner {
        Runner {
            backend,
            seed,
            num_draws: 0,
            num_steps: 0,
        }
    }

    pub(super) fn vocab_size(&self) -> usize {
        self.backend.limits().vocab_size as usize
    }

    /// All tokens in one step.
    pub(super) fn whole(&mut self, tokens: &[u32]) -> Result<Probe, CheckError> {
        self.step(tokens, 0, tokens.len(), 0)
    }

    /// The first tokens in one step, then one per step. Returns logits from the last of the first on.
    pub(super) fn steps(&mut self, tokens: &[u32], first: usize) -> Result<Vec<f32>, CheckError> {
        let logits = self.step(tokens, 0, first, 0)?.logits;
        let mut logits = logits[logits.len() - self.vocab_size()..].to_vec();
        for start in first..tokens.len() {
            let num_steps = start - first + 1;
            logits.extend(self.step(tokens, start, start + 1, num_steps)?.logits);
        }
        Ok(logits)
    }

    /// Tokens in chunks of random length. Returns the logits of all, and the drafting head's.
    pub(super) fn chunks(&mut self, tokens: &[u32]) -> Result<Probe, CheckError> {
        let (mut probe, mut start, mut num_steps) = (Probe::default(), 0, 0);
        while start < tokens.len() {
            let len = 1 + draw_u64(self.seed, self.num_draws) % CHUNK_MAX;
            self.num_draws += 1;
            let end = tokens.len().min(start + len as usize);
            let step = self.step(tokens, start, end, num_steps)?;
            probe.logits.extend(step.logits);
            probe.mtp_logits.extend(step.mtp_logits);
            (start, num_steps) = (end, num_steps + 1);
        }
        Ok(probe)
    }

    /// Computes `tokens[start..end]`; `num_before` steps of this sequence came before.
    fn step(
        &mut self,
        tokens: &[u32],
        start: usize,
        end: usize,
        num_before: usize,
    ) -> Result<Probe, CheckError> {
        let row = |step: usize| RowId(step as u32 % NUM_ROWS);
        let rows = match self.backend.limits().num_rows {
            0 => RowPlan::default(),
            _ => RowPlan {
                read: (start > 0).then(|| row(num_before + 1)),
                writes: vec![RowWrite {
                    query_idx: (end - start - 1) as u32,
                    row: row(num_before),
                }],
            },
        };
        let known = |&token: &u32| QueryToken::Known(TokenId(token));
        self.num_steps += 1;
        let plan = StepPlan {
            step: StepId(self.num_steps),
            seqs: vec![SeqPlan {
                seq: SeqId(0),
                start: Pos(start as u32),
                query: tokens[start..end].iter().map(known).collect(),
                num_drafts: 0,
                block_table: (0..(end as u32).div_ceil(BLOCK_LEN)).map(BlockId).collect(),
                rows,
                scored: Vec::new(),
                sampling: SamplingParams::greedy(),
                counts: Vec::new(),
            }],
            num_mask_rows: 0,
        };
        self.backend.forward_probed(&plan).map_err(CheckError::Step)
    }
}
