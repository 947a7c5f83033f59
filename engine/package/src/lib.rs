//! Packages: what a model is served from.
//!
//! A package is a Hugging Face folder as it stands: configuration, weights, tokenizer, chat
//! template, and the contract that follows from them. This crate reads and checks it; it knows no
//! kernel, no request and no clock, and whatever the files hold, it answers with a package or with
//! an error that names file and place.

mod architecture;
pub mod blueprint;
mod config;
mod contract;
mod embedded;
mod error;
pub mod hub;
mod marking;
mod open;
mod progress;
mod provenance;
mod reader;
mod report;
mod tag_format;
mod template;
mod tokenizer;
mod weights;

pub use architecture::{RequiredTensor, mtp_tensors, required_tensors};
pub use config::{
    Architecture, LayerType, LinearConfig, ModelConfig, RopeConfig, RopeScaling,
    SUPPORTED_MODEL_TYPES,
};
pub use contract::{Contract, ReasoningTags, SamplingDefaults};
pub use embedded::{EMBEDDED_BATTERY, EMBEDDED_NAME};
pub use error::PackageError;
pub use open::{EncodedPrompt, Package};
pub use progress::{NoProgress, Progress};
pub use provenance::{FileHashes, Source, SourceFile};
pub use reader::{LoadError, MatrixRows, WeightReader, ensure_range, ensure_same_vocabulary};
pub use report::{DtypeReport, FileReport, Report, TemplateReport, TensorReport, TokenizerReport};
pub use tag_format::TagFormat;
pub use template::{ChatTemplate, Rendered};
pub use tokenizer::{AddedToken, Special, Tokenizer};
pub use weights::{Dtype, TensorInfo, TensorView, WeightFile, Weights};
