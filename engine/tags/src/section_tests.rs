//! Tests by example of the formats that write calls in sections: DeepSeek, Kimi, MiniMax.

use crate::event::TagErrorKind::{
    ArgumentsNotObject, BadCallId, BadValue, DuplicateParameter, MalformedCall, MalformedJson,
    UnknownTool, UnterminatedToolCall,
};
use crate::format::TagFormat;
use crate::outcome::{Examples, options, run};
use crate::{Delivery, Ended, TagEvent, TagParser, json};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const V3: Examples = Examples(TagFormat::DeepseekV3);
const V31: Examples = Examples(TagFormat::DeepseekV31);
const DSML: Examples = Examples(TagFormat::DeepseekDsml);
const KIMI: Examples = Examples(TagFormat::KimiK2);
const MINIMAX: Examples = Examples(TagFormat::MinimaxM2);

const TOOLS: &str = "one of the offered tools: go, note, pick";

fn v3(calls: &str) -> String {
    format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
}

fn kimi(calls: &str) -> String {
    format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>")
}

fn kimi_call(id: &str, arguments: &str) -> String {
    format!("<|tool_call_begin|>{id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>")
}

fn minimax(invokes: &str) -> String {
    format!("<minimax:tool_call>\n{invokes}\n</minimax:tool_call>")
}

fn dsml(invokes: &str) -> String {
    format!("<｜DSML｜tool_calls>\n{invokes}\n</｜DSML｜tool_calls>")
}

#[test]
fn deepseek_v3() {
    let call = |name: &str, json: &str| {
        format!(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json}\n```<｜tool▁call▁end｜>"
        )
    };
    V3.check(&(v3(&call("go", "{}")) + "x"), "x", &["go {}"]);
    let fenced = call("note", r#"{"t": "```<｜tool▁call▁end｜>\n```"}"#);
    let two = v3(&[fenced.as_str(), "\n", &call("go", " {} ")].concat());
    V3.check(
        &two,
        "",
        &[r#"note {"t":"```<｜tool▁call▁end｜>\n```"}"#, "go {}"],
    );

    let head = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>";
    for (body, kind, wrong, expected) in [
        ("tool<｜tool▁sep｜>", MalformedCall, "tool", "`function`"),
        ("function<｜tool▁sep｜>gone\n", UnknownTool, "gone", TOOLS),
        (
            "function<｜tool▁sep｜>\n",
            MalformedCall,
            "\n",
            "the name of a tool",
        ),
        (
            "function<｜tool▁sep｜>go<x",
            MalformedCall,
            "<",
            "a line feed after the name",
        ),
        (
            "function<｜tool▁sep｜>go\n{",
            MalformedCall,
            "{",
            "```` ```json ```` after the name",
        ),
        (
            "function<｜tool▁sep｜>go\n```json\n[]",
            ArgumentsNotObject,
            "[]",
            "an object of arguments",
        ),
        (
            "function<｜tool▁sep｜>go\n```json\n{x",
            MalformedJson,
            "x",
            "a key in double quotes",
        ),
        (
            "function<｜tool▁sep｜>go\n```json\n{}<x",
            MalformedJson,
            "<",
            "```` ``` ```` after the arguments",
        ),
        (
            "function<｜tool▁sep｜>go\n```json\n{}\n```x",
            MalformedJson,
            "x",
            "`<｜tool▁call▁end｜>`",
        ),
        (
            "function<｜tool▁sep｜>go\n```json\n{}\n```",
            UnterminatedToolCall,
            "",
            "`<｜tool▁call▁end｜>` before the end of the output",
        ),
    ] {
        V3.check_error(&[head, body].concat(), kind, wrong, expected, &[]);
    }
}

#[test]
fn deepseek_v31() {
    let call = |name: &str, json: &str| {
        format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜>")
    };
    V31.check(
        &v3(&call("go", r#"{"a":"<｜tool▁call▁end｜>"}"#)),
        "",
        &[r#"go {"a":"<｜tool▁call▁end｜>"}"#],
    );
    let stutter = ["<｜tool▁calls▁begin｜>\n", &v3(&call("go", "{}"))].concat();
    V31.check(&stutter, "", &["go {}"]);
    V31.check("<｜tool▁call▁begin｜>go", "<｜tool▁call▁begin｜>go", &[]);
    let next = "`<｜tool▁call▁begin｜>`, or `<｜tool▁calls▁end｜>` after a call";
    let open_end = "`<｜tool▁calls▁end｜>` before the end of the output";
    for (text, kind, wrong, expected, calls) in [
        (v3(""), MalformedCall, "<｜tool▁calls▁end", next, &[][..]),
        (v3("go"), MalformedCall, "go", next, &[]),
        (v3(&call("gone", "{}")), UnknownTool, "gone", TOOLS, &[]),
        (
            v3(&call("", "{}")),
            MalformedCall,
            "<｜tool▁sep",
            "the name of a tool",
            &[],
        ),
        (
            v3(&call("go", "5")),
            ArgumentsNotObject,
            "5",
            "an object of arguments",
            &[],
        ),
        (
            v3(&call("go", "\"{}\"")),
            ArgumentsNotObject,
            "\"{}",
            "an object of arguments",
            &[],
        ),
        (v3(&call("go", "")), MalformedJson, "<", "a JSON value", &[]),
        (
            v3(&call("go", "{} x")),
            MalformedJson,
            "x",
            "`<｜tool▁call▁end｜>`",
            &[],
        ),
        (
            v3(&(call("go", "{}") + "x")),
            MalformedCall,
            "x",
            next,
            &["go {}"],
        ),
        (
            v3("<｜tool▁call▁begin｜>go<｜tool▁call▁end｜>"),
            MalformedCall,
            "<｜tool▁call▁end",
            "`<｜tool▁sep｜>`",
            &[],
        ),
        (
            String::from("<｜tool▁calls▁begin｜>") + &call("go", "{}"),
            UnterminatedToolCall,
            "",
            open_end,
            &["go {}"],
        ),
        (
            "<｜tool▁calls▁begin｜>".into(),
            UnterminatedToolCall,
            "",
            open_end,
            &[],
        ),
    ] {
        V31.check_error(&text, kind, wrong, expected, calls);
    }
}

#[test]
fn kimi_k2() {
    KIMI.check(&("a".to_owned() + &kimi("") + "b"), "ab", &[]);
    for id in ["functions.go:0", "go:12", " functions.go:3\n"] {
        KIMI.check(&kimi(&kimi_call(id, " {} ")), "", &["go {}"]);
    }
    let open = "<|tool_calls_section_begin|>".to_owned() + &kimi_call("go:0", "{}");
    KIMI.check(&open, "", &["go {}"]);
    KIMI.check(&(open.clone() + " <|im_end|>"), "", &["go {}"]);
    KIMI.check_cut(&(open.clone() + "<|tool_calls_sec"), "", &["go {}"], None);
    let next = "`<|tool_call_begin|>` or `<|tool_calls_section_end|>`";
    KIMI.check_error(
        &(open + "<|tool_calls_sec"),
        MalformedCall,
        "<",
        next,
        &["go {}"],
    );
    let shape = "an id of the shape `functions.NAME:NUMBER`";
    for id in ["functions.go", "go:", "go:x", "functions.:0", ":1", ""] {
        KIMI.check_error(&kimi(&kimi_call(id, "{}")), BadCallId, id, shape, &[]);
    }
    KIMI.check_error(
        &kimi(&kimi_call("a.b:c:1", "{}")),
        UnknownTool,
        "a.b:c:1",
        TOOLS,
        &[],
    );
    let quoted = kimi(&kimi_call("go:1", "\"{}\""));
    KIMI.check_error(
        &quoted,
        ArgumentsNotObject,
        "\"{}",
        "an object of arguments",
        &[],
    );
}

#[test]
fn minimax_m2() {
    MINIMAX.check(&("a".to_owned() + &minimax("")), "a", &[]);
    let call = "<invoke name=\"note\"><parameter name=\"t\"> x\n</parameter>\n\
                <parameter name=\"n\"> 7 </parameter></invoke>";
    let two = minimax(&[call, "\n<invoke name=\"go\">\n</invoke>"].concat());
    MINIMAX.check(&two, "", &[r#"note {"t":" x\n","n":7}"#, "go {}"]);
    let unknown = minimax("<invoke name=\"go\"><parameter name=\"a\">[1]</parameter></invoke>");
    MINIMAX.check(&unknown, "", &[r#"go {"a":[1]}"#]);
    for value in [
        "</parameter>",
        "</parameter> x",
        "</invoke>",
        "<parameter name=\"n\">",
        "\n<parameter name=\"x\">",
        "\n<parameter name=\"n\"",
        "</minimax:tool_call>",
        "[e~[",
        "\n",
    ] {
        let call =
            format!("<invoke name=\"note\"><parameter name=\"t\">{value}</parameter></invoke>");
        let value = json::Value::String(value.into());
        MINIMAX.check(&minimax(&call), "", &[&format!("note {{\"t\":{value}}}")]);
    }
    MINIMAX.check(
        "<invoke name=\"go\"></invoke>",
        "<invoke name=\"go\"></invoke>",
        &[],
    );
    let next = "`<parameter name=` or `</invoke>`";
    let between = "`<invoke name=` or `</minimax:tool_call>`";
    for (body, kind, wrong, expected) in [
        ("go", MalformedCall, "go", between),
        ("</invoke>", MalformedCall, "</invoke>", between),
        ("<invoke name=\"gone\">", UnknownTool, "gone", TOOLS),
        (
            "<invoke name=\"go\" x",
            MalformedCall,
            " x",
            "`\">` after the name",
        ),
        ("<invoke name=\"go\">x", MalformedCall, "x", next),
        (
            "<invoke name=\"note\"><parameter name=\"t\">\n<parameter name=\"n\">",
            MalformedCall,
            "<parameter name=\"n",
            "`</parameter>` before the next parameter",
        ),
        (
            "<invoke name=\"note\"><parameter name=\"n\">x</parameter></invoke>",
            BadValue,
            "x",
            "an integer for parameter `n`",
        ),
        (
            "<invoke name=\"note\"><parameter name=\"n",
            UnterminatedToolCall,
            "",
            "`</invoke>` before the end of the output",
        ),
    ] {
        MINIMAX.check_error(
            &["<minimax:tool_call>", body].concat(),
            kind,
            wrong,
            expected,
            &[],
        );
    }
    let open = "<minimax:tool_call><invoke name=\"go\"></invoke>\n";
    let end = "`</minimax:tool_call>` before the end of the output";
    MINIMAX.check_error(open, UnterminatedToolCall, "", end, &["go {}"]);
    MINIMAX.check_cut(open, "", &["go {}"], None);
}

#[test]
fn deepseek_dsml() {
    let call = "<｜DSML｜invoke name=\"note\">\n<｜DSML｜parameter name=\"t\" string=\"true\"> 7\n\
                </｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\"> [1] \
                </｜DSML｜parameter>\n</｜DSML｜invoke>";
    DSML.check(
        &("a\n\n".to_owned() + &dsml(call)),
        "a\n\n",
        &[r#"note {"t":" 7\n","n":[1]}"#],
    );
    let go = "<｜DSML｜invoke name=\"go\">\n</｜DSML｜invoke>\n";
    let old = format!("<｜DSML｜function_calls>{go}{go}</｜DSML｜function_calls>");
    DSML.check(&old, "", &["go {}", "go {}"]);
    let stutter = ["<｜DSML｜function_calls>", &dsml(go)].concat();
    DSML.check(&stutter, "", &["go {}"]);
    let quoted = dsml(
        "<｜DSML｜invoke name=\"note\"><｜DSML｜parameter name=\"t\" string=\"true\">a\n\
        <｜DSML｜parameter name=\"n\" string=\"x\n</｜DSML｜invoke></｜DSML｜parameter></｜DSML｜invoke>",
    );
    let value = r#"note {"t":"a\n<｜DSML｜parameter name=\"n\" string=\"x\n</｜DSML｜invoke>"}"#;
    DSML.check(&quoted, "", &[value]);

    let next = "`<｜DSML｜parameter name=` or `</｜DSML｜invoke>`";
    let between = "`<｜DSML｜invoke name=` or the end of the block after a call";
    let t = "<｜DSML｜invoke name=\"note\"><｜DSML｜parameter name=\"t\" string=\"true\">";
    let n = "<｜DSML｜invoke name=\"note\"><｜DSML｜parameter name=\"n\" string=\"false\">";
    for (body, kind, wrong, expected) in [
        (
            "".to_owned(),
            UnterminatedToolCall,
            "",
            "`</｜DSML｜tool_calls>` before the end of the output",
        ),
        ("</｜DSML｜tool_calls>".into(), MalformedCall, "</", between),
        (
            go.to_owned() + "</｜DSML｜function_calls>",
            MalformedCall,
            "</｜DSML｜function",
            between,
        ),
        (
            "<｜DSML｜invoke name=\"note\">x".into(),
            MalformedCall,
            "x",
            next,
        ),
        (
            "<｜DSML｜invoke name=\"note\"><｜DSML｜parameter name=\"t\">".into(),
            MalformedCall,
            ">",
            "`\" string=\"true\">` or `\" string=\"false\">` after the name",
        ),
        (
            t.to_owned() + "a</｜DSML｜parameter><｜DSML｜parameter name=\"t\" string=\"true\">",
            DuplicateParameter,
            "t\" string=\"true\">",
            "parameter `t` only once",
        ),
        (
            n.to_owned() + "1,</｜DSML｜parameter></｜DSML｜invoke>",
            MalformedJson,
            ",",
            "the end of the text",
        ),
        (
            t.to_owned() + "\n<｜DSML｜parameter name=\"n\" string=\"false\">",
            MalformedCall,
            "<｜DSML｜parameter name=\"n",
            "`</｜DSML｜parameter>` before the next parameter",
        ),
    ] {
        let calls: &[&str] = if body.starts_with(go) {
            &["go {}"]
        } else {
            &[]
        };
        DSML.check_error(
            &("<｜DSML｜tool_calls>".to_owned() + &body),
            kind,
            wrong,
            expected,
            calls,
        );
    }
    let bare = "`<｜DSML｜tool_calls>` before a call";
    DSML.check_error(
        &("a".to_owned() + go),
        MalformedCall,
        "<｜DSML｜invoke",
        bare,
        &[],
    );
    DSML.check(&("```\n".to_owned() + go), &("```\n".to_owned() + go), &[]);
}

#[test]
fn a_section_ends_thinking() {
    let call = kimi(&kimi_call("go:0", "{}"));
    let text = ["a", &call, "b</think>c</think>"].concat();
    let outcome = run(TagFormat::KimiK2, true, &text, Ended::Eos);
    assert_eq!(
        (outcome.reasoning.as_str(), outcome.content.as_str()),
        ("a", "bc</think>")
    );
    assert_eq!(outcome.calls, ["go {}"]);
    // An opener that stutters has ended it already.
    let text = ["a<|tool_calls_section_begin|>", &call].concat();
    let outcome = run(TagFormat::KimiK2, true, &text, Ended::Eos);
    assert_eq!((outcome.reasoning.as_str(), outcome.calls.len()), ("a", 1));
}

#[test]
fn what_the_token_limit_cuts_off_of_a_section() {
    let text = kimi_call("go:0", "{}") + "<|tool_call_begin|>functions.no";
    let text = format!("a<|tool_calls_section_begin|>{text}");
    KIMI.check_cut(
        &text,
        "a",
        &["go {}"],
        Some("<|tool_call_begin|>functions.no"),
    );
    V31.check_cut(
        "a<｜tool▁calls▁begin｜>",
        "a",
        &[],
        Some("<｜tool▁calls▁begin｜>"),
    );
    DSML.check_cut(
        "a<｜DSML｜tool_calls>\n<｜DSM",
        "a",
        &[],
        Some("<｜DSML｜tool_calls>\n<｜DSM"),
    );
}

/// The text of arguments that each piece makes certain under eager delivery.
fn eager(format: TagFormat, pieces: &[&str]) -> Vec<String> {
    let mut parser = TagParser::new(options(format, false, Delivery::Eager));
    let said = pieces.iter().map(|piece| {
        let mut events = Vec::new();
        parser.push(piece, &mut events).unwrap();
        let arguments = events.iter().filter_map(|event| match event {
            TagEvent::CallArguments { fragment, .. } => Some(fragment.as_str()),
            _ => None,
        });
        arguments.collect()
    });
    said.collect()
}

#[test]
fn eager_delivery_tells_what_is_certain() {
    let head = "<|tool_calls_section_begin|><|tool_call_begin|>go:0<|tool_call_argument_begin|>";
    let pieces = [
        head,
        " {\"a\"",
        ": \"x<|tool",
        "_call_end|>\"",
        "} ",
        "<|tool_call_end|>",
    ];
    let said = eager(TagFormat::KimiK2, &pieces);
    assert_eq!(
        said,
        ["", "{\"a\"", ": \"x", "<|tool_call_end|>\"", "}", ""]
    );

    let head = "<minimax:tool_call><invoke name=\"note\"><parameter name=\"t\">";
    let pieces = [
        head,
        "a",
        "\"</parameter>",
        " ",
        "b</parameter>",
        "</invoke>",
    ];
    let said = eager(TagFormat::MinimaxM2, &pieces);
    assert_eq!(
        said,
        ["{\"t\":\"", "a", "\\\"", "", "</parameter> b", "\"}"]
    );

    let head =
        "<｜DSML｜tool_calls><｜DSML｜invoke name=\"go\"><｜DSML｜parameter name=\"a\" string=\"";
    let close = "</｜DSML｜parameter>";
    let pieces = [
        head,
        "false\">[1",
        "]",
        close,
        "<｜DSML｜parameter name=\"b\" string=\"true\">[",
        close,
    ];
    let said = eager(TagFormat::DeepseekDsml, &pieces);
    assert_eq!(said, ["", "{\"a\":", "", "", "[1],\"b\":\"[", ""]);

    // The line feed may be layout, until more comes.
    let pieces = [
        "<function=note><parameter=t>\n",
        "a\n",
        "\n",
        "</parameter>",
        "x",
    ];
    let said = eager(TagFormat::QwenXml, &pieces);
    assert_eq!(said, ["{\"t\":\"", "a", "\\n", "", "\\n</parameter>x"]);
}
