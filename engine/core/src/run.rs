//! The order in which an engine and a backend are called: the one loop, whether one or two steps are in
//! flight. A server turns it, and so do tests, benchmarks and the command line.
//!
//! ```text
//! one at a time   plan N    forward N            masks N  draw N  collect N  commit N   plan N+1 ...
//! overlapped                forward N  masks N  draw N  plan N+1  forward N+1  collect N  commit N  masks N+1 ...
//! ```

use crate::{Engine, EngineFault, Event, MaskDone, MaskJob, ModelDrafters, Time};
use alloc::{string::ToString, vec::Vec};
use lockstep_step::{Backend, BackendError, StepId, StepPlan};

/// What surrounds the loop: a clock, something that fills masks, and somebody who wants to know.
pub trait Host {
    /// Mask jobs that were handed out.
    type Pending;

    /// The time.
    fn now(&self) -> Time;

    /// Hands out the mask jobs of a step.
    fn start_masks(&mut self, jobs: Vec<MaskJob>) -> Self::Pending;

    /// Waits for all of them. A job that isn't among them ends its sequence with an error.
    fn finish_masks(&mut self, pending: Self::Pending) -> Vec<MaskDone>;

    /// A step is about to be started.
    fn started(&mut self, plan: &StepPlan) {
        let _ = plan;
    }

    /// A step has failed.
    fn failed(&mut self, step: StepId, error: &BackendError) {
        let _ = (step, error);
    }

    /// A model that drafts could not be asked. Nothing is lost but speed.
    fn not_proposed(&mut self, error: &BackendError) {
        let _ = error;
    }
}

/// Time stands still, and masks are filled where they are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Still(pub Time);

impl Host for Still {
    type Pending = Vec<MaskJob>;

    fn now(&self) -> Time {
        self.0
    }

    fn start_masks(&mut self, jobs: Vec<MaskJob>) -> Vec<MaskJob> {
        jobs
    }

    fn finish_masks(&mut self, pending: Vec<MaskJob>) -> Vec<MaskDone> {
        pending.into_iter().map(MaskJob::run).collect()
    }
}

/// The steps of an engine on their way through a backend.
pub struct Pipeline<B: Backend> {
    /// A step that was planned ahead, and started.
    next: Option<Started<B>>,
}

struct Started<B: Backend> {
    plan: StepPlan,
    forward: Result<B::Forward, BackendError>,
}

impl<B: Backend> Default for Pipeline<B> {
    fn default() -> Pipeline<B> {
        Pipeline { next: None }
    }
}

impl<B: Backend> Pipeline<B> {
    /// Runs one step to its end, and, where the engine is overlapped, starts the next. False if there was none to
    /// run.
    ///
    /// # Errors
    /// If an invariant of the engine is broken. A failed step is not an error here: its sequences end with
    /// one.
    pub fn turn(
        &mut self,
        engine: &mut Engine,
        backend: &mut B,
        host: &mut impl Host,
    ) -> Result<bool, EngineFault> {
        engine.set_models(ModelDrafters::of(backend));
        let (plan, forward, done) = match self.next.take() {
            Some(Started { plan, forward }) => {
                let pending = host.start_masks(engine.take_mask_jobs(&plan));
                (plan, forward, host.finish_masks(pending))
            }
            None => {
                let Some(plan) = plan(engine, backend, host) else {
                    return engine.fault().cloned().map_or(Ok(false), Err);
                };
                // Begun first, so that they are filled while a backend computes that doesn't come back before
                // it is done.
                let pending = host.start_masks(engine.take_mask_jobs(&plan));
                let forward = backend.forward(&plan);
                // Whatever became of the forward pass, the matchers come back.
                (plan, forward, host.finish_masks(pending))
            }
        };
        let masks = engine.finish_masks(&plan, done);
        let sampled = forward.and_then(|forward| backend.draw(forward, &masks));
        if sampled.is_ok() && engine.is_overlapped() {
            self.next = self::plan(engine, backend, host).map(|plan| Started {
                forward: backend.forward(&plan),
                plan,
            });
        }
        match sampled.and_then(|sampled| backend.collect(sampled)) {
            Ok(output) => engine.commit(host.now(), output)?,
            Err(error) => {
                host.failed(plan.step, &error);
                engine.fail_step(host.now(), plan.step, error.to_string());
                if let BackendError::Lost(message) = error {
                    engine.lose_device(message);
                }
            }
        }
        engine.recycle(plan);
        engine.fault().cloned().map_or(Ok(true), Err)
    }
}

/// The next plan, once models that draft have been asked.
fn plan<B: Backend>(
    engine: &mut Engine,
    backend: &mut B,
    host: &mut impl Host,
) -> Option<StepPlan> {
    if let Some(questions) = engine.plan_proposals() {
        match backend.propose(&questions) {
            Ok(proposals) => engine.take_proposals(proposals),
            Err(error) => host.not_proposed(&error),
        }
    }
    let plan = engine.plan(host.now())?;
    host.started(&plan);
    Some(plan)
}

/// Runs one step, and nothing ahead of it. False if there was none to run.
///
/// # Errors
/// As [`Pipeline::turn`].
pub fn run_step<B: Backend>(
    engine: &mut Engine,
    backend: &mut B,
    now: Time,
) -> Result<bool, EngineFault> {
    let is_overlapped = engine.is_overlapped();
    engine.set_overlap(false);
    let mut pipeline = Pipeline::default();
    let worked = pipeline.turn(engine, backend, &mut Still(now));
    engine.set_overlap(is_overlapped);
    worked
}

/// Runs steps until nothing is left to do, and returns all events. Time stands still.
///
/// # Errors
/// If an invariant of the engine is broken.
pub fn run_to_end<B: Backend>(
    engine: &mut Engine,
    backend: &mut B,
) -> Result<Vec<Event>, EngineFault> {
    let mut events = engine.poll_events();
    let mut pipeline = Pipeline::default();
    while pipeline.turn(engine, backend, &mut Still::default())? {
        events.extend(engine.poll_events());
    }
    events.extend(engine.poll_events());
    Ok(events)
}
