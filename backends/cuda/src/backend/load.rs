//! From a package to a model on a device: options, what is claimed for what, and the limits that follow.

use super::slots::{Recent, Slots};
use super::{CudaBackend, CudaError};
use crate::device::Device;
use crate::draw::Asked;
use crate::memory::{Memory, Region};
use crate::model::{Kept, Model};
use crate::program::Program;
use crate::queue::{Event, Queue};
use crate::step::{Buffers, arrays_len};
use crate::weights::{Loader, WeightRule};
use lockstep_package::blueprint::Blueprint;
use lockstep_package::{Package, Progress, ensure_range};
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
    /// Rows of recurrent state; ignored where the model has none.
    pub num_rows: u32,
    /// The most query tokens of one step.
    pub query_tokens_max: u32,
    /// The longest sequence in tokens, where it is to be shorter than the model's own.
    pub seq_len_max: Option<u32>,
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
            num_rows: 64,
            query_tokens_max: 512,
            seq_len_max: None,
            graph_rows: 128,
            blocking: false,
            kernel_cache: None,
        }
    }
}

/// The most rows of logits that are held at once.
const LOGITS_ROWS_MAX: usize = 256;

/// A grid's second and third dimension have 16 bits, and rows are counted there.
const ROWS_MAX: usize = 65_535;

impl CudaBackend {
    /// Puts a package's weights on a device, compiles the kernels for it, and sets memory aside.
    ///
    /// # Errors
    /// If a tensor is missing or holds something that is no number, an option is out of range, the device has not
    /// enough memory, or it fails.
    pub fn load(
        device: &Device,
        package: &Package,
        options: &CudaOptions,
        progress: &dyn Progress,
    ) -> Result<CudaBackend, CudaError> {
        let limits = limits(package, options)?;
        device.bind()?;
        let program = Program::load(device, options.kernel_cache.as_deref())?;
        let queue = Queue::new(device, &Arc::new(program), options.blocking)?;
        let budget = match options.memory_bytes {
            Some(bytes) => bytes,
            None => device.memory_info()?.0 / 10 * 9,
        };
        let mut memory = Memory::new(device, budget);
        let held = (&mut memory, Region::Weights);
        let mut loader = Loader::new(package, options.weights, false, held, progress)?;
        let model = Model::load(&mut loader, limits.seq_len_max as usize);
        loader.reader.finish();
        let model = model?;
        let rows_max = limits.query_tokens_max as usize;
        let graph_rows = rows_max.min(options.graph_rows as usize);
        let table_width = limits.seq_len_max.div_ceil(BLOCK_LEN) as usize;
        let arrays_len = arrays_len(rows_max, table_width);
        let logits_rows = rows_max.clamp(1, LOGITS_ROWS_MAX).max(graph_rows);
        let drawn_at_once = (logits_rows, model.vocab_size());
        let logits = memory.claim(Region::Buffers, "logits", logits_rows * model.vocab_size())?;
        let blocks = (Region::Blocks, limits.num_blocks as usize);
        let rows = (Region::Rows, limits.num_rows as usize);
        let backend = CudaBackend {
            kept: Kept::claim(&mut memory, &package.config, blocks, rows)?,
            buffers: Buffers::claim(&mut memory, rows_max, model.widths())?,
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
            asked: [
                (
                    Asked::new(device, &mut memory, drawn_at_once)?,
                    Event::new(device)?,
                ),
                (
                    Asked::new(device, &mut memory, drawn_at_once)?,
                    Event::new(device)?,
                ),
            ],
            num_asked: 0,
            drawn: DrawnTokens::default(),
            recent: Recent::default(),
            limits,
            model,
            queue,
            memory,
            device: device.clone(),
        };
        // What was copied and set while loading is not in the queue.
        device.synchronize()?;
        Ok(backend)
    }
}

fn limits(package: &Package, options: &CudaOptions) -> Result<BackendLimits, CudaError> {
    let config = &package.config;
    ensure_range("num_blocks", options.num_blocks as usize, 1..=1 << 24)?;
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
