//! Faults of tags and channels.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::OneCallPerIncrement,
        tier: Tier::Star,
        source: "sgl-project/sglang#37634",
        stage: Stage::Tags,
        what: "behind the first call that is complete the rest of a piece of text is lost",
    },
    PlantedFault {
        switch: Planted::OneTagPerIncrement,
        tier: Tier::First,
        source: "vllm-project/vllm#41967",
        stage: Stage::Tags,
        what: "of several tags in a piece of text only the first is seen",
    },
    PlantedFault {
        switch: Planted::ReasoningExcludesCalls,
        tier: Tier::Second,
        source: "waybarrios/vllm-mlx#168",
        stage: Stage::Tags,
        what: "where reasoning is open at the start no calls are read",
    },
    PlantedFault {
        switch: Planted::HeldLessThanATag,
        tier: Tier::First,
        source: "youssofal/MTPLX#149",
        stage: Stage::Tags,
        what: "no more is held back than four bytes, and longer beginnings of tags become text",
    },
    PlantedFault {
        switch: Planted::SplitAtTheLastTag,
        tier: Tier::First,
        source: "kekzl/imp#793",
        stage: Stage::Tags,
        what: "a whole answer is split at its last closing tag, a stream at the first",
    },
    PlantedFault {
        switch: Planted::PromptTailIgnored,
        tier: Tier::First,
        source: "sgl-project/sglang#36285",
        stage: Stage::Tags,
        what: "reasoning that the prompt opened is read as content",
    },
    PlantedFault {
        switch: Planted::OpenerFoundAnywhere,
        tier: Tier::Second,
        source: "sgl-project/sglang#35083",
        stage: Stage::Tags,
        what: "an opening tag of reasoning is looked for anywhere and not only at the start",
    },
    PlantedFault {
        switch: Planted::TagsRemovedById,
        tier: Tier::First,
        source: "Blaizzy/mlx-vlm#1351",
        stage: Stage::Tags,
        what: "tokens that are tags of calls are taken out as control tokens before they are read",
    },
];
