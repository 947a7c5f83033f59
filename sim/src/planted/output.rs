//! Faults of text, stop rules, streams and usage.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[PlantedFault {
    switch: Planted::StopOnLastTokenOnly,
    tier: Tier::First,
    source: "huggingface/transformers#47912",
    stage: Stage::Output,
    what: "after a step that accepted drafts only its last token is looked at for an end",
}];
