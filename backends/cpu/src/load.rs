//! From a package to packed weights: tensors by name, widened exactly, packed by the chosen rule. It must
//! never compute with a weight that is missing, misshapen or not a number: each is an error that names it.

use crate::{Linear, WeightRule};
use lockstep_package::blueprint::{MatrixPart, NormPart};
use lockstep_package::{Dtype, LoadError, ModelConfig, Package, Progress, WeightReader};

/// An RMS norm.
pub(crate) struct Norm {
    pub(crate) weight: Vec<f32>,
    pub(crate) eps: f32,
}

/// Packs the weights of one package by a rule.
pub(crate) struct Loader<'a> {
    pub(crate) reader: WeightReader<'a>,
    rule: WeightRule,
}

impl<'a> Loader<'a> {
    /// A loader for a package whose tensors all have the right names and shapes, with those of its own
    /// drafting head or without.
    ///
    /// # Errors
    /// If one hasn't.
    pub(crate) fn new(
        package: &'a Package,
        rule: WeightRule,
        with_mtp: bool,
        progress: &'a dyn Progress,
    ) -> Result<Loader<'a>, LoadError> {
        let reader = WeightReader::new(package, with_mtp, progress)?;
        Ok(Loader { reader, rule })
    }

    pub(crate) fn config(&self) -> &'a ModelConfig {
        self.reader.config()
    }

    pub(crate) fn norm(&self, part: &NormPart) -> Result<Norm, LoadError> {
        Ok(Norm {
            weight: self.reader.norm(part)?,
            eps: self.config().rms_norm_eps as f32,
        })
    }

    pub(crate) fn linear(&self, part: &MatrixPart) -> Result<Linear, LoadError> {
        let rows = self.reader.matrix(part)?;
        let rule = match part.always_f32 {
            true => WeightRule::F32,
            false => self.rule,
        };
        let (n, k) = (rows.n(), rows.k());
        match rule {
            WeightRule::F32 => {
                let mut read = |row, values: &mut [f32]| rows.read(row, values);
                Linear::pack(rule, n, k, part.row_parallel, &mut read)
            }
            WeightRule::Q8 => {
                let mut read = |row, q: &mut [i8], scales: &mut [f32]| rows.read_q8(row, q, scales);
                Linear::pack_q8(n, k, part.row_parallel, &mut read)
            }
        }
    }

    pub(crate) fn embedding(&self, name: &str) -> Result<Embedding, LoadError> {
        let view = self.reader.view(name)?;
        let width = view.shape.last().copied().unwrap_or(0);
        // Read once so that a NaN is an error of the load and not of a request.
        let mut row_values = vec![0.0; width];
        let num_rows = view.shape.first().copied().unwrap_or(0);
        let mut values = match view.dtype {
            Dtype::F32 => Values::F32(Vec::with_capacity(view.num_elements())),
            _ => Values::Narrow(Vec::with_capacity(view.num_elements())),
        };
        for row in 0..num_rows {
            view.row_to_f32(row, &mut row_values)?;
            if let Values::F32(values) = &mut values {
                values.extend_from_slice(&row_values);
            }
        }
        if let Values::Narrow(values) = &mut values {
            let (items, _) = view.bytes.as_chunks::<2>();
            values.extend(items.iter().map(|item| u16::from_le_bytes(*item)));
        }
        Ok(Embedding {
            dtype: view.dtype,
            width,
            values,
        })
    }

    /// Ends the progress.
    pub(crate) fn finish(&self) {
        self.reader.finish();
    }
}

enum Values {
    F32(Vec<f32>),
    Narrow(Vec<u16>),
}

/// The token embedding in the checkpoint's own precision, whatever rule the linear layers follow: looking a
/// row up costs nothing, so nothing is gained by rounding it.
pub(crate) struct Embedding {
    dtype: Dtype,
    width: usize,
    // (vocab_size, width)
    values: Values,
}

impl Embedding {
    /// Writes a token's row, widened exactly.
    pub(crate) fn row(&self, token: usize, out: &mut [f32]) {
        let range = token * self.width..(token + 1) * self.width;
        match &self.values {
            Values::F32(values) => out.copy_from_slice(&values[range]),
            Values::Narrow(values) => {
                let widen = match self.dtype {
                    Dtype::F16 => |bits| half::f16::from_bits(bits).to_f32(),
                    _ => |bits| f32::from_bits(u32::from(bits) << 16),
                };
                for (out, &bits) in out.iter_mut().zip(&values[range]) {
                    *out = widen(bits);
                }
            }
        }
    }
}
