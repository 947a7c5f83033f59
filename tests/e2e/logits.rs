//! `lockstep check-logits`: every fixture agrees with an independent implementation, and a check that must
//! fail does.

use super::{root, run, stdout};

#[test]
fn logits_of_every_fixture_are_right() {
    let mut num_checked = 0;
    for name in ["llama", "llama3_rope", "qwen3", "qwen3_5"] {
        let folder = root().join("tests/fixtures/models").join(name);
        let reference = folder.join("reference.safetensors");
        let (folder, reference) = (
            folder.to_str().expect("UTF-8"),
            reference.to_str().expect("UTF-8"),
        );
        for weights in ["f32", "q8"] {
            let args = [
                "check-logits",
                folder,
                "--reference",
                reference,
                "--weights",
                weights,
            ];
            let output = run(&args);
            assert!(
                output.status.success(),
                "{name} {weights}: {}",
                stdout(&output)
            );
            num_checked += 1;
        }
    }
    assert_eq!(num_checked, 8);
}

#[test]
fn logits_of_another_model_are_wrong() {
    let models = root().join("tests/fixtures/models");
    let (folder, other) = (
        models.join("qwen3"),
        models.join("llama/reference.safetensors"),
    );
    let (folder, other) = (
        folder.to_str().expect("UTF-8"),
        other.to_str().expect("UTF-8"),
    );
    let output = run(&["check-logits", folder, "--reference", other]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}
