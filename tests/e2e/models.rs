//! Models that can't be used: each is one clear error that names file, tensor or field, with code 3, and
//! never a crash.

use super::{root, run, stderr};
use std::{fs, path::Path};
use tempfile::TempDir;

fn copy() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let from = root().join("engine/package/embedded/hf");
    for entry in fs::read_dir(&from).expect("the embedded model") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        if name != "mtp.safetensors" {
            fs::copy(&path, folder.path().join(name)).expect("copied");
        }
    }
    folder
}

fn check(name: &str, damage: impl Fn(&Path), words: &[&str]) {
    let folder = copy();
    damage(folder.path());
    let path = folder.path().to_str().expect("UTF-8");
    let output = run(&[
        "generate",
        "--chat",
        "hello",
        "--max-tokens",
        "2",
        "--model",
        path,
    ]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{name}: {text}");
    for word in words {
        assert!(text.contains(word), "{name}: {word:?} is not in {text}");
    }
    assert!(!text.contains("panicked"), "{name}: {text}");
}

fn edit(folder: &Path, file: &str, change: impl Fn(&mut Vec<u8>)) {
    let path = folder.join(file);
    let mut bytes = fs::read(&path).expect("read");
    change(&mut bytes);
    fs::write(&path, bytes).expect("written");
}

fn replace(folder: &Path, file: &str, from: &str, to: &str) {
    edit(folder, file, |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("UTF-8");
        assert!(text.contains(from), "{file} has no {from}");
        *bytes = text.replacen(from, to, 1).into_bytes();
    });
}

/// Changes the header of a safetensors file, keeping its length right.
fn edit_header(folder: &Path, change: impl Fn(String) -> String) {
    edit(folder, "model.safetensors", |bytes| {
        let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
        let header = String::from_utf8(bytes[8..8 + len].to_vec()).expect("UTF-8");
        let changed = change(header);
        let mut out = (changed.len() as u64).to_le_bytes().to_vec();
        out.extend(changed.as_bytes());
        out.extend(&bytes[8 + len..]);
        *bytes = out;
    });
}

#[test]
fn an_untouched_copy_works() {
    let folder = copy();
    let path = folder.path().to_str().expect("UTF-8");
    let output = run(&[
        "generate",
        "--chat",
        "hello",
        "--max-tokens",
        "2",
        "--model",
        path,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn weights_that_lie() {
    let file = "model.safetensors";
    check(
        "cut off",
        |f| edit(f, file, |b| b.truncate(b.len() / 2)),
        &[file],
    );
    check(
        "cut in the header",
        |f| edit(f, file, |b| b.truncate(100)),
        &[file],
    );
    check("empty", |f| edit(f, file, Vec::clear), &[file]);
    check(
        "a header of 2^60 bytes",
        |f| edit(f, file, |b| b[7] = 0x10),
        &[file],
    );
    check(
        "a header that is no JSON",
        |f| edit(f, file, |b| b[8] = b'!'),
        &[file],
    );
    check(
        "gone",
        |f| fs::remove_file(f.join(file)).expect("removed"),
        &[file],
    );
}

#[test]
fn tensors_that_do_not_fit() {
    let norm = "model.norm.weight";
    let rename = |header: String| header.replacen(norm, "model.mron.weight", 1);
    check("a missing tensor", |f| edit_header(f, rename), &[norm]);
    let reshape = |header: String| {
        let at = header.find(&format!("\"{norm}\"")).expect("the tensor");
        let (before, after) = header.split_at(at);
        format!("{before}{}", after.replacen("[192]", "[96,2]", 1))
    };
    check("a wrong shape", |f| edit_header(f, reshape), &[norm, "192"]);
}

#[test]
fn weights_that_are_no_numbers() {
    // The last two bytes belong to some tensor: all ones is a NaN in bf16.
    let damage = |f: &Path| {
        edit(f, "model.safetensors", |bytes| {
            let len = bytes.len();
            bytes[len - 2..].fill(0xff);
        });
    };
    check("NaN", damage, &["NaN"]);
}

#[test]
fn settings_that_make_no_sense() {
    let config = "config.json";
    check(
        "no JSON",
        |f| edit(f, config, |b| b.truncate(20)),
        &[config],
    );
    check(
        "gone",
        |f| fs::remove_file(f.join(config)).expect("removed"),
        &[config],
    );
    let unknown = |f: &Path| replace(f, config, "\"qwen3_5_text\"", "\"mamba9\"");
    check("an unknown architecture", unknown, &["mamba9", "llama"]);
    let tokenizer = "tokenizer.json";
    check(
        "no tokenizer",
        |f| edit(f, tokenizer, |b| b.truncate(50)),
        &[tokenizer],
    );
}

#[test]
fn templates_that_fail() {
    let template = "chat_template.jinja";
    let write =
        |text: &'static str| move |f: &Path| fs::write(f.join(template), text).expect("written");
    check("does not compile", write("{% if %}"), &[template]);
    check(
        "fails",
        write("{{ messages.nothing.at.all }}"),
        &["emplate"],
    );
    check(
        "refuses",
        write("{{ raise_exception('not with me') }}"),
        &["not with me"],
    );
    check(
        "runs for ever",
        write(
            "{% for i in range(9999999) %}{% for j in range(9999999) %}x{% endfor %}{% endfor %}",
        ),
        &["emplate"],
    );
}

#[test]
fn prompts_that_do_not_fit() {
    let long = "word ".repeat(4000);
    let output = run(&["generate", "--chat", &long]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("2048"), "{}", stderr(&output));
    let output = super::run_with_input(&["generate"], b"caf\xe9");
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("UTF-8 at byte 3"),
        "{}",
        stderr(&output)
    );
}
