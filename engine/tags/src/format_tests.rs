//! Laws that hold in every format: no cut and no delivery changes what is read, no byte is lost,
//! more text takes nothing back, and work is linear.

use crate::event::{Delivery, Ended};
use crate::format::TagFormat;
use crate::outcome::{check_accounts, options, run, run_with};
use crate::parser::TagParser;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

/// Pieces of whole calls, so that deep states are common.
fn call_pieces(format: TagFormat) -> &'static [&'static str] {
    match format {
        TagFormat::Plain => &["x"],
        TagFormat::Glm => &[
            "<tool_call>note",
            "<arg_key>t</arg_key><arg_value>",
            "</arg_value></tool_call>",
            "<tool_call>go</tool_call>",
            "<arg_key>n</arg_key>\n<arg_value>3</arg_value>",
            "<tool_call>pick\n<arg_key>v</arg_key><arg_value>5</arg_value>",
            "<arg_key>kind</arg_key><arg_value>txt</arg_value>",
            "kind",
            "num",
            "other",
        ],
        TagFormat::QwenXml => &[
            "<tool_call>\n<function=note>\n",
            "<parameter=t>\n",
            "\n</parameter>\n",
            ">",
            "x\n",
            "</function>\n</tool_call>",
            "<function=go></function>",
            "<parameter=n>\n3\n</parameter>",
            "<function=pick><parameter=v>5</parameter>",
            "<parameter=kind>txt</parameter>",
            "<tool_call><function=go></function></tool_call>",
            "\n<parameter=n>",
            "['a', True]",
        ],
        TagFormat::HermesJson => &[
            "<tool_call>\n{\"name\": \"note\", \"arguments\": {",
            "\"t\": \"",
            "\"}}",
            "}\n</tool_call>",
            "<tool_call>{\"name\":\"go\"}</tool_call>",
            "\"n\": 3",
            ", ",
            "{\"arguments\": ",
            "\"{\\\"a\\\": 1}\"",
            ", \"name\": \"go\"}",
            "{\"name\": \"go\"",
            "<tool_call>{\"name\": \"go\", \"arguments\": {\"a\": [1, \"}\"]}}",
        ],
        TagFormat::DeepseekV3 => &[
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n```json\n",
            "{\"t\": \"",
            "\"}",
            "\n```<｜tool▁call▁end｜>",
            "{\"n\": 3}",
            "function",
            "go\n```json\n{}",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>go\n```json\n{}\n```<｜tool▁call▁end｜>",
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "```json",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>go\n```json\n{}\n```<｜tool▁call▁end｜>",
        ],
        TagFormat::DeepseekV31 => &[
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>note<｜tool▁sep｜>",
            "{\"t\": \"",
            "\"}",
            "<｜tool▁call▁begin｜>go<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
            "{\"n\": 3}",
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>go<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ],
        TagFormat::DeepseekDsml => &[
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"note\">\n",
            "<｜DSML｜parameter name=\"t\" string=\"true\">",
            "</｜DSML｜parameter>\n",
            "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
            "\">",
            "\" string=\"false\">",
            "<｜DSML｜parameter name=\"n\" string=\"false\">3</｜DSML｜parameter>",
            "<｜DSML｜invoke name=\"go\">\n</｜DSML｜invoke>",
            "\n<｜DSML｜parameter name=\"n\"",
            "<｜DSML｜tool_calls><｜DSML｜invoke name=\"go\"></｜DSML｜invoke></｜DSML｜tool_calls>",
        ],
        TagFormat::KimiK2 => &[
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.note:0<|tool_call_argument_begin|>",
            "{\"t\": \"",
            "\"}",
            "<|tool_call_end|>",
            "{\"n\": 3}",
            "functions.go:1",
            ":2",
            "<|tool_call_begin|>go:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
            "<|tool_calls_section_begin|><|tool_call_begin|>go:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
        ],
        TagFormat::MinimaxM2 => &[
            "<minimax:tool_call>\n<invoke name=\"note\">\n",
            "<parameter name=\"t\">",
            "</parameter>\n",
            "</invoke>\n</minimax:tool_call>",
            "\">",
            "<parameter name=\"n\">3</parameter>",
            "<invoke name=\"go\">\n</invoke>",
            "\n<parameter name=\"n\">",
            "<minimax:tool_call><invoke name=\"go\"></invoke></minimax:tool_call>",
        ],
        TagFormat::Harmony => &[
            "<|channel|>analysis<|message|>",
            "<|start|>assistant<|channel|>final<|message|>",
            "<|end|>",
            "<|channel|>commentary to=functions.note <|constrain|>json<|message|>",
            "{\"t\": \"",
            "\"}",
            "<|start|>assistant to=functions.go<|channel|>commentary json<|message|>{}<|call|>",
            "<|channel|>commentary to=browser<|message|>",
            "assistant",
            " to=",
            "functions.go",
            " json",
            "analysis",
            "final",
        ],
    }
}

const COMMON: &[&str] = &[
    "<think>",
    "</think>",
    "note",
    "go",
    "t",
    "n",
    "1",
    "2.0",
    "\"",
    "[1,{}]",
    "{\"a\":",
    "null",
    "True",
    "é",
    "👩‍🚀",
    "\\",
    " ",
    "\n",
    "\t",
    "\r\n",
    "```",
    "~~~~",
    "\n```\n",
    "<",
    ">",
    "</",
    "{",
    "}",
    "<｜",
    "<|",
    "<tool_ca",
    "</parameter",
    "x",
];

/// Every text that has a meaning in a format besides the think tags.
fn tags(format: TagFormat) -> impl Iterator<Item = &'static str> {
    format.call_tags().iter().chain(format.stops()).copied()
}

fn any_format() -> impl Strategy<Value = TagFormat> {
    prop::sample::select(TagFormat::ALL.to_vec())
}

/// A format and an output made of the pieces that matter in it.
fn any_output() -> impl Strategy<Value = (TagFormat, String)> {
    any_format().prop_flat_map(|format| {
        let tags: Vec<&'static str> = tags(format).chain(["<think>"]).collect();
        let piece = prop_oneof![
            3 => prop::sample::select(tags),
            3 => prop::sample::select(COMMON),
            6 => prop::sample::select(call_pieces(format)),
        ];
        let pieces = prop::collection::vec(piece, 0..20);
        pieces.prop_map(move |pieces| (format, pieces.concat()))
    })
}

/// Where a text may be cut.
fn borders(text: &str) -> Vec<usize> {
    let inside = text.char_indices().map(|(at, _)| at);
    inside.chain([text.len()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn no_cut_and_no_delivery_changes_what_is_read(
        (format, text) in any_output(),
        reasoning in any::<bool>(),
        eos in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let ended = if eos { Ended::Eos } else { Ended::Length };
        let borders = borders(&text);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&borders)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
        let characters: Vec<&str> = text.split_inclusive(|_| true).collect();
        let whole = run_with(options(format, reasoning, Delivery::Whole), &[&text], ended);
        check_accounts(format, &text, &whole);
        for delivery in [Delivery::Whole, Delivery::Eager] {
            for pieces in [&pieces, &characters] {
                let cut = run_with(options(format, reasoning, delivery), pieces, ended);
                prop_assert_eq!(&cut, &whole);
            }
        }
    }

    #[test]
    fn more_text_never_takes_back_what_was_said(
        (format, text) in any_output(),
        reasoning in any::<bool>(),
        at in any::<prop::sample::Index>(),
    ) {
        let borders = borders(&text);
        let at = *at.get(&borders);
        let read = |text: &str| {
            run_with(options(format, reasoning, Delivery::Whole), &[text], Ended::Length)
        };
        let (prefix, whole) = (read(&text[..at]), read(&text));
        // A call that was whole but for its outer closer may be spoilt by what comes instead.
        let spoilt = whole.result.is_err() && prefix.calls.len() == whole.calls.len() + 1;
        let num_standing = prefix.calls.len() - usize::from(spoilt);
        prop_assert!(num_standing <= whole.calls.len());
        prop_assert_eq!(&prefix.calls[..num_standing], &whole.calls[..num_standing]);
        if spoilt {
            prop_assert!(matches!(format, TagFormat::QwenXml | TagFormat::HermesJson));
        }
        if prefix.result.is_err() {
            prop_assert_eq!(prefix, whole);
        }
    }

    #[test]
    fn any_text_without_tags_passes_unchanged(
        format in any_format(),
        text in any::<String>(),
        reasoning in any::<bool>(),
    ) {
        if format != TagFormat::Harmony {
            let options = options(format, reasoning, Delivery::Eager);
            let outcome = run_with(options, &[&text], Ended::Eos);
            check_accounts(format, &text, &outcome);
            let said = if reasoning { outcome.reasoning } else { outcome.content };
            prop_assert_eq!(said, text);
        }
    }
}

/// The pieces must be able to show what they are for.
#[test]
fn random_outputs_reach_calls_and_errors_of_every_format() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = alloc::collections::BTreeMap::new();
    for _ in 0..20_000 {
        let (format, text) = any_output().new_tree(&mut runner).unwrap().current();
        let outcome = run_with(
            options(format, false, Delivery::Whole),
            &[&text],
            Ended::Eos,
        );
        let (calls, errors) = seen.entry(format.as_str()).or_insert((0, 0));
        *calls += outcome.calls.len();
        *errors += usize::from(outcome.result.is_err());
    }
    for format in TagFormat::ALL {
        let (calls, errors) = seen[format.as_str()];
        let enough = calls > 40 && errors > 40;
        assert!(
            enough || format == TagFormat::Plain,
            "{format}: {calls} calls, {errors} errors"
        );
    }
}

#[test]
fn the_tags_of_a_format_can_be_told_apart() {
    for format in TagFormat::ALL {
        let tags: Vec<&str> = tags(format).chain(["<think>", "</think>"]).collect();
        for (i, a) in tags.iter().enumerate() {
            assert!(a.starts_with(|c: char| c.is_ascii()), "{a}");
            for b in &tags[i + 1..] {
                assert!(!a.starts_with(b) && !b.starts_with(a), "{format}: {a} {b}");
            }
        }
    }
}

#[test]
fn call_tags_are_text_where_no_tools_are_offered() {
    for format in TagFormat::ALL {
        if format == TagFormat::Harmony {
            continue;
        }
        let mut options = options(format, false, Delivery::Whole);
        options.tools = alloc::sync::Arc::default();
        let text = call_pieces(format).concat() + ".";
        let outcome = run_with(options, &[&text], Ended::Eos);
        assert_eq!(outcome.content, text, "{format}");
    }
}

#[test]
fn a_stop_token_at_the_very_end_is_no_text() {
    for format in TagFormat::ALL {
        for stop in format.stops() {
            let text = ["a", stop, "b", stop].concat();
            let outcome = run(format, false, &text, Ended::Eos);
            assert_eq!(outcome.content, ["a", stop, "b"].concat(), "{format}");
        }
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

/// Each of these texts held or looked at again per pushed character would take hours.
#[test]
fn long_outputs_cost_linear_work() {
    const LONG: usize = 1 << 18;
    let qwen = "<tool_call><function=note><parameter=t>";
    let qwen_end = "</parameter></function></tool_call>";
    let hermes = "<tool_call>{\"name\":\"go\",\"arguments\":{\"a\":\"";
    let v3 =
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>go\n```json\n{\"a\":\"";
    let v3_end = "\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    let dsml = "<｜DSML｜tool_calls><｜DSML｜invoke name=\"note\"><｜DSML｜parameter name=\"t\" string=\"true\">";
    let dsml_end = "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>";
    let kimi =
        "<|tool_calls_section_begin|><|tool_call_begin|>go:0<|tool_call_argument_begin|>{\"a\":\"";
    let harmony = "<|channel|>final to=functions.go<|message|>{\"a\":\"";
    for (format, head, unit, tail) in [
        (TagFormat::QwenXml, "", "<function=n", ""),
        (TagFormat::QwenXml, "<tool_call>", " ", ""),
        (
            TagFormat::QwenXml,
            "<function=go></function>",
            " ",
            "</tool_call>",
        ),
        (TagFormat::QwenXml, qwen, "</parameter>\n", qwen_end),
        (TagFormat::QwenXml, qwen, "\n<parameter=x", qwen_end),
        (TagFormat::QwenXml, qwen, "\n", qwen_end),
        (
            TagFormat::QwenXml,
            "<function=go>",
            "<parameter=a>1</parameter>",
            "</function>",
        ),
        (TagFormat::HermesJson, "<tool_call>", " ", ""),
        (TagFormat::HermesJson, hermes, "x", "\"}}"),
        (
            TagFormat::HermesJson,
            hermes,
            "<tool_call>",
            "\"}}</tool_call>",
        ),
        (
            TagFormat::HermesJson,
            "<tool_call>{\"arguments\":{\"a\":\"",
            "x",
            "\"},\"name\":\"go\"}",
        ),
        (TagFormat::DeepseekV3, v3, "<｜", v3_end),
        (
            TagFormat::DeepseekDsml,
            dsml,
            "</｜DSML｜parameter> ",
            dsml_end,
        ),
        (TagFormat::KimiK2, kimi, "x", "\"}<|tool_call_end|>"),
        (
            TagFormat::Harmony,
            "<|channel|>final<|message|>",
            "<|message|>x",
            "",
        ),
        (
            TagFormat::Harmony,
            "<|channel|>final to=me<|message|>",
            "x",
            "",
        ),
        (TagFormat::Harmony, harmony, "x", "\"}<|call|>"),
    ] {
        let text = [head, &unit.repeat(LONG / unit.len()), tail].concat();
        for delivery in [Delivery::Whole, Delivery::Eager] {
            let mut parser = TagParser::new(options(format, false, delivery));
            let mut events = Vec::new();
            for piece in text.split_inclusive(|_| true) {
                parser.push(piece, &mut events).unwrap();
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
