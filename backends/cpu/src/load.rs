//! From a package to packed weights: tensors by name, widened exactly, packed by the chosen rule. It must
//! never compute with a weight that is missing, misshapen or not a number: each is an error that names it.

use crate::{Linear, WeightRule};
use lockstep_package::{Dtype, ModelConfig, Package, PackageError, Progress, TensorView};
use std::fmt;

/// Why a model can't be loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadError {
    /// The package is wrong, in its own words.
    Package(PackageError),
    /// An option or a dimension is outside of what this backend takes.
    Unsupported {
        /// The option's or the dimension's name.
        field: &'static str,
        /// Its value.
        value: usize,
        /// What was expected.
        expected: String,
    },
    /// The checkpoint has no head of its own that drafts.
    NoMtp {
        /// The tensors that would make one; none where the architecture has no place for it.
        expected: Vec<String>,
    },
    /// The draft model doesn't fit to the model.
    DraftModel {
        /// What doesn't fit, with both values.
        message: String,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Package(error) => write!(f, "{error}"),
            LoadError::Unsupported {
                field,
                value,
                expected,
            } => write!(f, "{field} is {value}, expected {expected}"),
            LoadError::NoMtp { expected } if expected.is_empty() => {
                write!(
                    f,
                    "this architecture has no head of its own that drafts (mtp)"
                )
            }
            LoadError::NoMtp { expected } => write!(
                f,
                "the checkpoint has no head of its own that drafts (mtp), expected {}",
                expected.join(", ")
            ),
            LoadError::DraftModel { message } => {
                write!(f, "the draft model doesn't fit: {message}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<PackageError> for LoadError {
    fn from(error: PackageError) -> LoadError {
        LoadError::Package(error)
    }
}

/// Fails unless a dimension is inside its range.
pub(crate) fn ensure_range(
    field: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<(), LoadError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(LoadError::Unsupported {
        field,
        value,
        expected: format!("{} to {}", range.start(), range.end()),
    })
}

/// How a norm's weight is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// As it is used.
    Plain,
    /// Around zero: what is used is `1 + w`, computed once in float32.
    ZeroCentred,
}

/// Whether a matrix's inputs would be split between tensor-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Outputs are, or nothing is.
    Outputs,
    /// Inputs are: the sum is cut into shards, so that every degree of parallelism agrees.
    Inputs,
}

/// An RMS norm.
pub(crate) struct Norm {
    pub(crate) weight: Vec<f32>,
    pub(crate) eps: f32,
}

/// Reads tensors of one package.
pub(crate) struct Loader<'a> {
    package: &'a Package,
    rule: WeightRule,
    progress: &'a dyn Progress,
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
        package.check_tensors()?;
        let mut required = package.required_tensors();
        if with_mtp {
            if !package.has_mtp() {
                return Err(LoadError::NoMtp {
                    expected: package
                        .mtp_tensors()
                        .into_iter()
                        .map(|tensor| tensor.name)
                        .collect(),
                });
            }
            package.check_mtp_tensors()?;
            required.extend(package.mtp_tensors());
        }
        let sizes = required.iter().map(|tensor| {
            package
                .tensor(&tensor.name)
                .map_or(0, |view| view.bytes.len() as u64)
        });
        progress.begin("loading weights (bytes)", sizes.sum());
        Ok(Loader {
            package,
            rule,
            progress,
        })
    }

    pub(crate) fn config(&self) -> &'a ModelConfig {
        &self.package.config
    }

    /// The full name of a tensor of the text model.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.config().tensor_prefix)
    }

    /// What the names of a layer's tensors begin with.
    pub(crate) fn layer_at(&self, layer: usize) -> String {
        self.name(&format!("layers.{layer}."))
    }

    fn view(&self, name: &str) -> Result<TensorView<'a>, LoadError> {
        let view = self.package.tensor(name)?;
        self.progress.advance(view.bytes.len() as u64);
        Ok(view)
    }

    /// A small tensor, widened.
    pub(crate) fn vector(&self, name: &str) -> Result<Vec<f32>, LoadError> {
        Ok(self.view(name)?.to_f32()?)
    }

    pub(crate) fn norm(&self, name: &str, kind: NormKind) -> Result<Norm, LoadError> {
        let mut weight = self.vector(name)?;
        if kind == NormKind::ZeroCentred {
            for w in &mut weight {
                *w += 1.0;
            }
        }
        Ok(Norm {
            weight,
            eps: self.config().rms_norm_eps as f32,
        })
    }

    /// One packed matrix whose outputs are those of the named ones, in order.
    pub(crate) fn linear(&self, names: &[String], split: Split) -> Result<Linear, LoadError> {
        self.pack(self.rule, names, split)
    }

    /// The same by the f32 rule, whatever the others follow.
    pub(crate) fn linear_f32(&self, names: &[String]) -> Result<Linear, LoadError> {
        self.pack(WeightRule::F32, names, Split::Outputs)
    }

    fn pack(&self, rule: WeightRule, names: &[String], split: Split) -> Result<Linear, LoadError> {
        let views: Vec<TensorView<'_>> = names
            .iter()
            .map(|name| self.view(name))
            .collect::<Result<_, _>>()?;
        let num_rows = |view: &TensorView<'_>| view.shape.first().copied().unwrap_or(0);
        let k = views[0].shape.last().copied().unwrap_or(0);
        let n = views.iter().map(num_rows).sum();
        Linear::pack(
            rule,
            n,
            k,
            split == Split::Inputs,
            &mut |row, values: &mut [f32]| {
                let mut row = row;
                for view in &views {
                    if row < num_rows(view) {
                        return Ok(view.row_to_f32(row, values)?);
                    }
                    row -= num_rows(view);
                }
                unreachable!("packing reads rows below n")
            },
        )
    }

    pub(crate) fn embedding(&self, name: &str) -> Result<Embedding, LoadError> {
        let view = self.view(name)?;
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
        self.progress.end();
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
