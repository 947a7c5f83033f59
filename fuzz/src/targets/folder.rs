//! A tiny model's folder, sound as it stands: what package loading and chat templates are fuzzed in. Each file
//! can be replaced by the bytes of an input.

use lockstep_package::{NoProgress, Package, PackageError};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// A folder that exists as long as this does.
pub struct Folder {
    folder: TempDir,
}

impl Folder {
    /// The sound folder, with these files in place of its own. An empty file is none.
    pub fn with(files: &BTreeMap<&str, &[u8]>) -> Folder {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).expect("a file");
        };
        for (name, bytes) in files.iter().filter(|file| !file.1.is_empty()) {
            write(name, bytes);
        }
        for (name, bytes) in sound() {
            if !files.contains_key(name) {
                write(name, &bytes);
            }
        }
        Folder { folder }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Opens it as a server would.
    pub fn open(&self) -> Result<Package, PackageError> {
        Package::open(self.folder.path(), &NoProgress)
    }
}

/// The files of a sound folder.
pub fn sound() -> Vec<(&'static str, Vec<u8>)> {
    let settings = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}});
    vec![
        ("config.json", config().to_string().into_bytes()),
        ("tokenizer.json", tokenizer().to_string().into_bytes()),
        ("tokenizer_config.json", settings.to_string().into_bytes()),
        ("generation_config.json", br#"{"eos_token_id": 2}"#.to_vec()),
        ("chat_template.jinja", TEMPLATE.as_bytes().to_vec()),
        ("model.safetensors", weights()),
    ]
}

const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n\
    {% endfor %}\
    {% if add_generation_prompt %}<think>{% endif %}";

/// Four structural tokens, a merged one, the bytes, and some ids that are no token.
pub const VOCAB_SIZE: usize = 264;

/// One layer of two dimensions.
fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 2, "intermediate_size": 2, "num_hidden_layers": 1,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2,
        "vocab_size": VOCAB_SIZE, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true,
        "bos_token_id": 1, "eos_token_id": 2, "dtype": "float32",
    })
}

fn tokenizer() -> Value {
    let added = |id: u32, content: &str| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true,
        })
    };
    let mut vocab: Map<String, Value> = ["<unk>", "<s>", "</s>", "<think>", "ab"]
        .into_iter()
        .zip(0..)
        .map(|(word, id)| (word.to_string(), json!(id)))
        .collect();
    for byte in 0..=255 {
        vocab.insert(spelled(byte).to_string(), json!(5 + u32::from(byte)));
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>"), added(3, "<think>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
            "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
            "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocab, "merges": ["a b"],
        },
    })
}

/// How byte-level tokenizers spell a byte: those that can be printed as they are, the others from U+0100 on.
fn spelled(byte: u8) -> char {
    let is_plain = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    match is_plain(byte) {
        true => char::from(byte),
        false => {
            let idx = (0..byte).filter(|&other| !is_plain(other)).count() as u32;
            char::from_u32(0x100 + idx).expect("below the surrogates")
        }
    }
}

/// The tensors of that one layer, all of them zeros.
fn weights() -> Vec<u8> {
    let layer = "model.layers.0";
    let shapes: [(String, &[usize]); 11] = [
        ("model.embed_tokens.weight".to_string(), &[VOCAB_SIZE, 2]),
        ("model.norm.weight".to_string(), &[2]),
        (format!("{layer}.input_layernorm.weight"), &[2]),
        (format!("{layer}.post_attention_layernorm.weight"), &[2]),
        (format!("{layer}.self_attn.q_proj.weight"), &[2, 2]),
        (format!("{layer}.self_attn.k_proj.weight"), &[2, 2]),
        (format!("{layer}.self_attn.v_proj.weight"), &[2, 2]),
        (format!("{layer}.self_attn.o_proj.weight"), &[2, 2]),
        (format!("{layer}.mlp.gate_proj.weight"), &[2, 2]),
        (format!("{layer}.mlp.up_proj.weight"), &[2, 2]),
        (format!("{layer}.mlp.down_proj.weight"), &[2, 2]),
    ];
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, shape) in shapes {
        let begin = end;
        // Half precision, so that a file stays short.
        end += 2 * shape.iter().product::<usize>();
        let tensor = json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]});
        header.insert(name, tensor);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + end, 0);
    bytes
}
