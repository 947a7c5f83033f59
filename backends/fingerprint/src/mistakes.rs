//! Mistakes that kernels, graphs and copies of public engines made, put in on purpose. Only the simulation's build has
//! them: each goes by its switch, and with none on nothing here changes anything.

use crate::model::{Model, mix};
use lockstep_step::{BlockId, Pos, QueryToken, RowId, SeqId, SeqPlan, SeqProposalPlan, StepId};
use lockstep_step::{StepLayout, StepOutput, StepPlan, TokenId, planted};
use std::collections::{BTreeMap, BTreeSet};

/// What is written where nothing should be.
const GARBAGE: u64 = 0x6761_7262_6167_6521;

/// Tokens of one sequence that a limited kernel verifies in a step.
const VERIFIED_MAX: usize = 5;

/// Tokens that are drafted each time, wanted or not.
const DEPTH: u32 = 3;

/// Rows by which a pool is smaller than it was said to be.
const ROWS_MISSING: usize = 2;

/// Mistakes of the model, and what is remembered to make them.
#[derive(Default)]
pub(crate) struct Mistakes {
    num_rows: usize,
    past: BTreeMap<SeqId, Past>,
    /// Which sequences a captured plan of so many rows and sequences was made for.
    captured: BTreeMap<(usize, usize), Vec<SeqId>>,
    /// The rows that were written lately, by place in the batch; what a smaller batch leaves stands.
    state_writes: Vec<u32>,
    /// What the first row held before the step.
    row_zero: Option<u64>,
    collected: Option<StepId>,
    num_seqs: usize,
    was_launched: bool,
}

/// The last part of a sequence.
#[derive(Clone, Default)]
struct Past {
    step: StepId,
    start: u32,
    num_committed: u32,
    /// The states after the committed tokens and after each draft.
    columns: Vec<RowId>,
    /// Drafts that the step before it had accepted.
    num_accepted_before: usize,
}

impl Past {
    fn of(step: StepId, seq: &SeqPlan, num_accepted_before: usize) -> Past {
        let num_committed = seq.query.len() as u32 - seq.num_drafts;
        let writes = seq.rows.writes.iter();
        let columns = writes.filter(|write| write.query_idx + 1 >= num_committed);
        Past {
            step,
            start: seq.start.0,
            num_committed,
            columns: columns.map(|write| write.row).collect(),
            num_accepted_before,
        }
    }
}

impl Mistakes {
    /// Of a model with so many rows.
    pub(crate) fn new(num_rows: u32) -> Mistakes {
        Mistakes {
            num_rows: num_rows as usize,
            ..Mistakes::default()
        }
    }

    /// Lays a plan out again as somebody would who makes a mistake.
    pub(crate) fn lay_out(&mut self, plan: &StepPlan, tokens: &[TokenId], layout: &mut StepLayout) {
        let mut tokens = tokens.to_vec();
        let is_padded = layout.padded_rows() > layout.num_rows();
        let last = plan.seqs.last().and_then(|seq| seq.query.last());
        // Planted: vllm-project/tpu-inference#991.
        if planted!(PadSlotOverwritesLastSubstitution)
            && is_padded
            && let (Some(token), Some(QueryToken::Drawn { .. })) = (tokens.last_mut(), last)
        {
            *token = TokenId(0);
        }
        let reads: Vec<Option<RowId>> = (0..plan.seqs.len())
            .map(|idx| self.state_read(plan, idx, layout))
            .collect();
        let mut seqs = plan.seqs.clone();
        for (seq, read) in seqs.iter_mut().zip(reads) {
            seq.rows.read = read;
        }
        for seq in &plan.seqs {
            let num_accepted = self.num_accepted(seq).unwrap_or(0);
            self.past
                .insert(seq.seq, Past::of(plan.step, seq, num_accepted));
        }
        self.num_seqs = seqs.len();
        layout.lay_out(&seqs, &tokens);
    }

    /// Drafts of its last part that a sequence goes on with; none where it doesn't go on from there.
    fn num_accepted(&self, seq: &SeqPlan) -> Option<usize> {
        let past = self.past.get(&seq.seq)?;
        let num_accepted = seq.start.0.checked_sub(past.start + past.num_committed)? as usize;
        (num_accepted < past.columns.len().max(1)).then_some(num_accepted)
    }

    /// The row that a sequence goes on from.
    fn state_read(&mut self, plan: &StepPlan, idx: usize, layout: &StepLayout) -> Option<RowId> {
        let seq = &plan.seqs[idx];
        let read = seq.rows.read;
        let num_accepted = self.num_accepted(seq).unwrap_or(0);
        // Planted: vllm-project/vllm-ascend#14161.
        if planted!(AcceptCountLongerThanStep) && num_accepted >= seq.query.len() {
            return None;
        }
        // Planted: vllm-project/vllm#50021, the count that is out of range.
        if planted!(AcceptIndexUnbounded) && num_accepted >= seq.query.len() {
            let next = plan.seqs.get(idx + 1).and_then(|next| next.rows.read);
            return next.or(read);
        }
        // Planted: vllm-project/vllm#50021, the count that is of another step.
        if planted!(AcceptIndexStale)
            && let Some(past) = self.past.get(&seq.seq)
            && self.collected < Some(past.step)
            && past.columns.len() > 1
        {
            let column = past.num_accepted_before.min(past.columns.len() - 1);
            return Some(past.columns[column]);
        }
        // Planted: gittensor-ai-lab/sparkinfer#1071.
        let is_prefill = seq.query.len() > 1 && seq.scored.len() <= 1;
        if planted!(LaterWindowStartsFromZeroState) && is_prefill {
            return None;
        }
        // Planted: vllm-project/vllm#32118.
        if planted!(OneTokenChunkTreatedAsDecode) && read.is_none() && seq.query.len() == 1 {
            return seq.rows.writes.first().map(|write| write.row);
        }
        // Planted: ikawrakow/ik_llama.cpp#2260.
        if planted!(PlanReuseKeyLacksStateRow) && read.is_some() {
            let key = (layout.padded_rows(), plan.seqs.len());
            let own = || plan.seqs.iter().map(|seq| seq.seq).collect();
            let captured = self.captured.entry(key).or_insert_with(own)[idx];
            let past = self.past.get(&captured).filter(|_| captured != seq.seq);
            return past.and_then(|past| past.columns.last().copied()).or(read);
        }
        // Planted: vllm-project/tpu-inference#3565.
        if planted!(PoolSizeSchedulerVsWorker) {
            return read.map(|row| self.real_row(row));
        }
        read
    }

    /// The row that an id of a larger pool means in a smaller one.
    fn real_row(&self, row: RowId) -> RowId {
        let len = self.num_rows.saturating_sub(ROWS_MISSING).max(1) as u32;
        RowId(row.0 % len)
    }

    /// Before a step is computed.
    pub(crate) fn begin(&mut self, model: &mut Model) {
        self.row_zero = model.rows_mut().first().copied();
    }

    /// After a step was computed.
    pub(crate) fn end(&mut self, plan: &StepPlan, layout: &StepLayout, model: &mut Model) {
        let is_first = !std::mem::replace(&mut self.was_launched, true);
        // Planted: vllm-project/vllm-ascend#17003.
        if planted!(KernelLeavesHolesFirstLaunch)
            && is_first
            && let Some(slot) = layout.slot(layout.num_rows() - 1)
        {
            model.set_slot(slot, 0);
        }
        let padding = layout.num_rows()..layout.padded_rows();
        self.state_writes
            .resize(self.state_writes.len().max(layout.padded_rows()), u32::MAX);
        self.state_writes[..layout.num_rows()]
            .copy_from_slice(&layout.state_writes()[..layout.num_rows()]);
        let stale = padding.clone().map(|row| self.state_writes[row] as usize);
        let stale: Vec<usize> = stale.collect();
        let rows = model.rows_mut();
        if rows.is_empty() {
            return;
        }
        // Planted: lightseekorg/tokenspeed#700.
        if planted!(PadMinusOneClampedToZero) && !padding.is_empty() {
            rows[0] = GARBAGE;
        }
        // Planted: sgl-project/sglang#23353.
        if planted!(NegativeIndexWrapsToLast) && !padding.is_empty() {
            let last = rows.len() - 1;
            rows[last] = GARBAGE;
        }
        // Planted: NVIDIA/TensorRT-LLM#13278.
        if planted!(StaleTailStateScatter) {
            for row in stale {
                if let Some(state) = rows.get_mut(row) {
                    *state = GARBAGE;
                }
            }
        }
        // Planted: weicj/vLLM-2080Ti-Definitive#93.
        if planted!(SentinelEqualsValidSlot)
            && let Some(row_zero) = self.row_zero
        {
            rows[0] = row_zero;
        }
        for seq in &plan.seqs {
            self.end_seq(seq, rows);
        }
    }

    fn end_seq(&self, seq: &SeqPlan, rows: &mut [u64]) {
        let columns = Past::of(StepId(0), seq, 0).columns;
        let columns: Vec<usize> = columns.iter().map(|row| row.0 as usize).collect();
        // Planted: vllm-project/tpu-inference#3178.
        if planted!(LastStateOnlyAfterVerify)
            && let Some(&last) = columns.last()
        {
            columns.iter().for_each(|&column| rows[column] = rows[last]);
        }
        // Planted: vllm-project/vllm#37035.
        if planted!(SpecTokensOverKernelLimit) && columns.len() > VERIFIED_MAX {
            let last = columns[VERIFIED_MAX - 1];
            columns[VERIFIED_MAX..]
                .iter()
                .for_each(|&column| rows[column] = rows[last]);
        }
        if planted!(PoolSizeSchedulerVsWorker) {
            for write in &seq.rows.writes {
                rows[self.real_row(write.row).0 as usize] = rows[write.row.0 as usize];
            }
        }
    }

    /// What comes back of a step's answer.
    pub(crate) fn collect(&mut self, mut output: StepOutput) -> StepOutput {
        self.collected = Some(output.step);
        // Planted: vllm-project/tpu-inference#2799.
        if planted!(PrevStepCountFromCurrentBatch) {
            output.seqs.truncate(self.num_seqs);
        }
        output
    }
}

/// Mistakes of a model that drafts, and what is remembered to make them. Slots are numbered as in a layout.
#[derive(Default)]
pub(crate) struct DraftMistakes {
    seq_len_max: u32,
    /// Where it was asked to go on from since the last step.
    asked: BTreeSet<(BlockId, u32)>,
    /// Where drafts were verified in the last step.
    drafts: BTreeSet<(BlockId, u32)>,
    /// The slots that were written lately, by place in the batch; what a smaller batch leaves stands.
    slots: Vec<Option<(BlockId, u32)>>,
    /// What a step must not have touched.
    kept: Vec<((BlockId, u32), (u64, u64))>,
}

impl DraftMistakes {
    /// Of a model with sequences of this length at most.
    pub(crate) fn new(seq_len_max: u32) -> DraftMistakes {
        DraftMistakes {
            seq_len_max,
            ..DraftMistakes::default()
        }
    }

    /// Before it computes a step of the model.
    pub(crate) fn begin(&mut self, layout: &StepLayout, model: &Model) {
        self.kept.clear();
        for seq_idx in 0..layout.num_seqs() {
            let rows = layout.rows(seq_idx);
            let scored = layout.scored()[..layout.num_scored()].iter();
            let num_scored = scored
                .filter(|&&row| rows.contains(&(row as usize)))
                .count();
            let is_asked = layout
                .slot(rows.start)
                .is_some_and(|slot| self.asked.contains(&slot));
            // Planted: vllm-project/vllm-metal#716.
            let is_skipped = planted!(ZeroKSkipsDrafterIngest) && rows.len() == 1 && !is_asked;
            // Planted: ohdearquant/lattice#1396.
            let has_hole = planted!(FullAcceptLeavesMtpHole) && num_scored > 1;
            if let Some(slot) = layout.slot(rows.end - 1).filter(|_| is_skipped || has_hole) {
                self.kept.push((slot, model.slot(slot)));
            }
        }
        self.asked.clear();
    }

    /// After it computed a step of the model.
    pub(crate) fn end(&mut self, layout: &StepLayout, model: &mut Model) {
        for (slot, (hash, state)) in self.kept.drain(..) {
            model.set_slot(slot, hash);
            model.set_slot_state(slot, state);
        }
        let mut drafts = BTreeSet::new();
        for seq_idx in 0..layout.num_seqs() {
            let rows = layout.rows(seq_idx);
            let start = layout.positions()[rows.start];
            let is_rewound = layout
                .slot(rows.start)
                .is_some_and(|slot| self.drafts.contains(&slot));
            // Planted: lablup/mlxcel#994.
            if planted!(DraftRewindOffByTwo) && is_rewound {
                for pos in start.saturating_sub(2)..start {
                    model.set_slot(layout.slot_at(seq_idx, Pos(pos)), 0);
                }
            }
            let scored = layout.scored()[..layout.num_scored()].iter();
            let scored = scored
                .filter(|&&row| rows.contains(&(row as usize)))
                .skip(1);
            drafts.extend(scored.filter_map(|&row| layout.slot(row as usize)));
        }
        self.drafts = drafts;
        let len = self.slots.len().max(layout.padded_rows());
        self.slots.resize(len, None);
        for row in 0..layout.padded_rows() {
            match layout.slot(row) {
                Some(slot) => self.slots[row] = Some(slot),
                // Planted: lightseekorg/tokenspeed#955.
                None if planted!(PaddedRowsHitOldDraftPages) => {
                    if let Some(slot) = self.slots[row] {
                        model.set_slot(slot, GARBAGE);
                    }
                }
                None => {}
            }
        }
    }

    /// After it drafted for a sequence.
    pub(crate) fn proposed(
        &mut self,
        ask: &SeqProposalPlan,
        layout: &StepLayout,
        model: &mut Model,
    ) {
        self.asked.insert(layout.slot_at(0, ask.start));
        // Planted: vllm-project/vllm#32628.
        if planted!(DraftBeyondMaxLenClampedToBlock0)
            && ask.start.0 + ask.query.len() as u32 + DEPTH > self.seq_len_max
        {
            model.set_slot(layout.slot_at(0, Pos(0)), mix(GARBAGE));
        }
    }
}
