//! One turn of the engine over a backend, for tests, benchmarks and the command line. A server has a loop
//! of its own, with the same calls in the same order.

use crate::{Engine, EngineFault, Event, Time};
use alloc::{string::ToString, vec::Vec};
use lockstep_step::Backend;

/// Runs one step. False if there was none to run.
///
/// # Errors
/// If an invariant of the engine is broken. A failed step is not an error here: its sequences end with
/// one.
pub fn run_step<B: Backend>(
    engine: &mut Engine,
    backend: &mut B,
    now: Time,
) -> Result<bool, EngineFault> {
    let Some(plan) = engine.plan(now) else {
        return engine.fault().cloned().map_or(Ok(false), Err);
    };
    let sampled = match backend.forward(&plan) {
        Ok(forward) => {
            let masks = engine.fill_masks(&plan);
            backend.sample(forward, &masks)
        }
        Err(error) => Err(error),
    };
    match sampled {
        Ok(output) => engine.commit(now, output)?,
        Err(error) => engine.fail_step(now, plan.step, error.to_string()),
    }
    Ok(true)
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
    while run_step(engine, backend, Time::default())? {
        events.extend(engine.poll_events());
    }
    events.extend(engine.poll_events());
    Ok(events)
}
