//! Faults of blocks, rows and kept prefixes.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::ExternalKeyDropsSalt,
        tier: Tier::Second,
        source: "vllm-project/vllm#54342",
        stage: Stage::Cache,
        what: "salts are left out where prefixes are looked up",
    },
    PlantedFault {
        switch: Planted::SameStepHitBeforeWrite,
        tier: Tier::First,
        source: "vllm-project/vllm#38715",
        stage: Stage::Cache,
        what: "prefixes can be found before they were computed",
    },
    PlantedFault {
        switch: Planted::EagerRegistrationKept,
        tier: Tier::First,
        source: "vllm-project/vllm#43569",
        stage: Stage::Cache,
        what: "prefixes of a step that failed can be found",
    },
    PlantedFault {
        switch: Planted::PhantomHitAfterEviction,
        tier: Tier::Second,
        source: "local-inference-lab/vllm#480",
        stage: Stage::Cache,
        what: "a state that was given up can still be found",
    },
    PlantedFault {
        switch: Planted::FreeWhileNextStepInFlight,
        tier: Tier::First,
        source: "vllm-project/vllm#45357",
        stage: Stage::Cache,
        what: "blocks of a sequence that ends are free while the next step still names them",
    },
    PlantedFault {
        switch: Planted::OrphanContextBlocks,
        tier: Tier::Second,
        source: "NVIDIA/TensorRT-LLM#15018",
        stage: Stage::Cache,
        what: "a sequence that ends within its prompt gives no block back",
    },
    PlantedFault {
        switch: Planted::HybridSnapshotAdvancedInPlace,
        tier: Tier::First,
        source: "waybarrios/vllm-mlx#744",
        stage: Stage::Cache,
        what: "a state in the cache is the sequence's own, which goes on from it",
    },
    PlantedFault {
        switch: Planted::MixedHitScalarHasInitialState,
        tier: Tier::Star,
        source: "vllm-project/vllm#43090",
        stage: Stage::Cache,
        what: "the length of a hit is that of the blocks, whatever state there is",
    },
    PlantedFault {
        switch: Planted::MtpDropOnStateGroup,
        tier: Tier::First,
        source: "vllm-project/vllm#47861",
        stage: Stage::Cache,
        what: "a state is kept under the block before it",
    },
    PlantedFault {
        switch: Planted::TrimOffsetKeepsForeignTail,
        tier: Tier::First,
        source: "waybarrios/vllm-mlx#380",
        stage: Stage::Cache,
        what: "a block whose first half is equal is taken whole",
    },
    PlantedFault {
        switch: Planted::PrefixHitConsumesAllTokens,
        tier: Tier::First,
        source: "EricLBuehler/mistral.rs#1377",
        stage: Stage::Cache,
        what: "a hit may leave no token to compute",
    },
    PlantedFault {
        switch: Planted::HashCollisionUnchecked,
        tier: Tier::First,
        source: "openvinotoolkit/openvino.genai#3722",
        stage: Stage::Cache,
        what: "blocks are found by a hash of 12 bits, and their tokens are not compared",
    },
    PlantedFault {
        switch: Planted::CowReleasesTooManyLocks,
        tier: Tier::First,
        source: "sgl-project/sglang#27038",
        stage: Stage::Cache,
        what: "who goes on with an equal block gives up another's hold of it",
    },
    PlantedFault {
        switch: Planted::CowSlotLeakOnFailedAdmit,
        tier: Tier::Second,
        source: "sgl-project/sglang#16067",
        stage: Stage::Cache,
        what: "an admission that fails keeps the row that it found",
    },
    PlantedFault {
        switch: Planted::SnapshotSlotOverwrittenByActive,
        tier: Tier::Second,
        source: "sgl-project/sglang#29973",
        stage: Stage::Cache,
        what: "the state at the end of a step is kept as that at the end of its last block",
    },
    PlantedFault {
        switch: Planted::CheckpointsSurviveRequest,
        tier: Tier::First,
        source: "ggml-org/llama.cpp#23970",
        stage: Stage::Cache,
        what: "a state is found by its length alone",
    },
    PlantedFault {
        switch: Planted::HitRowReadsFreshSlot,
        tier: Tier::First,
        source: "vllm-project/tpu-inference#3412",
        stage: Stage::Cache,
        what: "a hit goes on from a fresh row",
    },
];
