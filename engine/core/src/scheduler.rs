//! Who runs, with how many tokens, and who has to give way. There are no phases: a query is the tokens
//! that are not computed yet, as many as fit. No choice made here can change what a sequence says.

use crate::constraint::Constraint;
use crate::draft::{Draft, DraftBounds, RecentOutputs, Written};
use crate::in_flight::InFlight;
use crate::live::Live;
use crate::memory::Memory;
use crate::proposals::Proposals;
use crate::sequence::{Sequence, num_blocks_for};
use crate::standing::Standing;
use crate::{EngineFault, ModelDrafters, RejectedDrafts, Time};
use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use lockstep_step::{RowId, SeqId, planted};

/// What a step may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Query tokens of the step.
    pub(crate) num_tokens: usize,
    /// Query tokens of one sequence, drafts aside.
    pub(crate) chunk_tokens: usize,
    /// Running sequences.
    pub(crate) num_seqs: usize,
    /// Tokens that exist.
    pub(crate) vocab_size: u32,
    /// What becomes of drafts that a constraint rejects.
    pub(crate) rejected_drafts: RejectedDrafts,
    /// Whether the next step is planned while one runs.
    pub(crate) is_overlapped: bool,
}

/// A sequence that was chosen, with the rows it will write. Its blocks are in its table.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) seq: SeqId,
    pub(crate) standing: Standing,
    pub(crate) num_committed: usize,
    pub(crate) drafts: Vec<Draft>,
    /// Rows for states worth keeping, with the index of the query token before. In ascending order.
    pub(crate) kept: Vec<(usize, RowId)>,
    pub(crate) writes: Vec<RowId>,
}

impl Part {
    /// Query tokens that it takes of a step.
    fn num_tokens(&self) -> usize {
        // Planted: NVIDIA/TensorRT-LLM#16101.
        if planted!(BudgetWithoutDraftTokens) {
            return self.num_committed;
        }
        self.num_committed + self.drafts.len()
    }
}

/// What comes of a sequence's turn.
enum Turn {
    Part(Part),
    /// It has to wait for what is in flight.
    SitsOut,
    /// Blocks or rows are short; nothing is taken.
    NoRoom,
}

/// Who runs in the next step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// In ascending order of id.
    pub(crate) parts: Vec<Part>,
    pub(crate) preempted: Vec<SeqId>,
}

/// The sequences, their order, and what they hold.
pub(crate) struct Scheduler {
    pub(crate) seqs: Live<Sequence>,
    /// First come, first served; a preempted sequence goes to the front. In ascending order of id.
    waiting: VecDeque<SeqId>,
    num_waiting_tokens: u64,
    /// In the order of admission: the last is the youngest, which gives way first. That too is the order of
    /// ids, and all are below those that wait: nobody is admitted before who came first.
    running: Vec<SeqId>,
    pub(crate) memory: Memory,
    /// Whether somebody found no room while a step was in flight: what that step names can't be had. No step
    /// is planned ahead of it then; when all have been committed somebody may have to give way.
    needs_room: bool,
    /// Models that can be asked for drafts.
    pub(crate) models: ModelDrafters,
    /// What ended lately.
    pub(crate) recent: RecentOutputs,
    /// The list of an earlier step, for the next one. Empty.
    pub(crate) spare_parts: Vec<Part>,
}

impl Scheduler {
    pub(crate) fn new(memory: Memory) -> Scheduler {
        Scheduler {
            seqs: Live::default(),
            waiting: VecDeque::new(),
            num_waiting_tokens: 0,
            running: Vec::new(),
            memory,
            needs_room: false,
            models: ModelDrafters::default(),
            recent: RecentOutputs::default(),
            spare_parts: Vec::new(),
        }
    }

    pub(crate) fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn num_running(&self) -> usize {
        self.running.len()
    }

    /// Tokens of waiting sequences.
    pub(crate) fn num_waiting_tokens(&self) -> u64 {
        self.num_waiting_tokens
    }

    /// When the longest waiting sequence came.
    pub(crate) fn oldest_waiting(&self) -> Option<Time> {
        let first = self.seqs.get(*self.waiting.front()?)?;
        Some(first.arrived)
    }

    pub(crate) fn push(&mut self, id: SeqId, seq: Sequence) {
        self.num_waiting_tokens += seq.token_ids.len() as u64;
        self.seqs.insert(id, seq);
        self.waiting.push_back(id);
    }

    /// Takes a sequence out and releases what it owns. What a running step names stays held by its
    /// lease.
    pub(crate) fn remove(&mut self, id: SeqId) -> Result<Option<Box<Sequence>>, EngineFault> {
        let Some(mut seq) = self.seqs.remove(id) else {
            return Ok(None);
        };
        if let Ok(at) = self.waiting.binary_search(&id) {
            self.waiting.remove(at);
            self.num_waiting_tokens -= seq.token_ids.len() as u64;
        }
        if let Ok(at) = self.running.binary_search(&id) {
            self.running.remove(at);
        }
        // Planted: NVIDIA/TensorRT-LLM#15018.
        if planted!(OrphanContextBlocks) && seq.num_computed_tokens < seq.num_prompt_tokens {
            return Ok(Some(seq));
        }
        self.memory.release(&mut seq)?;
        Ok(Some(seq))
    }

    /// Running sequences, in the order of their admission.
    pub(crate) fn running(&self) -> &[SeqId] {
        &self.running
    }

    /// Chooses the next step: running sequences in the order of their admission, then waiting ones.
    /// Nothing moves but ownership: blocks and rows for the step are taken here.
    pub(crate) fn choose(
        &mut self,
        budget: Budget,
        in_flight: &InFlight,
        proposals: &mut Proposals,
    ) -> Result<Choice, EngineFault> {
        let mut choice = Choice {
            parts: core::mem::take(&mut self.spare_parts),
            preempted: Vec::new(),
        };
        if in_flight.is_empty() {
            self.needs_room = false;
        } else if self.needs_room {
            return Ok(choice);
        }
        // Planted: vllm-project/vllm#48245, vllm-project/vllm#49620, vllm-project/vllm#38624.
        let in_flight_too = [
            planted!(PlaceholderUnderflowOnPreempt),
            planted!(DiscardOneFrameTooFew),
            planted!(PreemptKeepsLatestToken),
        ];
        let preempts_in_flight = in_flight_too.contains(&true);
        let mut num_left = budget.num_tokens;
        let mut idx = 0;
        // Bounded: each turn moves on by one sequence or shortens the list by one. The first of the list
        // is never preempted in favour of another, and alone it always fits, so each step that begins with
        // nothing in flight moves somebody.
        while idx < self.running.len() && num_left > 0 && !self.needs_room {
            match self.turn(idx, num_left, budget, in_flight, proposals)? {
                Turn::Part(part) => {
                    num_left -= part.num_tokens();
                    choice.parts.push(part);
                    idx += 1;
                }
                Turn::SitsOut => {
                    // Planted: vllm-project/vllm#46899.
                    #[cfg(planted)]
                    self.keep_placeholder(idx, in_flight);
                    idx += 1;
                }
                Turn::NoRoom if !in_flight.is_empty() && !preempts_in_flight => {
                    self.needs_room = true;
                }
                // Planted: vllm-project/vllm#57841.
                Turn::NoRoom if planted!(FirstWithoutRoomEndsTheScan) => break,
                Turn::NoRoom => {
                    if let Some(youngest) = self.running.pop() {
                        self.preempt(youngest)?;
                        choice.preempted.push(youngest);
                    }
                    #[cfg(planted)]
                    if self.is_back_at_once()? {
                        break;
                    }
                }
            }
        }
        // Where somebody had to give way there is no room for anybody new.
        let mut may_admit = choice.preempted.is_empty() && !self.needs_room;
        while may_admit && num_left > 0 && self.running.len() < budget.num_seqs {
            let part = self.admit(num_left, budget, in_flight, proposals)?;
            may_admit = part.is_some();
            if let Some(part) = part {
                num_left -= part.num_tokens();
                choice.parts.push(part);
            }
        }
        choice.parts.sort_by_key(|part| part.seq);
        Ok(choice)
    }

    /// Moves the first waiting sequence among the running ones, with what the prefix cache has of it and
    /// blocks for every token it has, so that a prompt that was begun has room to its end. None if it
    /// doesn't fit: nobody overtakes it.
    fn admit(
        &mut self,
        num_left: usize,
        budget: Budget,
        in_flight: &InFlight,
        proposals: &mut Proposals,
    ) -> Result<Option<Part>, EngineFault> {
        let Some(&id) = self.waiting.front() else {
            return Ok(None);
        };
        if self.running.len() >= self.memory.rows.seqs_max(budget.is_overlapped) {
            return Ok(None);
        }
        let seq = get(&mut self.seqs, id)?;
        if !self.memory.admit(seq)? {
            return Ok(None);
        }
        self.num_waiting_tokens -= seq.token_ids.len() as u64;
        self.waiting.pop_front();
        self.running.push(id);
        let idx = self.running.len() - 1;
        let turn = self.turn(idx, num_left, budget, in_flight, proposals)?;
        if let Turn::Part(part) = turn {
            // Planted: vllm-project/vllm#38715.
            #[cfg(planted)]
            if planted!(SameStepHitBeforeWrite) {
                let end = part.standing.start + part.num_committed;
                self.memory.publish_early(get(&mut self.seqs, id)?, end)?;
            }
            self.memory.count_admission(get(&mut self.seqs, id)?);
            return Ok(Some(part));
        }
        self.running.pop();
        // Planted: sgl-project/sglang#16067.
        if planted!(CowSlotLeakOnFailedAdmit) {
            get(&mut self.seqs, id)?.row = None;
        }
        self.preempt(id)?;
        Ok(None)
    }

    /// The part of the next step of `running[idx]`, those before it having theirs.
    fn turn(
        &mut self,
        idx: usize,
        num_left: usize,
        budget: Budget,
        in_flight: &InFlight,
        proposals: &mut Proposals,
    ) -> Result<Turn, EngineFault> {
        let id = self.running[idx];
        let seq = get(&mut self.seqs, id)?;
        let standing = Standing::of(id, seq, in_flight);
        if must_wait(seq, &standing, self.models) {
            return Ok(Turn::SitsOut);
        }
        let num_uncomputed = standing.num_uncomputed(seq);
        let num_committed = num_uncomputed.min(budget.chunk_tokens).min(num_left);
        let mut drafts = Vec::new();
        // Each sequence that is yet to be planned needs a token and a row; drafts get what is left. Overlapped,
        // each needs another row before these come back.
        let num_yet_to_plan = self.running.len() - idx;
        let num_next = match budget.is_overlapped {
            true => self.running.len(),
            false => 0,
        };
        let spare_rows = self.memory.spare_rows(num_yet_to_plan);
        let draft_rows = self.memory.rows_for_drafts(num_yet_to_plan + num_next);
        // Planted: vllm-project/vllm#30618.
        if num_committed == num_uncomputed || planted!(PrefillChunkGetsDrafts) {
            let spare = (num_left - num_committed).saturating_sub(num_yet_to_plan - 1);
            let fitting = seq.output.drafts_max(standing.num_in_flight());
            let bounds = DraftBounds {
                num_max: fitting.min(spare).min(draft_rows),
                vocab_size: budget.vocab_size,
                num_running: self.running.len(),
            };
            drafts = match proposals.take(id, seq, &standing) {
                Some(proposed) => bounds.keep(proposed),
                None => propose(seq, &standing, &self.recent, bounds),
            };
            if budget.rejected_drafts == RejectedDrafts::Trim {
                trim(seq, &standing, &mut drafts);
            }
        }
        let (start, len) = (standing.start, standing.start + num_committed);
        let (table, memory) = (&mut seq.block_table, &mut self.memory);
        if !memory.extend(table, num_blocks_for(len + drafts.len()))? {
            // Drafts are a bet: nobody gives way for one.
            drafts.clear();
            if !memory.extend(table, num_blocks_for(len))? {
                return Ok(Turn::NoRoom);
            }
        }
        let mut lengths = memory.lengths_to_keep(seq, start, len);
        lengths.truncate(spare_rows - drafts.len().min(spare_rows));
        let rows = memory.take_step_rows(lengths.len(), 1 + drafts.len())?;
        let indices = lengths.into_iter().map(|len| len - start - 1);
        Ok(rows.map_or(Turn::NoRoom, |(kept, writes)| {
            Turn::Part(Part {
                seq: id,
                standing,
                num_committed,
                drafts,
                kept: indices.zip(kept).collect(),
                writes,
            })
        }))
    }

    /// Takes everything from a sequence that is in no list, and lets it wait at the front. It will be
    /// computed again, from its first token or from where the prefix cache still has it; its output stands.
    fn preempt(&mut self, id: SeqId) -> Result<(), EngineFault> {
        let seq = get(&mut self.seqs, id)?;
        #[cfg(planted)]
        seq.misremember();
        self.memory.release(seq)?;
        // Planted: vllm-project/vllm#49620.
        #[cfg(planted)]
        if planted!(DiscardOneFrameTooFew) {
            self.memory.blocks.forget_steps()?;
        }
        self.num_waiting_tokens += seq.token_ids.len() as u64;
        self.waiting.push_front(id);
        Ok(())
    }

    // Planted: EricLBuehler/mistral.rs#2043.
    #[cfg(planted)]
    fn is_back_at_once(&mut self) -> Result<bool, EngineFault> {
        let Some(&id) = self
            .waiting
            .front()
            .filter(|_| planted!(PreemptedIsBackAtOnce))
        else {
            return Ok(false);
        };
        let seq = get(&mut self.seqs, id)?;
        if !self.memory.admit(seq)? {
            return Ok(false);
        }
        self.num_waiting_tokens -= seq.token_ids.len() as u64;
        self.waiting.pop_front();
        self.running.push(id);
        Ok(true)
    }

    /// Keeps what a sequence's part in flight draws, though it is not in the next step.
    #[cfg(planted)]
    fn keep_placeholder(&mut self, idx: usize, in_flight: &InFlight) {
        let id = self.running[idx];
        if let Some(seq) = self.seqs.get_mut(id) {
            seq.misdeeds.placeholder = Standing::of(id, seq, in_flight).drawn();
        }
    }

    /// Each sequence stands in exactly one list, in its order, and a waiting one holds nothing.
    pub(crate) fn check_lists(&self) -> Result<(), EngineFault> {
        let lists = self.running.iter().chain(&self.waiting);
        if let Some((&seq, _)) = lists.clone().zip(lists.skip(1)).find(|(a, b)| a >= b) {
            return Err(EngineFault::Sequence {
                seq,
                detail: "stands before one that came earlier".into(),
            });
        }
        let waiting = self.waiting.iter().filter_map(|&id| self.seqs.get(id));
        let num_tokens: u64 = waiting.map(|seq| seq.token_ids.len() as u64).sum();
        if num_tokens != self.num_waiting_tokens {
            let (id, counted) = (self.waiting.front().copied(), self.num_waiting_tokens);
            return Err(EngineFault::Sequence {
                seq: id.unwrap_or_default(),
                detail: alloc::format!("{counted} waiting tokens are counted, not {num_tokens}"),
            });
        }
        for (id, seq) in self.seqs.iter() {
            let is =
                |list: &mut dyn Iterator<Item = &SeqId>| list.filter(|&&other| other == id).count();
            let num_waiting = is(&mut self.waiting.iter());
            let num_running = is(&mut self.running.iter());
            let holds = !seq.block_table.is_empty() || seq.row.is_some();
            let is_right = num_waiting + num_running == 1
                && !(num_waiting == 1 && (holds || seq.num_computed_tokens > 0))
                && seq.num_computed_tokens < seq.token_ids.len()
                && seq.row.is_some() == (self.memory.rows.is_used() && seq.num_computed_tokens > 0)
                && self.memory.is_on_its_nodes(seq);
            if !is_right {
                let (computed, len) = (seq.num_computed_tokens, seq.token_ids.len());
                return Err(EngineFault::Sequence {
                    seq: id,
                    detail: alloc::format!(
                        "waiting {num_waiting} times, running {num_running} times, {computed} of \
                         {len} tokens computed, {} blocks, row {:?}",
                        seq.block_table.len(),
                        seq.row
                    ),
                });
            }
        }
        Ok(())
    }

    /// Between steps each matcher is at home: a sequence whose job was lost has ended.
    pub(crate) fn check_matchers(&self) -> Result<(), EngineFault> {
        let lent = |seq: &Sequence| seq.constraint.as_ref().is_some_and(Constraint::is_lent);
        match self.seqs.iter().find(|(_, seq)| lent(seq)) {
            None => Ok(()),
            Some((id, _)) => Err(EngineFault::Sequence {
                seq: id,
                detail: "its matcher is lent, and no step runs".into(),
            }),
        }
    }
}

/// Whether a sequence can't be planned ahead: it ends with what is in flight, or a model is to draft for it,
/// which goes on from committed tokens only.
fn must_wait(seq: &Sequence, standing: &Standing, models: ModelDrafters) -> bool {
    let num_in_flight = standing.num_in_flight();
    let ends = seq.output.num_left(num_in_flight) == 0;
    num_in_flight > 0 && (ends || seq.drafts.model(models).is_some())
}

/// What the sequence's own drafters propose.
pub(crate) fn propose(
    seq: &mut Sequence,
    standing: &Standing,
    recent: &RecentOutputs,
    bounds: DraftBounds,
) -> Vec<Draft> {
    let drawing = standing.in_flight.as_ref();
    let written = Written {
        tokens: &seq.token_ids,
        num_output: seq.output.num_tokens() as usize,
        in_flight: drawing.map(|drawing| &drawing.drafts[..]),
        constraint: seq.constraint.as_mut(),
        recent,
    };
    seq.drafts.propose(written, bounds)
}

/// Cuts off the drafts from the first one on that the constraint can't take. Where that isn't known yet they stay,
/// as padding: they are computed, and can't be drawn.
fn trim(seq: &mut Sequence, standing: &Standing, drafts: &mut Vec<Draft>) {
    if standing.in_flight.is_some() || drafts.is_empty() {
        return;
    }
    if let Some(constraint) = &mut seq.constraint {
        let (output, tokens) = (&seq.output, drafts.iter().map(|draft| draft.token));
        let num_taken = constraint.num_taken(tokens.map(|t| (!output.is_end(t)).then_some(t)));
        drafts.truncate(num_taken);
    }
}

fn get(seqs: &mut Live<Sequence>, id: SeqId) -> Result<&mut Sequence, EngineFault> {
    seqs.get_mut(id).ok_or_else(|| EngineFault::Sequence {
        seq: id,
        detail: "is in a list and does not exist".into(),
    })
}
