//! Weights on the device: matrices in the tiles that kernels read, vectors, tables. It must never round
//! otherwise than the CPU does: quantisation is that of NUMERICS.md.

use crate::CudaError;
use crate::memory::{Memory, Ptr, Region};
use crate::ops::embed::TableKind;
use crate::ops::linear::{tile_f32, tile_q8, tile_scales};
use lockstep_numerics::groups::{groups, shards};
use lockstep_package::blueprint::{Blueprint, MatrixPart, NormPart};
use lockstep_package::{Dtype, MatrixRows, ModelConfig, Package, Progress, WeightReader};

mod random;
use random::RandomWeights;

/// How weights are held and products computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightRule {
    /// float32 weights: the accuracy baseline.
    F32,
    /// int8 weights and activations: the serving default.
    Q8,
}

/// A matrix of `n` outputs and `k` inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// What its sums are cut into; 1 where its inputs are never split.
    pub(crate) num_shards: usize,
    pub(crate) values: Values,
}

/// Where the weights of a matrix lie.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values {
    /// (ceil(n / 32), k, 32)
    F32(Ptr<f32>),
    /// (ceil(n / 32), ceil(k / 16), 32, 16), and scales (groups, n up to a multiple of 32)
    Q8 { values: Ptr<i8>, scales: Ptr<f32> },
}

/// An RMS norm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Norm {
    pub(crate) weight: Ptr<f32>,
    pub(crate) eps: f32,
}

/// The token embedding in the checkpoint's own precision: (vocab_size, width).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedding {
    pub(crate) table: Ptr<u8>,
    pub(crate) kind: TableKind,
}

/// Where weights come from.
enum Source<'a> {
    Package(WeightReader<'a>),
    Random(RandomWeights<'a>),
}

/// Puts the weights of one model on the device.
pub(crate) struct Loader<'a> {
    source: Source<'a>,
    pub(crate) memory: &'a mut Memory,
    pub(crate) region: Region,
    rule: WeightRule,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(
        package: &'a Package,
        rule: WeightRule,
        with_mtp: bool,
        (memory, region): (&'a mut Memory, Region),
        progress: &'a dyn Progress,
    ) -> Result<Loader<'a>, CudaError> {
        Ok(Loader {
            source: Source::Package(WeightReader::new(package, with_mtp, progress)?),
            memory,
            region,
            rule,
        })
    }

    /// For a model of this shape with weights from a seed, by the q8 rule.
    pub(crate) fn random(
        config: &'a ModelConfig,
        seed: u64,
        (memory, region): (&'a mut Memory, Region),
    ) -> Loader<'a> {
        Loader {
            source: Source::Random(RandomWeights::new(config, seed)),
            memory,
            region,
            rule: WeightRule::Q8,
        }
    }

    pub(crate) fn config(&self) -> &'a ModelConfig {
        match &self.source {
            Source::Package(reader) => reader.config(),
            Source::Random(random) => random.config,
        }
    }

    pub(crate) fn blueprint(&self) -> &Blueprint {
        match &self.source {
            Source::Package(reader) => reader.blueprint(),
            Source::Random(random) => &random.blueprint,
        }
    }

    /// What reads the tensors that only some layers have.
    ///
    /// # Panics
    /// If weights are random: such models have layers of attention alone.
    pub(crate) fn reader(&self) -> &WeightReader<'a> {
        match &self.source {
            Source::Package(reader) => reader,
            Source::Random(_) => panic!("random weights of a layer that is no attention"),
        }
    }

    /// Says that all is loaded.
    pub(crate) fn finish(&self) {
        if let Source::Package(reader) = &self.source {
            reader.finish();
        }
    }

    pub(crate) fn vector(&mut self, what: &str, values: &[f32]) -> Result<Ptr<f32>, CudaError> {
        Ok(self.memory.claim_filled(self.region, what, values)?)
    }

    pub(crate) fn norm(&mut self, part: &NormPart) -> Result<Norm, CudaError> {
        let weight = match &self.source {
            Source::Package(reader) => reader.norm(part)?,
            Source::Random(random) => random.norm(&part.name),
        };
        Ok(Norm {
            weight: self.vector(&part.name, &weight)?,
            eps: self.config().rms_norm_eps as f32,
        })
    }

    pub(crate) fn matrix(&mut self, part: &MatrixPart) -> Result<Matrix, CudaError> {
        let reader = match &self.source {
            Source::Package(reader) => reader,
            Source::Random(random) => return random.matrix(part, (self.memory, self.region)),
        };
        let rows = reader.matrix(part)?;
        let (n, k) = (rows.n(), rows.k());
        let what = &part.names[0];
        let rule = if part.always_f32 {
            WeightRule::F32
        } else {
            self.rule
        };
        let values = match rule {
            WeightRule::F32 => {
                let packed = pack_f32(&rows)?;
                Values::F32(self.vector(what, &packed)?)
            }
            WeightRule::Q8 => {
                let (values, scales) = pack_q8(&rows)?;
                Values::Q8 {
                    values: self.memory.claim_filled(self.region, what, &values)?,
                    scales: self.vector(what, &scales)?,
                }
            }
        };
        let num_shards = if part.row_parallel { shards(k) } else { 1 };
        Ok(Matrix {
            n,
            k,
            num_shards,
            values,
        })
    }

    pub(crate) fn embedding(&mut self, name: &str) -> Result<Embedding, CudaError> {
        let reader = match &self.source {
            Source::Package(reader) => reader,
            Source::Random(random) => return random.embedding(name, (self.memory, self.region)),
        };
        let view = reader.view(name)?;
        // Read once so that a NaN is an error of the load and not of a request.
        let mut row = vec![0.0; view.shape.last().copied().unwrap_or(0)];
        for idx in 0..view.shape.first().copied().unwrap_or(0) {
            view.row_to_f32(idx, &mut row)
                .map_err(lockstep_package::LoadError::from)?;
        }
        Ok(Embedding {
            table: self.memory.claim_filled(self.region, name, view.bytes)?,
            kind: match view.dtype {
                Dtype::F32 => TableKind::F32,
                Dtype::F16 => TableKind::F16,
                _ => TableKind::Bf16,
            },
        })
    }
}

/// The weights of a matrix by the f32 rule, tiled.
fn pack_f32(rows: &MatrixRows<'_>) -> Result<Vec<f32>, CudaError> {
    let (n, k) = (rows.n(), rows.k());
    let mut values = vec![0.0; n * k];
    for (output, to) in values.chunks_exact_mut(k).enumerate() {
        rows.read(output, to)?;
    }
    Ok(tile_f32(&values, n, k))
}

/// Values and scales of a matrix by the q8 rule, tiled.
fn pack_q8(rows: &MatrixRows<'_>) -> Result<(Vec<i8>, Vec<f32>), CudaError> {
    let (n, k, num_groups) = (rows.n(), rows.k(), groups(rows.k()));
    let (mut values, mut scales) = (vec![0; n * k], vec![0.0; n * num_groups]);
    let outputs = values.chunks_exact_mut(k);
    let outputs = outputs.zip(scales.chunks_exact_mut(num_groups));
    for (output, (to, scales)) in outputs.enumerate() {
        rows.read_q8(output, to, scales)?;
    }
    let scales = tile_scales(&scales, n, num_groups);
    Ok((tile_q8(&values, n, k), scales))
}
