//! Weights that are nothing but numbers from a seed, for benchmarks: as many bytes in the same layout as those of a
//! real model. What a model with them says means nothing.

use super::{Embedding, Matrix, Values};
use crate::CudaError;
use crate::memory::{Memory, Region};
use crate::ops::embed::TableKind;
use crate::ops::linear::TILE_OUTPUTS;
use lockstep_numerics::digest::mix64;
use lockstep_numerics::groups::{groups, shards};
use lockstep_package::blueprint::{Blueprint, MatrixPart};
use lockstep_package::{ModelConfig, required_tensors};
use std::collections::BTreeMap;

/// Values are drawn once and repeated: a prime number of them, so that no two rows or tiles are the same.
const NUM_DRAWN: usize = 1_000_003;

/// The weights of a model that nobody trained.
pub(crate) struct RandomWeights<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) blueprint: Blueprint,
    shapes: BTreeMap<String, Vec<usize>>,
    quantized: Vec<i8>,
    embedded: Vec<u16>,
}

impl<'a> RandomWeights<'a> {
    pub(super) fn new(config: &'a ModelConfig, seed: u64) -> RandomWeights<'a> {
        let bits = |idx: usize| mix64(seed ^ mix64(idx as u64));
        let quantized = (0..NUM_DRAWN).map(|idx| (bits(idx) % 255) as u8 as i8);
        // bfloat16 in -1..1: an exponent below that of one, and any sign and fraction.
        let embedded = (0..NUM_DRAWN).map(|idx| (bits(idx) as u16 & 0x807f) | (0x7d << 7));
        let tensors = required_tensors(config).into_iter();
        RandomWeights {
            config,
            blueprint: Blueprint::of(config),
            shapes: tensors.map(|tensor| (tensor.name, tensor.shape)).collect(),
            // -128 is no value that quantisation gives.
            quantized: quantized.map(|value| value.max(-127)).collect(),
            embedded: embedded.collect(),
        }
    }

    fn shape(&self, name: &str) -> &[usize] {
        let shape = self.shapes.get(name);
        shape.unwrap_or_else(|| panic!("no tensor is called {name}"))
    }

    pub(super) fn norm(&self, name: &str) -> Vec<f32> {
        vec![1.0; self.shape(name)[0]]
    }

    /// Outputs of about the size of the inputs, so that all stays finite from layer to layer.
    pub(super) fn matrix(
        &self,
        part: &MatrixPart,
        (memory, region): (&mut Memory, Region),
    ) -> Result<Matrix, CudaError> {
        let outputs = part.names.iter().map(|name| self.shape(name)[0]);
        let n: usize = outputs.sum();
        let (k, what) = (self.shape(&part.names[0])[1], &part.names[0]);
        let padded = n.next_multiple_of(TILE_OUTPUTS);
        let num_values = padded * k.next_multiple_of(16);
        let scale = 3f32.sqrt() / (127.0 * (k as f32).sqrt());
        Ok(Matrix {
            n,
            k,
            num_shards: if part.row_parallel { shards(k) } else { 1 },
            values: Values::Q8 {
                values: memory.claim_repeated(region, what, num_values, &self.quantized)?,
                scales: memory.claim_repeated(region, what, groups(k) * padded, &[scale])?,
            },
        })
    }

    pub(super) fn embedding(
        &self,
        name: &str,
        (memory, region): (&mut Memory, Region),
    ) -> Result<Embedding, CudaError> {
        let len = self.shape(name).iter().product();
        let table = memory.claim_repeated(region, name, len, &self.embedded)?;
        Ok(Embedding {
            table: table.cast(),
            kind: TableKind::Bf16,
        })
    }
}
