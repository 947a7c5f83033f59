//! A backend that counts what passes through it, for a law is only as good as what it was put to. It also
//! spoils steps where it is asked to, so that a test can see that the law would notice. Unless asked, it
//! must never change a plan or an output.

use lockstep_step::{
    Backend, BackendError, BackendLimits, Bitmask, MaskRow, MaskSet, ModelDrafter, Proposal,
    ProposalPlan, QueryToken, RowId, SeqId, SeqPlan, StepId, StepOutput, StepPlan, TokenId,
    batch_size,
};
use std::collections::{BTreeMap, VecDeque};

/// A fault that is put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sabotage {
    /// A step with drafts reads another row than the one it names.
    StaleRow,
    /// A step that verifies fewer drafts than the step before accepted reads another row.
    ShortStep,
    /// The last mask of a sequence with drafts allows everything.
    LostMask,
    /// Penalties count nothing where there are drafts.
    LostCounts,
    /// The draw after the last draft is the token after the right one.
    WrongDraw,
}

/// What passed through a backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Sequences in a step, at most.
    pub num_seqs_max: usize,
    /// Steps that were begun, at most, before the first of them was answered.
    pub num_running_max: usize,
    /// Steps that were begun while another ran.
    pub num_begun_early: u64,
    /// Parts whose query refers to a token that a running step draws.
    pub num_referring: u64,
    /// Parts that verify fewer drafts than the step before them accepted.
    pub num_shorter: u64,
    /// Questions to models that draft.
    pub num_questions: u64,
    /// Tokens that these proposed.
    pub num_proposed: u64,
    /// Rows of state that were written.
    pub num_rows: u64,
    /// Mask rows that came.
    pub num_masks: u64,
    /// Rows of buffers that no query token needed.
    pub num_padding: u64,
}

/// What became of the drafts of one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeqDrafts {
    /// Verified.
    pub num: u64,
    /// Drawn, too.
    pub num_accepted: u64,
}

/// A part of a step that was begun.
struct Part {
    step: StepId,
    drafts: Vec<TokenId>,
    num_scored: usize,
    /// Once it was answered.
    num_accepted: Option<usize>,
}

/// The backend.
pub struct Watched<B> {
    inner: B,
    sabotage: Option<Sabotage>,
    /// Whether the backend's buffers have a few sizes.
    pads: bool,
    num_running: usize,
    /// Of the last step that was begun, those that verify fewer drafts than they had accepted before.
    shorter: Vec<SeqId>,
    /// The latest parts of each sequence, oldest first.
    parts: BTreeMap<SeqId, VecDeque<Part>>,
    /// So far.
    pub counts: Counts,
    /// By sequence.
    pub drafts: BTreeMap<SeqId, SeqDrafts>,
}

impl<B: Backend> Watched<B> {
    /// Watches a backend, and spoils its steps if that is wanted.
    pub fn new(inner: B, sabotage: Option<Sabotage>) -> Watched<B> {
        Watched {
            inner,
            sabotage,
            pads: false,
            num_running: 0,
            shorter: Vec::new(),
            parts: BTreeMap::new(),
            counts: Counts::default(),
            drafts: BTreeMap::new(),
        }
    }

    /// Says whether the backend's buffers have a few sizes.
    pub fn pads(&mut self, pads: bool) {
        self.pads = pads;
    }

    /// Forgets what was counted, for another engine.
    pub fn restart(&mut self) {
        self.num_running = 0;
        self.parts.clear();
        self.counts = Counts::default();
        self.drafts.clear();
    }

    fn note_begun(&mut self, plan: &StepPlan) {
        self.shorter.clear();
        let (num_query, num_max) = (plan.num_query_tokens(), self.limits().query_tokens_max);
        let counts = &mut self.counts;
        if self.pads {
            let num_padding = batch_size(num_query, num_max as usize) - num_query;
            counts.num_padding += num_padding as u64;
        }
        counts.num_seqs_max = counts.num_seqs_max.max(plan.seqs.len());
        counts.num_begun_early += u64::from(self.num_running > 0);
        self.num_running += 1;
        counts.num_running_max = counts.num_running_max.max(self.num_running);
        for seq in &plan.seqs {
            let refers = |token: &QueryToken| matches!(token, QueryToken::Drawn { .. });
            counts.num_referring += u64::from(seq.query.iter().any(refers));
            counts.num_rows += seq.rows.writes.len() as u64;
            let part = Part {
                step: plan.step,
                drafts: drafts(seq),
                num_scored: seq.scored.len(),
                num_accepted: None,
            };
            let parts = self.parts.entry(seq.seq).or_default();
            // What was answered before the part before this one is of no more use.
            while parts.len() >= 4 {
                parts.pop_front();
            }
            let before = parts.back().and_then(|before| before.num_accepted);
            if is_shorter(before, &part) {
                counts.num_shorter += 1;
                self.shorter.push(seq.seq);
            }
            parts.push_back(part);
        }
    }

    /// The plan with the fault that was asked for, once it was noted.
    fn spoilt(&self, plan: &StepPlan) -> Option<StepPlan> {
        let sabotage = self.sabotage?;
        let mut plan = plan.clone();
        let num_rows = self.limits().num_rows;
        for seq in &mut plan.seqs {
            let is_met = match sabotage {
                Sabotage::StaleRow | Sabotage::LostCounts => seq.num_drafts > 0,
                Sabotage::ShortStep => self.shorter.contains(&seq.seq),
                Sabotage::LostMask | Sabotage::WrongDraw => false,
            };
            if !is_met {
                continue;
            }
            if sabotage == Sabotage::LostCounts {
                for count in &mut seq.counts {
                    count.output = 0;
                }
                continue;
            }
            let rows = &mut seq.rows;
            let is_written = |row: &RowId| rows.writes.iter().any(|write| write.row == *row);
            let mut others = (0..num_rows).map(RowId).filter(|row| !is_written(row));
            if rows.read.is_some() {
                rows.read = others.find(|row| rows.read != Some(*row));
            }
        }
        Some(plan)
    }

    fn note_answered(&mut self, output: &StepOutput) {
        self.num_running = self.num_running.saturating_sub(1);
        for answer in &output.seqs {
            let (Ok(draws), Some(parts)) = (&answer.draws, self.parts.get_mut(&answer.seq)) else {
                continue;
            };
            let Some(idx) = parts.iter().position(|part| part.step == output.step) else {
                continue;
            };
            let part = &mut parts[idx];
            let pairs = part.drafts.iter().zip(draws);
            let agreed = pairs.take_while(|(draft, draw)| **draft == draw.token);
            let num_accepted = agreed.count();
            part.num_accepted = Some(num_accepted);
            let own = self.drafts.entry(answer.seq).or_default();
            own.num += part.drafts.len() as u64;
            own.num_accepted += num_accepted as u64;
            if let Some(next) = parts.get(idx + 1) {
                self.counts.num_shorter += u64::from(is_shorter(Some(num_accepted), next));
            }
        }
    }
}

/// What is known of a step until it has ended.
pub struct Begun {
    /// By sequence.
    num_drafts: Vec<u32>,
    /// The last mask row of each sequence with drafts.
    last_masks: Vec<MaskRow>,
}

impl Begun {
    fn new(plan: &StepPlan) -> Begun {
        let drafting = plan.seqs.iter().filter(|seq| seq.num_drafts > 0);
        let last_mask = |seq: &SeqPlan| seq.scored.last().and_then(|scored| scored.mask);
        Begun {
            num_drafts: plan.seqs.iter().map(|seq| seq.num_drafts).collect(),
            last_masks: drafting.filter_map(last_mask).collect(),
        }
    }
}

fn drafts(seq: &SeqPlan) -> Vec<TokenId> {
    let from = seq.query.len() - seq.num_drafts as usize;
    let known = |token: &QueryToken| match token {
        QueryToken::Known(token) => Some(*token),
        QueryToken::Drawn { .. } => None,
    };
    seq.query[from..].iter().filter_map(known).collect()
}

/// Whether a part verifies fewer drafts than the part before it accepted.
fn is_shorter(accepted_before: Option<usize>, part: &Part) -> bool {
    part.num_scored > 0 && accepted_before.is_some_and(|num| num > part.drafts.len())
}

impl<B: Backend> Backend for Watched<B> {
    type Forward = (B::Forward, Begun);
    type Sampled = (B::Sampled, Begun);

    fn limits(&self) -> BackendLimits {
        self.inner.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        self.note_begun(plan);
        let begun = Begun::new(plan);
        let forward = match self.spoilt(plan) {
            Some(spoilt) => self.inner.forward(&spoilt)?,
            None => self.inner.forward(plan)?,
        };
        Ok((forward, begun))
    }

    fn draw(
        &mut self,
        forward: Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        let (forward, begun) = forward;
        self.counts.num_masks += masks.rows.iter().flatten().count() as u64;
        if self.sabotage != Some(Sabotage::LostMask) {
            return Ok((self.inner.draw(forward, masks)?, begun));
        }
        let mut masks = masks.clone();
        let vocab_size = self.limits().vocab_size;
        for row in &begun.last_masks {
            if let Some(Some(mask)) = masks.rows.get_mut(row.0 as usize) {
                *mask = Bitmask::all(vocab_size);
            }
        }
        Ok((self.inner.draw(forward, &masks)?, begun))
    }

    fn collect(&mut self, sampled: Self::Sampled) -> Result<StepOutput, BackendError> {
        let (sampled, begun) = sampled;
        let mut output = self.inner.collect(sampled)?;
        if self.sabotage == Some(Sabotage::WrongDraw) {
            let vocab_size = self.limits().vocab_size;
            for (answer, num_drafts) in output.seqs.iter_mut().zip(begun.num_drafts) {
                let draws = answer.draws.as_mut().ok().filter(|_| num_drafts > 0);
                if let Some(last) = draws.and_then(|draws| draws.last_mut()) {
                    last.token.0 = (last.token.0 + 1) % vocab_size;
                }
            }
        }
        self.note_answered(&output);
        Ok(output)
    }

    fn is_asynchronous(&self) -> bool {
        self.inner.is_asynchronous()
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.inner.has_drafter(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        let proposals = self.inner.propose(plan)?;
        self.counts.num_questions += plan.seqs.len() as u64;
        let num: usize = proposals.iter().map(|proposal| proposal.tokens.len()).sum();
        self.counts.num_proposed += num as u64;
        Ok(proposals)
    }
}
