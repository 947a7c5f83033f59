//! From a package to a model on a device: options, what is claimed for what, and the limits that follow.

use super::slots::{Recent, Slots};
use super::{CudaBackend, CudaError};
use crate::DeviceError;
use crate::device::Device;
use crate::draft::{DraftModel, Drafters, Mtp, Rounds, SEQS_MAX};
use crate::draw::DrawRequest;
use crate::memory::{Memory, Region};
use crate::model::{Kept, Model};
use crate::program::{FILES, Program};
use crate::queue::{Event, Queue};
use crate::step::{Buffers, Widths, arrays_len};
use crate::weights::{Loader, WeightRule};
use lockstep_package::blueprint::Blueprint;
use lockstep_package::{ModelConfig, Package, Progress, ensure_range, ensure_same_vocabulary};
use lockstep_sampling::DrawnTokens;
use lockstep_step::{BLOCK_LEN, BackendLimits, LayoutShape, StepLayout};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How a model is loaded and how much it may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// How weights are held and products computed.
    pub weights: WeightRule,
    /// Bytes of device memory that it may hold; None is nine tenths of what is free.
    pub memory_bytes: Option<usize>,
    /// Blocks of the KV cache, of 64 positions each.
    pub num_blocks: u32,
    /// Whether `num_blocks` are only the most, and as many are held as the budget leaves room for.
    pub fit_blocks: bool,
    /// Rows of recurrent state; ignored where the model has none.
    pub num_rows: u32,
    /// The most query tokens of one step.
    pub query_tokens_max: u32,
    /// The longest sequence in tokens, where it is to be shorter than the model's own.
    pub seq_len_max: Option<u32>,
    /// Load the checkpoint's own drafting head too. It computes along with every step, and changes no output.
    pub mtp: bool,
    /// Rows up to which steps are recorded as graphs and replayed; 0 for never. Changes no output.
    pub graph_rows: u32,
    /// Wait for each operation, so that an error is that of the operation which failed. Slow; changes no output.
    pub blocking: bool,
    /// Where compiled kernels are kept; None keeps nothing.
    pub kernel_cache: Option<PathBuf>,
}

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions {
            weights: WeightRule::Q8,
            memory_bytes: None,
            num_blocks: 64,
            fit_blocks: false,
            num_rows: 64,
            query_tokens_max: 512,
            seq_len_max: None,
            mtp: false,
            graph_rows: 128,
            blocking: false,
            kernel_cache: None,
        }
    }
}

/// The most rows of logits that are held at once.
const LOGITS_ROWS_MAX: usize = 256;

/// The most blocks of the KV cache.
const BLOCKS_MAX: usize = 1 << 24;

/// A grid's second and third dimension have 16 bits, and rows are counted there.
const ROWS_MAX: usize = 65_535;

impl CudaBackend {
    /// Puts a package's weights on a device, compiles the kernels for it, and sets memory aside; with a smaller model
    /// beside it that drafts, where there is one.
    ///
    /// # Errors
    /// If a tensor is missing or holds something that is no number, an option is out of range, the draft model does
    /// not fit, the device has not enough memory, or it fails.
    pub fn load(
        device: &Device,
        (package, draft): (&Package, Option<&Package>),
        options: &CudaOptions,
        progress: &dyn Progress,
    ) -> Result<CudaBackend, CudaError> {
        CudaBackend::assemble(device, &package.config, options, |memory, limits| {
            Models::load(memory, (package, draft), (options, limits), progress)
        })
    }

    /// A model of this shape with weights from a seed, by the q8 rule: for benchmarks, since what it says means
    /// nothing.
    ///
    /// # Errors
    /// As [`CudaBackend::load`].
    ///
    /// # Panics
    /// If the shape has layers that are no attention.
    pub fn random(
        device: &Device,
        config: &ModelConfig,
        options: &CudaOptions,
        seed: u64,
    ) -> Result<CudaBackend, CudaError> {
        CudaBackend::assemble(device, config, options, |memory, limits| {
            let mut loader = Loader::random(config, seed, (memory, Region::Weights));
            Ok(Models {
                model: Model::load(&mut loader, limits.seq_len_max as usize)?,
                mtp: None,
                draft_model: None,
            })
        })
    }

    /// All that a backend has, around models that `load` brings.
    fn assemble(
        device: &Device,
        config: &ModelConfig,
        options: &CudaOptions,
        load: impl FnOnce(&mut Memory, &BackendLimits) -> Result<Models, CudaError>,
    ) -> Result<CudaBackend, CudaError> {
        let limits = limits(config, options)?;
        device.bind()?;
        let program = Program::load(device, FILES, options.kernel_cache.as_deref())?;
        let queue = Queue::new(device, &Arc::new(program), options.blocking)?;
        let budget = match options.memory_bytes {
            Some(bytes) => bytes,
            None => device.memory_info()?.0 / 10 * 9,
        };
        let mut memory = Memory::new(device, budget)?;
        let models = load(&mut memory, &limits)?;
        let vocab_size = models.model.vocab_size();
        let rows_max = limits.query_tokens_max as usize;
        let graph_rows = rows_max.min(options.graph_rows as usize);
        let table_width = limits.seq_len_max.div_ceil(BLOCK_LEN) as usize;
        let arrays_len = arrays_len(rows_max, table_width);
        let logits_rows = rows_max.min(LOGITS_ROWS_MAX).max(graph_rows);
        // Drafts are drawn from these rows, too.
        let num_logits = logits_rows.max(SEQS_MAX) * vocab_size;
        let logits = memory.claim(Region::Buffers, "logits", num_logits)?;
        let rows = (Region::Rows, limits.num_rows as usize);
        let kept = Kept::claim_rows(&mut memory, config, rows)?;
        let buffers = Buffers::claim(&mut memory, rows_max, models.widths())?;
        let mut asked = || -> Result<(DrawRequest, Event), CudaError> {
            let asked = DrawRequest::new(device, &mut memory, (logits_rows, vocab_size))?;
            Ok((asked, Event::new(device)?))
        };
        let asked = [asked()?, asked()?];
        let sizes = (rows_max, table_width, vocab_size);
        let mut backend = CudaBackend {
            kept,
            drafters: Drafters {
                mtp: models.mtp,
                draft_model: models.draft_model,
                rounds: Rounds::new(device, &mut memory, (buffers, logits), sizes)?,
            },
            buffers,
            arrays: memory.claim(Region::Buffers, "arrays of a step", arrays_len)?,
            logits,
            logits_rows,
            fixed: StepLayout::new(LayoutShape::Fixed {
                query_tokens_max: graph_rows as u32,
                seq_len_max: limits.seq_len_max,
            }),
            exact: StepLayout::new(LayoutShape::Exact),
            graph_rows,
            graphs: BTreeMap::new(),
            slots: Slots::new(device, &mut memory, (arrays_len, rows_max))?,
            asked,
            num_asked: 0,
            drawn: DrawnTokens::default(),
            recent: Recent::default(),
            limits,
            model: models.model,
            queue,
            memory,
        };
        // Last: they may take what is left.
        backend.claim_blocks(options.fit_blocks)?;
        Ok(backend)
    }

    /// Claims the blocks of the limits for all models, or as many of them as there is room for.
    fn claim_blocks(&mut self, fit: bool) -> Result<(), CudaError> {
        if fit {
            let block_bytes = self.kept.block_bytes() + self.drafters.block_bytes();
            self.limits.num_blocks =
                fitting_blocks(&self.memory, block_bytes)?.min(self.limits.num_blocks);
        }
        let num_blocks = self.limits.num_blocks;
        let blocks = (Region::Blocks, num_blocks as usize);
        self.kept.claim_blocks(&mut self.memory, blocks)?;
        self.drafters
            .claim_blocks(&mut self.memory, num_blocks as usize)?;
        let seq_len_max = self.limits.seq_len_max.min(num_blocks * BLOCK_LEN);
        self.limits.seq_len_max = seq_len_max;
        self.fixed = StepLayout::new(LayoutShape::Fixed {
            query_tokens_max: self.graph_rows as u32,
            seq_len_max,
        });
        Ok(())
    }
}

/// What blocks leave of the room for them, for recorded graphs and for what the driver rounds up: this share of it,
/// and at most so many bytes.
const RESERVE_SHARE: usize = 32;
const RESERVE_BYTES_MAX: usize = 256 << 20;

/// How many blocks of this size there is room for.
fn fitting_blocks(memory: &Memory, block_bytes: usize) -> Result<u32, CudaError> {
    let room = memory.room()?;
    let room = room - (room / RESERVE_SHARE).min(RESERVE_BYTES_MAX);
    match room / block_bytes.max(1) {
        0 => Err(CudaError::Device(DeviceError::Memory {
            what: "a block of the KV cache".to_owned(),
            needed: block_bytes,
            available: room,
        })),
        num => Ok(num.min(BLOCKS_MAX) as u32),
    }
}

/// The models that are loaded.
struct Models {
    model: Model,
    mtp: Option<Mtp>,
    draft_model: Option<DraftModel>,
}

impl Models {
    fn load(
        memory: &mut Memory,
        (package, draft): (&Package, Option<&Package>),
        (options, limits): (&CudaOptions, &BackendLimits),
        progress: &dyn Progress,
    ) -> Result<Models, CudaError> {
        let (rule, seq_len_max) = (options.weights, limits.seq_len_max as usize);
        let rows_max = limits.query_tokens_max as usize;
        let held = (&mut *memory, Region::Weights);
        let mut loader = Loader::new(package, rule, options.mtp, held, progress)?;
        let model = Model::load(&mut loader, seq_len_max);
        loader.region = Region::Drafters;
        let mtp = options
            .mtp
            .then(|| Mtp::load(&mut loader, rows_max))
            .transpose();
        loader.finish();
        let (model, mtp) = (model?, mtp?);
        let draft_model = match draft {
            None => None,
            Some(draft) => {
                ensure_same_vocabulary(package, draft)?;
                let held = (memory, Region::Drafters);
                let mut loader = Loader::new(draft, rule, false, held, progress)?;
                let loaded = DraftModel::load(&mut loader, limits);
                loader.finish();
                Some(loaded?)
            }
        };
        Ok(Models {
            model,
            mtp,
            draft_model,
        })
    }

    /// How wide the buffers of a step have to be.
    fn widths(&self) -> Widths {
        let drafters = [
            self.mtp.as_ref().map(Mtp::widths),
            self.draft_model.as_ref().map(DraftModel::widths),
        ];
        let own = self.model.widths();
        drafters.into_iter().flatten().fold(own, Widths::max)
    }
}

fn limits(config: &ModelConfig, options: &CudaOptions) -> Result<BackendLimits, CudaError> {
    ensure_range("num_blocks", options.num_blocks as usize, 1..=BLOCKS_MAX)?;
    let query_tokens_max = options.query_tokens_max as usize;
    ensure_range("query_tokens_max", query_tokens_max, 1..=ROWS_MAX)?;
    let has_rows = Blueprint::of(config).num_state_layers() > 0;
    if has_rows {
        ensure_range("num_rows", options.num_rows as usize, 2..=1 << 20)?;
    }
    let own_max = config.max_position_embeddings.min(u32::MAX as usize);
    let asked = options.seq_len_max.map_or(own_max, |max| max as usize);
    let seq_len_max = own_max.min(asked);
    let seq_len_max = seq_len_max.min(options.num_blocks as usize * BLOCK_LEN as usize);
    ensure_range("seq_len_max", seq_len_max, 1..=own_max)?;
    Ok(BackendLimits {
        vocab_size: config.vocab_size as u32,
        num_blocks: options.num_blocks,
        num_rows: if has_rows { options.num_rows } else { 0 },
        seq_len_max: seq_len_max as u32,
        query_tokens_max: options.query_tokens_max,
    })
}
