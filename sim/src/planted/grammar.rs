//! Faults of masks and matchers.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::MaskOncePerStep,
        tier: Tier::Star,
        source: "vllm-project/vllm#44297",
        stage: Stage::Grammar,
        what: "which mask applies is decided once per step, so a window that leaves free text \
               goes on with its mask",
    },
    PlantedFault {
        switch: Planted::MatcherOneTokenBehind,
        tier: Tier::First,
        source: "vllm-project/vllm#48516",
        stage: Stage::Grammar,
        what: "tokens that a step accepted behind the end of reasoning never reach the matcher",
    },
    PlantedFault {
        switch: Planted::ReasoningEndUnseen,
        tier: Tier::First,
        source: "vllm-project/vllm#44927",
        stage: Stage::Grammar,
        what: "an end of reasoning that a step with drafts draws as its bonus never reaches the \
               matcher",
    },
    PlantedFault {
        switch: Planted::TerminationStays,
        tier: Tier::First,
        source: "vllm-project/vllm#46272",
        stage: Stage::Grammar,
        what: "that an answer is complete survives the rollback of the token that completed it",
    },
    PlantedFault {
        switch: Planted::RefusedDraftIsAFault,
        tier: Tier::Second,
        source: "vllm-project/vllm#53777",
        stage: Stage::Grammar,
        what: "a draft that the constraint refuses counts as a fault of the matcher",
    },
    PlantedFault {
        switch: Planted::MaskRowsByDepth,
        tier: Tier::First,
        source: "vllm-project/vllm#50952",
        stage: Stage::Grammar,
        what: "mask rows are written one per draft that is there, and read as if each sequence \
               had as many as the deepest",
    },
    PlantedFault {
        switch: Planted::FreeRowsForbidAll,
        tier: Tier::First,
        source: "vllm-project/vllm-gaudi#1200",
        stage: Stage::Grammar,
        what: "the row of a sequence that nothing holds, where a close was possible and did not \
               come, forbids every token but 0",
    },
    PlantedFault {
        switch: Planted::EndNotInHistory,
        tier: Tier::Star,
        source: "mlc-ai/xgrammar#161",
        stage: Stage::Grammar,
        what: "the token that ends a call moves the grammar and leaves no entry in the history \
               that rollbacks go by",
    },
    PlantedFault {
        switch: Planted::OnlyCanonicalTokens,
        tier: Tier::Second,
        source: "guidance-ai/guidance#1352",
        stage: Stage::Grammar,
        what: "where text is forced only the first token of its canonical cut is allowed",
    },
    PlantedFault {
        switch: Planted::RefusedBeginningStays,
        tier: Tier::First,
        source: "mlc-ai/xgrammar#164",
        stage: Stage::Grammar,
        what: "of a token that is refused the beginning that fits stays in the matcher",
    },
    PlantedFault {
        switch: Planted::MaskBufferShared,
        tier: Tier::First,
        source: "sgl-project/sglang#7321",
        stage: Stage::Grammar,
        what: "sequences share one mask buffer per place of a window, and the last to fill it is \
               what all of them get",
    },
    PlantedFault {
        switch: Planted::TakenPastTheEnd,
        tier: Tier::First,
        source: "vllm-project/vllm#52805",
        stage: Stage::Grammar,
        what: "the matcher is fed an end token that was accepted as a draft, and refuses it",
    },
    PlantedFault {
        switch: Planted::MaskRowsEnumerated,
        tier: Tier::Second,
        source: "guoqingbao/xinfer#232",
        stage: Stage::Grammar,
        what: "filled mask rows are put one after another and not where the plan has them",
    },
    PlantedFault {
        switch: Planted::MatcherStartsOver,
        tier: Tier::Star,
        source: "NVIDIA/TensorRT-LLM#18891",
        stage: Stage::Grammar,
        what: "a preempted sequence gets a matcher at the start of the answer",
    },
    PlantedFault {
        switch: Planted::PaddingUnmasked,
        tier: Tier::First,
        source: "mlc-ai/xgrammar#694",
        stage: Stage::Grammar,
        what: "masks end with the tokenizer, and ids of the padding of the logits stay allowed",
    },
];
