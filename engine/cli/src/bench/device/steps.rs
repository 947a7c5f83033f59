//! Steps of a benchmark, planned by hand: prompts in whole steps, and sequences that write token after token, each step
//! queued before the one before is looked at, as a server does. It must never leave out what a served step does on the
//! device.

use crate::exit::Failure;
use lockstep_cuda::CudaBackend;
use lockstep_step::{
    BLOCK_LEN, Backend, BackendError, BlockId, MaskSet, Pos, QueryToken, RowId, RowPlan, RowWrite,
    SamplingParams, ScoredPosition, SeqId, SeqPlan, StepId, StepOutput, StepPlan, TokenId,
};
use std::time::Instant;

/// Prompt of a sequence whose decoding is measured: short, so that weights decide and not the cache.
pub const PROMPT_LEN: u32 = 32;

/// A model and what its sequences hold.
pub struct Steps {
    backend: CudaBackend,
    next_step: u64,
    // Tokens of each sequence, and which of its two rows has the state after them.
    lens: Vec<u32>,
    flipped: Vec<bool>,
    blocks_per_seq: u32,
}

impl Steps {
    /// With no sequence yet.
    pub fn new(backend: CudaBackend) -> Steps {
        Steps {
            backend,
            next_step: 0,
            lens: Vec::new(),
            flipped: Vec::new(),
            blocks_per_seq: 0,
        }
    }

    /// Seconds that one prompt of this length takes to its first token.
    pub fn prefill(&mut self, len: u32) -> Result<f64, Failure> {
        self.begin(1, len);
        let start = Instant::now();
        self.read(0, len)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds that `batch` sequences take to write `len` tokens each, after a short prompt that is not counted.
    pub fn decode(&mut self, batch: u32, len: u32) -> Result<f64, Failure> {
        self.begin(batch, PROMPT_LEN + len);
        for seq in 0..batch {
            self.read(seq, PROMPT_LEN)?;
        }
        let start = Instant::now();
        let mut on_their_way = None;
        for round in 0..len {
            let before = StepId(self.next_step.wrapping_sub(1));
            let token = |seq: u32| match round {
                0 => self.any_token(seq, PROMPT_LEN),
                _ => QueryToken::Drawn {
                    step: before,
                    scored_idx: 0,
                },
            };
            let queries: Vec<_> = (0..batch).map(|seq| (seq, vec![token(seq)])).collect();
            let plan = self.plan(queries, true);
            let forward = self.backend.forward(&plan).map_err(failed)?;
            if let Some(sampled) = on_their_way.take() {
                check(self.backend.collect(sampled))?;
            }
            let drawn = self.backend.draw(forward, &MaskSet::default());
            on_their_way = Some(drawn.map_err(failed)?);
        }
        if let Some(sampled) = on_their_way {
            check(self.backend.collect(sampled))?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Forgets all sequences, and makes room for so many of this length.
    fn begin(&mut self, batch: u32, len: u32) {
        self.lens = vec![0; batch as usize];
        self.flipped = vec![false; batch as usize];
        self.blocks_per_seq = len.div_ceil(BLOCK_LEN);
    }

    /// Reads a prompt, of which the last token is scored.
    fn read(&mut self, seq: u32, len: u32) -> Result<(), Failure> {
        let step_max = self.backend.limits().query_tokens_max;
        let mut done = 0;
        while done < len {
            let num = step_max.min(len - done);
            let query = (done..done + num).map(|idx| self.any_token(seq, idx));
            let query = query.collect();
            done += num;
            let plan = self.plan(vec![(seq, query)], done == len);
            let forward = self.backend.forward(&plan).map_err(failed)?;
            check(self.backend.sample(forward, &MaskSet::default()))?;
        }
        Ok(())
    }

    /// Any tokens will do, if no two sequences share them.
    fn any_token(&self, seq: u32, idx: u32) -> QueryToken {
        let mixed = (idx + seq * 7919).wrapping_mul(2_654_435_761) >> 8;
        QueryToken::Known(TokenId(mixed % self.backend.limits().vocab_size))
    }

    fn plan(&mut self, queries: Vec<(u32, Vec<QueryToken>)>, scored: bool) -> StepPlan {
        let step = StepId(self.next_step);
        self.next_step += 1;
        let seqs = queries.into_iter();
        let seqs = seqs.map(|(seq, query)| self.part(seq, query, scored));
        StepPlan {
            step,
            seqs: seqs.collect(),
            num_mask_rows: 0,
        }
    }

    fn part(&mut self, seq: u32, query: Vec<QueryToken>, scored: bool) -> SeqPlan {
        let at = seq as usize;
        let start = self.lens[at];
        self.lens[at] += query.len() as u32;
        let last = query.len() as u32 - 1;
        let first_block = seq * self.blocks_per_seq;
        let num_blocks = self.lens[at].div_ceil(BLOCK_LEN);
        let scored = scored.then_some(ScoredPosition {
            query_idx: last,
            mask: None,
        });
        SeqPlan {
            seq: SeqId(u64::from(seq)),
            start: Pos(start),
            query,
            num_drafts: 0,
            block_table: (first_block..first_block + num_blocks)
                .map(BlockId)
                .collect(),
            rows: self.rows(seq, start, last),
            scored: scored.into_iter().collect(),
            sampling: SamplingParams::greedy(),
            counts: Vec::new(),
        }
    }

    /// From one row of the sequence to the other, where the model has rows.
    fn rows(&mut self, seq: u32, start: u32, query_idx: u32) -> RowPlan {
        if self.backend.limits().num_rows == 0 {
            return RowPlan::default();
        }
        let flipped = &mut self.flipped[seq as usize];
        let row = |flipped: bool| RowId(2 * seq + u32::from(flipped));
        let read = (start > 0).then_some(row(*flipped));
        *flipped = !*flipped;
        RowPlan {
            read,
            writes: vec![RowWrite {
                query_idx,
                row: row(*flipped),
            }],
        }
    }
}

fn failed(error: BackendError) -> Failure {
    Failure::failed(error)
}

/// A step of which a sequence failed did not do all that was measured.
fn check(output: Result<StepOutput, BackendError>) -> Result<(), Failure> {
    for seq in output.map_err(failed)?.seqs {
        seq.draws.map_err(Failure::failed)?;
    }
    Ok(())
}
