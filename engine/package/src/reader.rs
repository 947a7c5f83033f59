//! Reads the tensors that a blueprint names, widened exactly. It must never hand out a weight that is missing,
//! misshapen or not a number: each is an error that names it.

use crate::blueprint::{Blueprint, MatrixPart, NormPart};
use crate::{ModelConfig, Package, PackageError, Progress, TensorView};
use std::fmt;

/// Why a model can't be loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadError {
    /// The package is wrong, in its own words.
    Package(PackageError),
    /// An option or a dimension is outside of what a backend takes.
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

/// Fails unless an option or a dimension is inside its range.
///
/// # Errors
/// If it isn't, by its name.
pub fn ensure_range(
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

/// Fails unless two packages have the same tokens under the same ids.
///
/// # Errors
/// What differs, with both values.
pub fn ensure_same_vocabulary(package: &Package, draft: &Package) -> Result<(), LoadError> {
    let fail = |message| Err(LoadError::DraftModel { message });
    let sizes = (draft.config.vocab_size, package.config.vocab_size);
    if sizes.0 != sizes.1 {
        return fail(format!(
            "its vocabulary has {} tokens, expected {}",
            sizes.0, sizes.1
        ));
    }
    let (own, other) = (&draft.tokenizer, &package.tokenizer);
    if own.is_present() != other.is_present() {
        return fail(
            "only one of the two has a tokenizer, so that tokens can't be compared".to_string(),
        );
    }
    let ids = 0..own.vocab_size().max(other.vocab_size()) as u32;
    let differs = |&id: &u32| own.decode_token(id) != other.decode_token(id);
    match ids.into_iter().find(differs) {
        None => Ok(()),
        Some(id) => fail(format!(
            "its token {id} is {:?}, expected {:?}",
            String::from_utf8_lossy(own.decode_token(id)),
            String::from_utf8_lossy(other.decode_token(id))
        )),
    }
}

/// Reads the weights of one package, with or without those of its own drafting head.
pub struct WeightReader<'a> {
    package: &'a Package,
    blueprint: Blueprint,
    progress: &'a dyn Progress,
}

impl<'a> WeightReader<'a> {
    /// A reader for a package whose tensors all have the right names and shapes.
    ///
    /// # Errors
    /// If one hasn't.
    pub fn new(
        package: &'a Package,
        with_mtp: bool,
        progress: &'a dyn Progress,
    ) -> Result<WeightReader<'a>, LoadError> {
        package.check_tensors()?;
        let mut required = package.required_tensors();
        if with_mtp {
            if !package.has_mtp() {
                let expected = package.mtp_tensors().into_iter().map(|tensor| tensor.name);
                return Err(LoadError::NoMtp {
                    expected: expected.collect(),
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
        Ok(WeightReader {
            package,
            blueprint: Blueprint::of(&package.config),
            progress,
        })
    }

    /// The configuration of the model.
    pub fn config(&self) -> &'a ModelConfig {
        &self.package.config
    }

    /// What the model is made of.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// A tensor as it is stored.
    ///
    /// # Errors
    /// If it is missing.
    pub fn view(&self, name: &str) -> Result<TensorView<'a>, LoadError> {
        let view = self.package.tensor(name)?;
        self.progress.advance(view.bytes.len() as u64);
        Ok(view)
    }

    /// A small tensor.
    ///
    /// # Errors
    /// If it is missing or holds something that is no number.
    pub fn vector(&self, name: &str) -> Result<Vec<f32>, LoadError> {
        Ok(self.view(name)?.to_f32()?)
    }

    /// The weight of a norm, as it is used.
    ///
    /// # Errors
    /// As [`WeightReader::vector`].
    pub fn norm(&self, part: &NormPart) -> Result<Vec<f32>, LoadError> {
        let mut weight = self.vector(&part.name)?;
        if part.zero_centred {
            for w in &mut weight {
                *w += 1.0;
            }
        }
        Ok(weight)
    }

    /// The rows of a matrix.
    ///
    /// # Errors
    /// If a tensor of it is missing.
    pub fn matrix(&self, part: &MatrixPart) -> Result<MatrixRows<'a>, LoadError> {
        let views = part.names.iter().map(|name| self.view(name));
        Ok(MatrixRows {
            views: views.collect::<Result<_, _>>()?,
        })
    }

    /// The taps of a convolution: (taps, channels), oldest first.
    ///
    /// # Errors
    /// As [`WeightReader::vector`].
    pub fn taps(&self, name: &str, num_taps: usize) -> Result<Vec<f32>, LoadError> {
        let stored = self.vector(name)?;
        let channels = stored.len() / num_taps;
        let mut taps = vec![0.0; stored.len()];
        for (channel, weights) in stored.chunks_exact(num_taps).enumerate() {
            for (tap, &weight) in weights.iter().enumerate() {
                taps[tap * channels + channel] = weight;
            }
        }
        Ok(taps)
    }

    /// Ends the progress.
    pub fn finish(&self) {
        self.progress.end();
    }
}

/// The rows of a matrix, each the weights of one output.
pub struct MatrixRows<'a> {
    views: Vec<TensorView<'a>>,
}

impl MatrixRows<'_> {
    /// Outputs.
    pub fn n(&self) -> usize {
        self.views.iter().map(num_rows).sum()
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        self.views
            .first()
            .and_then(|view| view.shape.last().copied())
            .unwrap_or(0)
    }

    /// Reads the weights of an output, widened.
    ///
    /// # Errors
    /// If one of them is no number.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn read(&self, output: usize, values: &mut [f32]) -> Result<(), LoadError> {
        let mut row = output;
        for view in &self.views {
            if row < num_rows(view) {
                return Ok(view.row_to_f32(row, values)?);
            }
            row -= num_rows(view);
        }
        panic!("output {output} of {}", self.n());
    }
}

fn num_rows(view: &TensorView<'_>) -> usize {
    view.shape.first().copied().unwrap_or(0)
}
