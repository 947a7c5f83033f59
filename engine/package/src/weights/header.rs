//! Reading the headers of safetensors files, and the index of a sharded checkpoint.
//!
//! Nothing here is believed: lengths, ranges and sizes are checked before they are used, and a
//! header that lies is an error that says where.

use super::{Dtype, TensorInfo};
use crate::error::PackageError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// The longest header that is read, in bytes. Real ones are well under a megabyte per thousand
/// tensors.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The most dimensions a tensor may have.
const DIMENSIONS_MAX: usize = 8;

/// The `weight_map` of an index: tensor name to file name.
pub(super) fn parse_index(
    path: &Path,
    text: &[u8],
) -> Result<BTreeMap<String, String>, PackageError> {
    let root = crate::config::object(path, text)?;
    let Some(Value::Object(map)) = root.get("weight_map") else {
        return Err(PackageError::header(
            path,
            "weight_map is absent, expected an object",
        ));
    };
    let mut placed = BTreeMap::new();
    for (tensor, file) in map {
        let plain = file.as_str().filter(|file| {
            // A path would let an index read files outside of its folder.
            file.ends_with(".safetensors") && !file.contains(['/', '\\']) && !file.starts_with('.')
        });
        let Some(file) = plain else {
            return Err(PackageError::Tensor {
                path: path.to_path_buf(),
                tensor: tensor.clone(),
                found: format!("in {file}"),
                expected: "the plain name of a .safetensors file".to_string(),
            });
        };
        placed.insert(tensor.clone(), file.to_string());
    }
    if placed.is_empty() {
        return Err(PackageError::header(
            path,
            "weight_map is empty, expected tensors",
        ));
    }
    Ok(placed)
}

/// Reads and checks the header of a safetensors file.
///
/// | bytes | what |
/// | --- | --- |
/// | 0..8 | length `n` of the header, little-endian |
/// | 8..8+n | JSON: name to `dtype`, `shape`, `data_offsets` |
/// | 8+n.. | the tensors, without gaps |
pub(super) fn parse_header(
    path: &Path,
    bytes: &[u8],
    file: usize,
) -> Result<Vec<(String, TensorInfo)>, PackageError> {
    let (object, data) = split(path, bytes)?;
    let data_offset = bytes.len() - data.len();
    let mut found = Vec::with_capacity(object.len());
    for (name, value) in &object {
        if name != "__metadata__" {
            found.push((
                name.clone(),
                parse_tensor(path, name, value, data.len(), file)?,
            ));
        }
    }
    check_coverage(path, &mut found, data.len())?;
    for (_, info) in &mut found {
        info.offset += data_offset;
    }
    Ok(found)
}

/// The header as it stands, its length before it, and the texts of its `__metadata__`.
pub(crate) fn metadata<'a>(
    path: &Path,
    bytes: &'a [u8],
) -> Result<(&'a [u8], BTreeMap<String, String>), PackageError> {
    let (object, data) = split(path, bytes)?;
    let header = &bytes[..bytes.len() - data.len()];
    let wrong = |key: &str, value: &Value| PackageError::Field {
        path: path.to_path_buf(),
        field: format!("__metadata__{key}"),
        value: value.to_string(),
        expected: "texts by name".to_string(),
    };
    let mut texts = BTreeMap::new();
    match object.get("__metadata__") {
        None => {}
        Some(Value::Object(map)) => {
            for (key, value) in map {
                let text = value.as_str();
                let text = text.ok_or_else(|| wrong(&format!(".{key}"), value))?;
                texts.insert(key.clone(), text.to_string());
            }
        }
        Some(other) => return Err(wrong("", other)),
    }
    Ok((header, texts))
}

/// The header as JSON, and the data after it.
fn split<'a>(path: &Path, bytes: &'a [u8]) -> Result<(Map<String, Value>, &'a [u8]), PackageError> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        let message = format!(
            "{} bytes, expected at least 8 for the header length",
            bytes.len()
        );
        return Err(PackageError::header(path, message));
    };
    let header_len = u64::from_le_bytes(*length);
    if header_len > HEADER_BYTES_MAX || header_len > rest.len() as u64 {
        let most = HEADER_BYTES_MAX.min(rest.len() as u64);
        let message = format!(
            "the header claims {header_len} bytes, expected at most {most} in a file of {}",
            bytes.len()
        );
        return Err(PackageError::header(path, message));
    }
    let (header, data) = rest.split_at(header_len as usize);
    let object: Map<String, Value> = serde_json::from_slice(header).map_err(|error| {
        PackageError::header(path, format!("the header isn't a JSON object: {error}"))
    })?;
    Ok((object, data))
}

/// One entry of a header. The offset is still relative to the data.
fn parse_tensor(
    path: &Path,
    name: &str,
    value: &Value,
    data_len: usize,
    file: usize,
) -> Result<TensorInfo, PackageError> {
    let wrong = |found: String, expected: String| PackageError::Tensor {
        path: path.to_path_buf(),
        tensor: name.to_string(),
        found,
        expected,
    };
    let absent = Value::Null;
    let field = |field: &str| value.get(field).unwrap_or(&absent);
    let dtype_name = field("dtype");
    let Some((dtype, dtype_name)) = dtype_name
        .as_str()
        .and_then(|name| Some((Dtype::parse(name)?, name)))
    else {
        return Err(wrong(
            format!("of type {dtype_name}"),
            "F32, F16 or BF16".to_string(),
        ));
    };
    let numbers = |field: &Value, most: usize| -> Option<Vec<usize>> {
        let items = field.as_array().filter(|items| items.len() <= most)?;
        items
            .iter()
            .map(|item| item.as_u64().and_then(|item| usize::try_from(item).ok()))
            .collect()
    };
    let Some(shape) = numbers(field("shape"), DIMENSIONS_MAX) else {
        let expected = format!("at most {DIMENSIONS_MAX} whole numbers");
        return Err(wrong(format!("of shape {}", field("shape")), expected));
    };
    let offsets = numbers(field("data_offsets"), 2);
    let Some([begin, end]) = offsets.as_deref() else {
        let found = format!("at data_offsets {}", field("data_offsets"));
        return Err(wrong(found, "two whole numbers".to_string()));
    };
    if begin > end || *end > data_len {
        let expected = format!("an ascending range within the {data_len} bytes of data");
        return Err(wrong(format!("at data_offsets [{begin}, {end}]"), expected));
    }
    let bits = shape.iter().try_fold(dtype.bits(), |bits, dimension| {
        bits.checked_mul(u64::try_from(*dimension).ok()?)
    });
    let len = end - begin;
    if bits != Some(len as u64 * 8) {
        let expected = match bits {
            Some(bits) => format!("{} bytes for {dtype_name} {shape:?}", bits.div_ceil(8)),
            None => format!("a size that can be counted for {dtype_name} {shape:?}"),
        };
        return Err(wrong(format!("{len} bytes long"), expected));
    }
    let dtype_name = dtype_name.to_string();
    Ok(TensorInfo {
        dtype,
        dtype_name,
        shape,
        file,
        offset: *begin,
        len,
    })
}

/// Tensors lie end to end, from the first byte of data to the last.
fn check_coverage(
    path: &Path,
    found: &mut [(String, TensorInfo)],
    data_len: usize,
) -> Result<(), PackageError> {
    // Empty tensors share their offset with the next one, so they sort before it.
    found.sort_by_key(|(_, info)| (info.offset, info.len));
    let mut covered = 0;
    for (name, info) in found.iter() {
        if info.offset != covered {
            let what = if info.offset < covered {
                "overlaps another tensor"
            } else {
                "leaves a gap"
            };
            return Err(PackageError::Tensor {
                path: path.to_path_buf(),
                tensor: name.clone(),
                found: format!("at byte {} of the data, which {what}", info.offset),
                expected: format!("it at byte {covered}"),
            });
        }
        covered += info.len;
    }
    if covered != data_len {
        let message = format!("{data_len} bytes of data, expected the {covered} of its tensors");
        return Err(PackageError::header(path, message));
    }
    Ok(())
}
