//! Faults of what is served: what its files say, how prompts are made.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::EndTokensDropped,
        tier: Tier::First,
        source: "JustVugg/colibri#1478",
        stage: Stage::Package,
        what: "the tokens that end an answer are missing from what is served",
    },
    PlantedFault {
        switch: Planted::OneEndToken,
        tier: Tier::Second,
        source: "onnxruntime/mobius#521",
        stage: Stage::Package,
        what: "of the tokens that end an answer only the first is read",
    },
    PlantedFault {
        switch: Planted::GrammarKeyWithoutNumbers,
        tier: Tier::First,
        source: "vllm-project/vllm#53366",
        stage: Stage::Package,
        what: "compiled grammars are kept by a key without the numbers in their text",
    },
    PlantedFault {
        switch: Planted::HeadWithoutWeights,
        tier: Tier::First,
        source: "vllm-project/vllm#35548",
        stage: Stage::Package,
        what: "a head that drafts has weights that are not those of the model",
    },
    PlantedFault {
        switch: Planted::StartTwiceInMessages,
        tier: Tier::First,
        source: "sgl-project/sglang#888",
        stage: Stage::Package,
        what: "messages are read behind two starts of a sequence",
    },
    PlantedFault {
        switch: Planted::StartTwiceInCompletions,
        tier: Tier::First,
        source: "sgl-project/sglang#888",
        stage: Stage::Package,
        what: "plain prompts are read behind two starts of a sequence",
    },
    PlantedFault {
        switch: Planted::ControlTokensSplit,
        tier: Tier::Second,
        source: "sgl-project/sglang#3427",
        stage: Stage::Package,
        what: "control tokens of the template are read as the text that they are spelled with",
    },
    PlantedFault {
        switch: Planted::DefaultsOverNeutral,
        tier: Tier::Second,
        source: "vllm-project/vllm#15241",
        stage: Stage::Package,
        what: "a temperature of 1 counts as none, and the model's own is used",
    },
];
