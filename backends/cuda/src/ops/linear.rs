//! Linear layers, and how their weights lie on the device.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

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
