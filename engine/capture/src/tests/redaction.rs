//! What is left out is left out, and what can still be judged is.

use super::*;

/// How often words of the vocabulary stand in a file: a letter, digits, a blank.
fn words(bytes: &[u8]) -> usize {
    let is_word =
        |own: &&[u8]| own[0] == b'w' && own[1].is_ascii_digit() && own[2..].contains(&b' ');
    bytes.windows(4).filter(is_word).count()
}

#[test]
fn without_text_everything_but_masks_is_still_judged() {
    let open = recorded(&Options::default());
    assert!(words(&open) > 20);
    let options = Options {
        redaction: Redaction::Text,
        ..Options::default()
    };
    let bytes = recorded(&options);
    assert!(words(&bytes) < 3, "by chance, in digests");
    let source = b"skip 3";
    let has_source = |bytes: &[u8]| bytes.windows(6).any(|own| own == source);
    assert!(has_source(&open) && !has_source(&bytes));
    let mut capture = capture(&options);
    // Stop strings are text; whoever has them can still judge what was said.
    capture.requests.retain(|seq, _| {
        let open = Capture::of_bytes(&open).expect("a capture");
        open.requests[seq].stop_strings.is_empty()
    });
    let verdict = replayed(&capture, 4);
    assert_eq!(verdict.guilty(), None);
    for stage in [Stage::Logits, Stage::Verify, Stage::Detokenize, Stage::Tags] {
        assert!(verdict.at(stage).passes(), "{:?}", verdict.at(stage));
    }
    assert!(verdict.at(Stage::Mask).is_unobserved());
}

#[test]
fn without_tokens_plans_are_still_held_against_their_rules() {
    let options = Options {
        redaction: Redaction::Tokens,
        ..Options::default()
    };
    let capture = capture(&options);
    let prompts: Vec<&TokenId> = capture
        .requests
        .values()
        .flat_map(|own| &own.prompt)
        .collect();
    assert!(prompts.iter().filter(|token| token.0 < VOCAB_SIZE).count() < 3);
    let verdict = replayed(&capture, 4);
    assert_eq!(verdict.guilty(), None);
    assert!(verdict.at(Stage::Schedule).passes());
    let lacking: Vec<Stage> = verdict.lacking().map(|own| own.stage).collect();
    assert_eq!(lacking, Stage::ALL[1..], "nothing else is taken for a pass");
}
