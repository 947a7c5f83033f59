//! A small stand-in for the engine: it plans, commits and keeps books for a few sequences, at random. It has
//! no policy to speak of, so that it tries what a scheduler would not.

use crate::CpuBackend;
use lockstep_step::{
    BLOCK_LEN, Backend, BlockId, Digest, Draw, Ledger, MaskSet, Pos, QueryToken, RowId, RowPlan,
    RowWrite, SamplingParams, ScoredPosition, SeqId, SeqOutput, SeqPlan, StepId, StepPlan, TokenId,
};

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) prompt: Vec<TokenId>,
    pub(super) sampling: SamplingParams,
    pub(super) num_output: usize,
}

/// What it gets.
pub(super) type Answer = Vec<(TokenId, Digest)>;

/// A seeded sequence of numbers (SplitMix64).
#[derive(Clone)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (lockstep_numerics::digest::mix64(self.0) % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

struct Live {
    id: SeqId,
    ask: Ask,
    // The right continuation, for drafts that are accepted.
    right: Answer,
    output: Answer,
    num_computed: usize,
    blocks: Vec<BlockId>,
    row: Option<RowId>,
}

impl Live {
    fn token(&self, idx: usize) -> TokenId {
        let num_prompt = self.ask.prompt.len();
        match idx.checked_sub(num_prompt) {
            None => self.ask.prompt[idx],
            Some(idx) => self.output[idx].0,
        }
    }

    fn num_tokens(&self) -> usize {
        self.ask.prompt.len() + self.output.len()
    }

    fn is_done(&self) -> bool {
        self.output.len() >= self.ask.num_output
    }
}

/// Runs one request alone: the whole prompt, then token by token.
pub(super) fn alone(backend: &mut CpuBackend, ask: &Ask) -> Answer {
    let mut replay = Replay::new(backend, &[(ask.clone(), Vec::new())], Dice(0));
    replay.plain = true;
    replay.run().remove(0)
}

/// Runs requests together, every choice taken by the dice. Each comes with its right answer, from which
/// drafts are taken.
pub(super) fn together(
    backend: &mut CpuBackend,
    asks: &[(Ask, Answer)],
    dice: Dice,
) -> Vec<Answer> {
    Replay::new(backend, asks, dice).run()
}

struct Replay<'a> {
    backend: &'a mut CpuBackend,
    ledger: Ledger,
    dice: Dice,
    plain: bool,
    seqs: Vec<Live>,
    free_blocks: Vec<BlockId>,
    free_rows: Vec<RowId>,
    num_steps: u64,
}

impl<'a> Replay<'a> {
    fn new(backend: &'a mut CpuBackend, asks: &[(Ask, Answer)], dice: Dice) -> Replay<'a> {
        let limits = backend.limits();
        let seqs = asks.iter().enumerate().map(|(idx, (ask, right))| Live {
            id: SeqId(idx as u64),
            ask: ask.clone(),
            right: right.clone(),
            output: Vec::new(),
            num_computed: 0,
            blocks: Vec::new(),
            row: None,
        });
        Replay {
            ledger: Ledger::new(),
            dice,
            plain: false,
            seqs: seqs.collect(),
            free_blocks: (0..limits.num_blocks).map(BlockId).collect(),
            free_rows: (0..limits.num_rows).map(RowId).collect(),
            num_steps: 0,
            backend,
        }
    }

    fn run(mut self) -> Vec<Answer> {
        while self.seqs.iter().any(|seq| !seq.is_done()) {
            if !self.plain && self.dice.one_in(12) {
                self.preempt();
            }
            let picked: Vec<usize> = (0..self.seqs.len())
                .filter(|&idx| !self.seqs[idx].is_done() && (self.plain || !self.dice.one_in(3)))
                .collect();
            self.step(&picked);
        }
        self.seqs.into_iter().map(|seq| seq.output).collect()
    }

    /// Takes everything from a sequence: it is computed again from its first token.
    fn preempt(&mut self) {
        let victim = self.dice.below(self.seqs.len());
        let seq = &mut self.seqs[victim];
        self.free_blocks.append(&mut seq.blocks);
        self.free_rows.extend(seq.row.take());
        seq.num_computed = 0;
    }

    fn take<T>(dice: &mut Dice, plain: bool, free: &mut Vec<T>) -> T {
        let at = if plain { 0 } else { dice.below(free.len()) };
        free.swap_remove(at)
    }

    fn step(&mut self, picked: &[usize]) {
        let mut plans = Vec::new();
        for &idx in picked {
            let plan = self.plan(idx);
            plans.push(plan);
        }
        if plans.is_empty() {
            return;
        }
        self.num_steps += 1;
        let plan = StepPlan {
            step: StepId(self.num_steps),
            seqs: plans,
            num_mask_rows: 0,
        };
        let limits = self.backend.limits();
        self.ledger
            .admit(&plan, &limits)
            .expect("plans follow the rules");
        let again = !self.plain && self.dice.one_in(4);
        let mut outputs = Vec::new();
        for _ in 0..if again { 2 } else { 1 } {
            let forward = self.backend.forward(&plan).expect("the plan was checked");
            let output = self.backend.sample(forward, &MaskSet::default());
            outputs.push(output.expect("there are no masks"));
        }
        assert_eq!(outputs.first(), outputs.last(), "a step computed twice");
        let output = outputs.remove(0);
        for ((&idx, plan), output) in picked.iter().zip(&plan.seqs).zip(output.seqs) {
            self.commit(idx, plan, output);
        }
    }

    fn plan(&mut self, idx: usize) -> SeqPlan {
        let (plain, dice) = (self.plain, &mut self.dice);
        let seq = &mut self.seqs[idx];
        let num_pending = seq.num_tokens() - seq.num_computed;
        let num_committed = match plain {
            true => num_pending,
            false => 1 + dice.below(num_pending.min(40)),
        };
        let scores = num_committed == num_pending;
        let first = seq.num_computed;
        let mut query: Vec<TokenId> = (first..first + num_committed)
            .map(|idx| seq.token(idx))
            .collect();
        let num_left = seq.ask.num_output - seq.output.len();
        let num_drafts = match scores && !plain {
            true => dice.below(4).min(num_left - 1),
            false => 0,
        };
        for draft in 0..num_drafts {
            let right = seq.right[seq.output.len() + draft].0;
            let wrong = TokenId(dice.below(256) as u32);
            query.push(if dice.one_in(3) { wrong } else { right });
        }
        let num_end = first + query.len();
        while seq.blocks.len() < num_end.div_ceil(BLOCK_LEN as usize) {
            let block = Self::take(dice, plain, &mut self.free_blocks);
            seq.blocks.push(block);
        }
        let last = num_committed as u32 - 1;
        let has_rows = self.backend.limits().num_rows > 0;
        let writes = (last..=last + num_drafts as u32).filter(|_| has_rows);
        let writes = writes.map(|query_idx| RowWrite {
            query_idx,
            row: Self::take(dice, plain, &mut self.free_rows),
        });
        let positions = last..=last + num_drafts as u32;
        let scored = positions
            .filter(|_| scores)
            .map(|query_idx| ScoredPosition {
                query_idx,
                mask: None,
            });
        SeqPlan {
            seq: seq.id,
            start: Pos(first as u32),
            query: query.into_iter().map(QueryToken::Known).collect(),
            num_drafts: num_drafts as u32,
            block_table: seq.blocks[..num_end.div_ceil(BLOCK_LEN as usize)].to_vec(),
            rows: RowPlan {
                read: seq.row,
                writes: writes.collect(),
            },
            scored: scored.collect(),
            sampling: seq.ask.sampling.clone(),
            counts: Vec::new(),
        }
    }

    fn commit(&mut self, idx: usize, plan: &SeqPlan, output: SeqOutput) {
        let seq = &mut self.seqs[idx];
        let draws = output.draws.expect("fixtures stay finite");
        let drafts = &plan.query[plan.query.len() - plan.num_drafts as usize..];
        let accepted = draws
            .iter()
            .zip(drafts)
            .take_while(|(draw, draft)| QueryToken::Known(draw.token) == **draft)
            .count();
        let num_kept = if plan.scored.is_empty() {
            0
        } else {
            accepted + 1
        };
        let kept = draws.into_iter().take(num_kept);
        seq.output
            .extend(kept.map(|Draw { token, digest, .. }| (token, digest)));
        let num_computed = plan.query.len() - plan.num_drafts as usize + accepted;
        seq.num_computed += num_computed;
        self.free_rows.extend(seq.row.take());
        for write in &plan.rows.writes {
            match write.query_idx as usize + 1 == num_computed {
                true => seq.row = Some(write.row),
                false => self.free_rows.push(write.row),
            }
        }
    }
}
