//! Tests of the parser: single rules by example, the laws of cutting by random outputs.

use super::*;
use crate::cases::{Reading, fold};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

/// Everything that may not depend on the cut.
#[derive(Debug, PartialEq)]
struct Outcome {
    reasoning: String,
    content: String,
    calls: Vec<String>,
    result: Result<Finished, TagError>,
    /// What became of each byte, neighbours of one fate joined.
    trail: Vec<(Fate, String)>,
}

fn tools() -> Arc<ToolSet> {
    let note = r#"{"type":"object","properties":{"t":{"type":"string"},"n":{"type":"integer"}}}"#;
    let pick = r#"{"anyOf":[
        {"properties":{"kind":{"const":"num"},"v":{"type":"integer"}}},
        {"properties":{"kind":{"const":"txt"},"v":{"type":"string"}}}]}"#;
    let set = [
        ("note".into(), Some(note)),
        ("pick".into(), Some(pick)),
        ("go".into(), None),
    ];
    Arc::new(ToolSet::new(set).unwrap())
}

fn options(starts_in_reasoning: bool, delivery: Delivery) -> ParserOptions {
    let format = TagFormat::Glm;
    ParserOptions {
        format,
        starts_in_reasoning,
        reasoning: true,
        delivery,
        tools: tools(),
    }
}

fn run_with(options: ParserOptions, pieces: &[&str], ended: Ended) -> Outcome {
    let mut parser = TagParser::new(options);
    run_parser(&mut parser, pieces, ended)
}

fn run_parser(parser: &mut TagParser, pieces: &[&str], ended: Ended) -> Outcome {
    let mut events = Vec::new();
    let pushed = pieces
        .iter()
        .try_for_each(|piece| parser.push(piece, &mut events));
    let result = pushed.and_then(|()| parser.finish(ended, &mut events));

    let text = |select: fn(&TagEvent) -> Option<&String>| -> String {
        events
            .iter()
            .filter_map(select)
            .map(String::as_str)
            .collect()
    };
    let Reading { tool_calls, .. } = fold(&events, ended, None);
    Outcome {
        reasoning: text(|e| {
            if let TagEvent::Reasoning(text) = e {
                Some(text)
            } else {
                None
            }
        }),
        content: text(|e| {
            if let TagEvent::Content(text) = e {
                Some(text)
            } else {
                None
            }
        }),
        calls: tool_calls
            .iter()
            .map(|(name, arguments)| format!("{name} {arguments}"))
            .collect(),
        result,
        trail: parser.machine.trail.notes.clone(),
    }
}

/// Runs one text in one piece, in characters, and under both deliveries: all must agree.
fn run(starts_in_reasoning: bool, text: &str, ended: Ended) -> Outcome {
    let whole = run_with(
        options(starts_in_reasoning, Delivery::Whole),
        &[text],
        ended,
    );
    let characters: Vec<String> = text.chars().map(String::from).collect();
    let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
    for delivery in [Delivery::Whole, Delivery::Eager] {
        let cut = run_with(options(starts_in_reasoning, delivery), &characters, ended);
        assert_eq!(cut, whole, "{text:?}");
    }
    let accounted: String = whole.trail.iter().map(|(_, text)| text.as_str()).collect();
    match &whole.result {
        Ok(_) => assert_eq!(accounted, text),
        Err(_) => assert!(text.starts_with(&accounted), "{accounted:?} of {text:?}"),
    }
    whole
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
            parser.machine.call_bytes_max = head.len() + 5;
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

#[test]
fn formats_are_named() {
    for format in TagFormat::ALL {
        assert_eq!(format.as_str().parse(), Ok(format));
    }
    let error = "xml".parse::<TagFormat>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown tag format `xml`, expected one of: none glm qwen_xml hermes_json deepseek_v3 \
         deepseek_v31 deepseek_dsml kimi_k2 minimax_m2 harmony"
    );
}

/// Outputs made of the pieces that matter, whole calls among them so that deep states are common.
fn any_output() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            "<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
            "<arg_value>", "</arg_value>", "<|user|>", "<|observation|>", "<|endoftext|>",
        ]),
        6 => prop::sample::select(vec![
            "note", "pick", "go", "kind", "num", "txt", "other", "t", "n", "v", "1", "2.0", "\"",
            "[1,{}]", "{\"a\":", "null", "True", "é", "👩‍🚀", "\\",
        ]),
        4 => prop::sample::select(vec![" ", "\n", "\t", "\r\n", "```", "~~~~", "\n```\n", "   "]),
        2 => prop::sample::select(vec!["<", ">", "</", "<tool_ca", "<arg_", "</arg_valu", "<|us"]),
        5 => prop::sample::select(vec![
            "<tool_call>note", "<arg_key>t</arg_key><arg_value>", "</arg_value></tool_call>",
            "<tool_call>go</tool_call>", "<arg_key>n</arg_key>\n<arg_value>3</arg_value>",
            "<tool_call>pick\n<arg_key>v</arg_key><arg_value>5</arg_value>",
            "<arg_key>kind</arg_key><arg_value>txt</arg_value>",
        ]),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// Where a text may be cut.
fn borders(text: &str) -> Vec<usize> {
    text.char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_cut_and_no_delivery_changes_what_is_read(
        text in any_output(),
        reasoning in any::<bool>(),
        eos in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let ended = if eos { Ended::Eos } else { Ended::Length };
        let whole = run(reasoning, &text, ended);
        let borders = borders(&text);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&borders)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
        for delivery in [Delivery::Whole, Delivery::Eager] {
            let cut = run_with(options(reasoning, delivery), &pieces, ended);
            prop_assert_eq!(&cut, &whole);
        }
    }

    #[test]
    fn more_text_never_takes_back_what_was_said(
        text in any_output(),
        reasoning in any::<bool>(),
        at in any::<prop::sample::Index>(),
    ) {
        let borders = borders(&text);
        let at = *at.get(&borders);
        let prefix = run(reasoning, &text[..at], Ended::Length);
        let whole = run(reasoning, &text, Ended::Length);
        prop_assert_eq!(&prefix.calls[..], &whole.calls[..prefix.calls.len()]);
        if prefix.result.is_err() {
            prop_assert_eq!(prefix, whole);
        }
    }

    #[test]
    fn any_text_without_tags_passes_unchanged(text in any::<String>(), reasoning in any::<bool>()) {
        let outcome = run(reasoning, &text, Ended::Eos);
        let said = if reasoning { outcome.reasoning } else { outcome.content };
        prop_assert_eq!(said, text);
    }
}
