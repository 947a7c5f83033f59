//! Tests of the Qwen XML format by example.

use crate::event::TagErrorKind::{BadValue, MalformedCall, UnknownTool, UnterminatedToolCall};
use crate::format::TagFormat;
use crate::outcome::{Examples, run};
use crate::{Ended, json};
use alloc::format;

const QWEN: Examples = Examples(TagFormat::QwenXml);

fn note(parameters: &str) -> alloc::string::String {
    format!("<tool_call>\n<function=note>\n{parameters}</function>\n</tool_call>")
}

#[test]
fn a_call_in_both_layouts() {
    QWEN.check(
        "a<tool_call><function=go></function></tool_call>b",
        "ab",
        &["go {}"],
    );
    let call = note("<parameter=t>\n x \n</parameter>\n<parameter=n>\n 7\n</parameter>\n");
    QWEN.check(&call, "", &[r#"note {"t":" x ","n":7}"#]);
}

#[test]
fn one_line_feed_at_either_end_of_a_value_is_layout() {
    for (raw, value) in [
        ("", ""),
        ("\n", ""),
        ("\n\n", ""),
        ("\n\n\n", "\n"),
        ("a", "a"),
        ("\na\n", "a"),
        ("\n\na\n\n", "\na\n"),
        (" \na\n ", " \na\n "),
        ("a\n\n</parameter>\nb\n", "a\n\n</parameter>\nb"),
        ("\r\na", "\r\na"),
    ] {
        let call = note(&format!("<parameter=t>{raw}</parameter>"));
        let value = json::Value::String(value.into());
        QWEN.check(&call, "", &[&format!("note {{\"t\":{value}}}")]);
    }
}

#[test]
fn an_opener_in_prose_is_text() {
    for text in [
        "Use <tool_call> to call.",
        "<tool_call> \n",
        "<tool_call> x {",
        "<tool_call></function>",
        "<tool_call><parameter=t>",
        "<function=gone>",
        "<function=note",
        "<function=note >",
        "<function=",
        "<function=<tool_call>",
        "</tool_call> </function>",
        "<parameter=t>x</parameter>",
        "<tool_call> <functio",
        "```\n<tool_call><function=go></function></tool_call>\n```",
        "```\n<function=go></function>",
    ] {
        QWEN.check(text, text, &[]);
    }
    let outcome = run(
        TagFormat::QwenXml,
        true,
        "a <function=go></function>",
        Ended::Eos,
    );
    assert_eq!(outcome.reasoning, "a <function=go></function>");
}

#[test]
fn the_outer_tags_may_be_missing() {
    QWEN.check("<tool_call><function=go></function>\n", "", &["go {}"]);
    let two =
        "<tool_call><function=go></function>\n<tool_call><function=go></function></tool_call>";
    QWEN.check(two, "", &["go {}", "go {}"]);
    let bare = "a <function=go></function> </tool_call> b";
    QWEN.check(bare, "a  b", &["go {}"]);
    QWEN.check(
        "<function=go></function> b</tool_call>",
        " b</tool_call>",
        &["go {}"],
    );
    QWEN.check(
        "<function=go></function></tool_call></tool_call>",
        "</tool_call>",
        &["go {}"],
    );
    QWEN.check(
        "<function=go></function> </tool_ca",
        " </tool_ca",
        &["go {}"],
    );
    let both = "<tool_call><function=go></function><function=go></function></tool_call>";
    QWEN.check(both, "", &["go {}", "go {}"]);
    QWEN.check(
        "<tool_call><function=go></function><|im_end|>",
        "",
        &["go {}"],
    );
    QWEN.check(
        "<tool_call>\n<tool_call><function=go></function>",
        "",
        &["go {}"],
    );
}

#[test]
fn tags_inside_a_value_are_data() {
    for value in [
        "</tool_call>",
        "</parameter>",
        "</parameter> x",
        "</parameter></parameter>",
        "<tool_call><function=go></function></tool_call>",
        "</function>",
        "<parameter=t>",
        "x <parameter=n>1",
        "\nx\n<parameter=other>",
        "\nx\n<parameter=",
        "\nx\n<parameter=n",
        "\nx\n<parameter=n\n>",
        "\nx\n <parameter=n>",
        "</think><think>",
        "<|im_end|>",
        "```\n",
        "<",
    ] {
        let call = note(&format!("<parameter=t>{value}</parameter>"));
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = json::Value::String(value.strip_suffix('\n').unwrap_or(value).into());
        QWEN.check(&call, "", &[&format!("note {{\"t\":{value}}}")]);
    }
}

#[test]
fn types() {
    let call = note("<parameter=n>None</parameter>");
    QWEN.check_error(&call, BadValue, "None", "an integer for parameter `n`", &[]);
    QWEN.check(
        &note("<parameter=new>[1]</parameter>"),
        "",
        &[r#"note {"new":"[1]"}"#],
    );
    let go = "<function=go><parameter=a>7</parameter></function>";
    QWEN.check(go, "", &[r#"go {"a":"7"}"#]);
    let pick = |first: &str, second: &str| {
        format!("<function=pick>{first}{second}</function></tool_call>")
    };
    let (seven, number) = (
        "<parameter=v>7</parameter>",
        "<parameter=kind>num</parameter>",
    );
    QWEN.check(&pick(seven, number), "", &[r#"pick {"v":7,"kind":"num"}"#]);
    let x = "<parameter=v>\nx</parameter>";
    QWEN.check_error(
        &pick(x, number),
        BadValue,
        "x",
        "an integer for parameter `v`",
        &[],
    );
}

#[test]
fn errors_say_what_where_and_why() {
    let next = "`<parameter=` or `</function>`";
    let end = "`</function>` before the end of the output";
    for (text, kind, wrong, expected) in [
        (
            "<tool_call></tool_call>",
            MalformedCall,
            "</tool_call>",
            "`<function=`",
        ),
        ("<tool_call>\n{\"name\"", MalformedCall, "{", "`<function=`"),
        (
            "<tool_call><function=gone>",
            UnknownTool,
            "gone",
            "one of the offered tools: go, note, pick",
        ),
        (
            "<tool_call><function=>",
            MalformedCall,
            ">",
            "the name of a tool",
        ),
        (
            "<tool_call><function=no<x",
            MalformedCall,
            "<",
            "`>` after the name",
        ),
        (
            "<tool_call><function=no</function>",
            MalformedCall,
            "</f",
            "`>` after the name",
        ),
        ("<tool_call><function=go>x", MalformedCall, "x", next),
        (
            "<tool_call><function=go></parameter>",
            MalformedCall,
            "</p",
            next,
        ),
        (
            "<tool_call><function=go><parameter=a\n>",
            MalformedCall,
            "\n",
            "`>` after the name",
        ),
        (
            "<tool_call><function=go></function> x",
            MalformedCall,
            "x",
            "`</tool_call>`",
        ),
        (
            "<tool_call><function=go></function></tool",
            MalformedCall,
            "<",
            "`</tool_call>`",
        ),
        (
            "<tool_call><function=note><parameter=t>\nx\n<parameter=n>",
            MalformedCall,
            "<parameter=n",
            "`</parameter>` before the next parameter",
        ),
        (
            "<tool_call><function=note><parameter=t>\n<parameter=n>",
            MalformedCall,
            "<parameter=n",
            "`</parameter>` before the next parameter",
        ),
        ("<tool_call><function=go", UnterminatedToolCall, "", end),
        (
            "<tool_call><function=note><parameter=t>x</function></tool_call>",
            UnterminatedToolCall,
            "",
            end,
        ),
        (
            "<tool_call><function=note><parameter=t>x</parameter>\n",
            UnterminatedToolCall,
            "",
            end,
        ),
    ] {
        QWEN.check_error(text, kind, wrong, expected, &[]);
    }
    let second = "<tool_call><function=go></function></tool_call><function=note><parameter=t>";
    QWEN.check_error(second, UnterminatedToolCall, "", end, &["go {}"]);
}

#[test]
fn what_the_token_limit_cuts_off() {
    for text in [
        "<tool_call>",
        "<tool_call>\n<func",
        "<function=no",
        "<tool_call><function=go></functio",
    ] {
        QWEN.check_cut(&format!("a{text}"), "a", &[], Some(text));
    }
    QWEN.check_cut(
        "<tool_call><function=go></function>\n",
        "",
        &["go {}"],
        None,
    );
    QWEN.check_cut(
        "<tool_call><function=go></function></tool",
        "",
        &["go {}"],
        None,
    );
    let stops = "<tool_call><function=go></function><|im_end|><|im";
    QWEN.check_cut(stops, "", &["go {}"], None);
}
