//! Writes the one-file package: what a model is served from, with its weights quantised already.
//!
//! The same source gives the same bytes, wherever and whenever it is packed: no path, no clock and no order of a folder
//! goes into the file. Quantised is by the one quantiser of `numerics`, row by row, so that a model served from the
//! package has the bits of one that is quantised at load. It must never write a weight that is no number, nor leave a
//! file behind that is not whole.

use crate::blueprint::Blueprint;
use crate::contract::Contract;
use crate::error::PackageError;
use crate::open::Package;
use crate::packed::{
    CONTRACT_KEY, DIGEST_KEY, DIGEST_LEN, FILE_PREFIX, LAYOUT, LAYOUT_KEY, LEFT_OUT_KEY, NAME_KEY,
    PACKER_KEY, PackedSource, Packer, SCALES, SOURCES_KEY, TENSORS_KEY, VALUES, digest_at,
    digest_of,
};
use crate::progress::Progress;
use crate::provenance::hex;
use crate::weights::TensorView;
use lockstep_numerics::groups::groups;
use lockstep_numerics::quantize::quantize_row;
use serde_json::{Map, Value, json};
use sha2::Digest;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// What may be said of a package that its source doesn't say.
#[derive(Debug, Clone, Default)]
pub struct PackOptions {
    /// What the model is called; None for the source's name.
    pub name: Option<String>,
    /// Fields of the contract that replace what the source says, and what the object was read from.
    pub contract: Option<(std::path::PathBuf, Map<String, Value>)>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PackSummary {
    /// Size of the file in bytes.
    pub size: u64,
    /// SHA-256 of its header, which names the hashes of all the rest.
    pub digest: String,
    /// Matrices that were quantised.
    pub quantised: usize,
    /// Tensors that are stored as the source has them.
    pub stored: usize,
    /// Tensors of the source that were left out.
    pub left_out: usize,
    /// Source files that are carried byte by byte.
    pub carried: usize,
}

/// A tensor of the package, and what it is made of.
struct Entry<'a> {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    len: usize,
    content: Content<'a>,
}

enum Content<'a> {
    /// As it is.
    Bytes(Cow<'a, [u8]>),
    /// The int8 values of a matrix.
    Values(TensorView<'a>),
    /// The scales of the values just before.
    Scales,
}

/// Where bytes go; a failure to take them is final.
type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), PackageError> + 'a;

impl Package {
    /// Writes the package as one file, by way of a file beside it that takes its place at the end.
    ///
    /// # Errors
    /// If this is one already, a tensor is missing or holds something that is no number, the contract's changes make no
    /// sense, or the file can't be written.
    pub fn pack(
        &self,
        to: &Path,
        options: &PackOptions,
        progress: &dyn Progress,
    ) -> Result<PackSummary, PackageError> {
        let plan = Plan::of(self, options, progress)?;
        let mut name = to.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let partial = to.with_file_name(name);
        let written = plan.write(&partial, progress);
        let renamed = written.and_then(|summary| {
            std::fs::rename(&partial, to).map_err(|error| PackageError::io(to, error))?;
            Ok(summary)
        });
        if renamed.is_err() {
            // What failed is said already; that half a file can't be removed adds nothing.
            let _ = std::fs::remove_file(&partial);
        }
        renamed
    }

    /// SHA-256 of each tensor that packing this source would write, those of carried files left out.
    ///
    /// # Errors
    /// As [`Package::pack`].
    pub(crate) fn packed_tensors(
        &self,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<String, String>, PackageError> {
        let entries = weights(self)?;
        progress.begin("quantising again (bytes)", total(&entries));
        let mut hashes = BTreeMap::new();
        let hashed = emit(&entries, progress, &mut |_| Ok(()), &mut |name, hash| {
            hashes.insert(name.to_string(), hash);
        });
        progress.end();
        hashed.map(|()| hashes)
    }
}

/// All of a package but the hashes of its tensors.
struct Plan<'a> {
    entries: Vec<Entry<'a>>,
    metadata: Vec<(&'static str, String)>,
    left_out: usize,
    carried: usize,
}

impl<'a> Plan<'a> {
    fn of(
        package: &'a Package,
        options: &PackOptions,
        progress: &dyn Progress,
    ) -> Result<Plan<'a>, PackageError> {
        if let Some(packed) = &package.packed {
            let message = "a package already: pack the folder that it was packed from";
            return Err(PackageError::header(&packed.path, message));
        }
        package.check_tensors()?;
        if package.has_mtp() {
            package.check_mtp_tensors()?;
        }
        let mut entries = weights(package)?;
        let used = entries.iter().map(|entry| source_name(&entry.name));
        let used: BTreeSet<&str> = used.collect();
        let names = package.tensors().map(|(name, _)| name);
        let left_out: Vec<&str> = names.filter(|name| !used.contains(name)).collect();
        let sources = package.source.used_files(&package.weights)?;
        let contract = contract(package, options)?;
        let bytes = sources.iter().map(|source| source.bytes.len() as u64).sum();
        progress.begin("hashing source files (bytes)", bytes);
        let hashed = sources.iter().map(|source| {
            Ok(PackedSource {
                name: source.name.clone(),
                size: source.bytes.len() as u64,
                hashes: source.hashes(progress)?,
                carried: source.carried,
            })
        });
        let hashed: Result<Vec<PackedSource>, PackageError> = hashed.collect();
        progress.end();
        let name = options.name.as_ref().unwrap_or(&package.name);
        let text = |value: &Value| value.to_string();
        let metadata = vec![
            (PACKER_KEY, text(&json!(Packer::this()))),
            (NAME_KEY, name.clone()),
            (CONTRACT_KEY, text(&json!(contract))),
            (SOURCES_KEY, text(&json!(hashed?))),
            (LEFT_OUT_KEY, text(&json!(left_out))),
        ];
        let (left_out, carried) = (
            left_out.len(),
            sources.iter().filter(|source| source.carried).count(),
        );
        for source in sources.into_iter().filter(|source| source.carried) {
            entries.push(Entry {
                name: format!("{FILE_PREFIX}{}", source.name),
                dtype: "U8".to_string(),
                shape: vec![source.bytes.len()],
                len: source.bytes.len(),
                content: Content::Bytes(source.bytes),
            });
        }
        Ok(Plan {
            entries,
            metadata,
            left_out,
            carried,
        })
    }

    /// Header first, its hashes still zeros; then the tensors, hashed on their way; then the header again.
    fn write(&self, path: &Path, progress: &dyn Progress) -> Result<PackSummary, PackageError> {
        let io = |error| PackageError::io(path, error);
        let file = std::fs::File::create(path).map_err(io)?;
        let mut file = std::io::BufWriter::with_capacity(1 << 20, file);
        let zeros = "0".repeat(DIGEST_LEN);
        let mut hashes: BTreeMap<String, String> = self
            .entries
            .iter()
            .map(|entry| (entry.name.clone(), zeros.clone()))
            .collect();
        let before = self.header(&hashes);
        file.write_all(&before).map_err(io)?;
        progress.begin("packing (bytes)", total(&self.entries));
        let mut sink = |bytes: &[u8]| file.write_all(bytes).map_err(io);
        let emitted = emit(&self.entries, progress, &mut sink, &mut |name, hash| {
            hashes.insert(name.to_string(), hash);
        });
        progress.end();
        emitted?;
        let mut header = self.header(&hashes);
        let at = digest_at(&header).expect("it was just written there");
        let digest = digest_of(&header, at.clone());
        header[at].copy_from_slice(digest.as_bytes());
        assert_eq!(header.len(), before.len(), "hashes are all of one length");
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        file.write_all(&header).map_err(io)?;
        let file = file.into_inner().map_err(|error| io(error.into_error()))?;
        file.sync_all().map_err(io)?;
        let is_values = |entry: &&Entry<'_>| matches!(entry.content, Content::Values(_));
        let quantised = self.entries.iter().filter(is_values).count();
        Ok(PackSummary {
            size: header.len() as u64 + total(&self.entries),
            digest,
            quantised,
            stored: self.entries.len() - 2 * quantised - self.carried,
            left_out: self.left_out,
            carried: self.carried,
        })
    }

    /// Length and JSON, filled up with blanks to a multiple of 8 bytes; the digest is zeros.
    fn header(&self, hashes: &BTreeMap<String, String>) -> Vec<u8> {
        let mut metadata = Map::new();
        metadata.insert(LAYOUT_KEY.to_string(), json!(LAYOUT));
        metadata.insert(DIGEST_KEY.to_string(), json!("0".repeat(DIGEST_LEN)));
        for (key, text) in &self.metadata {
            metadata.insert((*key).to_string(), json!(text));
        }
        metadata.insert(TENSORS_KEY.to_string(), json!(json!(hashes).to_string()));
        let mut root = Map::new();
        root.insert("__metadata__".to_string(), Value::Object(metadata));
        let mut begin = 0;
        for entry in &self.entries {
            let end = begin + entry.len;
            let place = json!({
                "dtype": entry.dtype,
                "shape": entry.shape,
                "data_offsets": [begin, end],
            });
            root.insert(entry.name.clone(), place);
            begin = end;
        }
        let mut text = Value::Object(root).to_string();
        text.extend(std::iter::repeat_n(
            ' ',
            text.len().next_multiple_of(8) - text.len(),
        ));
        let mut header = (text.len() as u64).to_le_bytes().to_vec();
        header.extend(text.as_bytes());
        header
    }
}

/// The tensors that a model is made of, in order of name.
fn weights(package: &Package) -> Result<Vec<Entry<'_>>, PackageError> {
    let blueprint = Blueprint::of(&package.config);
    let with_mtp = package.has_mtp();
    let quantised: BTreeSet<&str> = blueprint.quantised(with_mtp).collect();
    let mut names: BTreeSet<String> = package
        .required_tensors()
        .into_iter()
        .map(|tensor| tensor.name)
        .collect();
    if with_mtp {
        names.extend(package.mtp_tensors().into_iter().map(|tensor| tensor.name));
    }
    let mut entries = Vec::new();
    for name in &names {
        let view = package.tensor(name)?;
        let is_quantised = quantised.contains(name.as_str());
        // An embedding may be the output matrix, too: rows are looked up as stored.
        if !is_quantised || *name == blueprint.embedding {
            entries.push(Entry {
                name: name.clone(),
                dtype: view.dtype_name().to_string(),
                shape: view.shape.to_vec(),
                len: view.bytes.len(),
                content: Content::Bytes(Cow::Borrowed(view.bytes)),
            });
            view.check_finite()?;
        }
        if is_quantised {
            let (rows, columns) = (view.shape[0], view.shape[1]);
            entries.push(Entry {
                name: format!("{name}{VALUES}"),
                dtype: "I8".to_string(),
                shape: vec![rows, columns],
                len: rows * columns,
                content: Content::Values(view),
            });
            entries.push(Entry {
                name: format!("{name}{SCALES}"),
                dtype: "F32".to_string(),
                shape: vec![rows, groups(columns)],
                len: rows * groups(columns) * 4,
                content: Content::Scales,
            });
        }
    }
    Ok(entries)
}

/// The name that a packed tensor has in its source.
pub(crate) fn source_name(name: &str) -> &str {
    let name = name.strip_suffix(SCALES).unwrap_or(name);
    name.strip_suffix(VALUES).unwrap_or(name)
}

fn total(entries: &[Entry<'_>]) -> u64 {
    entries.iter().map(|entry| entry.len as u64).sum()
}

/// Hands out the bytes of all tensors in order, and the hash of each once it is whole.
fn emit(
    entries: &[Entry<'_>],
    progress: &dyn Progress,
    sink: &mut Sink<'_>,
    hashed: &mut dyn FnMut(&str, String),
) -> Result<(), PackageError> {
    let mut scales: Vec<u8> = Vec::new();
    for entry in entries {
        let mut sha256 = sha2::Sha256::new();
        let mut give = |bytes: &[u8]| {
            sha256.update(bytes);
            progress.advance(bytes.len() as u64);
            sink(bytes)
        };
        match &entry.content {
            Content::Bytes(bytes) => bytes.chunks(1 << 20).try_for_each(&mut give)?,
            Content::Values(view) => scales = quantise(view, &mut give)?,
            Content::Scales => give(&std::mem::take(&mut scales))?,
        }
        hashed(&entry.name, hex(&sha256.finalize()));
    }
    Ok(())
}

/// Hands out the values of a matrix, row by row, and returns its scales.
fn quantise(view: &TensorView<'_>, give: &mut Sink<'_>) -> Result<Vec<u8>, PackageError> {
    let (rows, columns) = (view.shape[0], view.shape[1]);
    let (mut row, mut values) = (vec![0.0; columns], vec![0; columns]);
    let (mut row_scales, mut scales) = (vec![0.0; groups(columns)], Vec::new());
    for idx in 0..rows {
        view.row_to_f32(idx, &mut row)?;
        // The row has been refused if one of it is no number.
        quantize_row(&row, &mut values, &mut row_scales).expect("finite weights");
        let bytes: Vec<u8> = values
            .iter()
            .map(|value: &i8| value.cast_unsigned())
            .collect();
        give(&bytes)?;
        scales.extend(
            row_scales
                .iter()
                .flat_map(|scale: &f32| scale.to_le_bytes()),
        );
    }
    Ok(scales)
}

/// The source's contract with the changes that were asked for, as it will be read again.
fn contract(package: &Package, options: &PackOptions) -> Result<Value, PackageError> {
    let mut value = json!(package.contract);
    let mut path = Path::new("");
    if let (Some((from, changes)), Some(fields)) = (&options.contract, value.as_object_mut()) {
        path = from;
        for (field, change) in changes {
            if !Contract::CHANGEABLE.contains(&field.as_str()) {
                return Err(PackageError::Field {
                    path: from.clone(),
                    field: field.clone(),
                    value: change.to_string(),
                    expected: format!("one of {}", Contract::CHANGEABLE.join(", ")),
                });
            }
            let own = fields.entry(field.clone()).or_insert(Value::Null);
            match (own, change) {
                (Value::Object(own), Value::Object(change)) => own.extend(change.clone()),
                (own, change) => *own = change.clone(),
            }
        }
    }
    // Read as it will be when the package is opened: a contract that can't be kept is never written.
    let text = value.to_string();
    let again = serde_json::from_str(&text).unwrap_or(Value::Null);
    let contract = Contract::of_json(path, "contract", again, &package.config)?;
    Ok(json!(contract))
}

#[cfg(test)]
mod tests;
