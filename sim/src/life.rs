//! What a server did from its start to its end, written down by those who watch it: every plan, mask and answer of the
//! backend, every request, event and turn. Oracles and verdicts read it; nothing in the server does.

use lockstep_capture::mirror::Seen;
use lockstep_core::{
    Engine, EngineFault, Event, EventKind, ReasoningBudget, Refusal, Request, Speculation, Stats,
};
use lockstep_server::Observer;
use lockstep_step::{
    BLOCK_LEN, Backend, BackendError, BackendLimits, MaskSet, ModelDrafter, Proposal, ProposalPlan,
    SamplingParams, SeqId, StepId, StepOutput, StepPlan, TokenId,
};
use lockstep_tags::ParserOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A step on its way through the backend.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was planned.
    pub plan: StepPlan,
    /// With what its draws were masked, once they were.
    pub masks: Option<MaskSet>,
    /// What came out, once something did.
    pub output: Option<Result<StepOutput, BackendError>>,
    /// Whether it was started before the step before it was answered.
    pub is_ahead: bool,
}

/// A choice of a request, as the engine was asked for it.
#[derive(Clone, Debug)]
pub struct Submit {
    /// The request's id.
    pub id: String,
    /// Which of its choices.
    pub choice: usize,
    /// Its prompt.
    pub prompt: Vec<TokenId>,
    /// How its tokens are drawn.
    pub sampling: SamplingParams,
    /// Its limit.
    pub max_tokens: u32,
    /// Who shares with it.
    pub cache_salt: String,
    /// The tokens that end it.
    pub end_tokens: Vec<TokenId>,
    /// The strings that do.
    pub stop_strings: Vec<String>,
    /// How it is read.
    pub tags: ParserOptions,
    /// The limit on its reasoning.
    pub reasoning: Option<ReasoningBudget>,
    /// What drafts for it, where it says so itself.
    pub speculation: Option<Speculation>,
}

/// What went wrong on purpose.
#[derive(Clone, Debug, PartialEq)]
pub enum Mishap {
    /// The step failed, in this of its three phases.
    StepError(u32),
    /// The first step from here on that computes a whole block or more failed before anything was computed.
    LongStepError,
    /// The device went away.
    DeviceLost,
    /// The step took so long.
    Slow(Duration),
}

/// The life of one server.
#[derive(Default)]
pub struct Life {
    /// By number.
    pub steps: BTreeMap<StepId, Step>,
    /// What models were asked, for which step, and what they proposed.
    pub proposals: Vec<(StepId, ProposalPlan, Vec<Proposal>)>,
    /// By sequence.
    pub submits: BTreeMap<SeqId, Submit>,
    /// Requests that the engine refused.
    pub refused: Vec<(String, Refusal)>,
    /// In order.
    pub events: Vec<Event>,
    /// When it began: on the clock of the clients, and as an instant.
    pub begin: Option<(Duration, Instant)>,
    /// When sequences said something first, on the clock of the clients.
    pub firsts: BTreeMap<SeqId, Duration>,
    /// When sequences ended, on the clock of the clients.
    pub ends: BTreeMap<SeqId, Duration>,
    /// The step that was answered last.
    pub answered: Option<StepId>,
    /// With which steps sequences grew.
    pub grew: BTreeSet<(StepId, SeqId)>,
    /// With which step sequences ended, or after it.
    pub ended_with: BTreeMap<SeqId, StepId>,
    /// Sequences whose reader went away.
    pub left: BTreeSet<SeqId>,
    /// Invariants that were found broken, with the turn.
    pub broken: Vec<String>,
    /// The engine's own fault, if it has one.
    pub fault: Option<EngineFault>,
    /// Turns of the loop.
    pub num_turns: u64,
    /// As of the last turn.
    pub stats: Stats,
    /// Whether the server was told to end.
    pub told: bool,
    /// Whether nothing may go wrong on purpose any more.
    pub is_calm: bool,
    /// Why the loop ended.
    pub ended: Option<String>,
    /// What went wrong on purpose, by step.
    pub mishaps: BTreeMap<StepId, Mishap>,
    /// What the mirror saw of it, once it is over and somebody has looked.
    pub seen: OnceLock<Seen>,
}

/// Who writes a life down, and who reads it.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<Life>>);

impl Book {
    /// The life.
    pub fn open(&self) -> MutexGuard<'_, Life> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches the engine's loop.
pub struct Witness {
    book: Book,
    submitting: Option<Submit>,
}

impl Witness {
    /// One that writes into this book.
    pub fn new(book: Book) -> Witness {
        Witness {
            book,
            submitting: None,
        }
    }
}

impl Observer for Witness {
    fn submitting(&mut self, request_id: &str, choice: usize, request: &Request) {
        self.submitting = Some(Submit {
            id: request_id.to_owned(),
            choice,
            prompt: request.prompt.clone(),
            sampling: request.sampling.clone(),
            max_tokens: request.max_tokens,
            cache_salt: request.cache_salt.clone(),
            end_tokens: request.end_tokens.clone(),
            stop_strings: request.stop_strings.clone(),
            tags: request.tags.clone(),
            reasoning: request.reasoning.clone(),
            speculation: request.speculation,
        });
    }

    fn submitted(&mut self, result: Result<SeqId, &Refusal>) {
        let Some(submit) = self.submitting.take() else {
            return;
        };
        let mut life = self.book.open();
        match result {
            Ok(seq) => drop(life.submits.insert(seq, submit)),
            Err(refusal) => life.refused.push((submit.id, refusal.clone())),
        }
    }

    fn left(&mut self, seq: SeqId) {
        self.book.open().left.insert(seq);
    }

    fn event(&mut self, event: &Event) {
        let mut life = self.book.open();
        if let Some((begin, instant)) = life.begin {
            let now = begin + instant.elapsed();
            match &event.kind {
                EventKind::Finished(_) => drop(life.ends.insert(event.seq, now)),
                EventKind::Content(text) | EventKind::Reasoning(text)
                    if !text.trim().is_empty() =>
                {
                    life.firsts.entry(event.seq).or_insert(now);
                }
                _ => {}
            }
        }
        if let Some(step) = life.answered {
            match &event.kind {
                EventKind::Token { .. } => drop(life.grew.insert((step, event.seq))),
                EventKind::Finished(_) => drop(life.ended_with.insert(event.seq, step)),
                _ => {}
            }
        }
        life.events.push(event.clone());
    }

    fn turned(&mut self, engine: &Engine) {
        let mut life = self.book.open();
        life.num_turns += 1;
        life.stats = engine.stats();
        if let Err(fault) = engine.check_invariants() {
            let turn = life.num_turns;
            life.broken.push(format!("turn {turn}: {fault}"));
        }
        life.fault = engine.fault().cloned();
        if let Some(fault) = engine.fault() {
            life.broken.push(format!("the engine stopped: {fault}"));
        }
    }

    fn ended(&mut self, reason: &str) {
        self.book.open().ended = Some(reason.to_owned());
    }
}

/// A backend that is watched, and that fails where it is told to.
pub struct Watched<B> {
    inner: B,
    book: Book,
    mishaps: BTreeMap<u64, Mishap>,
    is_lost: bool,
}

impl<B: Backend> Watched<B> {
    /// `mishaps` by the number of the step.
    pub fn new(inner: B, book: Book, mishaps: BTreeMap<u64, Mishap>) -> Watched<B> {
        Watched {
            inner,
            book,
            mishaps,
            is_lost: false,
        }
    }

    fn fails(&mut self, step: StepId, phase: u32) -> Result<(), BackendError> {
        if self.is_lost {
            return Err(BackendError::Lost("the device does not answer".to_owned()));
        }
        if self.book.open().is_calm {
            return Ok(());
        }
        match self.mishaps.get(&step.0) {
            Some(Mishap::StepError(at)) if *at == phase => {
                let message = format!("step {step} fails on purpose");
                Err(BackendError::Device(message))
            }
            Some(Mishap::DeviceLost) if phase == 0 => {
                self.is_lost = true;
                Err(BackendError::Lost("the device does not answer".to_owned()))
            }
            Some(Mishap::Slow(time)) if phase == 0 => {
                madsim::time::advance(*time);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fails_if_long(&mut self, plan: &StepPlan) -> Result<(), BackendError> {
        let is_calm = self.book.open().is_calm;
        let is_long = !is_calm && plan.num_query_tokens() >= BLOCK_LEN as usize;
        let waits = |(at, mishap): (&u64, &Mishap)| {
            (*at <= plan.step.0 && *mishap == Mishap::LongStepError).then_some(*at)
        };
        let waiting = self.mishaps.iter().find_map(waits).filter(|_| is_long);
        let Some(at) = waiting else {
            return Ok(());
        };
        self.mishaps.remove(&at);
        let mut life = self.book.open();
        life.mishaps.insert(plan.step, Mishap::LongStepError);
        let message = format!("step {} fails on purpose", plan.step);
        Err(BackendError::Device(message))
    }

    fn note<T>(
        &self,
        step: StepId,
        result: Result<T, BackendError>,
    ) -> Result<(StepId, T), BackendError> {
        if let (Err(error), Some(step)) = (&result, self.book.open().steps.get_mut(&step)) {
            step.output = Some(Err(error.clone()));
        }
        result.map(|value| (step, value))
    }
}

impl<B: Backend> Backend for Watched<B> {
    type Forward = (StepId, B::Forward);
    type Sampled = (StepId, B::Sampled);

    fn limits(&self) -> BackendLimits {
        self.inner.limits()
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<Self::Forward, BackendError> {
        {
            let mut life = self.book.open();
            let before = life.steps.values().next_back();
            let step = Step {
                plan: plan.clone(),
                masks: None,
                output: None,
                is_ahead: before.is_some_and(|before| before.output.is_none()),
            };
            life.steps.insert(plan.step, step);
            let own = self.mishaps.get(&plan.step.0);
            if let Some(mishap) = own.filter(|own| **own != Mishap::LongStepError) {
                life.mishaps.insert(plan.step, mishap.clone());
            }
        }
        let result = self
            .fails(plan.step, 0)
            .and_then(|()| self.fails_if_long(plan));
        let result = result.and_then(|()| self.inner.forward(plan));
        self.note(plan.step, result)
    }

    fn draw(
        &mut self,
        (step, forward): Self::Forward,
        masks: &MaskSet,
    ) -> Result<Self::Sampled, BackendError> {
        if let Some(step) = self.book.open().steps.get_mut(&step) {
            step.masks = Some(masks.clone());
        }
        let result = self.fails(step, 1);
        let result = result.and_then(|()| self.inner.draw(forward, masks));
        self.note(step, result)
    }

    fn collect(&mut self, (step, sampled): Self::Sampled) -> Result<StepOutput, BackendError> {
        let result = self.fails(step, 2);
        let result = result.and_then(|()| self.inner.collect(sampled));
        let mut life = self.book.open();
        life.answered = Some(step);
        if let Some(noted) = life.steps.get_mut(&step) {
            noted.output = Some(result.clone());
        }
        drop(life);
        result
    }

    fn is_asynchronous(&self) -> bool {
        self.inner.is_asynchronous()
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        self.inner.has_drafter(drafter)
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        let proposals = self.inner.propose(plan)?;
        let mut life = self.book.open();
        let last = life.steps.keys().next_back();
        let next = StepId(last.map_or(0, |last| last.0 + 1));
        life.proposals.push((next, plan.clone(), proposals.clone()));
        Ok(proposals)
    }
}

impl Life {
    /// Whether a sequence of this request was part of a step that failed.
    pub fn failed_a_step_of(&self, id: &str) -> bool {
        let mut failed = self
            .steps
            .values()
            .filter(|step| matches!(step.output, Some(Err(_))));
        failed.any(|step| {
            let mut seqs = step
                .plan
                .seqs
                .iter()
                .filter_map(|seq| self.submits.get(&seq.seq));
            seqs.any(|submit| submit.id == id)
        })
    }
}
