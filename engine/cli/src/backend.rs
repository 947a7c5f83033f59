//! Which backends exist, and how flags become their options. The only place of the repository that knows
//! more than one of them. It must never change a plan or an output on its way.

use crate::{
    cuda,
    exit::Failure,
    flags::{EngineArgs, IsaKind, MachineArgs, OverlapKind, WeightsKind},
};
use lockstep_cpu::{CpuBackend, CpuForward, CpuOptions, Isa, LoadError, WeightRule};
use lockstep_cuda::{CudaBackend, CudaForward, CudaOptions, CudaSampled, Device};
use lockstep_fingerprint::{Drafting, Fingerprint, FingerprintConfig, Scored};
use lockstep_package::{LayerType, ModelConfig, Package, Progress};
use lockstep_step::{
    BLOCK_LEN, Backend, BackendError, BackendLimits, MaskSet, ModelDrafter, OpDigest, Proposal,
    ProposalPlan, StepId, StepOutput, StepPlan,
};

/// Any backend that flags can name.
pub enum AnyBackend {
    /// A model on the CPU.
    Cpu(Box<CpuBackend>),
    /// A model on a GPU.
    Cuda(Box<CudaBackend>),
    /// A model made of hashes.
    Fingerprint(Box<Fingerprint>),
}

/// A step of any of them, between its phases.
pub enum AnyForward {
    /// Of the CPU.
    Cpu(Box<CpuForward>),
    /// Of a GPU.
    Cuda(Box<CudaForward>),
    /// Of the hashes.
    Fingerprint(Box<Scored>),
}

/// A step of any of them, once its draws are under way.
pub enum AnySampled {
    /// Drawn already.
    Output(StepOutput),
    /// Of a GPU.
    Cuda(Box<CudaSampled>),
}

impl AnyBackend {
    /// A package's model on the CPU, and one that drafts for it.
    ///
    /// # Errors
    /// Weights that can't be used, a draft model that doesn't fit, or instructions that the machine doesn't
    /// have.
    pub fn cpu(
        (package, draft): (&Package, Option<&Package>),
        machine: &MachineArgs,
        engine: &EngineArgs,
        progress: &dyn Progress,
    ) -> Result<AnyBackend, Failure> {
        let (seq_len_max, num_blocks) = room(package, draft, engine);
        let options = CpuOptions {
            weights: match machine.weights {
                WeightsKind::F32 => WeightRule::F32,
                WeightsKind::Q8 => WeightRule::Q8,
            },
            num_threads: machine.num_threads(),
            isa: isa(machine.isa)?,
            num_blocks,
            num_rows: num_rows(engine),
            query_tokens_max: engine.max_num_batched_tokens,
            seq_len_max: Some(seq_len_max),
            mtp: engine.wants_mtp(),
            static_buffers: machine.static_buffers,
        };
        let backend = CpuBackend::load_with_draft(package, draft, &options, progress);
        let backend = backend.map_err(|error| Failure::input(&error, load_advice(&error)))?;
        Ok(AnyBackend::Cpu(Box::new(backend)))
    }

    /// A package's model on a GPU, and one that drafts for it.
    ///
    /// # Errors
    /// As on the CPU, or if the device has too little memory, or kernels can't be compiled for it.
    pub fn cuda(
        device: &Device,
        (package, draft): (&Package, Option<&Package>),
        machine: &MachineArgs,
        engine: &EngineArgs,
        progress: &dyn Progress,
    ) -> Result<AnyBackend, Failure> {
        let (seq_len_max, num_blocks) = room(package, draft, engine);
        // Without a word on the cache it takes what the other memory leaves.
        let fit_blocks = engine.kv_blocks.is_none() && engine.kv_cache_gib.is_none();
        let num_blocks = if fit_blocks {
            useful_blocks(engine, seq_len_max)
        } else {
            num_blocks
        };
        let options = CudaOptions {
            weights: match machine.weights {
                WeightsKind::F32 => lockstep_cuda::WeightRule::F32,
                WeightsKind::Q8 => lockstep_cuda::WeightRule::Q8,
            },
            num_blocks,
            fit_blocks,
            num_rows: num_rows(engine),
            query_tokens_max: engine.max_num_batched_tokens,
            seq_len_max: Some(seq_len_max),
            mtp: engine.wants_mtp(),
            ..cuda::options(&machine.cuda)
        };
        let models = (package, draft);
        let backend = cuda::load(device, models, &options, progress)?;
        cuda::print_memory(&backend, &options);
        Ok(AnyBackend::Cuda(Box::new(backend)))
    }

    /// Hashes in place of a package's model.
    pub fn fingerprint(
        package: &Package,
        machine: &MachineArgs,
        engine: &EngineArgs,
    ) -> AnyBackend {
        let seq_len_max = seq_len_max(package, engine);
        let limits = BackendLimits {
            vocab_size: u32::try_from(package.config.vocab_size).unwrap_or(u32::MAX),
            num_blocks: num_blocks(block_bytes(&package.config, false), engine, seq_len_max),
            num_rows: num_rows(engine),
            seq_len_max,
            query_tokens_max: engine.max_num_batched_tokens,
        };
        let mut config = FingerprintConfig::new(limits);
        config.static_buffers = machine.static_buffers;
        // Both drafters, so that all that is around them can be tried; wrong now and then, as any drafter.
        config.drafters = [ModelDrafter::Mtp, ModelDrafter::DraftModel]
            .map(|drafter| Drafting {
                drafter,
                wrong_per_mille: 200,
            })
            .to_vec();
        AnyBackend::Fingerprint(Box::new(Fingerprint::new(config)))
    }

    /// A word about what computes.
    pub fn describe(&self) -> String {
        match self {
            AnyBackend::Cpu(backend) => backend.isa().name().to_owned(),
            AnyBackend::Cuda(backend) => backend.device().name().to_owned(),
            AnyBackend::Fingerprint(_) => "fingerprint".to_owned(),
        }
    }
}

impl Backend for AnyBackend {
    type Forward = AnyForward;
    type Sampled = AnySampled;

    fn limits(&self) -> BackendLimits {
        match self {
            AnyBackend::Cpu(backend) => backend.limits(),
            AnyBackend::Cuda(backend) => backend.limits(),
            AnyBackend::Fingerprint(backend) => backend.limits(),
        }
    }

    fn forward(&mut self, plan: &StepPlan) -> Result<AnyForward, BackendError> {
        Ok(match self {
            AnyBackend::Cpu(backend) => AnyForward::Cpu(Box::new(backend.forward(plan)?)),
            AnyBackend::Cuda(backend) => AnyForward::Cuda(Box::new(backend.forward(plan)?)),
            AnyBackend::Fingerprint(backend) => {
                AnyForward::Fingerprint(Box::new(backend.forward(plan)?))
            }
        })
    }

    fn draw(&mut self, forward: AnyForward, masks: &MaskSet) -> Result<AnySampled, BackendError> {
        match (self, forward) {
            (AnyBackend::Cpu(backend), AnyForward::Cpu(forward)) => {
                backend.draw(*forward, masks).map(AnySampled::Output)
            }
            (AnyBackend::Cuda(backend), AnyForward::Cuda(forward)) => {
                let sampled = backend.draw(*forward, masks)?;
                Ok(AnySampled::Cuda(Box::new(sampled)))
            }
            (AnyBackend::Fingerprint(backend), AnyForward::Fingerprint(forward)) => {
                backend.draw(*forward, masks).map(AnySampled::Output)
            }
            _ => Err(of_another()),
        }
    }

    fn collect(&mut self, sampled: AnySampled) -> Result<StepOutput, BackendError> {
        match (self, sampled) {
            (AnyBackend::Cuda(backend), AnySampled::Cuda(sampled)) => backend.collect(*sampled),
            (_, AnySampled::Output(output)) => Ok(output),
            _ => Err(of_another()),
        }
    }

    fn is_asynchronous(&self) -> bool {
        match self {
            AnyBackend::Cpu(backend) => backend.is_asynchronous(),
            AnyBackend::Cuda(backend) => backend.is_asynchronous(),
            AnyBackend::Fingerprint(backend) => backend.is_asynchronous(),
        }
    }

    fn has_drafter(&self, drafter: ModelDrafter) -> bool {
        match self {
            AnyBackend::Cpu(backend) => backend.has_drafter(drafter),
            AnyBackend::Cuda(backend) => backend.has_drafter(drafter),
            AnyBackend::Fingerprint(backend) => backend.has_drafter(drafter),
        }
    }

    fn propose(&mut self, plan: &ProposalPlan) -> Result<Vec<Proposal>, BackendError> {
        match self {
            AnyBackend::Cpu(backend) => backend.propose(plan),
            AnyBackend::Cuda(backend) => backend.propose(plan),
            AnyBackend::Fingerprint(backend) => backend.propose(plan),
        }
    }

    fn watch_ops(&mut self, on: bool) -> bool {
        match self {
            AnyBackend::Cpu(backend) => backend.watch_ops(on),
            AnyBackend::Cuda(backend) => backend.watch_ops(on),
            AnyBackend::Fingerprint(backend) => backend.watch_ops(on),
        }
    }

    fn take_ops(&mut self, step: StepId) -> Vec<OpDigest> {
        match self {
            AnyBackend::Cpu(backend) => backend.take_ops(step),
            AnyBackend::Cuda(backend) => backend.take_ops(step),
            AnyBackend::Fingerprint(backend) => backend.take_ops(step),
        }
    }
}

fn of_another() -> BackendError {
    BackendError::Device("a step of another backend".to_owned())
}

/// What to try where a model can't be loaded.
pub fn load_advice(error: &LoadError) -> &'static str {
    match error {
        LoadError::NoMtp { .. } => "leave mtp out of --speculate, or say --mtp off",
        LoadError::DraftModel { .. } => "give --draft-model a smaller model of the same family",
        _ => "`lockstep inspect --verify` looks at every tensor",
    }
}

fn isa(kind: IsaKind) -> Result<Option<Isa>, Failure> {
    let isa = match kind {
        IsaKind::Auto => return Ok(None),
        IsaKind::Scalar => Isa::Scalar,
        IsaKind::Avx2 => Isa::Avx2,
        IsaKind::Avx512 => Isa::Avx512,
    };
    if Isa::available().contains(&isa) {
        return Ok(Some(isa));
    }
    let has = Isa::available()
        .into_iter()
        .map(Isa::name)
        .collect::<Vec<_>>()
        .join(", ");
    let what = format!("--isa {}: this machine doesn't have it", isa.name());
    Err(Failure::usage(what, format!("it has {has}")))
}

fn seq_len_max(package: &Package, engine: &EngineArgs) -> u32 {
    let own = u32::try_from(package.config.max_position_embeddings).unwrap_or(u32::MAX);
    engine.max_model_len.map_or(own, |asked| asked.min(own))
}

/// The longest sequence, and the blocks of a model and of one that drafts beside it.
fn room(package: &Package, draft: Option<&Package>, engine: &EngineArgs) -> (u32, u32) {
    let seq_len_max = seq_len_max(package, engine);
    let of_draft = draft.map_or(0, |draft| block_bytes(&draft.config, false));
    let per_block = block_bytes(&package.config, engine.wants_mtp()) + of_draft;
    (seq_len_max, num_blocks(per_block, engine, seq_len_max))
}

/// Blocks that the flags pay for, but no more than the longest sequences could fill, and no less than one
/// sequence of the full length needs where memory was not counted by hand.
fn num_blocks(block_bytes: usize, engine: &EngineArgs, seq_len_max: u32) -> u32 {
    if let Some(blocks) = engine.kv_blocks {
        return blocks;
    }
    let gib = engine.kv_cache_gib.unwrap_or(KV_CACHE_GIB);
    let budget = gib.max(0.0) * f64::from(1u32 << 30);
    let blocks = (budget / block_bytes as f64) as u32;
    blocks.min(useful_blocks(engine, seq_len_max)).max(1)
}

/// Memory of the KV cache where the flags say nothing and the machine's memory is no measure.
const KV_CACHE_GIB: f64 = 1.0;

/// Blocks that all running sequences fill if each is as long as it can be.
fn useful_blocks(engine: &EngineArgs, seq_len_max: u32) -> u32 {
    let per_seq = seq_len_max.div_ceil(BLOCK_LEN);
    per_seq.saturating_mul(engine.max_num_seqs).max(1)
}

/// Bytes of a block: keys and values of 64 positions in every layer that has them, as 32-bit floats. A drafting
/// head has one layer more, and keeps what the model made of each position.
fn block_bytes(config: &ModelConfig, with_mtp: bool) -> usize {
    let full = |layer: &&LayerType| matches!(layer, LayerType::FullAttention);
    let num_layers = config.layer_types.iter().filter(full).count() + usize::from(with_mtp);
    let per_layer = 2 * config.num_key_value_heads * config.head_dim;
    let hidden = if with_mtp { config.hidden_size } else { 0 };
    ((num_layers * per_layer + hidden) * 4 * BLOCK_LEN as usize).max(1)
}

/// Each running sequence reads one row and writes another, or two where the next step is planned while one runs;
/// one more is for the prefix cache, which would be
/// left without states when all of them run.
fn num_rows(engine: &EngineArgs) -> u32 {
    let in_steps = if engine.overlap == OverlapKind::On {
        3
    } else {
        2
    };
    let per_seq = in_steps + u32::from(!engine.no_prefix_cache);
    engine.max_num_seqs.saturating_mul(per_seq).max(2)
}
