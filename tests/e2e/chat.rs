//! `lockstep chat`, piped: one message a line, plain text out.

use super::{run_with_input, stderr, stdout};

fn talk(flags: &[&str], input: &str) -> String {
    let mut args = vec!["chat", "--temperature", "0", "--max-tokens", "60"];
    args.extend(flags);
    let output = run_with_input(&args, input.as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn each_line_is_answered() {
    let text = talk(&["--hide-reasoning"], "What is the capital of Peru?\n");
    assert!(text.contains("Lima"), "{text}");
    let two = talk(
        &["--hide-reasoning"],
        "What is the capital of Peru?\n\n/reset\nWhat is the capital of Peru?\n/quit\nNever read.\n",
    );
    assert_eq!(two, format!("{text}{text}"), "/reset forgets");
}

#[test]
fn piped_text_is_plain() {
    let text = talk(&[], "What is the capital of Peru?\n");
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(
        !text.contains("<think>") && !text.contains("<|"),
        "{text:?}"
    );
    let hidden = talk(&["--hide-reasoning"], "What is the capital of Peru?\n");
    assert!(
        text.len() > hidden.len(),
        "reasoning is shown unless hidden"
    );
}

#[test]
fn bytes_that_are_no_text_are_an_error() {
    let output = run_with_input(&["chat"], b"caf\xe9\n");
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("UTF-8"), "{}", stderr(&output));
}
