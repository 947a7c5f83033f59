//! Linear layers, which kernel takes them, and how their weights lie on the device.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;
use lockstep_numerics::groups::GROUP;

/// Outputs of a tile of weights: a lane of a warp each.
pub(crate) const TILE_OUTPUTS: usize = 32;
/// Tokens that [`LinearQ8Few`] takes at most.
pub(crate) const FEW_TOKENS: usize = 8;

kernel! {
    /// The q8 rule for at most [`FEW_TOKENS`] tokens.
    pub(crate) LinearQ8Few = "linear_q8_few" in "linear_q8" {
        y: Ptr<f32>, w: Ptr<i8>, w_scales: Ptr<f32>, x: Ptr<i8>, x_scales: Ptr<f32>,
        m: i32, n: i32, k: i32, num_shards: i32,
    }
}

impl LinearQ8Few {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        assert!(
            (1..=FEW_TOKENS as i32).contains(&self.m),
            "{} tokens",
            self.m
        );
        queue.launch(
            self,
            shape([(self.n as usize).div_ceil(TILE_OUTPUTS), 1, 1], 256),
        )
    }
}

kernel! {
    /// The q8 rule for any number of tokens: the same bits.
    pub(crate) LinearQ8Many = "linear_q8_many" in "linear_q8" {
        y: Ptr<f32>, w: Ptr<i8>, w_scales: Ptr<f32>, x: Ptr<i8>, x_scales: Ptr<f32>,
        m: i32, n: i32, k: i32, num_shards: i32,
    }
}

impl LinearQ8Many {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        let grid = [
            (self.n as usize).div_ceil(TILE_OUTPUTS),
            (self.m as usize).div_ceil(64),
            1,
        ];
        queue.launch(self, shape(grid, 128))
    }
}

kernel! {
    /// The q8 rule for any number of tokens, on a device of [`WGMMA_CAPABILITY`]: the same bits.
    pub(crate) LinearQ8Wgmma = "linear_q8_wgmma" in "linear_q8_wgmma" {
        y: Ptr<f32>, w: Ptr<i8>, w_scales: Ptr<f32>, x: Ptr<i8>, x_scales: Ptr<f32>,
        m: i32, n: i32, k: i32, num_shards: i32,
    }
}

/// What a block of [`LinearQ8Wgmma`] takes.
pub(crate) const WGMMA_TOKENS: usize = 128;
pub(crate) const WGMMA_OUTPUTS: usize = 64;
pub(crate) const WGMMA_THREADS: usize = 256;
pub(crate) const WGMMA_STAGES: usize = 4;

impl LinearQ8Wgmma {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        let grid = [
            (self.n as usize).div_ceil(WGMMA_OUTPUTS),
            (self.m as usize).div_ceil(WGMMA_TOKENS),
            1,
        ];
        let stages = WGMMA_STAGES * (WGMMA_TOKENS + WGMMA_OUTPUTS) * GROUP;
        // A float per sum and level of the tree of shards.
        let levels = self.num_shards.trailing_zeros() as usize;
        let tree = levels * WGMMA_TOKENS * WGMMA_OUTPUTS * size_of::<f32>();
        let mut shape = shape(grid, WGMMA_THREADS as u32);
        shape.shared = (stages + tree) as u32;
        queue.launch(self, shape)
    }
}

/// Which kernel takes a product by the q8 rule. All of them give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Q8Path {
    /// [`LinearQ8Few`].
    Few,
    /// [`LinearQ8Many`].
    Many,
    /// [`LinearQ8Wgmma`].
    Wgmma,
}

/// The compute capability whose devices have `wgmma`; no other has it, later ones included.
pub(crate) const WGMMA_CAPABILITY: (i32, i32) = (9, 0);

/// Tokens from which a product is worth a block of [`LinearQ8Wgmma`]: more than one row of blocks of
/// [`LinearQ8Many`] takes. Not measured on a device.
pub(crate) const WGMMA_TOKENS_MIN: usize = 65;

/// The kernel for `m` tokens on a device: [`Q8Path::Few`] for up to [`FEW_TOKENS`]; [`Q8Path::Wgmma`] from
/// [`WGMMA_TOKENS_MIN`] on where the device has it; [`Q8Path::Many`] else.
pub(crate) fn q8_path(capability: (i32, i32), m: usize) -> Q8Path {
    if m <= FEW_TOKENS {
        Q8Path::Few
    } else if m >= WGMMA_TOKENS_MIN && capability == WGMMA_CAPABILITY {
        Q8Path::Wgmma
    } else {
        Q8Path::Many
    }
}

/// A product by the q8 rule, `y = x * W`, whichever kernel takes it. Layouts are those of `linear_q8.cu`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductQ8 {
    pub(crate) y: Ptr<f32>,
    pub(crate) w: Ptr<i8>,
    pub(crate) w_scales: Ptr<f32>,
    pub(crate) x: Ptr<i8>,
    pub(crate) x_scales: Ptr<f32>,
    /// Tokens, outputs, inputs.
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) num_shards: usize,
}

macro_rules! launch_as {
    ($kernel:ident, $product:expr, $queue:expr) => {
        $kernel {
            y: $product.y,
            w: $product.w,
            w_scales: $product.w_scales,
            x: $product.x,
            x_scales: $product.x_scales,
            m: $product.m as i32,
            n: $product.n as i32,
            k: $product.k as i32,
            num_shards: $product.num_shards as i32,
        }
        .launch($queue)
    };
}

impl ProductQ8 {
    /// By the kernel that [`q8_path`] says.
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        self.launch_by(q8_path(queue.device().capability(), self.m), queue)
    }

    /// By this kernel, which the device must have.
    pub(crate) fn launch_by(&self, path: Q8Path, queue: &Queue) -> Result<(), DeviceError> {
        match path {
            Q8Path::Few => launch_as!(LinearQ8Few, self, queue),
            Q8Path::Many => launch_as!(LinearQ8Many, self, queue),
            Q8Path::Wgmma => launch_as!(LinearQ8Wgmma, self, queue),
        }
    }
}

kernel! {
    /// The f32 rule.
    pub(crate) LinearF32 = "linear_f32" in "linear_f32" {
        y: Ptr<f32>, w: Ptr<f32>, x: Ptr<f32>, m: i32, n: i32, k: i32, num_shards: i32,
    }
}

impl LinearF32 {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        let grid = [
            (self.n as usize).div_ceil(TILE_OUTPUTS),
            (self.m as usize).div_ceil(4),
            1,
        ];
        queue.launch(self, shape(grid, 256))
    }
}

/// Quantised rows of weights in tiles: (ceil(n / 32), ceil(k / 16), 32 rows, 16 bytes), zero padded. `q` is (n, k).
pub(crate) fn tile_q8(q: &[i8], n: usize, k: usize) -> Vec<i8> {
    let chunks = k.div_ceil(16);
    let mut tiles = vec![0; n.next_multiple_of(TILE_OUTPUTS) * chunks * 16];
    for (row, values) in q.chunks_exact(k).enumerate() {
        let (tile, lane) = (row / TILE_OUTPUTS, row % TILE_OUTPUTS);
        for (chunk, from) in values.chunks(16).enumerate() {
            let at = ((tile * chunks + chunk) * TILE_OUTPUTS + lane) * 16;
            tiles[at..at + from.len()].copy_from_slice(from);
        }
    }
    tiles
}

/// Scales of weights: (groups, n up to a multiple of 32), zero padded. `scales` is (n, groups).
pub(crate) fn tile_scales(scales: &[f32], n: usize, groups: usize) -> Vec<f32> {
    let padded = n.next_multiple_of(TILE_OUTPUTS);
    let mut tiles = vec![0.0; groups * padded];
    for (row, scales) in scales.chunks_exact(groups).enumerate() {
        for (group, &scale) in scales.iter().enumerate() {
            tiles[group * padded + row] = scale;
        }
    }
    tiles
}

/// Rows of weights in panels: (ceil(n / 32), k, 32), zero padded. `w` is (n, k).
pub(crate) fn tile_f32(w: &[f32], n: usize, k: usize) -> Vec<f32> {
    let mut tiles = vec![0.0; n.next_multiple_of(TILE_OUTPUTS) * k];
    for (row, values) in w.chunks_exact(k).enumerate() {
        let (tile, lane) = (row / TILE_OUTPUTS, row % TILE_OUTPUTS);
        for (at, &value) in values.iter().enumerate() {
            tiles[(tile * k + at) * TILE_OUTPUTS + lane] = value;
        }
    }
    tiles
}
