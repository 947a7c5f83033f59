//! Faults between logits and tokens: penalties, rules, noise.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::PenaltyOncePerStep,
        tier: Tier::Star,
        source: "sgl-project/sglang#33643",
        stage: Stage::Sampler,
        what: "of the tokens of a step only the last is ever counted for penalties",
    },
    PlantedFault {
        switch: Planted::FirstDraftCountedTwice,
        tier: Tier::Second,
        source: "vllm-project/vllm#33251",
        stage: Stage::Sampler,
        what: "in a window with drafts the token before them is counted twice",
    },
    PlantedFault {
        switch: Planted::PenaltiesIgnoredWithDrafts,
        tier: Tier::Second,
        source: "NVIDIA/TensorRT-LLM#17701",
        stage: Stage::Sampler,
        what: "a window with drafts is drawn without what was counted",
    },
    PlantedFault {
        switch: Planted::OneSeedForAll,
        tier: Tier::First,
        source: "vllm-project/vllm#51226",
        stage: Stage::Sampler,
        what: "beside a sequence that draws without noise all others draw with noise of the step",
    },
    PlantedFault {
        switch: Planted::TiesByBatchSize,
        tier: Tier::First,
        source: "vllm-project/vllm#50979",
        stage: Stage::Sampler,
        what: "in small batches top-k keeps every token that ties with the k-th",
    },
    PlantedFault {
        switch: Planted::LogprobsShifted,
        tier: Tier::First,
        source: "vllm-project/vllm#29216",
        stage: Stage::Sampler,
        what: "behind a part that draws nothing the log-probabilities of a window belong to its \
               next row",
    },
    PlantedFault {
        switch: Planted::BudgetMissesARow,
        tier: Tier::First,
        source: "vllm-project/vllm#41768",
        stage: Stage::Sampler,
        what: "a window reaches one row past the place where reasoning has to be closed",
    },
    PlantedFault {
        switch: Planted::NoTopKIsTokenZero,
        tier: Tier::First,
        source: "ohdearquant/lattice#225",
        stage: Stage::Sampler,
        what: "top-k 0 is an empty set, from which token 0 is drawn",
    },
    PlantedFault {
        switch: Planted::DraftHeldAgainstTheBest,
        tier: Tier::First,
        source: "ml-explore/mlx-swift-lm#459",
        stage: Stage::Sampler,
        what: "at a temperature a draft is right if it is the most likely token, whatever was \
               drawn",
    },
    PlantedFault {
        switch: Planted::RowKeepsItsMask,
        tier: Tier::Star,
        source: "vllm-project/vllm#43894",
        stage: Stage::Sampler,
        what: "a free sequence gets the mask that whoever stood in its row of the batch left there",
    },
    PlantedFault {
        switch: Planted::OutputComesBackAsPrompt,
        tier: Tier::Second,
        source: "vllm-project/vllm#29045",
        stage: Stage::Sampler,
        what: "after a preemption the output so far counts as prompt",
    },
    PlantedFault {
        switch: Planted::BiasOpensTheMask,
        tier: Tier::Second,
        source: "vllm-project/vllm#57986",
        stage: Stage::Sampler,
        what: "a token with a positive bias is allowed where the mask forbids it",
    },
];
