//! Faults of what is planned ahead, given up and taken up again.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::PlaceholderUnderflowOnPreempt,
        tier: Tier::Star,
        source: "vllm-project/vllm#48245",
        stage: Stage::Overlap,
        what: "a step in flight counts for a sequence that has lost its blocks meanwhile",
    },
    PlantedFault {
        switch: Planted::DiscardOneFrameTooFew,
        tier: Tier::First,
        source: "vllm-project/vllm#49620",
        stage: Stage::Overlap,
        what: "a sequence loses its blocks while a step in flight still writes them",
    },
    PlantedFault {
        switch: Planted::StaleMinusOnePlaceholders,
        tier: Tier::First,
        source: "vllm-project/vllm#46899",
        stage: Stage::Overlap,
        what: "who sits a step out comes back with a reference to a draw of the step before",
    },
    PlantedFault {
        switch: Planted::PreemptKeepsLatestToken,
        tier: Tier::First,
        source: "vllm-project/vllm#38624",
        stage: Stage::Overlap,
        what: "the token in flight of a sequence that loses its blocks is said, and drawn again",
    },
    PlantedFault {
        switch: Planted::MixedBatchPenaltyPlaceholder,
        tier: Tier::Second,
        source: "vllm-project/vllm#27910",
        stage: Stage::Overlap,
        what: "penalties miss the first token while it is in flight",
    },
    PlantedFault {
        switch: Planted::PadSlotOverwritesLastSubstitution,
        tier: Tier::Second,
        source: "vllm-project/tpu-inference#991",
        stage: Stage::Overlap,
        what: "where a batch is padded its last token in flight stays a placeholder",
    },
    PlantedFault {
        switch: Planted::PrevStepCountFromCurrentBatch,
        tier: Tier::Second,
        source: "vllm-project/tpu-inference#2799",
        stage: Stage::Overlap,
        what: "of an answer as many sequences come back as the step after it has",
    },
    PlantedFault {
        switch: Planted::FutureTokenRingOverwritten,
        tier: Tier::Star,
        source: "sgl-project/sglang#13713",
        stage: Stage::Overlap,
        what: "draws in flight stand in a ring that is too short for all of them",
    },
    PlantedFault {
        switch: Planted::PausedRequestDraftsOnReturn,
        tier: Tier::First,
        source: "vllm-project/vllm#31944",
        stage: Stage::Overlap,
        what: "drafts that were not used come back at another place",
    },
    PlantedFault {
        switch: Planted::BudgetWithoutDraftTokens,
        tier: Tier::First,
        source: "NVIDIA/TensorRT-LLM#16101",
        stage: Stage::Overlap,
        what: "drafts are not counted among the tokens of a step",
    },
    PlantedFault {
        switch: Planted::AcceptIndexStale,
        tier: Tier::Star,
        source: "vllm-project/vllm#50021",
        stage: Stage::Overlap,
        what: "in flight, the state is chosen by what the step before it accepted",
    },
    PlantedFault {
        switch: Planted::AcceptedCountReadBeforeCopy,
        tier: Tier::First,
        source: "vllm-project/vllm#36013",
        stage: Stage::Overlap,
        what: "draws of a large step are read before they have arrived",
    },
];
