//! Weights: safetensors files, mapped into memory and read as they stand.
//!
//! A header is believed only after it was checked against itself and against the file: types,
//! shapes, sizes, offsets that neither overlap nor leave gaps. It must never panic, read outside
//! the file, or copy weights that nobody asked for.

mod header;

pub(crate) use header::metadata;

use crate::error::PackageError;
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Element types that weights may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Dtype {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a single.
    BF16,
    /// Any other type that a safetensors file may name, by its width in bits; it can be listed, not
    /// read.
    Other {
        /// Bits of one element.
        bits: u8,
    },
}

impl Dtype {
    fn parse(name: &str) -> Option<Dtype> {
        Some(match name {
            "F32" => Dtype::F32,
            "F16" => Dtype::F16,
            "BF16" => Dtype::BF16,
            "F64" | "I64" | "U64" | "C64" => Dtype::Other { bits: 64 },
            "I32" | "U32" => Dtype::Other { bits: 32 },
            "I16" | "U16" => Dtype::Other { bits: 16 },
            "BOOL" | "I8" | "U8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Dtype::Other { bits: 8 },
            "F6_E2M3" | "F6_E3M2" => Dtype::Other { bits: 6 },
            "F4" => Dtype::Other { bits: 4 },
            _ => return None,
        })
    }

    /// Bits of one element.
    pub fn bits(self) -> u64 {
        match self {
            Dtype::F32 => 32,
            Dtype::F16 | Dtype::BF16 => 16,
            Dtype::Other { bits } => u64::from(bits),
        }
    }
}

/// What a header says about one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The element type.
    pub dtype: Dtype,
    /// The element type as the file spells it.
    pub dtype_name: String,
    /// The shape, outermost dimension first.
    pub shape: Vec<usize>,
    /// Index of its file among [`Weights::files`].
    pub file: usize,
    /// Where its bytes begin in that file.
    pub offset: usize,
    /// How many bytes it has.
    pub len: usize,
}

impl TensorInfo {
    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The bytes of one file: mapped, or part of the program.
enum Bytes {
    Mapped(Mmap),
    Static(&'static [u8]),
}

/// One file of weights.
pub struct WeightFile {
    /// Where it is; for the embedded model a name only.
    pub path: PathBuf,
    bytes: Bytes,
}

impl WeightFile {
    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Static(bytes) => bytes,
        }
    }
}

/// All weights of a package, found by tensor name.
pub struct Weights {
    files: Vec<WeightFile>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Weights {{ {} tensors in {} files }}",
            self.tensors.len(),
            self.files.len()
        )
    }
}

impl Weights {
    /// Opens the weights of a folder: `model.safetensors.index.json` and its shards, or
    /// `model.safetensors`, and `mtp.safetensors` where there is one.
    pub(crate) fn open(folder: &Path) -> Result<Weights, PackageError> {
        let mut weights = Weights {
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        let index = folder.join("model.safetensors.index.json");
        let single = folder.join("model.safetensors");
        if index.is_file() {
            let text = std::fs::read(&index).map_err(|error| PackageError::io(&index, error))?;
            let placed = header::parse_index(&index, &text)?;
            for name in placed.values().collect::<std::collections::BTreeSet<_>>() {
                weights.map(folder.join(name))?;
            }
            weights.check_index(&index, &placed)?;
        } else if single.is_file() {
            weights.map(single)?;
        } else {
            return Err(PackageError::MissingFile {
                path: folder.to_path_buf(),
                expected: "model.safetensors or model.safetensors.index.json".to_string(),
            });
        }
        let mtp = folder.join("mtp.safetensors");
        if mtp.is_file() {
            weights.map(mtp)?;
        }
        Ok(weights)
    }

    /// Opens one safetensors file that need not be a model's: reference results, say.
    pub fn open_file(path: &Path) -> Result<Weights, PackageError> {
        let mut weights = Weights {
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        weights.map(path.to_path_buf())?;
        Ok(weights)
    }

    /// Weights that are part of the program.
    pub(crate) fn from_static(files: &[(&str, &'static [u8])]) -> Result<Weights, PackageError> {
        let mut weights = Weights {
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        for (name, bytes) in files {
            weights.add(WeightFile {
                path: PathBuf::from(name),
                bytes: Bytes::Static(bytes),
            })?;
        }
        Ok(weights)
    }

    fn map(&mut self, path: PathBuf) -> Result<(), PackageError> {
        let file = File::open(&path).map_err(|error| PackageError::io(&path, error))?;
        let len = file
            .metadata()
            .map_err(|error| PackageError::io(&path, error))?
            .len();
        if len == 0 {
            return Err(PackageError::header(
                &path,
                "the file is empty, expected safetensors",
            ));
        }
        // SAFETY: the map is read-only and lives as long as the bytes that are borrowed from it. What
        // nobody can rule out is that another program changes the file meanwhile: then changed bytes
        // would be read, or the system would end this program if the file shrank. Every engine that
        // maps its weights asks its users to leave them alone while it runs, and so does this one.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| PackageError::io(&path, error))?;
        self.add(WeightFile {
            path,
            bytes: Bytes::Mapped(map),
        })
    }

    fn add(&mut self, file: WeightFile) -> Result<(), PackageError> {
        let found = header::parse_header(&file.path, file.bytes(), self.files.len())?;
        for (name, info) in found {
            if let Some(other) = self.tensors.get(&name) {
                return Err(PackageError::Tensor {
                    path: file.path.clone(),
                    tensor: name,
                    found: "there".to_string(),
                    expected: format!(
                        "it only once, and {} has it already",
                        self.files[other.file].path.display()
                    ),
                });
            }
            self.tensors.insert(name, info);
        }
        self.files.push(file);
        Ok(())
    }

    /// Each tensor that the index promises is in the file that it names.
    fn check_index(
        &self,
        index: &Path,
        placed: &BTreeMap<String, String>,
    ) -> Result<(), PackageError> {
        for (tensor, file) in placed {
            let actual = self
                .tensors
                .get(tensor)
                .map(|info| &self.files[info.file].path);
            if actual.and_then(|path| path.file_name()) != Some(file.as_ref()) {
                let found = match actual {
                    Some(path) => format!("in {}", path.display()),
                    None => "in no file".to_string(),
                };
                return Err(PackageError::Tensor {
                    path: index.to_path_buf(),
                    tensor: tensor.clone(),
                    found,
                    expected: format!("it in {file}, as weight_map says"),
                });
            }
        }
        Ok(())
    }

    /// The files, in the order in which they were opened.
    pub fn files(&self) -> &[WeightFile] {
        &self.files
    }

    /// All tensors in order of name.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors
            .iter()
            .map(|(name, info)| (name.as_str(), info))
    }

    /// Whether some tensor's name begins with `prefix`.
    pub(crate) fn has_prefix(&self, prefix: &str) -> bool {
        let next = self.tensors.range(prefix.to_string()..).next();
        next.is_some_and(|(name, _)| name.starts_with(prefix))
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, PackageError> {
        let Some((name, info)) = self.tensors.get_key_value(name) else {
            return Err(PackageError::MissingTensor {
                tensor: name.to_string(),
                expected: "it by that name".to_string(),
            });
        };
        let file = &self.files[info.file];
        // The header was checked against the file when it was opened.
        let bytes = &file.bytes()[info.offset..info.offset + info.len];
        Ok(TensorView {
            name,
            dtype: info.dtype,
            shape: &info.shape,
            bytes,
            path: &file.path,
            info,
        })
    }
}

/// One tensor, where it lies.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    /// Its name.
    pub name: &'a str,
    /// The element type.
    pub dtype: Dtype,
    /// The shape, outermost dimension first.
    pub shape: &'a [usize],
    /// Its elements, little-endian, row by row; not aligned to anything.
    pub bytes: &'a [u8],
    /// The file that holds it.
    pub path: &'a Path,
    info: &'a TensorInfo,
}

impl TensorView<'_> {
    /// The element type as the file spells it.
    pub(crate) fn dtype_name(&self) -> &str {
        &self.info.dtype_name
    }

    /// Fails unless the elements are of the type that the file would spell so.
    pub(crate) fn expect_dtype(&self, name: &str) -> Result<(), PackageError> {
        match self.dtype_name() == name {
            true => Ok(()),
            false => Err(self.wrong(format!("of type {}", self.dtype_name()), name.to_string())),
        }
    }

    /// Number of elements.
    pub fn num_elements(&self) -> usize {
        self.info.num_elements()
    }

    /// Fails with the tensor's name and both shapes unless its shape is `expected`.
    pub fn expect_shape(&self, expected: &[usize]) -> Result<(), PackageError> {
        if self.shape == expected {
            return Ok(());
        }
        Err(self.wrong(
            format!("of shape {:?}", self.shape),
            format!("{expected:?}"),
        ))
    }

    /// All elements, widened exactly. A NaN or an infinity is an error that names its index.
    pub fn to_f32(&self) -> Result<Vec<f32>, PackageError> {
        let mut out = vec![0.0; self.num_elements()];
        self.widen(self.bytes, &mut out, 0)?;
        Ok(out)
    }

    /// Row `row`: the elements at that index of the outermost dimension. `out` must be as long as a
    /// row.
    pub fn row_to_f32(&self, row: usize, out: &mut [f32]) -> Result<(), PackageError> {
        let rows = self.shape.first().copied().unwrap_or(0);
        if row >= rows || out.len() * rows != self.num_elements() {
            let found = format!("of shape {:?}", self.shape);
            let expected = format!("a row {row} of {} elements", out.len());
            return Err(self.wrong(found, expected));
        }
        let row_bytes = self.bytes.len() / rows;
        let bytes = &self.bytes[row * row_bytes..(row + 1) * row_bytes];
        self.widen(bytes, out, row * out.len())
    }

    /// Reads every element and fails at the first NaN or infinity, without keeping any.
    pub fn check_finite(&self) -> Result<(), PackageError> {
        const ELEMENTS: usize = 1 << 16;
        let mut buffer = vec![0.0; ELEMENTS.min(self.num_elements())];
        let width = (self.dtype.bits() as usize).div_ceil(8);
        for (index, bytes) in self.bytes.chunks(ELEMENTS * width).enumerate() {
            self.widen(bytes, &mut buffer[..bytes.len() / width], index * ELEMENTS)?;
        }
        Ok(())
    }

    /// Fails unless the elements are of a type that can be widened to float32.
    pub fn expect_float(&self) -> Result<(), PackageError> {
        match self.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => Ok(()),
            Dtype::Other { .. } => {
                let found = format!("of type {}", self.info.dtype_name);
                Err(self.wrong(found, "F32, F16 or BF16".to_string()))
            }
        }
    }

    fn widen(&self, bytes: &[u8], out: &mut [f32], first: usize) -> Result<(), PackageError> {
        match self.dtype {
            Dtype::F32 => {
                let (items, _) = bytes.as_chunks::<4>();
                for (out, item) in out.iter_mut().zip(items) {
                    *out = f32::from_le_bytes(*item);
                }
            }
            Dtype::BF16 => {
                let (items, _) = bytes.as_chunks::<2>();
                for (out, item) in out.iter_mut().zip(items) {
                    *out = f32::from_bits(u32::from(u16::from_le_bytes(*item)) << 16);
                }
            }
            Dtype::F16 => {
                let (items, _) = bytes.as_chunks::<2>();
                for (out, item) in out.iter_mut().zip(items) {
                    *out = half::f16::from_le_bytes(*item).to_f32();
                }
            }
            Dtype::Other { .. } => return self.expect_float(),
        }
        match out.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(index) => Err(PackageError::Value {
                path: self.path.to_path_buf(),
                tensor: self.name.to_string(),
                index: first + index,
                value: out[index].to_string(),
            }),
        }
    }

    /// An error about this tensor.
    pub(crate) fn wrong(&self, found: String, expected: String) -> PackageError {
        let (path, tensor) = (self.path.to_path_buf(), self.name.to_string());
        PackageError::Tensor {
            path,
            tensor,
            found,
            expected,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
