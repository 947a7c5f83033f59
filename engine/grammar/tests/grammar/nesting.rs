//! Brackets are not opened without end.

use crate::toy::{constraint, mask, matcher, text, tokens, tool, walk};
use lockstep_grammar::{Constraint, ToolChoice};
use lockstep_step::{Matcher, TokenId};
use lockstep_tags::TagFormat;
use serde_json::json;

/// Opens whatever can be opened, and else closes what can be closed.
fn nest_as_deep_as_possible(asked: &Constraint, start: &str) -> String {
    let mut matcher = matcher(asked);
    let start = tokens(start);
    assert_eq!(walk(&mut matcher, &start), start.len());
    let mut said = String::new();
    for _ in 0..20_000 {
        let allowed = mask(&mut matcher);
        let wished = b"[{]}1,:\"a\n".iter().map(|&byte| u32::from(byte));
        let next = wished.map(TokenId).find(|&token| allowed.allows(token));
        let Some(next) = next else {
            break;
        };
        matcher.consume(next).expect("allowed");
        said.push_str(&String::from_utf8_lossy(&text(next)));
    }
    said
}

#[test]
fn a_loop_of_brackets_ends_before_a_reader_gives_up() {
    let tree = json!({
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/tree"}},
        "required": ["a"],
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    });
    let any = json!({"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]});
    for schema in [tree, any] {
        for (format, start) in [
            (
                TagFormat::Glm,
                "<tool_call>book<arg_key>a</arg_key><arg_value>",
            ),
            (
                TagFormat::QwenXml,
                "<tool_call>\n<function=book>\n<parameter=a>\n",
            ),
            (
                TagFormat::HermesJson,
                "<tool_call>\n{\"name\": \"book\", \"arguments\": {\"a\":",
            ),
        ] {
            let asked = constraint(format, vec![tool("book", schema.clone())], ToolChoice::Auto);
            let said = nest_as_deep_as_possible(&asked, start);
            let (mut depth, mut deepest) = (0i32, 0);
            for c in said.chars() {
                depth += i32::from(matches!(c, '[' | '{')) - i32::from(matches!(c, ']' | '}'));
                deepest = deepest.max(depth);
            }
            assert!((80..120).contains(&deepest), "{format}: {deepest} levels");
        }
    }
}
