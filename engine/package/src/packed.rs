//! The one-file package: a safetensors file whose metadata says what it is, where it came from and what it promises.
//!
//! | metadata | what |
//! | --- | --- |
//! | `lockstep.package` | the version of this layout: 1 |
//! | `lockstep.header_sha256` | SHA-256 of the header and its length, these 64 digits being zeros |
//! | `lockstep.packer` | version and revision of the program that wrote it |
//! | `lockstep.name` | what the model is called |
//! | `lockstep.contract` | the contract |
//! | `lockstep.sources` | every source file: size, SHA-256, git blob id, and whether it is carried along |
//! | `lockstep.tensors` | SHA-256 of every tensor |
//! | `lockstep.left_out` | tensors of the source that the architecture doesn't need |
//!
//! All but the first two and the name are JSON. A matrix of the q8 rule is two tensors, `NAME.q8` (int8) and
//! `NAME.q8_scales` (float32, rows by groups); any other tensor is stored as the source has it. Small source files lie
//! byte by byte in tensors `lockstep/file/NAME`. The header is held to its digest, and the small files to their
//! hashes, whenever a package is opened. It must never believe a part of the file that these do not cover.

use crate::config::ModelConfig;
use crate::contract::Contract;
use crate::error::PackageError;
use crate::provenance::{FileHashes, sha256};
use crate::weights::{Weights, metadata};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The revision of the packer: raised with every change to what it writes for the same source, so that an advisory
/// can say which packages are bad.
pub const PACKER_REVISION: u32 = 1;

/// The version of the layout.
pub(crate) const LAYOUT: &str = "1";
/// The key that makes a safetensors file a package.
pub(crate) const LAYOUT_KEY: &str = "lockstep.package";
pub(crate) const DIGEST_KEY: &str = "lockstep.header_sha256";
pub(crate) const PACKER_KEY: &str = "lockstep.packer";
pub(crate) const NAME_KEY: &str = "lockstep.name";
pub(crate) const CONTRACT_KEY: &str = "lockstep.contract";
pub(crate) const SOURCES_KEY: &str = "lockstep.sources";
pub(crate) const TENSORS_KEY: &str = "lockstep.tensors";
pub(crate) const LEFT_OUT_KEY: &str = "lockstep.left_out";
/// What the names of carried files begin with.
pub(crate) const FILE_PREFIX: &str = "lockstep/file/";
/// What the names of int8 values and of their scales end with.
pub(crate) const VALUES: &str = ".q8";
pub(crate) const SCALES: &str = ".q8_scales";
/// Digits of a SHA-256.
pub(crate) const DIGEST_LEN: usize = 64;

/// The program that wrote a package.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packer {
    /// Of the program.
    pub version: String,
    /// Of the packer in it.
    pub revision: u32,
}

impl Packer {
    /// The one of this program.
    pub fn this() -> Packer {
        Packer {
            version: env!("CARGO_PKG_VERSION").to_string(),
            revision: PACKER_REVISION,
        }
    }
}

/// A file that a package was made from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PackedSource {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its hashes.
    #[serde(flatten)]
    pub hashes: FileHashes,
    /// Whether the package carries it byte by byte.
    pub carried: bool,
}

/// What a one-file package says about itself.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Packed {
    /// SHA-256 of its header, which names the hashes of all the rest: equal digests are equal packages.
    pub digest: String,
    /// Who wrote it.
    pub packer: Packer,
    /// What it was made from, in order of name.
    pub sources: Vec<PackedSource>,
    /// Tensors of the source that it doesn't have, since the architecture doesn't need them.
    pub left_out: Vec<String>,
    /// SHA-256 of every tensor.
    #[serde(skip)]
    pub tensors: BTreeMap<String, String>,
    #[serde(skip)]
    pub(crate) path: PathBuf,
    #[serde(skip)]
    pub(crate) name: String,
    #[serde(skip)]
    contract: String,
}

impl Packed {
    /// Reads what a file says about itself, and holds its header and its small files to their hashes.
    ///
    /// # Errors
    /// If the file is no package, of another layout, or not what it was when it was written.
    pub(crate) fn read(path: &Path, weights: &Weights) -> Result<Packed, PackageError> {
        let bytes = weights.files().first().map_or(&[][..], |file| file.bytes());
        let (header, metadata) = metadata(path, bytes)?;
        let reader = Reader {
            path,
            metadata: &metadata,
        };
        if !metadata.contains_key(LAYOUT_KEY) {
            let next = "give a folder, or what `lockstep pack` wrote";
            let message = format!("no package: its metadata has no {LAYOUT_KEY}; {next}");
            return Err(PackageError::header(path, message));
        }
        let layout = reader.text(LAYOUT_KEY)?;
        if layout != LAYOUT {
            return Err(reader.wrong(
                LAYOUT_KEY,
                layout,
                "1: another version of lockstep wrote it",
            ));
        }
        let digest = check_digest(path, header)?;
        let packed = Packed {
            digest,
            packer: reader.json(PACKER_KEY, "version and revision")?,
            sources: reader.json(SOURCES_KEY, "files with sizes and hashes")?,
            left_out: reader.json(LEFT_OUT_KEY, "names of tensors")?,
            tensors: reader.json(TENSORS_KEY, "a SHA-256 for every tensor")?,
            path: path.to_path_buf(),
            name: reader.text(NAME_KEY)?.to_string(),
            contract: reader.text(CONTRACT_KEY)?.to_string(),
        };
        packed.check_names(weights)?;
        packed.check_sources()?;
        packed.check_carried(weights)?;
        Ok(packed)
    }

    /// The contract as it was written.
    pub(crate) fn contract(&self, config: &ModelConfig) -> Result<Contract, PackageError> {
        let value = serde_json::from_str(&self.contract);
        let value = value.map_err(|error| self.wrong(CONTRACT_KEY, &error.to_string()))?;
        Contract::of_json(&self.path, CONTRACT_KEY, value, config)
    }

    /// Fails unless the file has the tensors that it has hashes of, and no other.
    fn check_names(&self, weights: &Weights) -> Result<(), PackageError> {
        let there: Vec<&str> = weights.tensors().map(|(name, _)| name).collect();
        let without = there.iter().find(|name| !self.tensors.contains_key(**name));
        if let Some(name) = without {
            return Err(self.wrong(TENSORS_KEY, &format!("no hash of {name}")));
        }
        match self
            .tensors
            .keys()
            .find(|name| weights.tensor(name).is_err())
        {
            Some(name) => {
                Err(self.wrong(TENSORS_KEY, &format!("a hash of {name}, which isn't there")))
            }
            None => Ok(()),
        }
    }

    /// Names of files lead nowhere else: a source is looked for in the folder that is given.
    fn check_sources(&self) -> Result<(), PackageError> {
        let is_plain =
            |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\']);
        match self.sources.iter().find(|source| !is_plain(&source.name)) {
            Some(source) => {
                Err(self.wrong(SOURCES_KEY, &format!("a file called {:?}", source.name)))
            }
            None => Ok(()),
        }
    }

    fn check_carried(&self, weights: &Weights) -> Result<(), PackageError> {
        for source in self.sources.iter().filter(|source| source.carried) {
            let tensor = format!("{FILE_PREFIX}{}", source.name);
            let view = weights.tensor(&tensor)?;
            let found = FileHashes::of(view.bytes);
            if found != source.hashes {
                let (path, found) = (self.path.clone(), format!("of sha256 {}", found.sha256));
                let expected = format!("{}, as it was packed", source.hashes.sha256);
                return Err(PackageError::Tensor {
                    path,
                    tensor,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }

    fn wrong(&self, field: &str, value: &str) -> PackageError {
        PackageError::Field {
            path: self.path.clone(),
            field: field.to_string(),
            value: value.to_string(),
            expected: "what `lockstep pack` writes".to_string(),
        }
    }
}

/// Where the digest stands in a header, the length before it included.
///
/// It stands there once: a name can't contain the quotes around it without a backslash.
pub(crate) fn digest_at(header: &[u8]) -> Option<std::ops::Range<usize>> {
    let key = format!("\"{DIGEST_KEY}\":\"");
    let mut places = header
        .windows(key.len())
        .enumerate()
        .filter(|(_, window)| *window == key.as_bytes())
        .map(|(at, _)| at + key.len());
    let (at, other) = (places.next()?, places.next());
    (other.is_none() && at + DIGEST_LEN <= header.len()).then(|| at..at + DIGEST_LEN)
}

/// SHA-256 of a header with zeros where the digest stands.
pub(crate) fn digest_of(header: &[u8], at: std::ops::Range<usize>) -> String {
    let mut header = header.to_vec();
    header[at].fill(b'0');
    sha256(&header)
}

fn check_digest(path: &Path, header: &[u8]) -> Result<String, PackageError> {
    let Some(at) = digest_at(header) else {
        let message = format!("the header has no {DIGEST_KEY}, or more than one");
        return Err(PackageError::header(path, message));
    };
    let stated = String::from_utf8_lossy(&header[at.clone()]).into_owned();
    let found = digest_of(header, at);
    if stated != found {
        let message = format!(
            "the header has sha256 {found}, expected {stated}: it is not what `lockstep pack` wrote"
        );
        return Err(PackageError::header(path, message));
    }
    Ok(found)
}

struct Reader<'a> {
    path: &'a Path,
    metadata: &'a BTreeMap<String, String>,
}

impl Reader<'_> {
    fn text(&self, key: &str) -> Result<&str, PackageError> {
        match self.metadata.get(key) {
            Some(text) => Ok(text),
            None => Err(self.wrong(key, "absent", "it in the metadata")),
        }
    }

    fn json<T: DeserializeOwned>(&self, key: &str, expected: &str) -> Result<T, PackageError> {
        let text = self.text(key)?;
        serde_json::from_str(text).map_err(|error| self.wrong(key, &error.to_string(), expected))
    }

    fn wrong(&self, key: &str, value: &str, expected: &str) -> PackageError {
        PackageError::Field {
            path: self.path.to_path_buf(),
            field: key.to_string(),
            value: value.to_string(),
            expected: expected.to_string(),
        }
    }
}
