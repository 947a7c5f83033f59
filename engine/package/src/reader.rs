//! Reads the tensors that a blueprint names, widened exactly. It must never hand out a weight that is missing,
//! misshapen or not a number: each is an error that names it.

use crate::blueprint::{Blueprint, MatrixPart, NormPart};
use crate::{ModelConfig, Package, PackageError, Progress, TensorView};
use lockstep_numerics::quantize::quantize_row;
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
    /// If one hasn't, or if an advisory is about the package.
    pub fn new(
        package: &'a Package,
        with_mtp: bool,
        progress: &'a dyn Progress,
    ) -> Result<WeightReader<'a>, LoadError> {
        package.check_advisories()?;
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
            let stored = package.tensor(&tensor.name).ok();
            let quantised = package.quantised(&tensor.name).into_iter().flatten();
            let views = stored.into_iter().chain(quantised);
            views.map(|view| view.bytes.len() as u64).sum::<u64>()
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
        let stacked = part
            .names
            .iter()
            .map(|name| match self.package.quantised(name) {
                Some([values, scales]) if !part.always_f32 => {
                    let len = values.bytes.len() + scales.bytes.len();
                    self.progress.advance(len as u64);
                    Ok(Stacked::Quantised { values, scales })
                }
                _ => self.view(name).map(Stacked::Stored),
            });
        Ok(MatrixRows {
            stacked: stacked.collect::<Result<_, LoadError>>()?,
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
    stacked: Vec<Stacked<'a>>,
}

/// One of the tensors that make a matrix.
enum Stacked<'a> {
    /// As the model has it.
    Stored(TensorView<'a>),
    /// By the q8 rule already.
    Quantised {
        /// int8, of the matrix's shape.
        values: TensorView<'a>,
        /// float32, one for each row and group.
        scales: TensorView<'a>,
    },
}

impl Stacked<'_> {
    fn shape(&self) -> &[usize] {
        match self {
            Stacked::Stored(view) => view.shape,
            Stacked::Quantised { values, .. } => values.shape,
        }
    }

    fn num_rows(&self) -> usize {
        self.shape().first().copied().unwrap_or(0)
    }

    fn read(&self, row: usize, out: &mut [f32]) -> Result<(), PackageError> {
        match self {
            Stacked::Stored(view) => view.row_to_f32(row, out),
            Stacked::Quantised { values, .. } => Err(values.wrong(
                "int8 by the q8 rule".to_string(),
                "it as a float: say --weights q8, or use the folder that was packed".to_string(),
            )),
        }
    }

    fn read_q8(&self, row: usize, q: &mut [i8], scales: &mut [f32]) -> Result<(), PackageError> {
        let (values, stored) = match self {
            Stacked::Stored(view) => {
                let mut widened = vec![0.0; q.len()];
                view.row_to_f32(row, &mut widened)?;
                // A value that is no number was refused just now.
                quantize_row(&widened, q, scales).expect("finite weights");
                return Ok(());
            }
            Stacked::Quantised { values, scales } => (values, scales),
        };
        let from = &values.bytes[row * q.len()..][..q.len()];
        for (to, from) in q.iter_mut().zip(from) {
            *to = from.cast_signed();
        }
        stored.row_to_f32(row, scales)?;
        let wrong = |view: &TensorView<'_>, index: usize, value: String| PackageError::Value {
            path: view.path.to_path_buf(),
            tensor: view.name.to_string(),
            index,
            value,
        };
        // What no quantiser writes would break the bounds that integer sums rely on.
        if let Some(at) = q.iter().position(|value| *value == i8::MIN) {
            return Err(wrong(values, row * q.len() + at, i8::MIN.to_string()));
        }
        match scales.iter().position(|scale| *scale < 0.0) {
            Some(at) => Err(wrong(
                stored,
                row * scales.len() + at,
                scales[at].to_string(),
            )),
            None => Ok(()),
        }
    }
}

impl MatrixRows<'_> {
    /// Outputs.
    pub fn n(&self) -> usize {
        self.stacked.iter().map(Stacked::num_rows).sum()
    }

    /// Inputs.
    pub fn k(&self) -> usize {
        let shape = self.stacked.first().map(Stacked::shape);
        shape.and_then(|shape| shape.last().copied()).unwrap_or(0)
    }

    /// Reads the weights of an output, widened.
    ///
    /// # Errors
    /// If one of them is no number, or if the package has them quantised only.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn read(&self, output: usize, values: &mut [f32]) -> Result<(), LoadError> {
        let (stacked, row) = self.place(output);
        Ok(stacked.read(row, values)?)
    }

    /// The weights of an output by the q8 rule: one scale for each group. Quantised here, or as they were packed,
    /// which is the same.
    ///
    /// # Errors
    /// If one of them is no number.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn read_q8(
        &self,
        output: usize,
        q: &mut [i8],
        scales: &mut [f32],
    ) -> Result<(), LoadError> {
        let (stacked, row) = self.place(output);
        Ok(stacked.read_q8(row, q, scales)?)
    }

    /// The tensor that has an output, and its row there.
    fn place(&self, output: usize) -> (&Stacked<'_>, usize) {
        let mut row = output;
        for stacked in &self.stacked {
            if row < stacked.num_rows() {
                return (stacked, row);
            }
            row -= stacked.num_rows();
        }
        panic!("output {output} of {}", self.n());
    }
}
