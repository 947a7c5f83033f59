//! Tests of safetensors reading: what is sound reads exactly, and what lies is refused by name.
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A safetensors file of a header and data.
pub(crate) fn file(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn open(bytes: &[u8]) -> Result<Weights, PackageError> {
    // Leaked, since the weights of a program live as long as it does; a few kilobytes per test.
    Weights::from_static(&[(
        "w.safetensors",
        Box::leak(bytes.to_vec().into_boxed_slice()),
    )])
}

fn tensor(dtype: &str, shape: &[usize], begin: usize, end: usize) -> Value {
    json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]})
}

fn sound() -> Vec<u8> {
    let header = json!({
        "__metadata__": {"format": "pt"},
        "a": tensor("F32", &[2, 2], 0, 16),
        "b": tensor("BF16", &[3], 16, 22),
        "c": tensor("F16", &[1, 2], 22, 26),
        "d": tensor("I64", &[1], 26, 34),
        "e": tensor("F32", &[0, 4], 34, 34),
    });
    let mut data = Vec::new();
    for value in [1.5f32, -2.0, 0.0, 1e-40] {
        data.extend_from_slice(&value.to_le_bytes());
    }
    for bits in [0x3F80u16, 0xC000, 0x0001] {
        data.extend_from_slice(&bits.to_le_bytes());
    }
    for bits in [0x3C00u16, 0x0001] {
        data.extend_from_slice(&bits.to_le_bytes());
    }
    data.extend_from_slice(&7i64.to_le_bytes());
    file(&header, &data)
}

#[test]
fn elements_widen_exactly() {
    let weights = open(&sound()).expect("a sound file");
    let values = |name: &str| weights.tensor(name).and_then(|view| view.to_f32());
    assert_eq!(values("a"), Ok(vec![1.5, -2.0, 0.0, 1e-40]));
    assert_eq!(values("b"), Ok(vec![1.0, -2.0, f32::from_bits(0x1_0000)]));
    assert_eq!(values("c"), Ok(vec![1.0, 2.0f32.powi(-24)]));
    assert_eq!(values("e"), Ok(vec![]));
    let view = weights.tensor("a").expect("there");
    let mut row = [0.0; 2];
    view.row_to_f32(1, &mut row).expect("two rows");
    assert_eq!(row, [0.0, 1e-40]);
    assert!(view.row_to_f32(2, &mut row).is_err() && view.row_to_f32(0, &mut [0.0; 3]).is_err());
    let message = values("d").expect_err("integers").to_string();
    assert_eq!(
        message,
        "w.safetensors: tensor d is of type I64, expected F32, F16 or BF16"
    );
    let message = view.expect_shape(&[4]).expect_err("two by two").to_string();
    assert_eq!(
        message,
        "w.safetensors: tensor a is of shape [2, 2], expected [4]"
    );
    let message = weights.tensor("z").err().map(|error| error.to_string());
    assert!(message.is_some_and(|message| message.contains("tensor z is in no file")));
}

#[test]
fn the_published_reader_agrees() {
    let bytes = sound();
    let weights = open(&bytes).expect("a sound file");
    let reference = safetensors::SafeTensors::deserialize(&bytes).expect("a sound file");
    assert_eq!(weights.tensors().count(), reference.len());
    for (name, view) in reference.iter() {
        let ours = weights.tensor(name).expect("there");
        assert_eq!(
            (ours.shape, ours.bytes),
            (view.shape(), view.data()),
            "{name}"
        );
    }
}

#[test]
fn values_that_are_not_numbers_are_named() {
    let cases = [
        ("F32", f32::NAN.to_le_bytes().to_vec(), "NaN"),
        ("F32", f32::NEG_INFINITY.to_le_bytes().to_vec(), "-inf"),
        ("BF16", 0x7F80u16.to_le_bytes().to_vec(), "inf"),
        ("F16", 0x7E00u16.to_le_bytes().to_vec(), "NaN"),
    ];
    for (dtype, bad, expected) in cases {
        let mut data = vec![0; bad.len() * 100_001];
        let at = bad.len() * 70_000;
        data[at..at + bad.len()].copy_from_slice(&bad);
        let header = json!({"w": tensor(dtype, &[100_001], 0, data.len())});
        let weights = open(&file(&header, &data)).expect("sound but for a value");
        let view = weights.tensor("w").expect("there");
        let message = view.to_f32().expect_err("not a number").to_string();
        let expected = format!("holds {expected} at index 70000");
        assert!(message.contains(&expected), "{message}");
        assert_eq!(
            view.check_finite().map_err(|error| error.to_string()),
            Err(message)
        );
    }
}

#[test]
fn lying_headers_are_refused() {
    let bytes = sound();
    let cut = |len: usize| bytes[..len].to_vec();
    let with_len = |len: u64| [&len.to_le_bytes()[..], &bytes[8..]].concat();
    let of = |tensors: Value, data: usize| file(&tensors, &vec![0; data]);
    let cases = [
        (vec![], "0 bytes, expected at least 8"),
        (cut(7), "7 bytes, expected at least 8"),
        (cut(20), "the header claims"),
        (cut(bytes.len() - 1), "within the 33 bytes of data"),
        (
            [&bytes[..], &[0]].concat(),
            "35 bytes of data, expected the 34",
        ),
        (with_len(u64::MAX), "claims 18446744073709551615 bytes"),
        (with_len(3), "isn't a JSON object"),
        (file(&json!([]), &[]), "isn't a JSON object"),
        (of(json!({"w": 3}), 0), "tensor w is of type null"),
        (
            of(json!({"w": tensor("Q9", &[1], 0, 4)}), 4),
            "of type \"Q9\", expected F32",
        ),
        (
            of(json!({"w": tensor("F32", &[2], 0, 4)}), 4),
            "4 bytes long, expected 8 bytes",
        ),
        (
            of(json!({"w": tensor("F32", &[1], 4, 0)}), 4),
            "an ascending range",
        ),
        (
            of(json!({"w": tensor("F32", &[1], 0, 1 << 40)}), 4),
            "within the 4 bytes",
        ),
        (
            of(json!({"w": tensor("F32", &[1 << 40, 1 << 40], 0, 4)}), 4),
            "a size that can be counted",
        ),
        (
            of(json!({"w": tensor("F32", &[1; 9], 0, 4)}), 4),
            "at most 8 whole numbers",
        ),
        (
            of(
                json!({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
                4,
            ),
            "of shape [-1]",
        ),
        (
            of(
                json!({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}),
                4,
            ),
            "two whole numbers",
        ),
        (
            of(
                json!({"v": tensor("F32", &[1], 0, 4), "w": tensor("F32", &[1], 0, 4)}),
                4,
            ),
            "overlaps another",
        ),
        (
            of(
                json!({"v": tensor("F32", &[1], 0, 4), "w": tensor("F32", &[1], 8, 12)}),
                12,
            ),
            "leaves a gap",
        ),
    ];
    for (bytes, expected) in cases {
        let message = open(&bytes).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message}, expected {expected}");
    }
}

proptest! {
    #[test]
    fn no_mutation_panics(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        len in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = sound();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(len.index(bytes.len()));
        }
        if let Ok(weights) = open(&bytes) {
            let names: Vec<String> = weights.tensors().map(|(name, _)| name.to_string()).collect();
            for name in names {
                let view = weights.tensor(&name).expect("it was listed");
                // Any answer will do, as long as it is one.
                let _ = (view.to_f32(), view.check_finite());
            }
        }
    }

    #[test]
    fn no_header_panics(text in "[\\[\\]{}:,\"0-9a-zF _-]{0,60}") {
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(text.as_bytes());
        let _ = open(&bytes);
    }
}
