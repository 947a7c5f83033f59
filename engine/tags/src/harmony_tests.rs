//! Tests of the harmony format by example.

use crate::event::TagErrorKind::{
    ArgumentsNotObject, BadMessageHeader, MalformedJson, UnknownTool, UnterminatedToolCall,
};
use crate::format::TagFormat;
use crate::outcome::{Examples, options, run, run_with};
use crate::{Delivery, Ended};
use alloc::format;

const HARMONY: Examples = Examples(TagFormat::Harmony);

#[test]
fn channels_and_recipients() {
    for (text, reasoning, content, calls) in [
        ("", "", "", &[][..]),
        ("<|channel|>final<|message|>a<|return|>", "", "a", &[]),
        ("<|channel|>final<|message|>a", "", "a", &[]),
        ("<|channel|>final<|message|>a<|en", "", "a<|en", &[]),
        (
            "<|start|>assistant<|channel|>final<|message|><|return|>",
            "",
            "",
            &[],
        ),
        (
            "<|channel|>analysis<|message|>a\n<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>",
            "a\n\nb",
            "",
            &[],
        ),
        (
            "<|channel|>commentary<|message|>a<|end|><|channel|>final<|message|>b<|return|>",
            "",
            "a\nb",
            &[],
        ),
        (
            "<|channel|>final<|message|>a <|message|> b<|channel|><|start|>",
            "",
            "a <|message|> b<|channel|><|start|>",
            &[],
        ),
        (
            "<|channel|>final<|message|><think>a</think>",
            "",
            "<think>a</think>",
            &[],
        ),
        (
            " to=functions.go<|channel|>analysis<|message|>{}<|call|>",
            "",
            "",
            &["go {}"],
        ),
        (
            "<|channel|>commentary to=functions.go json<|message|>{}<|call|>",
            "",
            "",
            &["go {}"],
        ),
        (
            "<|channel|>commentary to=functions.go<|constrain|>json<|message|> {\"a\": 1}\n<|end|>",
            "",
            "",
            &["go {\"a\":1}"],
        ),
        (
            "<|channel|>commentary to=functions.go <|constrain|>json<|message|><|call|>",
            "",
            "",
            &["go {}"],
        ),
        (
            "<|channel|>final to=functions.go<|message|> \n<|call|>",
            "",
            "",
            &["go {}"],
        ),
        (
            "<|channel|>analysis to=python<|message|>print(1)<|call|>",
            "",
            "",
            &[],
        ),
        (
            "<|channel|>commentary to=browser.open<|message|>{\"x",
            "",
            "",
            &[],
        ),
        (
            "<|channel|>commentary to=functions.go<|message|>{\"a\":\"<|call|>\"}<|call|>",
            "",
            "",
            &["go {\"a\":\"<|call|>\"}"],
        ),
        (
            "<|channel|>commentary to=functions.go<|message|>{}<|call|><|start|>assistant to=functions.note\
          <|channel|>commentary<|message|>{\"n\":1}<|call|>",
            "",
            "",
            &["go {}", "note {\"n\":1}"],
        ),
    ] {
        for starts_in_reasoning in [false, true] {
            let outcome = run(TagFormat::Harmony, starts_in_reasoning, text, Ended::Eos);
            assert!(outcome.result.is_ok(), "{text}: {:?}", outcome.result);
            let said = (outcome.reasoning.as_str(), outcome.content.as_str());
            assert_eq!(said, (reasoning, content), "{text}");
            assert_eq!(outcome.calls, calls, "{text}");
        }
    }
}

#[test]
fn without_tools_a_call_is_a_message_to_somebody_else() {
    let mut options = options(TagFormat::Harmony, false, Delivery::Whole);
    options.tools = alloc::sync::Arc::default();
    let text = "<|channel|>final to=functions.go<|message|>{}<|call|><|channel|>final<|message|>a";
    let outcome = run_with(options, &[text], Ended::Eos);
    assert_eq!((outcome.content.as_str(), outcome.calls.len()), ("a", 0));
    assert!(outcome.result.is_ok());
}

#[test]
fn headers_that_are_none() {
    let first = "` to=`, `<|start|>` or `<|channel|>`";
    let role = "`assistant`, maybe ` to=` and a name, `<|channel|>`";
    let channel = "`analysis`, `commentary` or `final`, maybe ` to=` and a name, `<|message|>`";
    let end = "`<|message|>` before the end of the output";
    for (text, wrong, expected) in [
        ("Hello", "H", first),
        ("\n<|channel|>", "\n", first),
        ("<|message|>", "<|message|>", first),
        (" to=<|channel|>", "<|channel|>", role),
        (" to=a b", " b", role),
        ("<|start|><|channel|>", "<|channel|>", role),
        ("<|start|>user", "u", role),
        ("<|start|>assistant<|message|>", "<|message|>", role),
        ("<|start|>assistant<|start|>", "<|start|>", role),
        ("<|channel|>finale", "e", channel),
        ("<|channel|>final<|channel|>", "<|channel|>", channel),
        ("<|channel|><|message|>", "<|message|>", channel),
        ("<|channel|>fin<|message|>", "<|message|>", channel),
        ("<|channel|>final <|message|>", "<|message|>", channel),
        (
            "<|channel|>final json<|constrain|>",
            "<|constrain|>",
            channel,
        ),
        ("<|channel|>final jsonl", "l", channel),
        ("<|channel|>final to=a<|return|>", "<|return|>", channel),
        (
            " to=a<|channel|>final to=b<|message|>",
            "<|message|>",
            channel,
        ),
        (
            "<|channel|>final<|constrain|><|message|>",
            "<|message|>",
            "a word, `<|message|>`",
        ),
        (
            "<|channel|>final<|constrain|>js on",
            " on",
            "a word, `<|message|>`",
        ),
        ("<|channel|>final<|message|>a<|end|>b", "b", first),
        ("<|channel|>fin", "", end),
        ("<|channel|>final<|mess", "", end),
        ("<|start|>", "", end),
    ] {
        HARMONY.check_error(text, BadMessageHeader, wrong, expected, &[]);
    }
    let long = format!(" to={}", "a".repeat(2000));
    let error = run(TagFormat::Harmony, false, &long, Ended::Eos)
        .result
        .unwrap_err();
    assert_eq!((error.kind, error.offset), (BadMessageHeader, 1024));
}

#[test]
fn calls_that_are_none() {
    let head = "<|channel|>commentary to=functions.go<|message|>";
    let end = "`<|call|>` before the end of the output";
    for (body, kind, wrong, expected) in [
        ("[]", ArgumentsNotObject, "[]", "an object of arguments"),
        (
            "5<|call|>",
            ArgumentsNotObject,
            "5",
            "an object of arguments",
        ),
        ("{x", MalformedJson, "x", "a key in double quotes"),
        ("{<|call|>", MalformedJson, "<", "a key in double quotes"),
        ("{} x", MalformedJson, "x", "`<|call|>`"),
        ("{}", UnterminatedToolCall, "", end),
        ("", UnterminatedToolCall, "", end),
        ("{\"a\": \"<|call|>", UnterminatedToolCall, "", end),
    ] {
        HARMONY.check_error(&[head, body].concat(), kind, wrong, expected, &[]);
    }
    let gone = "<|channel|>final to=functions.gone<|message|>";
    let tools = "one of the offered tools: go, note, pick";
    HARMONY.check_error(gone, UnknownTool, "functions.gone", tools, &[]);
}

#[test]
fn what_the_token_limit_cuts_off() {
    let said = "<|channel|>final<|message|>a<|end|>";
    for cut in [
        "<|channel|>final to=functions.go<|message|>{}",
        "<|channel|>final to=functions.g",
    ] {
        HARMONY.check_cut(&[said, cut].concat(), "a", &[], Some(cut));
    }
    for cut in [
        "<|start|>assis",
        "<|sta",
        "<|channel|>final to=browser<|message|>x",
    ] {
        HARMONY.check_cut(&[said, cut].concat(), "a", &[], None);
    }
    HARMONY.check_cut("<|channel|>final<|message|>a<|en", "a<|en", &[], None);
}
