//! A few sequences that are told what to do, step by step: how much to compute, which drafts to try. It
//! keeps their books as the engine would, and decides nothing.

use crate::CpuBackend;
use lockstep_step::{
    BLOCK_LEN, Backend, BlockId, Draw, MaskSet, ModelDrafter, Pos, ProposalPlan, QueryToken, RowId,
    RowPlan, RowWrite, SamplingParams, ScoredPosition, SeqId, SeqPlan, SeqProposalPlan, StepId,
    StepPlan, TokenId,
};

/// Blocks and rows that are free.
pub(super) struct Pools {
    pub(super) blocks: Vec<BlockId>,
    pub(super) rows: Vec<RowId>,
    pub(super) num_steps: u64,
}

impl Pools {
    pub(super) fn of(backend: &CpuBackend) -> Pools {
        let limits = backend.limits();
        Pools {
            blocks: (0..limits.num_blocks).map(BlockId).collect(),
            rows: (0..limits.num_rows).map(RowId).collect(),
            num_steps: 0,
        }
    }
}

pub(super) struct Speaker {
    pub(super) id: SeqId,
    pub(super) tokens: Vec<TokenId>,
    pub(super) num_computed: usize,
    pub(super) blocks: Vec<BlockId>,
    pub(super) row: Option<RowId>,
    pub(super) sampling: SamplingParams,
}

impl Speaker {
    pub(super) fn new(id: u64, prompt: Vec<TokenId>, sampling: SamplingParams) -> Speaker {
        Speaker {
            id: SeqId(id),
            tokens: prompt,
            num_computed: 0,
            blocks: Vec::new(),
            row: None,
            sampling,
        }
    }

    fn cover(&mut self, pools: &mut Pools, num_positions: usize) -> Vec<BlockId> {
        let needed = num_positions.div_ceil(BLOCK_LEN as usize);
        while self.blocks.len() < needed {
            self.blocks.push(pools.blocks.pop().expect("a free block"));
        }
        self.blocks[..needed].to_vec()
    }

    /// Computes `num_tokens` committed tokens, and drafts after them if these are all.
    fn plan(&mut self, pools: &mut Pools, num_tokens: usize, drafts: &[TokenId]) -> SeqPlan {
        let (start, end) = (self.num_computed, self.num_computed + num_tokens);
        let scores = end == self.tokens.len();
        assert!(scores || drafts.is_empty(), "drafts come last");
        let query: Vec<TokenId> = self.tokens[start..end]
            .iter()
            .chain(drafts)
            .copied()
            .collect();
        let has_rows = !pools.rows.is_empty();
        let last = num_tokens as u32 - 1..query.len() as u32;
        let writes = last.clone().filter(|_| has_rows).map(|query_idx| RowWrite {
            query_idx,
            row: pools.rows.pop().expect("a free row"),
        });
        let rows = RowPlan {
            read: self.row,
            writes: writes.collect(),
        };
        let scored = last.filter(|_| scores);
        SeqPlan {
            seq: self.id,
            start: Pos(start as u32),
            block_table: self.cover(pools, start + query.len()),
            num_drafts: drafts.len() as u32,
            query: query.into_iter().map(QueryToken::Known).collect(),
            rows,
            scored: scored
                .map(|query_idx| ScoredPosition {
                    query_idx,
                    mask: None,
                })
                .collect(),
            sampling: self.sampling.clone(),
            counts: Vec::new(),
        }
    }

    /// What is asked when all but the last committed token is computed.
    pub(super) fn ask(
        &mut self,
        pools: &mut Pools,
        drafter: ModelDrafter,
        num_max: usize,
    ) -> SeqProposalPlan {
        let query = self.tokens[self.num_computed..].to_vec();
        let end = self.tokens.len() + num_max - 1;
        SeqProposalPlan {
            seq: self.id,
            drafter,
            start: Pos(self.num_computed as u32),
            query,
            num_max: num_max as u32,
            block_table: self.cover(pools, end),
            row: self.row,
            sampling: self.sampling.clone(),
            counts: Vec::new(),
        }
    }

    fn commit(&mut self, pools: &mut Pools, plan: &SeqPlan, draws: &[Draw]) {
        let drafts = &plan.query[plan.query.len() - plan.num_drafts as usize..];
        let hits = draws.iter().zip(drafts);
        let accepted = hits.take_while(|(draw, draft)| QueryToken::Known(draw.token) == **draft);
        let accepted = accepted.count();
        let num_kept = (accepted + 1).min(draws.len());
        self.tokens
            .extend(draws[..num_kept].iter().map(|draw| draw.token));
        let num_computed = plan.query.len() - plan.num_drafts as usize + accepted;
        self.num_computed += num_computed;
        pools.rows.extend(self.row.take());
        for write in &plan.rows.writes {
            match write.query_idx as usize + 1 == num_computed {
                true => self.row = Some(write.row),
                false => pools.rows.push(write.row),
            }
        }
    }
}

/// One step: for each speaker how many committed tokens it computes, and its drafts. Returns the draws.
pub(super) fn step(
    backend: &mut CpuBackend,
    pools: &mut Pools,
    parts: &mut [(&mut Speaker, usize, Vec<TokenId>)],
) -> Vec<Vec<Draw>> {
    let seqs = parts.iter_mut();
    let seqs = seqs.map(|(speaker, num_tokens, drafts)| speaker.plan(pools, *num_tokens, drafts));
    let seqs: Vec<SeqPlan> = seqs.collect();
    pools.num_steps += 1;
    let plan = StepPlan {
        seqs,
        step: StepId(pools.num_steps),
        num_mask_rows: 0,
    };
    let forward = backend.forward(&plan).expect("the plan is right");
    let output = backend.sample(forward, &MaskSet::default());
    let mut all = Vec::new();
    for (((speaker, ..), plan), output) in parts
        .iter_mut()
        .zip(&plan.seqs)
        .zip(output.expect("it samples").seqs)
    {
        let draws = output.draws.expect("all is finite");
        speaker.commit(pools, plan, &draws);
        all.push(draws);
    }
    all
}

/// Asks for drafts of some sequences at once.
pub(super) fn propose(backend: &mut CpuBackend, seqs: Vec<SeqProposalPlan>) -> Vec<Vec<TokenId>> {
    let ids: Vec<SeqId> = seqs.iter().map(|ask| ask.seq).collect();
    let proposals = backend.propose(&ProposalPlan { seqs });
    let proposals = proposals.expect("the question is right");
    assert_eq!(ids, proposals.iter().map(|of| of.seq).collect::<Vec<_>>());
    proposals.into_iter().map(|of| of.tokens).collect()
}
