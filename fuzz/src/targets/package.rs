//! A package whose files hold anything: opened, or refused by an error that names the file. Never a panic, and
//! never memory that a header only claims to need.

use super::folder::Folder;
use super::note_held;
use crate::decode::pick;
use arbitrary::Unstructured;
use lockstep_cpu::{CpuBackend, CpuOptions};
use lockstep_package::{NoProgress, Package, Report, Special, Weights};
use std::collections::BTreeMap;

/// What the files write.
pub const DICTIONARY: &[&str] = &[
    "\"model_type\": \"qwen3_5\"",
    "\"model_type\": \"qwen3\"",
    "\"num_attention_heads\": ",
    "\"num_key_value_heads\": ",
    "\"hidden_size\": ",
    "\"head_dim\": ",
    "\"vocab_size\": ",
    "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": ",
    "\"rope_parameters\": {",
    "\"text_config\": {",
    "\"layer_types\": [\"full_attention\"",
    "\"eos_token_id\": [",
    "\"added_tokens\": [",
    "\"special\": true",
    "\"type\": \"ByteLevel\"",
    "\"type\": \"Sequence\"",
    "\"type\": \"Metaspace\"",
    "\"byte_fallback\": true",
    "\"merges\": [",
    "\"vocab\": {",
    "\"<0x00>\"",
    "\"pattern\": {\"Regex\": \"",
    "\"data_offsets\": [0, ",
    "\"shape\": [",
    "\"dtype\": \"F32\"",
    "\"BF16\"",
    "\"I64\"",
    "\"__metadata__\": {",
    "\"weight_map\": {",
    "model.safetensors",
    "\"chat_template\": ",
    "18446744073709551615",
    "4294967296",
    "-1",
    "1e308",
    "null",
    "0.0",
    "\\ud800",
    "▁",
    "Ġ",
];

const FILES: [&str; 9] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "mtp.safetensors",
    "chat_template.json",
    // On its own, as a file of reference results is read.
    "",
];

/// Which file, and what it holds.
pub fn package(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let name = *pick(&mut input, &FILES);
    let bytes = input.take_rest();
    note_held();
    if name.is_empty() {
        return single_file(bytes);
    }
    let mut files = BTreeMap::from([(name, bytes)]);
    if name == "chat_template.json" {
        files.insert("chat_template.jinja", &[]);
    }
    let folder = Folder::with(&files);
    match folder.open() {
        Ok(package) => look(&package),
        Err(error) => {
            let message = error.to_string();
            let named = folder.path().to_string_lossy();
            assert!(message.contains(&*named), "{message} names no file");
        }
    }
}

/// Everything that a server or a command looks at.
fn look(package: &Package) {
    for tensor in package.tensors().map(|(name, _)| name) {
        let view = package.tensor(tensor).expect("it is listed");
        let _ = view.check_finite();
    }
    let _ = Report::of(package);
    let tokenizer = &package.tokenizer;
    for text in ["", "ab a:b", "<think>é\u{0}", "</s>\n  x"] {
        for special in [Special::None, Special::Parse] {
            if let Ok(ids) = tokenizer.encode(text, special) {
                for &id in &ids {
                    assert!(
                        (id as usize) < package.config.vocab_size,
                        "{id} of {text:?}"
                    );
                }
                let _ = tokenizer.decode(&ids);
            }
        }
    }
    let options = CpuOptions {
        num_blocks: 1,
        num_rows: 2,
        query_tokens_max: 4,
        ..CpuOptions::default()
    };
    match CpuBackend::load(package, &options, &NoProgress) {
        Ok(_) => assert!(package.check_tensors().is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn single_file(bytes: &[u8]) {
    let folder = Folder::with(&BTreeMap::from([("file", bytes)]));
    if let Ok(weights) = Weights::open_file(&folder.path().join("file")) {
        let mut total = 0;
        for (name, _) in weights.tensors() {
            let view = weights.tensor(name).expect("it is listed");
            total += view.bytes.len();
            let _ = view.to_f32();
        }
        assert!(total <= bytes.len());
    }
}
