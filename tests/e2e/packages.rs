//! `lockstep pack` and what is done with its file: the same bytes as the folder, every hash recomputed, and
//! refusals by name.

use super::{json, root, run, running::Running, stderr, stdout};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const PROMPT: &str = "What is the capital of Peru?";

/// A folder for what a test packs.
struct Work(TempDir);

impl Work {
    fn new() -> Work {
        Work(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        text(&self.0.path().join(name))
    }

    /// Packs a model as `model.safetensors`.
    fn pack(&self, model: &str, flags: &[&str]) -> (String, Value) {
        let out = self.path("model.safetensors");
        let args = [
            &["pack", "-m", model, "-o", &out, "--force", "--json"],
            flags,
        ]
        .concat();
        let summary = json(&args);
        (out, summary)
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

fn embedded() -> String {
    text(&root().join("engine/package/embedded/hf"))
}

fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures/models").join(name)
}

/// What must be equal: everything but the words about how it was computed.
fn outcome(args: &[&str]) -> Value {
    let answer = json(&[&["generate", "--json", "--digests"], args].concat());
    let num_tokens = answer["token_ids"].as_array().map_or(0, Vec::len);
    assert!(num_tokens > 5, "{args:?}: {num_tokens} tokens");
    assert_eq!(answer["digests"].as_array().map(Vec::len), Some(num_tokens));
    let fields = ["token_ids", "digests", "content", "usage", "model"];
    fields.map(|field| answer[field].clone()).into()
}

/// The file with another header that has the right digest.
fn edit(path: &str, from: &str, to: &str) {
    let bytes = fs::read(path).expect("readable");
    let (len, _) = bytes.split_first_chunk::<8>().expect("eight bytes");
    let end = 8 + u64::from_le_bytes(*len) as usize;
    let header = String::from_utf8(bytes[8..end].to_vec()).expect("JSON");
    assert!(header.contains(from), "{from} is not in {header}");
    let header = header.replacen(from, to, 1);
    let key = "\"lockstep.header_sha256\":\"";
    let at = header.find(key).expect("a digest") + key.len();
    let zeros = [&header[..at], &"0".repeat(64), &header[at + 64..]].concat();
    let mut hashed = (header.len() as u64).to_le_bytes().to_vec();
    hashed.extend(zeros.as_bytes());
    let digest: String = Sha256::digest(&hashed)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    hashed[8 + at..8 + at + 64].copy_from_slice(digest.as_bytes());
    fs::write(path, [&hashed[..], &bytes[end..]].concat()).expect("written");
}

#[test]
fn the_embedded_model_says_the_same_from_a_package() {
    let work = Work::new();
    let (package, summary) = work.pack(&embedded(), &["--name", "hf"]);
    assert_eq!(summary["name"], "hf");
    for sampling in [
        &["--temperature", "0"][..],
        &["--seed", "7", "--temperature", "1.5"],
    ] {
        let of = |model: &str| {
            let flags = ["--chat", PROMPT, "--max-tokens", "60", "-m", model];
            outcome(&[&flags[..], sampling].concat())
        };
        assert_eq!(of(&package), of(&embedded()), "{sampling:?}");
    }
    // What drafts for a model changes nothing, from whichever file it is read.
    let flags = [
        "--chat",
        PROMPT,
        "--max-tokens",
        "40",
        "--temperature",
        "0",
        "-m",
        &package,
    ];
    let plain = outcome(&flags);
    for drafter in [
        &["--speculate", "mtp"][..],
        &["--speculate", "draft_model", "--draft-model", &package],
    ] {
        assert_eq!(
            outcome(&[&flags[..], drafter].concat()),
            plain,
            "{drafter:?}"
        );
    }
}

/// A tokenizer in which each byte is a token.
fn bytes_tokenizer() -> Value {
    let plain = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let mut vocab = serde_json::Map::new();
    for byte in 0..256 {
        let shown = if plain(byte) {
            byte
        } else {
            others.next().expect("endless")
        };
        let shown = char::from_u32(shown).expect("a letter").to_string();
        vocab.insert(shown, json!(byte));
    }
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": bytes, "post_processor": null, "decoder": bytes,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": []},
    })
}

#[test]
fn tiny_models_say_the_same_from_a_package() {
    for name in ["llama", "qwen3_5"] {
        let work = Work::new();
        let folder = work.0.path().join(name);
        fs::create_dir(&folder).expect("created");
        for file in ["config.json", "generation_config.json", "model.safetensors"] {
            fs::copy(fixture(name).join(file), folder.join(file)).expect("copied");
        }
        fs::write(folder.join("tokenizer.json"), bytes_tokenizer().to_string()).expect("written");
        let folder = text(&folder);
        let (package, _) = work.pack(&folder, &[]);
        let of = |model: &str| {
            let flags = [
                "abc",
                "--ignore-eos",
                "--max-tokens",
                "40",
                "--seed",
                "5",
                "-m",
                model,
            ];
            outcome(&[&flags[..], &["--temperature", "1"]].concat())
        };
        assert_eq!(of(&package), of(&folder), "{name}");
    }
}

#[test]
fn figures_against_the_oracle_are_those_of_the_folder() {
    for name in ["llama", "llama3_rope", "qwen3", "qwen3_5"] {
        let work = Work::new();
        let folder = text(&fixture(name));
        let (package, _) = work.pack(&folder, &[]);
        let reference = text(&fixture(name).join("reference.safetensors"));
        let of = |model: &str, flags: &[&str]| {
            json(
                &[
                    &[
                        "check-logits",
                        "-m",
                        model,
                        "--reference",
                        &reference,
                        "--json",
                    ],
                    flags,
                ]
                .concat(),
            )
        };
        // A package is compared by the only rule that it has.
        assert_eq!(
            of(&package, &[]),
            of(&folder, &["--weights", "q8"]),
            "{name}"
        );
        let args = [
            "check-logits",
            &package,
            "--reference",
            &reference,
            "--weights",
            "f32",
        ];
        let output = run(&args);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("--weights q8"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn packing_again_gives_the_same_bytes_and_replaces_nothing_unasked() {
    let work = Work::new();
    let (package, summary) = work.pack(&embedded(), &[]);
    let first = fs::read(&package).expect("readable");
    assert_eq!(summary["size"], first.len());
    let output = run(&["pack", "-m", &embedded(), "-o", &package]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--force"), "{}", stderr(&output));
    let (_, again) = work.pack(&embedded(), &[]);
    assert_eq!(again, summary);
    assert!(fs::read(&package).expect("readable") == first);
    let other = work.path("other.safetensors");
    let output = run(&["pack", "-m", &package, "-o", &other]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a package already"),
        "{}",
        stderr(&output)
    );
    assert!(!Path::new(&other).exists());
}

#[test]
fn inspect_recomputes_what_it_can_and_says_what_it_could_not() {
    let work = Work::new();
    let source = embedded();
    let (package, summary) = work.pack(&source, &[]);
    let shown = json(&["inspect", "-m", &package, "--json"]);
    assert_eq!(shown["package"]["digest"], summary["digest"]);
    assert_eq!(
        shown["contract"],
        json(&["inspect", &source, "--json"])["contract"]
    );
    let sources = shown["package"]["sources"].as_array().expect("sources");
    assert_eq!(sources.len(), 7, "{sources:?}");
    let all = json(&[
        "inspect", &package, "--verify", "--source", &source, "--json",
    ]);
    assert_eq!(all["unchecked"], json!([]));
    let output = run(&["inspect", &package, "--verify"]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    let words = stdout(&output);
    assert!(
        words.contains("could not be checked: source file model.safetensors"),
        "{words}"
    );
    assert!(!words.contains("sound"), "{words}");
    // Another folder is not what was packed.
    let args = [
        "inspect",
        &package,
        "--verify",
        "--source",
        &text(&fixture("llama")),
    ];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("problem: source file config.json"),
        "{}",
        stdout(&output)
    );
    // A flipped bit in the middle of the weights is found by reading them, with its tensor.
    let mut bytes = fs::read(&package).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&package, &bytes).expect("written");
    let output = run(&["inspect", &package, "--verify", "--source", &source]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("as it was packed"),
        "{}",
        stdout(&output)
    );
    // In the header and at the end it is an error at once.
    bytes[middle] ^= 1;
    bytes[2000] ^= 1;
    fs::write(&package, &bytes).expect("written");
    for command in [
        &["inspect", package.as_str()][..],
        &["generate", "x", "-m", &package],
    ] {
        let output = run(command);
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("model.safetensors"),
            "{}",
            stderr(&output)
        );
    }
    bytes[2000] ^= 1;
    fs::write(&package, &bytes[..bytes.len() - 1]).expect("written");
    let output = run(&["inspect", &package]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("model.safetensors"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_advisory_refuses_by_name_until_it_is_overridden() {
    let work = Work::new();
    let (package, _) = work.pack(&embedded(), &[]);
    let ask = [
        "--chat",
        PROMPT,
        "--max-tokens",
        "20",
        "--temperature",
        "0",
        "-m",
        &package,
    ];
    let sound = outcome(&ask);
    edit(&package, r#"\"revision\":1"#, r#"\"revision\":0"#);
    let reference = text(&root().join("engine/package/embedded/reference.safetensors"));
    let refused: [&[&str]; 6] = [
        &["generate", "x", "-m", &package],
        &["generate", "x", "-m", &package, "--backend", "fingerprint"],
        &["serve", "--port", "0", "-m", &package],
        &["law", "--runs", "1", "-m", &package],
        &["check-logits", &package, "--reference", &reference],
        &[
            "generate",
            "x",
            "--speculate",
            "draft_model",
            "--draft-model",
            &package,
        ],
    ];
    for args in refused {
        let output = run(args);
        let words = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {words}");
        assert!(words.contains("advisory drill"), "{args:?}: {words}");
        assert!(words.contains("re-pack from hf"), "{args:?}: {words}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    let output = run(&["inspect", &package]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("advisory           drill: "),
        "{}",
        stdout(&output)
    );
    let output = run(&[
        "generate",
        "x",
        "-m",
        &package,
        "--allow-advisory",
        "none-such",
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let allow = ["--allow-advisory", "drill"];
    assert_eq!(outcome(&[&ask[..], &allow].concat()), sound);
    let server = Running::start(&["-m", &package, "--allow-advisory", "drill"]);
    let question = json!({"messages": [{"role": "user", "content": PROMPT}], "temperature": 0});
    assert_eq!(server.chat(question).status, 200);
}

#[test]
fn a_contract_is_kept_by_the_server_and_the_command_line() {
    let work = Work::new();
    let source = embedded();
    let question = [
        "--chat",
        PROMPT,
        "--temperature",
        "0",
        "--max-tokens",
        "12",
        "--json",
    ];
    let free = json(&[&["generate"][..], &question, &["-m", &source]].concat());
    let first = free["token_ids"][0].as_u64().expect("a token");
    let contract = work.path("contract.json");
    let changes = json!({
        "ranges": {"temperature": [0, 0.5]},
        "refused_in_output": [first],
        "refused_in_prompts": [first],
    });
    fs::write(&contract, changes.to_string()).expect("written");
    let (package, _) = work.pack(&source, &["--contract", &contract, "--name", "strict"]);
    let held = json(&[&["generate"][..], &question, &["-m", &package]].concat());
    let tokens = held["token_ids"].as_array().expect("tokens");
    assert!(
        !tokens.is_empty() && !tokens.contains(&json!(first)),
        "{tokens:?}"
    );
    let output = run(&["generate", "x", "-m", &package, "--temperature", "0.6"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("0 to 0.5"), "{}", stderr(&output));

    let server = Running::start(&["-m", &package]);
    assert_eq!(server.model, "strict");
    let body = json!({"messages": [{"role": "user", "content": PROMPT}], "temperature": 1, "seed": 1,
        "max_tokens": 4, "logit_bias": {first.to_string(): 100}});
    let answer = server.chat(body).json();
    assert_eq!(answer["warnings"][0]["used"], 0.5, "{answer}");
    let body = json!({"model": "strict", "prompt": [1, first], "max_tokens": 2});
    let refused = super::http::post(server.address, "/v1/completions", &body);
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.json()["error"]["code"],
        "refused_token",
        "{}",
        refused.text()
    );
    fs::write(&contract, r#"{"refused_in_output": ["x"]}"#).expect("written");
    let out = work.path("other.safetensors");
    let output = run(&["pack", "-m", &source, "-o", &out, "--contract", &contract]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("contract.json"),
        "{}",
        stderr(&output)
    );
}
