//! A broken invariant of the engine, with its numbers. Unlike an error of one sequence it may hurt
//! everybody, so whoever gets one must stop the engine.

use alloc::string::String;
use core::fmt;
use lockstep_step::{SeqId, StepId};

/// An invariant that does not hold. The engine plans nothing after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineFault {
    /// A block or a row was used in a way that its state forbids.
    Pool {
        /// "block" or "row".
        pool: &'static str,
        /// Its id.
        id: u32,
        /// What was tried.
        action: &'static str,
        /// How many owned it.
        owners: u32,
        /// How many steps in flight named it.
        leases: u32,
    },
    /// Free, idle and held ones are not all there are, or something is held while nothing runs.
    Conservation {
        /// "block" or "row".
        pool: &'static str,
        /// Free ones.
        free: usize,
        /// Those that only the prefix cache holds.
        idle: usize,
        /// Held ones.
        held: usize,
        /// All of them.
        total: usize,
    },
    /// An output answers a step that is not in flight.
    UnknownStep {
        /// The answered step.
        step: StepId,
        /// The step that is in flight.
        in_flight: Option<StepId>,
    },
    /// Masks were asked for before the step ahead of it was answered: what they depend on isn't known.
    MasksTooEarly {
        /// The step whose masks were wanted.
        step: StepId,
        /// The step ahead of it.
        oldest: StepId,
    },
    /// An output does not fit the plan that it answers.
    OutputShape {
        /// The step.
        step: StepId,
        /// The sequence, where it is one sequence's part.
        seq: Option<SeqId>,
        /// What does not fit.
        detail: String,
    },
    /// The device is gone, and all that its blocks and rows held with it.
    DeviceLost(
        /// In its own words.
        String,
    ),
    /// A sequence's own numbers contradict each other.
    Sequence {
        /// The sequence.
        seq: SeqId,
        /// The numbers.
        detail: String,
    },
}

impl fmt::Display for EngineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineFault::Pool {
                pool,
                id,
                action,
                owners,
                leases,
            } => write!(
                f,
                "can't {action} {pool} {id}: {owners} owners, {leases} leases"
            ),
            EngineFault::Conservation {
                pool,
                free,
                idle,
                held,
                total,
            } => write!(
                f,
                "{free} {pool}s are free, {idle} cached, {held} held, of {total}"
            ),
            EngineFault::UnknownStep { step, in_flight } => {
                write!(f, "step {step} was answered, {in_flight:?} is in flight")
            }
            EngineFault::MasksTooEarly { step, oldest } => {
                write!(f, "masks of step {step} before step {oldest} was answered")
            }
            EngineFault::OutputShape { step, seq, detail } => {
                write!(f, "output of step {step}, {seq:?}: {detail}")
            }
            EngineFault::DeviceLost(message) => write!(f, "the device is lost: {message}"),
            EngineFault::Sequence { seq, detail } => write!(f, "{seq:?}: {detail}"),
        }
    }
}

impl core::error::Error for EngineFault {}
