//! The engine: five verbs over sequences. `submit` and `abort` come from clients; `plan`, `fill_masks` and
//! `commit` are one step. It has no clock, no thread, no file and no randomness of its own: what it says is
//! a function of the calls it got, and what a sequence says is a function of its request alone.

mod commit;
mod masks;
#[cfg(planted)]
mod misdeeds;
mod plan;

use crate::in_flight::{InFlight, RunningSeq};
use crate::memory::Memory;
use crate::output::{Ending, Said};
use crate::proposals::Proposals;
use crate::scheduler::Scheduler;
use crate::sequence::Sequence;
use crate::{
    ConfigError, Drafter, EngineConfig, EngineFault, Event, EventKind, Finish, Finished, MaskDone,
    MaskJob, ModelDrafters, QueueKind, Refusal, Request, RequestError, Stats, Time, Totals, Usage,
    Vocabulary,
};
use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};
use lockstep_step::{
    BLOCK_LEN, BackendLimits, Ledger, MaskSet, PlanChecker, Proposal, ProposalPlan, SeqId, SeqPlan,
    StepId, StepOutput, StepPlan, check_proposals, planted,
};

/// Lists of steps that are done with, for later ones to be written into.
#[derive(Default)]
struct Spare {
    planned: Vec<SeqPlan>,
    /// Empty.
    running: Vec<RunningSeq>,
}

/// A continuous batch over one backend.
pub struct Engine {
    config: EngineConfig,
    limits: BackendLimits,
    vocabulary: Arc<Vocabulary>,
    scheduler: Scheduler,
    in_flight: InFlight,
    proposals: Proposals,
    /// Every plan so far, as far as the rules need it; only where plans are checked in full.
    ledger: Option<Ledger>,
    checker: PlanChecker,
    events: Vec<Event>,
    said: Said,
    spare: Spare,
    totals: Totals,
    now: Time,
    fault: Option<EngineFault>,
}

impl Engine {
    /// An engine with nothing to do.
    ///
    /// # Errors
    /// If a limit is 0, or a model with recurrent state has a single row.
    pub fn new(
        config: EngineConfig,
        limits: BackendLimits,
        vocabulary: Arc<Vocabulary>,
    ) -> Result<Engine, ConfigError> {
        config.check(&limits)?;
        Ok(Engine {
            config,
            limits,
            vocabulary,
            scheduler: Scheduler::new(Memory::new(
                limits.num_blocks,
                limits.num_rows,
                config.prefix_cache,
            )),
            in_flight: InFlight::default(),
            proposals: Proposals::default(),
            ledger: config.checked.then(Ledger::new),
            checker: PlanChecker::default(),
            events: Vec::new(),
            said: Said::default(),
            spare: Spare::default(),
            totals: Totals::default(),
            now: Time::default(),
            fault: None,
        })
    }

    /// The longest sequence that this engine can hold, prompt and output together: what the model can,
    /// and what fits into all blocks.
    pub fn seq_len_max(&self) -> u32 {
        let in_blocks = self.limits.num_blocks.saturating_mul(BLOCK_LEN);
        // Planted: inference-sim/inference-sim#297.
        let in_blocks = match planted!(LongerThanThePool) {
            true => u32::MAX,
            false => in_blocks,
        };
        self.limits.seq_len_max.min(in_blocks)
    }

    /// Takes a request, to be scheduled after those before it.
    ///
    /// # Errors
    /// If the request can't be served, or too much is waiting.
    pub fn submit(&mut self, now: Time, mut request: Request) -> Result<SeqId, Refusal> {
        self.now = self.now.max(now);
        let len_max = self.seq_len_max();
        request.check(self.limits.vocab_size, len_max)?;
        if let Some(idx) = self.vocabulary.refused_in_prompt(&request.prompt) {
            let token = request.prompt[idx];
            return Err(Refusal::RefusedToken { idx, token });
        }
        let bias = core::mem::take(&mut request.sampling.bias);
        request.sampling.bias = self.vocabulary.with_refused(bias);
        let num_tokens = request.prompt.len() as u64;
        self.check_together(core::slice::from_ref(&request))?;
        self.check_queue(num_tokens)?;
        let id = SeqId(self.totals.num_submitted);
        self.totals.num_submitted += 1;
        self.totals.num_prompt_tokens += num_tokens;
        let wanted = request.speculation.unwrap_or(self.config.speculation);
        let drafter = Drafter::Live(wanted);
        let seq = Sequence::new(request, drafter, len_max as usize, self.now);
        self.scheduler.push(id, seq);
        Ok(id)
    }

    /// Whether requests that come together can be taken at all, once nothing else is there.
    ///
    /// # Errors
    /// [`Refusal::NeverFits`], where waiting would not help.
    pub fn check_together(&self, requests: &[Request]) -> Result<(), Refusal> {
        let never = |kind, wanted, limit| {
            Err(Refusal::NeverFits {
                kind,
                wanted,
                limit,
            })
        };
        let most =
            u64::from(self.config.max_num_seqs) + u64::from(self.config.max_waiting_requests);
        if requests.len() as u64 > most {
            return never(QueueKind::Requests, requests.len() as u64, most);
        }
        let tokens = requests.iter().map(|request| request.prompt.len() as u64);
        let (tokens, tokens_max) = (tokens.sum::<u64>(), self.config.max_waiting_tokens);
        if tokens > tokens_max {
            return never(QueueKind::Tokens, tokens, tokens_max);
        }
        Ok(())
    }

    fn check_queue(&self, num_tokens: u64) -> Result<(), Refusal> {
        let full = |kind, now, limit| Err(Refusal::QueueFull { kind, now, limit });
        // Those that the next step can take in do not wait for want of room.
        let idle =
            u64::from(self.config.max_num_seqs).saturating_sub(self.scheduler.num_running() as u64);
        let (waiting, requests_max) = (
            self.scheduler.num_waiting() as u64,
            u64::from(self.config.max_waiting_requests) + idle,
        );
        if waiting >= requests_max {
            return full(QueueKind::Requests, waiting, requests_max);
        }
        let (tokens, tokens_max) = (
            self.scheduler.num_waiting_tokens(),
            self.config.max_waiting_tokens,
        );
        if tokens + num_tokens > tokens_max {
            return full(QueueKind::Tokens, tokens, tokens_max);
        }
        Ok(())
    }

    /// Ends a sequence. Its blocks are free at once, or with the commit of the step that names them.
    /// False if there is no such sequence, or no longer.
    pub fn abort(&mut self, seq: SeqId) -> bool {
        let exists = self.is_live(seq);
        #[cfg(planted)]
        self.note(misdeeds::abort(seq, self.scheduler.seqs.get(seq)));
        let ending = Ending {
            finish: Finish::Aborted,
            dropped_call: None,
        };
        let ended = self.end(seq, ending);
        self.note(ended);
        exists
    }

    /// What a model that drafts is to be asked before the next step is planned. None if nothing.
    pub fn plan_proposals(&mut self) -> Option<ProposalPlan> {
        if self.fault.is_some() || self.in_flight.len() >= self.num_steps_max() {
            return None;
        }
        let (scheduler, in_flight) = (&mut self.scheduler, &self.in_flight);
        let asked = self.proposals.ask(scheduler, in_flight, &self.limits);
        let plan = match asked {
            Ok(plan) if plan.seqs.is_empty() => return None,
            Ok(plan) => plan,
            Err(fault) => {
                self.note(Err(fault));
                return None;
            }
        };
        // Drafts are a bet: a question that breaks a rule is not worth a sequence.
        check_proposals(&plan, &self.limits).is_ok().then_some(plan)
    }

    /// Takes what the model proposed, for the very next plan. What is missing is no draft.
    pub fn take_proposals(&mut self, proposals: Vec<Proposal>) {
        for proposal in proposals {
            self.proposals.add(proposal);
        }
    }

    /// Says which models can be asked for drafts; at first there is none.
    pub fn set_models(&mut self, models: ModelDrafters) {
        self.scheduler.models = models;
    }

    /// Whether the next step is planned while one runs. It can change at any time, and changes no output.
    pub fn set_overlap(&mut self, overlap: bool) {
        self.config.overlap = overlap;
    }

    /// Whether the next step is planned while one runs.
    pub fn is_overlapped(&self) -> bool {
        self.config.overlap
    }

    fn num_steps_max(&self) -> usize {
        1 + usize::from(self.config.overlap)
    }

    /// Plans the next step. None if there is nothing to do, if enough steps are still running, or after a
    /// [`fault`](Self::fault).
    ///
    /// Overlapped, a plan may follow another that was not committed yet: its tokens can be references to what
    /// that one draws. Masks are filled for the older one first.
    pub fn plan(&mut self, now: Time) -> Option<StepPlan> {
        self.now = self.now.max(now);
        if self.fault.is_some() || self.in_flight.len() >= self.num_steps_max() {
            return None;
        }
        // Bounded: a plan that is refused ends a sequence.
        for _ in 0..=self.scheduler.seqs.len() {
            match self.try_plan() {
                Ok(plan::Attempt::Planned(plan)) => return Some(plan),
                Ok(plan::Attempt::NothingToDo) => return None,
                Ok(plan::Attempt::Refused) => {}
                Err(fault) => {
                    self.note(Err(fault));
                    return None;
                }
            }
        }
        None
    }

    /// Fills the masks of a plan while its forward pass runs. Each matcher is left where it was.
    ///
    /// Only for the oldest step that runs: what the others depend on is not known yet.
    ///
    /// The same in two halves, so that the work can be done elsewhere: [`take_mask_jobs`], each job's
    /// [`run`](MaskJob::run), and [`finish_masks`].
    ///
    /// [`take_mask_jobs`]: Engine::take_mask_jobs
    /// [`finish_masks`]: Engine::finish_masks
    pub fn fill_masks(&mut self, plan: &StepPlan) -> MaskSet {
        let jobs = self.take_mask_jobs(plan);
        let done = jobs.into_iter().map(MaskJob::run).collect();
        self.finish_masks(plan, done)
    }

    /// Lends the matchers of a running step's constrained sequences, one job each, in the order of the
    /// plan. None where nothing is constrained.
    #[must_use = "the matchers must come back with finish_masks"]
    pub fn take_mask_jobs(&mut self, plan: &StepPlan) -> Vec<MaskJob> {
        self.lend_matchers(plan)
    }

    /// Takes the matchers back, in any order, and gives the masks of the plan. A sequence whose job is
    /// missing ends with an error at the commit; one that has ended meanwhile needs none.
    pub fn finish_masks(&mut self, plan: &StepPlan, done: Vec<MaskDone>) -> MaskSet {
        self.take_back(plan, done)
    }

    /// Takes the answer to a plan: the only place where a sequence grows.
    ///
    /// # Errors
    /// If the answer doesn't fit the plan, or an invariant of the engine is broken: stop the engine.
    pub fn commit(&mut self, now: Time, output: StepOutput) -> Result<(), EngineFault> {
        self.now = self.now.max(now);
        if self.fault.is_none() {
            let committed = self.commit_step(output);
            self.note(committed);
        }
        self.fault.clone().map_or(Ok(()), Err)
    }

    /// Takes back a plan that nobody needs any longer, so that later ones are written into its memory.
    pub fn recycle(&mut self, plan: StepPlan) {
        self.spare.planned = plan.seqs;
    }

    /// The backend failed: each sequence of the step ends with this error. A step that isn't in flight
    /// is nobody's.
    pub fn fail_step(&mut self, now: Time, step: StepId, error: String) {
        self.now = self.now.max(now);
        let failed = self.fail_running_step(step, error);
        self.note(failed);
    }

    /// The device is gone: nothing that was computed can be trusted to be there any more.
    pub(crate) fn lose_device(&mut self, message: String) {
        self.note(Err(EngineFault::DeviceLost(message)));
    }

    /// What happened since the last call, in order.
    pub fn poll_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Whether a sequence waits or runs, or a step is in flight.
    pub fn has_work(&self) -> bool {
        !self.scheduler.seqs.is_empty() || !self.in_flight.is_empty()
    }

    /// Whether a sequence was taken and has not ended.
    pub fn is_live(&self, seq: SeqId) -> bool {
        self.scheduler.seqs.contains(seq)
    }

    /// The first broken invariant, if there is one: stop the engine.
    pub fn fault(&self) -> Option<&EngineFault> {
        self.fault.as_ref()
    }

    /// What the engine is doing.
    pub fn stats(&self) -> Stats {
        let oldest = self.scheduler.oldest_waiting();
        let memory = &self.scheduler.memory;
        Stats {
            num_running: self.scheduler.num_running(),
            num_waiting: self.scheduler.num_waiting(),
            num_waiting_tokens: self.scheduler.num_waiting_tokens(),
            oldest_waiting_us: oldest.map_or(0, |arrived| self.now.since(arrived)),
            num_blocks_free: memory.blocks.num_available(),
            num_blocks_cached: memory.blocks.pool().num_idle(),
            num_blocks: self.limits.num_blocks as usize,
            num_rows_free: memory.rows.num_available(),
            num_rows_cached: memory.rows.pool().num_idle(),
            num_rows: self.limits.num_rows as usize,
            totals: memory.add_totals(self.totals),
        }
    }

    /// Lets a drafter propose for a sequence. False if there is no such sequence, or no longer.
    pub fn set_drafter(&mut self, seq: SeqId, drafter: Drafter) -> bool {
        let found = self.scheduler.seqs.get_mut(seq);
        found.map(|seq| seq.drafts.set(drafter)).is_some()
    }

    /// Counts everything anew: each block and row has exactly the owners and leases that sequences and
    /// running steps account for, and the cache holds what its tree says. Slow; for tests.
    ///
    /// # Errors
    /// The first number that doesn't add up.
    pub fn check_invariants(&self) -> Result<(), EngineFault> {
        self.scheduler.check_lists()?;
        self.scheduler.memory.check_tree()?;
        if self.in_flight.is_empty() {
            self.scheduler.check_matchers()?;
        }
        let nothing_runs = !self.has_work();
        let (mut blocks, mut rows) = (BTreeMap::new(), BTreeMap::new());
        for (_, seq) in self.scheduler.seqs.iter() {
            for block in &seq.block_table {
                blocks.entry(block.0).or_insert((0u32, 0u32)).0 += 1;
            }
            for row in seq.row.iter() {
                rows.entry(row.0).or_insert((0u32, 0u32)).0 += 1;
            }
        }
        for block in self.scheduler.memory.blocks.given_up() {
            blocks.entry(block.0).or_insert((0, 0)).1 += 1;
        }
        for part in self.in_flight.parts() {
            #[cfg(test)]
            for block in &part.blocks {
                // Somebody must hold what a step in flight names.
                if !blocks.contains_key(&block.0) {
                    let pool = self.scheduler.memory.blocks.pool();
                    return Err(pool.misuse(block.0, "account for"));
                }
            }
            if let Some(row) = part.read {
                rows.entry(row.0).or_insert((0, 0)).1 += 1;
            }
            for row in part.written() {
                rows.entry(row.0).or_insert((0, 0)).0 += 1;
            }
        }
        let pools = [
            (self.scheduler.memory.blocks.pool(), blocks),
            (self.scheduler.memory.rows.pool(), rows),
        ];
        for (pool, counted) in pools {
            pool.check(nothing_runs)?;
            for (id, owners, leases) in pool.held() {
                let held = counted.get(&id).copied().unwrap_or((0, 0));
                let is_free = held == (0, 0) && !pool.is_cached(id);
                if held != (owners, leases) || pool.is_free(id) != is_free {
                    return Err(pool.misuse(id, "account for"));
                }
            }
        }
        Ok(())
    }

    /// Tokens in the chain of cached blocks that these begin with.
    #[cfg(test)]
    pub(crate) fn num_findable(&self, salt: &str, tokens: &[lockstep_step::TokenId]) -> usize {
        self.scheduler.memory.num_findable(salt, tokens)
    }

    /// Emits an event of a sequence.
    fn emit(&mut self, seq: SeqId, at: u32, kind: EventKind) {
        if let EventKind::DroppedSpecial { .. } = kind {
            self.totals.num_dropped_special += 1;
        }
        self.events.push(Event { seq, at, kind });
    }

    /// Ends a sequence, if there still is one: releases what it owns and emits its last event.
    fn end(&mut self, id: SeqId, ending: Ending) -> Result<(), EngineFault> {
        let Some(seq) = self.scheduler.remove(id)? else {
            return Ok(());
        };
        if seq.drafts.shares() {
            let output = &seq.token_ids[seq.num_prompt_tokens..];
            self.scheduler.recent.push(output);
        }
        self.totals.num_finished += 1;
        self.totals.drafts.note_request(&seq.drafts.totals);
        let usage = Usage {
            prompt_tokens: seq.num_prompt_tokens as u32,
            completion_tokens: seq.output.num_tokens(),
            reasoning_tokens: seq.output.num_reasoning_tokens(),
            // Of a sequence that was first admitted with its prompt alone: always less than it.
            cached_tokens: seq.cursor.num_cached_tokens() as u32,
        };
        let finished = Finished {
            finish: ending.finish,
            usage,
            dropped_call: ending.dropped_call,
        };
        self.emit(id, usage.completion_tokens, EventKind::Finished(finished));
        Ok(())
    }

    fn end_with(&mut self, id: SeqId, error: RequestError) -> Result<(), EngineFault> {
        self.end(id, error.into())
    }

    /// Keeps the first fault.
    fn note(&mut self, result: Result<(), EngineFault>) {
        if let Err(fault) = result {
            self.fault.get_or_insert(fault);
        }
    }
}
