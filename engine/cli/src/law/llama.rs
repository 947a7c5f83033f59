//! A tiny Llama whose weights are drawn from a seed, with the embedded package's tokenizer and template: a
//! model without recurrent state, made where the program is. It must never be taken for a model that
//! knows anything.

use super::dice::Dice;
use crate::exit::Failure;
use lockstep_package::{ModelConfig, NoProgress, Package, Source, required_tensors};
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

/// Makes it, beside the embedded package whose words it speaks.
///
/// # Errors
/// If it can't be written to the folder of temporary files.
pub fn package(embedded: &Package) -> Result<Package, Failure> {
    let folder = Folder::new()?;
    let wrong = |error: &dyn std::fmt::Display| {
        let what = format!("{}: {error}", folder.0.display());
        Failure::input(what, "TMPDIR names another folder for it")
    };
    let Source::Embedded(files) = &embedded.source else {
        return Err(Failure::failed(
            "the embedded package is no part of the program",
        ));
    };
    let kept = files
        .iter()
        .filter(|(name, _)| !name.ends_with(".safetensors") && *name != "config.json");
    for (name, bytes) in kept {
        fs::write(folder.0.join(name), bytes).map_err(|error| wrong(&error))?;
    }
    let config = config(embedded).to_string();
    let parsed = ModelConfig::parse(Path::new("config.json"), config.as_bytes());
    let parsed = parsed.map_err(Failure::failed)?;
    fs::write(folder.0.join("config.json"), &config).map_err(|error| wrong(&error))?;
    let weights = weights(&parsed);
    fs::write(folder.0.join("model.safetensors"), weights).map_err(|error| wrong(&error))?;
    let mut package = Package::open(&folder.0, &NoProgress).map_err(|error| wrong(&error))?;
    package.name = "llama".to_owned();
    Ok(package)
}

/// A folder that goes with its value. A package that was opened in it has mapped its weights by then.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failure> {
        static NUM: AtomicU64 = AtomicU64::new(0);
        let num = NUM.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockstep-law-{}-{num}", process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display()), ""))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(embedded: &Package) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": embedded.config.vocab_size,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "attention_bias": false,
        "mlp_bias": false,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": false,
        "bos_token_id": Value::Null,
        "eos_token_id": embedded.contract.end_tokens,
    })
}

/// A safetensors file: the length of the header, the header, and the numbers.
fn weights(config: &ModelConfig) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    let mut dice = Dice::new(1, 1);
    for tensor in required_tensors(config) {
        let begin = data.len();
        let num: usize = tensor.shape.iter().product();
        let scale = scale(&tensor.name);
        for _ in 0..num {
            let value = match scale {
                None => 1.0,
                Some(scale) => scale * bell(&mut dice),
            };
            data.extend(value.to_le_bytes());
        }
        let place = [begin, data.len()];
        let shape = &tensor.shape;
        header.insert(
            tensor.name.clone(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": place}),
        );
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    file
}

/// How far the numbers of a tensor spread; None for those that scale each number by 1. The head spreads far,
/// so that a few tokens are far more likely than the rest, and a guess is right now and then.
fn scale(name: &str) -> Option<f32> {
    match name {
        name if name.ends_with("norm.weight") => None,
        "lm_head.weight" => Some(0.5),
        name if name.ends_with("embed_tokens.weight") => Some(0.5),
        _ => Some(0.15),
    }
}

/// Near a normal distribution of spread 1: the sum of twelve even ones.
fn bell(dice: &mut Dice) -> f32 {
    let even = |dice: &mut Dice| (dice.word() >> 40) as f32 / (1u64 << 24) as f32;
    (0..12).map(|_| even(dice)).sum::<f32>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_and_has_the_words_of_the_embedded_model() {
        let embedded = Package::embedded().expect("part of the program");
        let llama = package(&embedded).expect("it can be made");
        llama.check_tensors().expect("all tensors are there");
        assert_eq!(llama.contract.end_tokens, embedded.contract.end_tokens);
        assert_eq!(
            llama.tokenizer.vocab_size(),
            embedded.tokenizer.vocab_size()
        );
        assert!(llama.template.is_some());
    }
}
