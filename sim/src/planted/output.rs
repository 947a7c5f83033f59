//! Faults of text, stop rules, streams and usage.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::StopOnLastTokenOnly,
        tier: Tier::First,
        source: "huggingface/transformers#47912",
        stage: Stage::Output,
        what: "after a step that accepted drafts only its last token is looked at for an end",
    },
    PlantedFault {
        switch: Planted::StopKeepsTokens,
        tier: Tier::First,
        source: "vllm-project/vllm#47616",
        stage: Stage::Output,
        what: "tokens that a step accepted behind a stop string are reported and counted",
    },
    PlantedFault {
        switch: Planted::SentOffsetRetreats,
        tier: Tier::First,
        source: "sgl-project/sglang#31598",
        stage: Stage::Output,
        what: "a character that several tokens made up is sent a second time",
    },
    PlantedFault {
        switch: Planted::HeldTextDropped,
        tier: Tier::First,
        source: "ggml-org/llama.cpp#9867",
        stage: Stage::Output,
        what: "what was held back as the beginning of a stop string is dropped at the end",
    },
    PlantedFault {
        switch: Planted::TailSkipsTheParser,
        tier: Tier::First,
        source: "smg-project/smg#2203",
        stage: Stage::Output,
        what: "what is left at the end becomes content, also where reasoning is open",
    },
    PlantedFault {
        switch: Planted::CallsHideLength,
        tier: Tier::First,
        source: "vllm-project/vllm#53269",
        stage: Stage::Output,
        what: "the stream of a chat says tool_calls where the length cut a call off",
    },
    PlantedFault {
        switch: Planted::CallsHideLengthInMessages,
        tier: Tier::First,
        source: "vllm-project/vllm#53269",
        stage: Stage::Output,
        what: "the stream of messages says tool_use where the length cut a call off",
    },
    PlantedFault {
        switch: Planted::StopInReasoning,
        tier: Tier::Second,
        source: "vllm-project/vllm#14170",
        stage: Stage::Output,
        what: "stop strings are searched for in reasoning too",
    },
    PlantedFault {
        switch: Planted::AcceptedControlIsShown,
        tier: Tier::Second,
        source: "vllm-project/vllm-ascend#9767",
        stage: Stage::Output,
        what: "a control token that was accepted as a draft is shown as text",
    },
    PlantedFault {
        switch: Planted::OneEndpointUntrimmed,
        tier: Tier::Second,
        source: "smg-project/smg#1063",
        stage: Stage::Output,
        what: "the stream of messages keeps blanks at both ends that all other routes leave out",
    },
    PlantedFault {
        switch: Planted::ReasoningCountsTheBlock,
        tier: Tier::First,
        source: "sgl-project/sglang#39826",
        stage: Stage::Output,
        what: "reasoning tokens are counted to the end of a step whose end was cut off",
    },
    PlantedFault {
        switch: Planted::BudgetChargedAhead,
        tier: Tier::First,
        source: "ikawrakow/ik_llama.cpp#2358",
        stage: Stage::Output,
        what: "all tokens of a step are charged to the length before the first is said",
    },
    PlantedFault {
        switch: Planted::StreamHeldToItsEnd,
        tier: Tier::Second,
        source: "kekzl/imp#762",
        stage: Stage::Output,
        what: "a stream is sent when it is whole",
    },
];
