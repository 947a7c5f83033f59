//! Faults of aborts, progress and leaks.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::WholeAnswersGoOn,
        tier: Tier::First,
        source: "ROCm/ATOM#1562",
        stage: Stage::Liveness,
        what: "when the client of a whole answer goes away its sequences run on to their ends",
    },
    PlantedFault {
        switch: Planted::LateAnswerAsserts,
        tier: Tier::First,
        source: "LMCache/LMCache#4185",
        stage: Stage::Liveness,
        what: "an answer for a sequence that was aborted meanwhile stops the engine",
    },
    PlantedFault {
        switch: Planted::AbortNeedsBlocks,
        tier: Tier::First,
        source: "vllm-project/vllm#18485",
        stage: Stage::Liveness,
        what: "the abort of a sequence that never ran stops the engine",
    },
    PlantedFault {
        switch: Planted::AbortAfterFinish,
        tier: Tier::First,
        source: "vllm-project/vllm#25067",
        stage: Stage::Liveness,
        what: "the abort of a sequence that has just ended stops the engine",
    },
    PlantedFault {
        switch: Planted::GrammarErrorEndsAll,
        tier: Tier::First,
        source: "vllm-project/vllm#47312",
        stage: Stage::Liveness,
        what: "a grammar that does not compile stops the engine",
    },
    PlantedFault {
        switch: Planted::RefusalOnlyLogged,
        tier: Tier::First,
        source: "vllm-project/vllm#38663",
        stage: Stage::Liveness,
        what: "a sequence for which nothing is allowed neither goes on nor ends",
    },
    PlantedFault {
        switch: Planted::PreemptedIsBackAtOnce,
        tier: Tier::First,
        source: "EricLBuehler/mistral.rs#2043",
        stage: Stage::Liveness,
        what: "a sequence that gave way takes its blocks again before the one that needs them",
    },
    PlantedFault {
        switch: Planted::FirstWithoutRoomEndsTheScan,
        tier: Tier::First,
        source: "vllm-project/vllm#57841",
        stage: Stage::Liveness,
        what: "where the first finds no room nobody behind it is planned, and nobody gives way",
    },
    PlantedFault {
        switch: Planted::LongerThanThePool,
        tier: Tier::Second,
        source: "inference-sim/inference-sim#297",
        stage: Stage::Liveness,
        what: "a sequence may become longer than all blocks together",
    },
];
