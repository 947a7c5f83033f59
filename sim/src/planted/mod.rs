//! Planted faults: bugs that public engines really had, put back into this one behind a switch. The simulation must
//! find each, and name the stage that is to blame. The switches are in `engine/step/src/planted.rs`; the places that
//! read them say `planted!(Name)`.

mod cache;
mod grammar;
mod hunt;
mod kernel;
mod liveness;
#[cfg(test)]
mod narrowed;
mod output;
mod overlap;
mod package;
mod sampler;
mod speculation;
mod tags;

pub use hunt::{hunt_here, switch_on, table};

use crate::verdict::Stage;
use lockstep_step::planted::Planted;

/// How instructive a fault is, by the collection that it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The most instructive.
    Star,
    /// To be planted first.
    First,
    /// The others.
    Second,
}

/// A fault, and what must be found out about it.
#[derive(Clone, Copy, Debug)]
pub struct PlantedFault {
    /// Its switch.
    pub switch: Planted,
    /// How instructive it is.
    pub tier: Tier,
    /// Where it was met: `project#number`.
    pub source: &'static str,
    /// The stage that a verdict must name.
    pub stage: Stage,
    /// What is wrong while it is on, in one sentence.
    pub what: &'static str,
}

/// All of them, by stage.
pub fn all() -> Vec<PlantedFault> {
    [
        speculation::FAULTS,
        grammar::FAULTS,
        overlap::FAULTS,
        cache::FAULTS,
        sampler::FAULTS,
        kernel::FAULTS,
        output::FAULTS,
        tags::FAULTS,
        liveness::FAULTS,
        package::FAULTS,
    ]
    .concat()
}
