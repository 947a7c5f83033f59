//! Faults of drafts: what is computed for them, and what is taken back.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::ZeroAcceptMinusOneIndex,
        tier: Tier::First,
        source: "vllm-project/vllm#48475",
        stage: Stage::Speculation,
        what: "where no draft was right, the state after the last of them is kept",
    },
    PlantedFault {
        switch: Planted::GrammarRejectsAllDraftsZero,
        tier: Tier::Star,
        source: "vllm-project/vllm#56419",
        stage: Stage::Speculation,
        what: "a grammar takes none of the drafts, and the token after them does not count",
    },
    PlantedFault {
        switch: Planted::AcceptCountLongerThanStep,
        tier: Tier::First,
        source: "vllm-project/vllm-ascend#14161",
        stage: Stage::Speculation,
        what: "a step shorter than the acceptance before it begins from no state",
    },
    PlantedFault {
        switch: Planted::AcceptCountZeroesConv,
        tier: Tier::First,
        source: "vllm-project/vllm-ascend#14161",
        stage: Stage::Speculation,
        what: "a step shorter than the acceptance before it computes zeros in each convolution",
    },
    PlantedFault {
        switch: Planted::ConvWindowNoRollbackRoom,
        tier: Tier::First,
        source: "vllm-project/vllm#50272",
        stage: Stage::Speculation,
        what: "the convolution keeps the window after the last draft, whatever was accepted",
    },
    PlantedFault {
        switch: Planted::ConvLayoutTokenIndexed,
        tier: Tier::First,
        source: "vllm-project/vllm-xpu-kernels#544",
        stage: Stage::Speculation,
        what: "where accepted drafts cross the end of a block, the state of one token less is kept",
    },
    PlantedFault {
        switch: Planted::LastStateOnlyAfterVerify,
        tier: Tier::First,
        source: "vllm-project/tpu-inference#3178",
        stage: Stage::Speculation,
        what: "each draft leaves the state after the last one",
    },
    PlantedFault {
        switch: Planted::SpecTokensOverKernelLimit,
        tier: Tier::Second,
        source: "vllm-project/vllm#37035",
        stage: Stage::Speculation,
        what: "of more than five verified tokens the later ones leave the state of the fifth",
    },
    PlantedFault {
        switch: Planted::DraftRewindOffByTwo,
        tier: Tier::First,
        source: "lablup/mlxcel#994",
        stage: Stage::Speculation,
        what: "after a wrong draft the drafter forgets two tokens too many",
    },
    PlantedFault {
        switch: Planted::ZeroKSkipsDrafterIngest,
        tier: Tier::First,
        source: "vllm-project/vllm-metal#716",
        stage: Stage::Speculation,
        what: "a drafter that was not asked does not read the token of that step",
    },
    PlantedFault {
        switch: Planted::FullAcceptLeavesMtpHole,
        tier: Tier::Second,
        source: "ohdearquant/lattice#1396",
        stage: Stage::Speculation,
        what: "the drafter never reads the last draft of a step",
    },
    PlantedFault {
        switch: Planted::PaddedRowsHitOldDraftPages,
        tier: Tier::First,
        source: "lightseekorg/tokenspeed#955",
        stage: Stage::Speculation,
        what: "padding writes into the drafter's slots of an earlier, larger batch",
    },
    PlantedFault {
        switch: Planted::DraftBeyondMaxLenClampedToBlock0,
        tier: Tier::First,
        source: "vllm-project/vllm#32628",
        stage: Stage::Speculation,
        what: "drafts past the longest sequence are written at position 0",
    },
    PlantedFault {
        switch: Planted::AcceptIndexUnbounded,
        tier: Tier::Star,
        source: "vllm-project/vllm#50021",
        stage: Stage::Speculation,
        what: "a step shorter than the acceptance before it reads the state of the next sequence",
    },
    PlantedFault {
        switch: Planted::PrefillChunkGetsDrafts,
        tier: Tier::First,
        source: "vllm-project/vllm#30618",
        stage: Stage::Speculation,
        what: "a part of a prompt gets drafts",
    },
];
