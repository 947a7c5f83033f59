//! Faults of kernels, static buffers and copies.

use super::{PlantedFault, Tier};
use crate::verdict::Stage;
use lockstep_step::planted::Planted;

pub(super) const FAULTS: &[PlantedFault] = &[
    PlantedFault {
        switch: Planted::OneTokenChunkTreatedAsDecode,
        tier: Tier::First,
        source: "vllm-project/vllm#32118",
        stage: Stage::Kernel,
        what: "a first chunk of one token goes on from what its row holds",
    },
    PlantedFault {
        switch: Planted::PadMinusOneClampedToZero,
        tier: Tier::First,
        source: "lightseekorg/tokenspeed#700",
        stage: Stage::Kernel,
        what: "padding writes the first row",
    },
    PlantedFault {
        switch: Planted::SentinelEqualsValidSlot,
        tier: Tier::Second,
        source: "weicj/vLLM-2080Ti-Definitive#93",
        stage: Stage::Kernel,
        what: "the first row is taken for padding",
    },
    PlantedFault {
        switch: Planted::NegativeIndexWrapsToLast,
        tier: Tier::First,
        source: "sgl-project/sglang#23353",
        stage: Stage::Kernel,
        what: "padding writes the last row",
    },
    PlantedFault {
        switch: Planted::StaleTailStateScatter,
        tier: Tier::Second,
        source: "NVIDIA/TensorRT-LLM#13278",
        stage: Stage::Kernel,
        what: "padding writes the rows of an earlier, larger batch",
    },
    PlantedFault {
        switch: Planted::PageIndexWrapZeroOutput,
        tier: Tier::First,
        source: "flashinfer-ai/flashinfer#3136",
        stage: Stage::Kernel,
        what: "blocks with high ids are read where others lie",
    },
    PlantedFault {
        switch: Planted::NanPlusMinusInf,
        tier: Tier::First,
        source: "deepbeepmeep/Wan2GP#1628",
        stage: Stage::Kernel,
        what: "what a query must not see is masked by an addition, which leaves a NaN",
    },
    PlantedFault {
        switch: Planted::KernelLeavesHolesFirstLaunch,
        tier: Tier::Second,
        source: "vllm-project/vllm-ascend#17003",
        stage: Stage::Kernel,
        what: "the first step leaves one slot unwritten",
    },
    PlantedFault {
        switch: Planted::ChunkTailGateZero,
        tier: Tier::First,
        source: "gittensor-ai-lab/sparkinfer#604",
        stage: Stage::Kernel,
        what: "the last gate of a chunk that is not full is read from behind its end",
    },
    PlantedFault {
        switch: Planted::LaterWindowStartsFromZeroState,
        tier: Tier::First,
        source: "gittensor-ai-lab/sparkinfer#1071",
        stage: Stage::Kernel,
        what: "each chunk of a prompt begins from no state",
    },
    PlantedFault {
        switch: Planted::ConvShortChunkState,
        tier: Tier::First,
        source: "fla-org/flash-linear-attention#1141",
        stage: Stage::Kernel,
        what: "a chunk shorter than the window keeps nothing of what was before it",
    },
    PlantedFault {
        switch: Planted::PlanReuseKeyLacksStateRow,
        tier: Tier::Star,
        source: "ikawrakow/ik_llama.cpp#2260",
        stage: Stage::Kernel,
        what: "a captured plan goes on from the rows of the sequences that it was captured with",
    },
    PlantedFault {
        switch: Planted::CoBatchChangesConvState,
        tier: Tier::Second,
        source: "ggml-org/llama.cpp#29002",
        stage: Stage::Kernel,
        what: "the convolution looks back into the sequence before in the batch",
    },
    PlantedFault {
        switch: Planted::PoolSizeSchedulerVsWorker,
        tier: Tier::First,
        source: "vllm-project/tpu-inference#3565",
        stage: Stage::Kernel,
        what: "there are two rows less than the backend says",
    },
];
