//! Tests of the parser by example: the rules that formats share, and GLM's. The laws of cutting are
//! in `format_tests`.

use super::*;
use crate::event::TagErrorKind;
use crate::outcome::{self, Outcome, run_parser, run_with, tools};
use alloc::format;
use alloc::vec;

fn options(starts_in_reasoning: bool, delivery: Delivery) -> ParserOptions {
    outcome::options(TagFormat::Glm, starts_in_reasoning, delivery)
}

fn run(starts_in_reasoning: bool, text: &str, ended: Ended) -> Outcome {
    outcome::run(TagFormat::Glm, starts_in_reasoning, text, ended)
}

/// Content and calls of an output that starts in content and ends by itself.
fn check(text: &str, content: &str, calls: &[&str]) {
    let outcome = run(false, text, Ended::Eos);
    assert!(outcome.result.is_ok(), "{text:?}: {:?}", outcome.result);
    assert_eq!(
        (outcome.content.as_str(), outcome.reasoning.as_str()),
        (content, ""),
        "{text:?}"
    );
    assert_eq!(outcome.calls, calls, "{text:?}");
}

fn check_error(text: &str, kind: TagErrorKind, offset: usize, expected: &str, markup: &str) {
    let error = run(false, text, Ended::Eos).result.unwrap_err();
    assert_eq!(
        error,
        TagError {
            kind,
            offset,
            expected: expected.into(),
            markup: markup.into()
        }
    );
}

#[test]
fn a_call_in_both_layouts() {
    check("a<tool_call>go</tool_call>b", "ab", &["go {}"]);
    check("<tool_call>\n go\n</tool_call>", "", &["go {}"]);
    let newlines = "<tool_call>note\n<arg_key>t</arg_key>\n<arg_value>\nx </arg_value>\n\
                    <arg_key>n</arg_key>\n<arg_value> 7\n</arg_value>\n</tool_call>";
    check(newlines, "", &[r#"note {"t":"\nx ","n":7}"#]);
}

#[test]
fn an_opener_in_prose_is_text() {
    for text in [
        "Use <tool_call> to call.",
        "Use <tool_call>",
        "<tool_call> \n",
        "<tool_call>other",
        "<tool_call>other words",
        "<tool_call>other <b>",
        "<tool_call>other<tool_ca",
        "<tool_call>gone",
        "<tool_call><b>",
        "<tool_call>>",
        "<tool_call>a</think>",
        "</tool_call> <arg_key>",
        "```\n<tool_call>go</tool_call>\n```",
        "~~~~ x\n~~~\n<tool_call>go</tool_call>",
    ] {
        check(text, text, &[]);
    }
}

#[test]
fn a_call_behind_a_closed_fence_runs() {
    check(
        "```\nx\n```\n<tool_call>go</tool_call>",
        "```\nx\n```\n",
        &["go {}"],
    );
    check(
        "```\nx\n```<tool_call>go</tool_call>\n",
        "```\nx\n```\n",
        &["go {}"],
    );
    // Prose that merely mentions the opener must not close the fence for good.
    let text = "```\nx\n```<tool_call> y\n<tool_call>go</tool_call>";
    check(text, text, &[]);
}

#[test]
fn a_stuttered_opener_is_dropped() {
    check("a<tool_call><tool_call>go</tool_call>", "a", &["go {}"]);
    check(
        "<tool_call>\n<tool_call>\n<tool_call>go</tool_call>",
        "",
        &["go {}"],
    );
    check(
        "<tool_call>x<tool_call>go</tool_call>",
        "<tool_call>x",
        &["go {}"],
    );
}

#[test]
fn tags_inside_a_value_are_data() {
    let call = |value: &str| {
        format!("<tool_call>note<arg_key>t</arg_key><arg_value>{value}</arg_value></tool_call>")
    };
    for value in [
        "</tool_call>",
        "</arg_value>",
        "</arg_value>\n",
        "</arg_value></arg_value>",
        "</arg_value> x",
        "<tool_call>go</tool_call>",
        "</think><think>",
        "<arg_key>t</arg_key>",
        "<arg_key>t</arg_key> x<arg_value>",
        "<arg_key>undeclared</arg_key><arg_value>",
        "<arg_key>t<b</arg_key><arg_value>",
        "<|user|>",
        "<",
        "```\n",
    ] {
        let json = format!(
            "note {{\"t\":{}}}",
            crate::json::Value::String(value.into())
        );
        check(&call(value), "", &[&json]);
    }
}

#[test]
fn a_lost_closer_is_loud() {
    let head = "<tool_call>note<arg_key>n</arg_key><arg_value>1";
    let next = "<arg_key> t </arg_key>\n<arg_value>";
    for between in ["", " and ", "</arg_value> and ", "<arg_key>n</arg_key>"] {
        let text = format!("{head}{between}{next}x</arg_value></tool_call>");
        let markup = format!("{head}{between}{next}");
        let expected = "`</arg_value>` before the next argument";
        let at = head.len() + between.len();
        check_error(&text, TagErrorKind::MalformedCall, at, expected, &markup);
    }
}

#[test]
fn errors_say_what_where_and_why() {
    use TagErrorKind::{BadValue, MalformedCall, UnknownTool, UnterminatedToolCall};
    let end = "`</tool_call>` before the end of the output";
    let next = "`<arg_key>` or `</tool_call>`";
    let key = "<tool_call>note<arg_key>";
    let value = "<tool_call>note<arg_key>n</arg_key><arg_value>";
    check_error(
        "é<tool_call>gone</tool_call>",
        UnknownTool,
        13,
        "one of the offered tools: go, note, pick",
        "<tool_call>gone",
    );
    let no_name = "<tool_call> </tool_call>";
    check_error(no_name, MalformedCall, 12, "the name of a tool", no_name);
    check_error(
        "<tool_call>go (x)",
        MalformedCall,
        14,
        next,
        "<tool_call>go (",
    );
    check_error(
        "<tool_call>go<tool_call>",
        MalformedCall,
        13,
        next,
        "<tool_call>go<tool_call>",
    );
    check_error(
        "<tool_call>go<|user|>.",
        MalformedCall,
        13,
        next,
        "<tool_call>go<",
    );
    let both = format!("{key}a<b");
    check_error(&both, MalformedCall, 25, "`</arg_key>`", &both[..26]);
    let stray = format!("{key}a</arg_key>x");
    check_error(&stray, MalformedCall, 35, "`<arg_value>`", &stray);
    check_error(
        &format!("{value}1.5</arg_value> <arg_key>"),
        BadValue,
        value.len(),
        "an integer for parameter `n`",
        &format!("{value}1.5</arg_value> <arg_key>"),
    );
    for text in [
        "<tool_call>go",
        "<tool_call>go \n",
        value,
        "<tool_call>note<arg_key>n</arg_key",
    ] {
        check_error(text, UnterminatedToolCall, text.len(), end, text);
    }
    // A stop token at the very end is no part of the call, and no text.
    check_error(
        "<tool_call>go <|observation|>",
        UnterminatedToolCall,
        14,
        end,
        "<tool_call>go ",
    );
}

#[test]
fn what_the_token_limit_cuts_off_is_dropped_and_named() {
    for text in [
        "<tool_call>",
        "<tool_call> no",
        "<tool_call>go</tool",
        "<tool_call>x <arg_k",
    ] {
        let outcome = run(false, &format!("a{text}"), Ended::Length);
        assert_eq!(outcome.content, "a");
        let finished = Finished {
            num_calls: 0,
            dropped_call: Some(text.into()),
        };
        assert_eq!(outcome.result, Ok(finished));
    }
    let outcome = run(true, "a</think>b<tool_ca", Ended::Length);
    assert_eq!(
        (outcome.reasoning.as_str(), outcome.content.as_str()),
        ("a", "b<tool_ca")
    );
    assert_eq!(
        outcome.result,
        Ok(Finished {
            num_calls: 0,
            dropped_call: None
        })
    );
}

#[test]
fn channels() {
    for (reasoning_first, text, reasoning, content) in [
        (true, "a</think>b", "a", "b"),
        (true, " \n<think>a</think>b", "a", "b"),
        (false, " \n<think>a</think>b", "a", "b"),
        (false, " \na", "", " \na"),
        (true, " \na", " \na", ""),
        (true, "<think><think>a", "<think>a", ""),
        (false, "a<think>b</think>", "", "a<think>b</think>"),
        (true, "a</think>b</think>c", "a", "b</think>c"),
        (
            true,
            "a<tool_call>go</tool_call>b</think>c</think>",
            "a",
            "bc</think>",
        ),
        (true, "a<tool_call>go</tool_call>", "a", ""),
        (true, "a <tool_call> b</think>c", "a <tool_call> b", "c"),
        (true, "```\n<tool_call>go</tool_call>", "```\n", ""),
        (true, "", "", ""),
        (true, " ", " ", ""),
        (true, "a</think>b<|observation|>", "a", "b"),
        (true, "a<|user|><|endoftext|>", "a", ""),
        (true, "a</think><|user|>b<|user|", "a", "<|user|>b<|user|"),
    ] {
        let outcome = run(reasoning_first, text, Ended::Eos);
        assert_eq!(outcome.reasoning, reasoning, "{text:?}");
        assert_eq!(outcome.content, content, "{text:?}");
        assert!(outcome.result.is_ok(), "{text:?}");
    }
}

#[test]
fn without_reasoning_tools_or_format_the_tags_are_text() {
    let text = "<think>a</think><tool_call>go</tool_call>";
    let mut plain = options(true, Delivery::Whole);
    plain.reasoning = false;
    plain.tools = Arc::default();
    assert_eq!(run_with(plain.clone(), &[text], Ended::Eos).content, text);
    plain.reasoning = true;
    let outcome = run_with(plain.clone(), &[text], Ended::Eos);
    assert_eq!(
        (outcome.reasoning.as_str(), outcome.content.as_str()),
        ("a", &text[16..])
    );
    plain.tools = tools();
    plain.format = TagFormat::Plain;
    let outcome = run_with(plain, &[text, "<|user|>"], Ended::Eos);
    assert_eq!(outcome.content, format!("{}<|user|>", &text[16..]));
}

#[test]
fn a_later_argument_may_decide_on_the_type_of_an_earlier_one() {
    let pick = |first: (&str, &str), second: (&str, &str)| {
        let arg = |(key, value)| format!("<arg_key>{key}</arg_key><arg_value>{value}</arg_value>");
        format!("<tool_call>pick{}{}</tool_call>", arg(first), arg(second))
    };
    check(
        &pick(("v", "7"), ("kind", "num")),
        "",
        &[r#"pick {"v":7,"kind":"num"}"#],
    );
    check(
        &pick(("v", "7"), ("kind", "txt")),
        "",
        &[r#"pick {"v":"7","kind":"txt"}"#],
    );
    check(
        &pick(("kind", "txt"), ("v", "7")),
        "",
        &[r#"pick {"kind":"txt","v":"7"}"#],
    );
    let text = pick(("v", "x"), ("kind", "num"));
    check_error(
        &text,
        TagErrorKind::BadValue,
        46,
        "an integer for parameter `v`",
        &text,
    );
}

#[test]
fn eager_delivery_tells_what_is_certain() {
    let mut parser = TagParser::new(options(false, Delivery::Eager));
    let mut steps = Vec::new();
    for piece in [
        "<tool_call>note",
        "<arg_key>t</arg_key>",
        "<arg_value>ab",
        "\"</arg_va",
        "lue>",
        " \n",
        "x</arg_value>",
        "<arg_key>n</arg_key><arg_value>1",
        "2</arg_value>",
        "</tool_call>",
    ] {
        let mut out = Vec::new();
        parser.push(piece, &mut out).unwrap();
        assert_eq!(
            parser.in_call(),
            !steps.is_empty() && piece != "</tool_call>",
            "{piece}"
        );
        steps.push(out);
    }
    let arguments = |text: &str| {
        vec![TagEvent::CallArguments {
            index: 0,
            fragment: text.into(),
        }]
    };
    let mut first = vec![TagEvent::CallBegin {
        index: 0,
        name: "note".into(),
    }];
    assert_eq!(steps[0], []);
    assert_eq!(steps[1], core::mem::take(&mut first));
    assert_eq!(steps[2], arguments("{\"t\":\"ab"));
    assert_eq!(steps[3], arguments("\\\""));
    assert_eq!((steps[4].len(), steps[5].len()), (0, 0));
    assert_eq!(steps[6], arguments("</arg_value> \\nx"));
    assert_eq!(steps[7], arguments("\""));
    assert_eq!(steps[8], []);
    assert_eq!(steps[9].first(), arguments(",\"n\":12}").first());
    assert_eq!(steps[9].last(), Some(&TagEvent::CallEnd { index: 0 }));
}

#[test]
fn after_an_error_nothing_more_is_said() {
    let mut parser = TagParser::new(options(false, Delivery::Whole));
    let mut out = Vec::new();
    let error = parser
        .push("a<tool_call></tool_call>b", &mut out)
        .unwrap_err();
    assert_eq!(parser.push("c<tool_call>go</tool_call>", &mut out), Ok(()));
    assert_eq!(parser.finish(Ended::Eos, &mut out), Err(error));
    assert_eq!(out, [TagEvent::Content("a".into())]);
}

#[test]
fn the_markup_of_a_call_is_limited() {
    let head = "<tool_call>note<arg_key>t</arg_key><arg_value>";
    let text = format!("{head}éééééé</arg_value></tool_call>");
    for delivery in [Delivery::Whole, Delivery::Eager] {
        for pieces in [vec![text.as_str()], text.split_inclusive('é').collect()] {
            let mut parser = TagParser::new(options(false, delivery));
            let Machine::Channels(channels) = &mut parser.machine else {
                panic!("no tags in the flow of text");
            };
            channels.call_bytes_max = head.len() + 5;
            let error = run_parser(&mut parser, &pieces, Ended::Eos)
                .result
                .unwrap_err();
            assert_eq!(error.kind, TagErrorKind::MalformedCall);
            assert_eq!(
                (error.offset, error.markup),
                (head.len() + 4, format!("{head}éé"))
            );
            assert_eq!(
                error.expected,
                format!("a call of at most {} bytes", head.len() + 5)
            );
        }
    }
}

/// Each of these texts held or looked at again per pushed character would take hours.
#[test]
fn long_outputs_cost_linear_work() {
    const LONG: usize = 1 << 19;
    let value = "<tool_call>note<arg_key>t</arg_key><arg_value>";
    for (head, unit, tail) in [
        ("", "a", ""),
        ("", "<", ""),
        ("", " ", ""),
        ("", "<|user|>", ""),
        ("<tool_call>", " ", ""),
        ("<tool_call>", "a", ""),
        (value, "a", "</arg_value></tool_call>"),
        (value, "</arg_value> ", "</arg_value></tool_call>"),
        (value, "<arg_key>t</arg_key>", "</arg_value></tool_call>"),
        (
            "<tool_call>note<arg_key>t</arg_key><arg_value></arg_value>",
            "\n",
            "</tool_call>",
        ),
        (
            "<tool_call>go",
            "<arg_key>t</arg_key><arg_value>1</arg_value>",
            "</tool_call>",
        ),
    ] {
        let text = [head, &unit.repeat(LONG / unit.len()), tail].concat();
        for delivery in [Delivery::Whole, Delivery::Eager] {
            let mut parser = TagParser::new(options(false, delivery));
            let mut events = Vec::new();
            for i in 0..text.len() {
                parser.push(&text[i..=i], &mut events).unwrap();
            }
            let finished = parser.finish(Ended::Eos, &mut events).unwrap();
            assert_eq!(
                finished.num_calls,
                u32::from(!tail.is_empty()),
                "{head}{unit}"
            );
        }
    }
}

#[test]
fn the_start_state_is_read_off_the_prompt() {
    for (tail, reasoning) in [
        ("<|assistant|><think>", true),
        ("<think>\n", true),
        ("<|assistant|></think>", false),
        ("<think></think>", false),
        ("<think> x", false),
        ("", false),
    ] {
        assert_eq!(starts_in_reasoning(tail), reasoning, "{tail:?}");
    }
}
