//! Packages: what a model is served from.
//!
//! A package is a Hugging Face folder as it stands, or the one file that such a folder is packed
//! into: configuration, weights, tokenizer, chat template, and the contract that follows from them.
//! This crate reads, checks and packs it; it knows no kernel, no request and no clock, and whatever
//! the files hold, it answers with a package or with an error that names file and place.

mod advisories;
mod architecture;
pub mod blueprint;
mod config;
mod contract;
mod embedded;
mod error;
pub mod hub;
mod marking;
mod open;
mod pack;
mod packed;
mod progress;
mod provenance;
mod reader;
mod report;
mod tag_format;
mod template;
mod tokenizer;
mod verify;
mod weights;

pub use advisories::{ADVISORIES, Advisory};
pub use architecture::{RequiredTensor, mtp_tensors, required_tensors};
pub use config::{
    Architecture, LayerType, LinearConfig, ModelConfig, RopeConfig, RopeScaling,
    SUPPORTED_MODEL_TYPES,
};
pub use contract::{Contract, ReasoningTags, SamplingDefaults, SamplingRanges};
pub use embedded::{EMBEDDED_BATTERY, EMBEDDED_NAME};
pub use error::PackageError;
pub use open::{EncodedPrompt, Package};
pub use pack::{PackOptions, PackSummary};
pub use packed::{PACKER_REVISION, Packed, PackedSource, Packer};
pub use progress::{NoProgress, Progress};
pub use provenance::{FileHashes, Source, SourceFile};
pub use reader::{LoadError, MatrixRows, WeightReader, ensure_range, ensure_same_vocabulary};
pub use report::{
    AdvisoryReport, DtypeReport, FileReport, PackedReport, Report, SourceReport, SourceVerdict,
    TemplateReport, TensorReport, TokenizerReport,
};
pub use tag_format::TagFormat;
pub use template::{ChatTemplate, Rendered};
pub use tokenizer::{AddedToken, Special, Tokenizer};
pub use weights::{Dtype, TensorInfo, TensorView, WeightFile, Weights};
