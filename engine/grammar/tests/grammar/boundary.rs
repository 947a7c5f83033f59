//! Where free text ends and constrained text begins.

use crate::toy::{
    END, SILENT, admits, constraint, mask, matcher, piece, spelled, text, tokens, tool, walk,
};
use lockstep_grammar::{Answer, Constraint, Reasoning, ToolChoice};
use lockstep_step::Matcher;
use lockstep_tags::TagFormat;
use serde_json::json;

fn book(format: TagFormat, choice: ToolChoice) -> Constraint {
    let schema = json!({
        "type": "object",
        "properties": {"seats": {"type": "integer"}, "name": {"type": "string"}},
        "required": ["seats"],
    });
    constraint(format, vec![tool("book", schema)], choice)
}

const GLM: &str =
    "<tool_call>book\n<arg_key>seats</arg_key>\n<arg_value>4</arg_value>\n</tool_call>";
const GLM_COMPACT: &str = "<tool_call>book<arg_key>seats</arg_key><arg_value>4</arg_value><arg_key>name</arg_key><arg_value> a <b </arg_value></tool_call>";
const QWEN: &str = "<tool_call>\n<function=book>\n<parameter=seats>\n4\n</parameter>\n<parameter=name>\n\na</p\n</parameter>\n</function>\n</tool_call>";
const HERMES: &str =
    "<tool_call>\n{\"name\": \"book\", \"arguments\": {\"seats\": 4,\"name\":\"a\"}}\n</tool_call>";

#[test]
fn each_format_writes_its_calls() {
    for (format, call) in [
        (TagFormat::Glm, GLM),
        (TagFormat::Glm, GLM_COMPACT),
        (TagFormat::QwenXml, QWEN),
        (TagFormat::HermesJson, HERMES),
    ] {
        let auto = book(format, ToolChoice::Auto);
        assert!(admits(&auto, &tokens(call)), "{call}");
        assert!(
            admits(&auto, &tokens(&format!("I book.\n{call}\nDone"))),
            "{call}"
        );
        assert!(admits(&auto, &tokens("No.")));
        let required = book(format, ToolChoice::Required);
        assert!(admits(&required, &tokens(call)));
        assert!(admits(&required, &tokens(&format!("\n\n{call}\n{call}"))));
        assert!(!admits(&required, &tokens(&format!("\n\n\n{call}"))));
        assert!(!admits(&required, &tokens("No.")));
        assert!(!admits(&required, &tokens(&format!("Yes {call}"))));
        let broken = call.replace("seats", "seat");
        assert!(!admits(&auto, &tokens(&broken)), "{broken}");
        let broken = call.replace('4', "x");
        assert!(!admits(&auto, &tokens(&broken)), "{broken}");
    }
}

#[test]
fn only_one_call_where_calls_are_not_parallel() {
    for choice in [ToolChoice::Auto, ToolChoice::Required] {
        let mut single = book(TagFormat::Glm, choice);
        single.parallel = false;
        assert!(admits(&single, &tokens(GLM)));
        assert!(!admits(&single, &tokens(&format!("{GLM}{GLM}"))));
        assert!(!admits(&single, &tokens(&format!("{GLM}\n"))));
    }
}

#[test]
fn an_opener_can_not_be_spelled_out() {
    for choice in [ToolChoice::Auto, ToolChoice::Forbidden] {
        let auto = book(TagFormat::Glm, choice);
        assert!(!admits(&auto, &spelled("a <tool_call>")));
        assert!(admits(&auto, &spelled("a <tool_call")));
        assert!(admits(&auto, &spelled("a <tool<tool_call")));
        assert!(!admits(&auto, &[piece("<tool"), piece("_call>")]));
        // A control token leaves no trace in the text.
        assert!(!admits(&auto, &[piece("<tool"), SILENT, piece("_call>")]));
        assert!(admits(
            &auto,
            &[piece("<tool"), piece("<arg"), piece("_call>")]
        ));
    }
    let qwen = book(TagFormat::QwenXml, ToolChoice::Auto);
    assert!(!admits(&qwen, &tokens("<function=")));
    assert!(!admits(&qwen, &spelled("<function=")));
}

#[test]
fn none_forbids_calls_from_the_start() {
    let none = book(TagFormat::Glm, ToolChoice::Forbidden);
    assert!(admits(&none, &tokens("No tools <arg_key> here.")));
    assert!(!admits(&none, &tokens(GLM)));
}

#[test]
fn no_call_opens_in_a_code_fence() {
    let auto = book(TagFormat::Glm, ToolChoice::Auto);
    assert!(!admits(&auto, &tokens(&format!("```\n{GLM}"))));
    assert!(admits(&auto, &tokens(&format!("```\nx\n```\n{GLM}"))));
    assert!(admits(&auto, &tokens(&format!("```x```\n{GLM}"))));
}

#[test]
fn reasoning_is_free_until_its_closing_tag() {
    for (reasoning, start) in [
        (Reasoning::Open, ""),
        (Reasoning::Closed, "<think>"),
        (Reasoning::Closed, "\n<think>"),
    ] {
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            let mut asked = book(TagFormat::Glm, choice.clone());
            asked.reasoning = reasoning;
            let thought = format!("{start}Hm ```\n <think> {{");
            assert!(admits(
                &asked,
                &tokens(&format!("{thought}</think>\n\n{GLM}"))
            ));
            assert!(
                !admits(&asked, &tokens(&format!("{thought}{GLM}"))),
                "no call in reasoning"
            );
            let looks_closed = [tokens(start), spelled("a</think>")].concat();
            assert!(!admits(&asked, &looks_closed));
            let without_call = tokens(&format!("{thought}</think>Four."));
            assert_eq!(admits(&asked, &without_call), choice == ToolChoice::Auto);
            assert_eq!(
                admits(&asked, &tokens(&thought)),
                choice == ToolChoice::Auto
            );
        }
    }
    let mut auto = book(TagFormat::Glm, ToolChoice::Auto);
    auto.reasoning = Reasoning::Closed;
    assert!(admits(&auto, &tokens("a<think>b")), "later it is text");
    assert!(admits(&auto, &spelled("a<think>b")));
    assert!(
        !admits(&auto, &spelled("<think>")),
        "a look-alike that would open reasoning"
    );
    assert!(!admits(&auto, &spelled(" \n<think>")));
    assert!(admits(&auto, &spelled(" \n<thin")));
    // A form feed is no blank to the reader of tags: what follows is the answer.
    assert!(admits(&auto, &spelled("\u{c}<think>")));
    assert!(admits(&auto, &tokens("\u{c}<think><tool_call")));
    assert!(!admits(&auto, &spelled("<tool_call>")));
    assert!(admits(&auto, &tokens(&format!("\n{GLM}"))));
}

#[test]
fn closers_can_not_be_spelled_out_in_values() {
    let glm = book(TagFormat::Glm, ToolChoice::Auto);
    let call = |value: &[lockstep_step::TokenId]| {
        let open = tokens(
            "<tool_call>book<arg_key>seats</arg_key><arg_value>4</arg_value><arg_key>name</arg_key><arg_value>",
        );
        [open, value.to_vec(), tokens("</arg_value></tool_call>")].concat()
    };
    assert!(admits(
        &glm,
        &call(&spelled("a </arg_valu> <tool_call> </tool_call> é\n"))
    ));
    assert!(admits(&glm, &call(&spelled(""))));
    assert!(!admits(&glm, &call(&spelled("a</arg_value>"))));
    assert!(!admits(&glm, &call(&spelled("<arg_key>"))));
    let straddled = [spelled("</arg"), vec![piece("_value>")]].concat();
    assert!(!admits(&glm, &call(&straddled)));
    assert!(!admits(&glm, &call(&[piece("x</arg_value>y")])));
    assert!(
        !admits(&glm, &call(&[piece("<tool_call>")])),
        "a tag as a token is no text"
    );
    assert!(!admits(&glm, &call(&[SILENT])));
}

#[test]
fn answers_under_a_grammar() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
    let mut asked = constraint(TagFormat::Plain, vec![], ToolChoice::Auto);
    for (answer, good, bad) in [
        (Answer::JsonSchema(schema), "{\"a\": 12}", "{\"b\": 12}"),
        (Answer::JsonObject, "{\"x\":[1,null]}", "[1]"),
        (Answer::Regex("a/b+|\\/".to_string()), "a/bb", "ab"),
        (
            Answer::Choice(vec!["yes".into(), "\"no\"/\\n".into()]),
            "\"no\"/\\n",
            "maybe",
        ),
        (
            Answer::Lark("start: \"a\" B\nB: /[0-9]+/".to_string()),
            "a12",
            "a",
        ),
    ] {
        asked.answer = answer.clone();
        for reasoning in [Reasoning::Off, Reasoning::Open, Reasoning::Closed] {
            asked.reasoning = reasoning;
            let start = match reasoning {
                Reasoning::Open => "Hm.</think>\n\n",
                Reasoning::Closed => "<think>Hm.</think>",
                Reasoning::Off => "",
            };
            assert!(
                admits(&asked, &tokens(&format!("{start}{good}"))),
                "{answer:?}"
            );
            assert!(
                !admits(&asked, &tokens(&format!("{start}{bad}"))),
                "{answer:?}"
            );
            assert!(
                !admits(&asked, &tokens(&format!("{start}{good}\n\n\n"))),
                "{answer:?}"
            );
            assert!(!admits(&asked, &tokens(start)));
        }
    }
}

#[test]
fn a_call_or_an_answer_under_a_grammar() {
    let mut both = book(TagFormat::HermesJson, ToolChoice::Auto);
    both.answer = Answer::Choice(vec!["yes".to_string()]);
    assert!(admits(&both, &tokens("yes")));
    assert!(admits(&both, &tokens(HERMES)));
    assert!(admits(&both, &tokens(&format!("{HERMES}\n{HERMES}"))));
    assert!(!admits(&both, &tokens(&format!("yes{HERMES}"))));
    assert!(!admits(&both, &tokens(&format!("{HERMES}yes"))));
}

#[test]
fn rolling_back_is_as_if_nothing_was_taken() {
    for (format, call) in [
        (TagFormat::Glm, GLM_COMPACT),
        (TagFormat::QwenXml, QWEN),
        (TagFormat::HermesJson, HERMES),
    ] {
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            let mut asked = book(format, choice);
            asked.reasoning = Reasoning::Open;
            let all = tokens(&format!("Hm</think>\n{call}\n{call}"));
            let mut plain = matcher(&asked);
            let mut masks = vec![mask(&mut plain)];
            for &token in &all {
                plain.consume(token).expect("allowed");
                masks.push(mask(&mut plain));
            }
            for back in 1..=all.len() {
                let mut jumpy = matcher(&asked);
                assert_eq!(walk(&mut jumpy, &all[..back]), back);
                jumpy.rollback(back as u32);
                assert_eq!(mask(&mut jumpy), masks[0]);
                let to = back / 2;
                assert_eq!(walk(&mut jumpy, &all[..back]), back);
                jumpy.rollback((back - to) as u32);
                assert_eq!(jumpy.depth() as usize, to);
                assert_eq!(mask(&mut jumpy), masks[to], "{format} {back} to {to}");
                assert_eq!(walk(&mut jumpy, &all[to..]), all.len() - to);
                assert!(jumpy.can_finish());
            }
        }
    }
}

#[test]
fn forced_text_is_offered_and_true() {
    let glm = book(TagFormat::Glm, ToolChoice::Required);
    let mut at_key = matcher(&glm);
    let before = tokens("<tool_call>book<arg_key>");
    assert_eq!(walk(&mut at_key, &before), before.len());
    let first = mask(&mut at_key);
    let forced = at_key.forced(16);
    let said: Vec<u8> = forced.iter().flat_map(|&token| text(token)).collect();
    assert_eq!(String::from_utf8_lossy(&said), "seats</arg_key>");
    assert_eq!(mask(&mut at_key), first, "asking moves nothing");
    assert_eq!(at_key.forced(2), forced[..2]);
    assert_eq!(walk(&mut at_key, &forced), forced.len());

    let mut qwen = matcher(&book(TagFormat::QwenXml, ToolChoice::Required));
    assert_eq!(walk(&mut qwen, &[piece("<tool_call>")]), 1);
    let forced = qwen.forced(99);
    let said: Vec<u8> = forced.iter().flat_map(|&token| text(token)).collect();
    assert_eq!(
        String::from_utf8_lossy(&said),
        "\n<function=book>\n<parameter=seats"
    );
    assert!(!forced.contains(&END));
}

#[test]
fn nothing_is_forced_behind_half_a_character() {
    let mut asked = constraint(TagFormat::Plain, vec![], ToolChoice::Auto);
    asked.answer = Answer::Choice(vec!["caf\u{e9}s".to_string()]);
    let mut cafe = matcher(&asked);
    assert_eq!(walk(&mut cafe, &spelled("caf\u{e9}")[..4]), 4);
    assert_eq!(cafe.forced(8), []);
    assert_eq!(walk(&mut cafe, &spelled("caf\u{e9}s")[4..]), 2);
    assert!(cafe.can_finish());
}

#[test]
fn text_or_something_else_is_written_either_way() {
    let schema = json!({
        "type": "object",
        "properties": {"v": {"anyOf": [
            {"type": "integer", "minimum": 3, "maximum": 40}, {"type": "null"}, {"type": "boolean"},
            {"type": "array", "items": {"type": "integer"}},
            {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false},
            {"type": "string"},
        ]}},
        "required": ["v"],
    });
    for format in [TagFormat::Glm, TagFormat::QwenXml] {
        let asked = constraint(
            format,
            vec![tool("f", schema.clone())],
            ToolChoice::Required,
        );
        let call = |value: &str| match format {
            TagFormat::Glm => format!(
                "<tool_call>f<arg_key>v</arg_key><arg_value>{value}</arg_value></tool_call>"
            ),
            _ => format!(
                "<tool_call>\n<function=f>\n<parameter=v>\n{value}\n</parameter>\n</function>\n</tool_call>"
            ),
        };
        for good in [
            "4",
            "40",
            "null",
            "true",
            "[4, 12]",
            "{\"a\": 5}",
            "{}",
            "x",
            "",
            "4 x",
            "nul",
            "-",
        ] {
            assert!(admits(&asked, &tokens(&call(good))), "{format} {good:?}");
        }
        for bad in ["41", "2", "null ", "[", "[x]", "{\"a\": x}", "4.0", " 4"] {
            assert!(!admits(&asked, &tokens(&call(bad))), "{format} {bad:?}");
        }
    }
}

#[test]
fn what_only_a_closer_could_spell_is_refused() {
    for (format, closer) in [
        (TagFormat::Glm, "</arg_value>"),
        (TagFormat::Glm, "<arg_key>"),
        (TagFormat::QwenXml, "</parameter>"),
    ] {
        let said = format!("a{closer}b");
        let keyed = json!({"type": "object", "properties": {said.clone(): {"type": "null"}}, "required": [said.clone()], "additionalProperties": false});
        for value in [
            json!({"type": "array", "items": {"const": said}, "minItems": 1}),
            json!({"type": "array", "items": {"enum": ["x", said]}}),
            json!({"const": {"k": said}}),
            keyed.clone(),
            json!({"type": "array", "items": keyed}),
        ] {
            let schema = json!({"type": "object", "properties": {"v": value}, "required": ["v"]});
            let asked = constraint(format, vec![tool("f", schema)], ToolChoice::Required);
            let error = crate::toy::refusal(&asked);
            assert_eq!(error.kind, "unsupported_schema", "{error}");
            assert!(error.to_string().contains(closer), "{error}");
            let hermes = Constraint {
                format: TagFormat::HermesJson,
                ..asked
            };
            assert!(mask(&mut matcher(&hermes)).num_allowed() > 0);
        }
        let root = |value: serde_json::Value| {
            let schema = json!({"type": "object", "properties": {"v": value}, "required": ["v"]});
            constraint(format, vec![tool("f", schema)], ToolChoice::Required)
        };
        let error = crate::toy::refusal(&root(json!({"const": said})));
        assert!(error.kind.starts_with("unsupported_"), "{error}");
        // Of a list the others are left.
        assert!(mask(&mut matcher(&root(json!({"enum": ["x", said]})))).num_allowed() > 0);
    }
}

#[test]
fn an_answer_under_a_grammar_opens_no_call_by_its_text() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let mut asked = book(TagFormat::QwenXml, ToolChoice::Auto);
    asked.answer = Answer::JsonSchema(schema);
    for tag in ["<tool_call>", "<function="] {
        let answer = spelled(&format!("{{\"a\":\"{tag}book>\"}}"));
        assert!(!admits(&asked, &answer), "{tag}");
        let without_tools = Constraint {
            tools: vec![],
            ..asked.clone()
        };
        assert!(admits(&without_tools, &answer), "{tag}");
        assert!(admits(
            &asked,
            &spelled(&format!("{{\"a\":\"{}\"}}", &tag[..tag.len() - 1]))
        ));
        for answer in [
            Answer::JsonSchema(json!({"enum": [{"k": tag}]})),
            Answer::Choice(vec!["x".to_string(), tag.to_string()]),
        ] {
            let error = crate::toy::refusal(&Constraint {
                answer,
                ..asked.clone()
            });
            assert!(error.to_string().contains(tag), "{error}");
        }
    }
}
