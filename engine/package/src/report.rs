//! What a package is and whether it is sound, as one value that can be printed or written as JSON.
//!
//! A report collects every problem instead of stopping at the first. It must never call a package
//! sound that it did not look at: `verified` says whether values and hashes were read.

use crate::RequiredTensor;
use crate::config::ModelConfig;
use crate::contract::Contract;
use crate::error::PackageError;
use crate::open::Package;
use crate::pack::source_name;
use crate::packed::{FILE_PREFIX, PackedSource, Packer};
use crate::progress::Progress;
use crate::provenance::{FileHashes, sha256};
use crate::template::ChatTemplate;
use crate::verify::changed;
use std::collections::{BTreeMap, BTreeSet};

/// How many tensors and bytes have an element type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct DtypeReport {
    /// Number of tensors.
    pub tensors: usize,
    /// Their bytes together.
    pub bytes: u64,
}

/// The tokenizer in figures.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TokenizerReport {
    /// One more than the largest token id.
    pub vocab_size: usize,
    /// Tokens added by hand: structural and special.
    pub added_tokens: usize,
    /// Those of them that are never shown.
    pub special_tokens: usize,
}

/// The chat template in figures.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TemplateReport {
    /// The file that holds it.
    pub file: String,
    /// SHA-256 of the template that plain conversations use.
    pub sha256: String,
    /// Names of all templates.
    pub names: Vec<String>,
}

/// One file of the package.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FileReport {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its hashes, once verified.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub hashes: Option<FileHashes>,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// Its element type as the file spells it.
    pub dtype: String,
    /// Its shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// The name of the file that holds it.
    pub file: String,
    /// Whether it is used: the architecture needs it, or the drafting head is made of it.
    pub used: bool,
}

/// What became of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceVerdict {
    /// It has both hashes.
    Same,
    /// It is another file now.
    Changed,
    /// It isn't there.
    Gone,
    /// Nobody looked.
    Unchecked,
}

/// A file that a package was made from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SourceReport {
    /// As the package says.
    #[serde(flatten)]
    pub source: PackedSource,
    /// What became of it, once verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<SourceVerdict>,
}

/// An advisory about a package.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AdvisoryReport {
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub next: String,
}

/// What a one-file package says about itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PackedReport {
    /// SHA-256 of its header, which names the hashes of all the rest.
    pub digest: String,
    /// Who wrote it.
    pub packer: Packer,
    /// What it was made from.
    pub sources: Vec<SourceReport>,
    /// Tensors of the source that it doesn't have.
    pub left_out: Vec<String>,
    /// Why nothing computes with it; none for most.
    pub advisories: Vec<AdvisoryReport>,
}

/// Everything there is to say about a package.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// Elements of all tensors that the architecture needs.
    pub parameters: u64,
    /// Elements of the checkpoint's own drafting head; 0 where it has none.
    pub mtp_parameters: u64,
    /// Architecture and dimensions.
    pub config: ModelConfig,
    /// Tensors and bytes by element type.
    pub dtypes: BTreeMap<String, DtypeReport>,
    /// The tokenizer, where there is one.
    pub tokenizer: Option<TokenizerReport>,
    /// The chat template, where there is one.
    pub template: Option<TemplateReport>,
    /// End tokens, sampling defaults, tags.
    pub contract: Contract,
    /// All source files.
    pub files: Vec<FileReport>,
    /// All tensors, in order of name.
    pub tensors: Vec<TensorReport>,
    /// What a one-file package says about itself; None for a folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<PackedReport>,
    /// What was to be verified and could not be.
    pub unchecked: Vec<String>,
    /// Whether every value and every file was read.
    pub verified: bool,
    /// What is wrong; empty when the package is sound as far as it was looked at.
    pub problems: Vec<String>,
}

impl Report {
    /// Reports on what headers and small files say. Names, shapes and types of tensors are checked;
    /// their values are not read.
    pub fn of(package: &Package) -> Result<Report, PackageError> {
        let mut required = package.required_tensors();
        let own: BTreeSet<String> = names(&required);
        let mut mtp = BTreeSet::new();
        if package.has_mtp() {
            mtp = names(&package.mtp_tensors());
            required.extend(package.mtp_tensors());
        }
        let mut dtypes: BTreeMap<String, DtypeReport> = BTreeMap::new();
        let mut tensors = Vec::new();
        let weights = package
            .tensors()
            .filter(|(name, _)| !name.starts_with(FILE_PREFIX));
        for (name, info) in weights {
            let entry = dtypes.entry(info.dtype_name.clone()).or_default();
            entry.tensors += 1;
            entry.bytes += info.len as u64;
            // What was packed is the model's by another name.
            let source = match package.packed {
                Some(_) => source_name(name),
                None => name,
            };
            let file = &package.weights.files()[info.file].path;
            tensors.push(TensorReport {
                name: name.to_string(),
                dtype: info.dtype_name.clone(),
                shape: info.shape.clone(),
                file: file
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                used: own.contains(source) || mtp.contains(source),
            });
        }
        let parameters = num_elements(package, &package.required_tensors());
        let mtp_parameters = num_elements(package, &package.mtp_tensors());
        let problems = problems(package, &required);
        let files = package.source.files()?.into_iter();
        Ok(Report {
            name: package.name.clone(),
            parameters,
            mtp_parameters,
            config: package.config.clone(),
            dtypes,
            tokenizer: tokenizer(package),
            template: package.template.as_ref().map(template),
            contract: package.contract.clone(),
            files: files
                .map(|file| FileReport {
                    name: file.name,
                    size: file.size,
                    hashes: None,
                })
                .collect(),
            tensors,
            package: packed(package),
            unchecked: Vec::new(),
            verified: false,
            problems,
        })
    }

    /// Reads every tensor of `package`, of which this is the report, and hashes every file; those of a one-file package
    /// are held to the hashes that it has of them.
    pub fn verify(
        &mut self,
        package: &Package,
        progress: &dyn Progress,
    ) -> Result<(), PackageError> {
        let bytes = package.tensors().map(|(_, info)| info.len as u64).sum();
        progress.begin("reading weights", bytes);
        for tensor in &self.tensors {
            let view = package.tensor(&tensor.name)?;
            if let Some(packed) = &package.packed {
                self.problems.extend(changed(packed, &view));
            }
            // What isn't used may be of any type; what is used was checked for its type already.
            if view.expect_float().is_ok()
                && let Err(error) = view.check_finite()
            {
                self.problems.push(error.to_string());
            }
            progress.advance(view.bytes.len() as u64);
        }
        progress.end();
        let files = package.source.files()?;
        progress.begin("hashing files", files.iter().map(|file| file.size).sum());
        self.files.clear();
        for file in files {
            let hashes = Some(package.source.hash(&file, progress)?);
            self.files.push(FileReport {
                name: file.name,
                size: file.size,
                hashes,
            });
        }
        progress.end();
        self.verified = true;
        Ok(())
    }

    /// Tensors that neither the architecture nor the drafting head needs.
    pub fn unused(&self) -> impl Iterator<Item = &TensorReport> {
        self.tensors.iter().filter(|tensor| !tensor.used)
    }
}

/// What is wrong as far as headers and small files say.
fn problems(package: &Package, required: &[RequiredTensor]) -> Vec<String> {
    let mut problems: Vec<String> = required
        .iter()
        .filter_map(|tensor| package.check_tensor(tensor).err())
        .map(|error| error.to_string())
        .collect();
    let refused = package.check_advisories().err();
    problems.extend(refused.map(|error| error.to_string()));
    if package.contract.end_tokens.is_empty() {
        problems.push("no file names an end token, so that no answer could end".to_string());
    }
    problems
}

/// Elements of those of these tensors that are there, in whatever form.
fn num_elements(package: &Package, tensors: &[RequiredTensor]) -> u64 {
    let is_there = |tensor: &&RequiredTensor| {
        package.tensor(&tensor.name).is_ok() || package.quantised(&tensor.name).is_some()
    };
    let there = tensors.iter().filter(is_there);
    there
        .map(|tensor| tensor.shape.iter().product::<usize>() as u64)
        .sum()
}

fn template(template: &ChatTemplate) -> TemplateReport {
    let file = template.path().file_name().unwrap_or_default();
    TemplateReport {
        file: file.to_string_lossy().into_owned(),
        sha256: sha256(template.source()),
        names: template.names().map(str::to_string).collect(),
    }
}

fn packed(package: &Package) -> Option<PackedReport> {
    let packed = package.packed.as_ref()?;
    let sources = packed.sources.iter().map(|source| SourceReport {
        source: source.clone(),
        verdict: None,
    });
    let advisories = package.advisories().into_iter();
    let advisories = advisories.map(|advisory| AdvisoryReport {
        name: advisory.name.to_string(),
        what: advisory.what.to_string(),
        next: format!("re-pack from {}", package.name),
    });
    Some(PackedReport {
        digest: packed.digest.clone(),
        packer: packed.packer.clone(),
        sources: sources.collect(),
        left_out: packed.left_out.clone(),
        advisories: advisories.collect(),
    })
}

fn names(tensors: &[RequiredTensor]) -> BTreeSet<String> {
    tensors.iter().map(|tensor| tensor.name.clone()).collect()
}

fn tokenizer(package: &Package) -> Option<TokenizerReport> {
    let tokenizer = &package.tokenizer;
    tokenizer.is_present().then(|| TokenizerReport {
        vocab_size: tokenizer.vocab_size(),
        added_tokens: tokenizer.added_tokens().count(),
        special_tokens: tokenizer
            .added_tokens()
            .filter(|token| token.special)
            .count(),
    })
}
