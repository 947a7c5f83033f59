//! The one loop around the engine: takes inputs, runs steps, and routes events to their readers.
//!
//! Everything that can make it do something is a variant of [`Input`]. It must never wait for a
//! reader: one that is too slow is cut off.

use crate::generation::{Cut, Generation, Reader, Update};
use crate::mask_workers::{MaskWorkers, Pending};
use crate::metrics::{Metrics, SeqTimes};
use crate::net::{mpsc, oneshot, yield_now};
use crate::observer::Observer;
use crate::time::{Clock, sleep};
use lockstep_core::{
    Engine, EngineFault, Event, EventKind, MaskDone, MaskJob, Pipeline, Refusal, Request, Time,
};
use lockstep_step::{Backend, BackendError, SeqId, StepId, StepPlan, planted};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(test)]
pub(crate) mod tests;

/// All that the loop reacts to.
pub(crate) enum Input {
    /// Take a client's request, all of its sequences or none.
    Submit(Submission),
    /// Its reader is gone.
    Abort(SeqId),
    /// Take no more work, and say when all is done.
    Drain {
        /// Told once nothing runs.
        reply: oneshot::Sender<()>,
    },
    /// End everything that still runs, and the loop.
    Stop,
}

/// A client's request on its way to the engine.
pub(crate) struct Submission {
    /// As the response carries it.
    pub(crate) request_id: String,
    /// One per choice, in the order of choices.
    pub(crate) requests: Vec<Request>,
    /// Whether the reader wants to see tokens.
    pub(crate) wants_tokens: bool,
    /// Bytes that may wait for the reader.
    pub(crate) buffer_bytes_max: usize,
    /// Told what became of it.
    pub(crate) reply: oneshot::Sender<Result<Generation, SubmitError>>,
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SubmitError {
    /// The engine refused it.
    Refused(Refusal),
    /// The server is about to end.
    Draining,
}

/// How the engine is, for everybody to see.
#[derive(Debug, Default)]
pub(crate) struct Status {
    draining: AtomicBool,
    stopped: OnceLock<String>,
}

impl Status {
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(crate) fn stopped(&self) -> Option<String> {
        self.stopped.get().cloned()
    }

    pub(crate) fn stop(&self, reason: impl Into<String>) {
        let _ = self.stopped.set(reason.into());
    }
}

/// Tells everybody when the loop has ended, even by a panic.
struct EndGuard(Arc<Status>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.stop("the engine's loop ended");
    }
}

/// Where a sequence's events go.
struct Route {
    choice: usize,
    reader: Arc<Reader>,
    times: SeqTimes,
}

/// The engine and all that its loop needs.
pub(crate) struct Driver<B: Backend> {
    pub(crate) engine: Engine,
    pub(crate) backend: B,
    pub(crate) inputs: mpsc::UnboundedReceiver<Input>,
    pub(crate) input_sender: mpsc::WeakUnboundedSender<Input>,
    pub(crate) clock: Clock,
    pub(crate) step_pause: Option<Duration>,
    pub(crate) status: Arc<Status>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) masks: MaskWorkers,
    pub(crate) pipeline: Pipeline<B>,
    pub(crate) observer: Box<dyn Observer>,
    /// When the last step was started.
    pub(crate) step_started: Time,
}

/// What the loop of the engine gets from the server.
struct Host<'a> {
    clock: Clock,
    masks: &'a MaskWorkers,
    metrics: &'a Metrics,
    step_started: &'a mut Time,
}

impl<'a> lockstep_core::Host for Host<'a> {
    type Pending = Option<Pending<'a>>;

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn start_masks(&mut self, jobs: Vec<MaskJob>) -> Option<Pending<'a>> {
        (!jobs.is_empty()).then(|| self.masks.start(jobs))
    }

    fn finish_masks(&mut self, pending: Option<Pending<'a>>) -> Vec<MaskDone> {
        pending.map_or(Vec::new(), |pending| {
            let start = self.clock.now();
            let filled = pending.collect();
            let wait_us = self.clock.now().since(start);
            self.metrics.masks(filled.busy_us, wait_us);
            filled.done
        })
    }

    fn started(&mut self, plan: &StepPlan) {
        *self.step_started = self.clock.now();
        self.metrics.step(plan.num_query_tokens());
    }

    fn failed(&mut self, step: StepId, error: &BackendError) {
        tracing::error!("step {step} failed: {error}");
        self.metrics.count("lockstep_step_failures_total", "", 1);
    }

    fn not_proposed(&mut self, error: &BackendError) {
        tracing::warn!("no model drafts: {error}");
        self.metrics
            .count("lockstep_proposal_failures_total", "", 1);
    }
}

/// What the loop remembers between inputs.
#[derive(Default)]
struct Memory {
    routes: BTreeMap<SeqId, Route>,
    drained: Vec<oneshot::Sender<()>>,
    draining: bool,
    stopping: bool,
}

impl<B: Backend> Driver<B> {
    /// Runs until it is told to stop, until nobody is left who could tell it anything, or until
    /// the engine finds one of its own invariants broken.
    pub(crate) async fn run(mut self) {
        let _guard = EndGuard(self.status.clone());
        let mut memory = Memory::default();
        loop {
            while let Ok(input) = self.inputs.try_recv() {
                self.take(input, &mut memory);
            }
            self.route(&mut memory);
            if memory.stopping {
                return self.cut_all(&mut memory, &Cut::ShuttingDown);
            }
            let worked = self.step();
            self.observer.turned(&self.engine);
            match worked {
                Ok(true) => {}
                Ok(false) => {
                    self.route(&mut memory);
                    self.publish();
                    if !self.engine.has_work() {
                        for reply in memory.drained.drain(..) {
                            let _ = reply.send(());
                        }
                    }
                    match self.inputs.recv().await {
                        Some(input) => self.take(input, &mut memory),
                        None => return self.cut_all(&mut memory, &Cut::ShuttingDown),
                    }
                    continue;
                }
                Err(fault) => return self.fail(&mut memory, fault.to_string()),
            }
            // First, so that whoever has read a token finds it counted.
            self.publish();
            self.route(&mut memory);
            // On a shared runtime, readers get their turn between steps.
            match self.step_pause {
                Some(pause) => sleep(pause).await,
                None => yield_now().await,
            }
        }
    }

    /// Runs one step, if there is one. An error is a broken invariant of the engine.
    pub(crate) fn step(&mut self) -> Result<bool, EngineFault> {
        let mut host = Host {
            clock: self.clock,
            masks: &self.masks,
            metrics: &self.metrics,
            step_started: &mut self.step_started,
        };
        let (engine, backend) = (&mut self.engine, &mut self.backend);
        self.pipeline.turn(engine, backend, &mut host)
    }

    fn take(&mut self, input: Input, memory: &mut Memory) {
        match input {
            Input::Submit(submission) => self.submit(submission, memory),
            Input::Abort(seq) => {
                // Planted: vllm-project/vllm#25067.
                if memory.routes.remove(&seq).is_some() || planted!(AbortAfterFinish) {
                    self.observer.left(seq);
                    self.metrics.finished("abort");
                    self.engine.abort(seq);
                }
            }
            Input::Drain { reply } => {
                memory.draining = true;
                memory.drained.push(reply);
            }
            Input::Stop => memory.stopping = true,
        }
    }

    fn submit(&mut self, submission: Submission, memory: &mut Memory) {
        let Submission {
            request_id,
            requests,
            wants_tokens,
            buffer_bytes_max,
            reply,
        } = submission;
        let (Some(inputs), false) = (self.input_sender.upgrade(), memory.draining) else {
            let _ = reply.send(Err(SubmitError::Draining));
            return;
        };
        if let Err(refusal) = self.engine.check_together(&requests) {
            let _ = reply.send(Err(SubmitError::Refused(refusal)));
            return;
        }
        let now = self.clock.now();
        let mut seqs = Vec::with_capacity(requests.len());
        let mut times = Vec::with_capacity(requests.len());
        for (choice, mut request) in requests.into_iter().enumerate() {
            // The metrics need to see each token, whether the reader does or not.
            request.token_events = true;
            times.push(SeqTimes::new(now, &request));
            self.observer.submitting(&request_id, choice, &request);
            let submitted = self.engine.submit(now, request);
            self.observer.submitted(submitted.as_ref().copied());
            match submitted {
                Ok(seq) => seqs.push(seq),
                Err(refusal) => {
                    for seq in seqs {
                        self.observer.left(seq);
                        self.engine.abort(seq);
                    }
                    let _ = reply.send(Err(SubmitError::Refused(refusal)));
                    return;
                }
            }
        }
        let (reader, generation) = Reader::new(&seqs, wants_tokens, buffer_bytes_max, inputs);
        let reader = Arc::new(reader);
        for ((choice, seq), times) in seqs.into_iter().enumerate().zip(times) {
            let route = Route {
                choice,
                reader: reader.clone(),
                times,
            };
            memory.routes.insert(seq, route);
        }
        // If the client has gone already, dropping what it would have got aborts the sequences.
        let _ = reply.send(Ok(generation));
    }

    fn route(&mut self, memory: &mut Memory) {
        let now = self.clock.now();
        for event in self.engine.poll_events() {
            self.observer.event(&event);
            let Event { seq, at, kind } = event;
            let Some(route) = memory.routes.get_mut(&seq) else {
                continue;
            };
            // It was scheduled when its step began, and this is after its end.
            let when = match kind {
                EventKind::Scheduled => self.step_started,
                _ => now,
            };
            self.metrics.event(when, at, &kind, &mut route.times);
            let finished = matches!(kind, EventKind::Finished(_));
            let (choice, reader) = (route.choice, route.reader.clone());
            if finished {
                memory.routes.remove(&seq);
            }
            if !reader.send(choice, Update::Event(kind)) {
                self.cut_reader(&reader, memory);
            }
        }
    }

    /// The reader is gone or too slow: its sequences end, and give back their blocks.
    fn cut_reader(&mut self, reader: &Arc<Reader>, memory: &mut Memory) {
        let routes = memory.routes.iter();
        let seqs: Vec<SeqId> = routes
            .filter(|(_, route)| Arc::ptr_eq(&route.reader, reader))
            .map(|(seq, _)| *seq)
            .collect();
        for seq in seqs {
            memory.routes.remove(&seq);
            self.observer.left(seq);
            self.metrics.finished("abort");
            self.engine.abort(seq);
        }
        if reader.is_cut() {
            self.metrics.count("lockstep_slow_readers_total", "", 1);
        }
    }

    /// An invariant of the engine is broken: nothing that it says can be trusted any more.
    fn fail(&mut self, memory: &mut Memory, fault: String) {
        tracing::error!("the engine stops: {fault}");
        self.cut_all(memory, &Cut::EngineStopped(fault));
    }

    fn cut_all(&mut self, memory: &mut Memory, cut: &Cut) {
        let reason = match cut {
            Cut::EngineStopped(reason) => reason.clone(),
            _ => "the server is shutting down".to_string(),
        };
        self.observer.ended(&reason);
        // First, so that whoever is cut off can see why.
        self.status.stop(reason);
        // What waits to be taken is dropped with the channel; its clients see that it was.
        for (seq, route) in std::mem::take(&mut memory.routes) {
            self.engine.abort(seq);
            self.metrics.finished("error");
            route.reader.cut(cut.clone());
        }
        memory.drained.clear();
        self.publish();
    }

    fn publish(&self) {
        self.metrics.stats(&self.engine.stats());
    }
}
