//! Hostile constraints end in a named error, or in a grammar that can be walked. All limits are counts of
//! something, so what ends in which way is the same on any machine.

use crate::toy::{END, VOCABULARY, constraint, mask, tool};
use crate::walker::Walker;
use lockstep_grammar::{Answer, Compiler, Constraint, GrammarLimits, ToolChoice};
use lockstep_step::Matcher;
use lockstep_tags::TagFormat;
use serde_json::{Map, Value, json};

/// What a constraint comes to: the kind of its error, or `compiled`.
fn outcome(name: &str, asked: &Constraint) -> String {
    let compiler = Compiler::new(VOCABULARY.clone(), GrammarLimits::default());
    let mut boundary = match compiler.matcher(asked) {
        Ok(boundary) => boundary.expect("it holds something"),
        Err(error) => {
            let said = error.to_string();
            assert!(
                !said.trim().is_empty() && said.len() < 2_000,
                "{name}: {said:.200}"
            );
            return error.kind.to_string();
        }
    };
    let mut walker = Walker::new(1);
    for _ in 0..60 {
        let here = mask(&mut boundary);
        let token = walker.choose(&here);
        if token == END {
            assert!(here.allows(END), "{name}: nothing may follow");
            break;
        }
        boundary.consume(token).expect("it is in the mask");
    }
    "compiled".to_string()
}

fn check(name: &str, asked: &Constraint, expected: &[&str]) {
    let outcome = outcome(name, asked);
    assert!(
        expected.contains(&outcome.as_str()),
        "{name}: {outcome}, expected {expected:?}"
    );
}

fn answer(answer: Answer) -> Constraint {
    let mut asked = constraint(TagFormat::Plain, vec![], ToolChoice::Auto);
    asked.answer = answer;
    asked
}

/// An arguments object around something.
fn arguments(value: Value) -> Value {
    json!({"type": "object", "properties": {"v": value}, "required": ["v"]})
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(
        json!({"type": "null"}),
        |inner, _| json!({"type": "array", "items": inner}),
    )
}

fn named(num: usize, value: impl Fn(usize) -> Value) -> Value {
    let members = (0..num).map(|idx| (format!("k{idx}"), value(idx)));
    Value::Object(Map::from_iter(members))
}

fn values(num: usize, value: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..num).map(value).collect()
}

/// Schemas with the only outcomes that are fine.
fn schemas() -> Vec<(&'static str, Value, &'static [&'static str])> {
    const REFUSED: &[&str] = &["unsupported_schema"];
    const EITHER: &[&str] = &["unsupported_schema", "unsupported_grammar", "compiled"];
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let loops = json!({"$ref": "#/$defs/k0", "$defs": {"k0": {"$ref": "#/$defs/k1"}, "k1": {"$ref": "#/$defs/k0"}}});
    let endless =
        json!({"$ref": "#/$defs/e", "$defs": {"e": arguments(json!({"$ref": "#/$defs/e"}))}});
    let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"}},
        "additionalProperties": false,
    }}});
    let doubling = json!({"$ref": "#/$defs/k0", "$defs": named(40, |idx| match idx {
        39 => json!({"type": "string"}),
        _ => {
            let next = json!({"$ref": format!("#/$defs/k{}", idx + 1)});
            json!({"type": "array", "prefixItems": [next, next], "items": false, "minItems": 2})
        }
    })});
    vec![
        ("1,000 levels", nested(1_000), REFUSED),
        ("33 levels of arguments", arguments(nested(33)), REFUSED),
        (
            "100,000 listed values",
            json!({"enum": values(100_000, |idx| json!(idx))}),
            REFUSED,
        ),
        (
            "100,000 listed words",
            json!({"enum": values(100_000, |idx| json!(format!("word {idx}")))}),
            REFUSED,
        ),
        (
            "1 MB of annotations",
            json!({"type": "string", "description": "x".repeat(1 << 20)}),
            REFUSED,
        ),
        (
            "1 MB of properties",
            json!({"type": "object", "properties": named(20_000, |_| {
                json!({"type": "string", "description": "a property like any other"})
            })}),
            REFUSED,
        ),
        ("a long pattern", text(&"a?".repeat(2_000)), REFUSED),
        ("(a|aa)*b{1000}", text("^(a|aa)*b{1000}$"), EITHER),
        ("a far look back", text("^(a|b)*a(a|b){1000}$"), EITHER),
        (
            "repeats of repeats",
            text("^((((a{1,100}){1,100}){1,100}){1,100}){1,100}$"),
            EITHER,
        ),
        (
            "repeats of a choice",
            text("^(((x|xy|y){1,50}z){1,50}){1,50}$"),
            EITHER,
        ),
        (
            "long words of any characters",
            text("^(\\w+\\s?){1,400}$"),
            EITHER,
        ),
        (
            "a million characters",
            json!({"type": "string", "minLength": 1_000_000}),
            EITHER,
        ),
        (
            "a million items",
            json!({"type": "array", "items": {"type": "null"}, "minItems": 1_000_000}),
            EITHER,
        ),
        (
            "too many items",
            json!({"type": "array", "items": {"type": "null"}, "minItems": u64::MAX}),
            REFUSED,
        ),
        ("a loop of references", loops, REFUSED),
        ("an object without end", endless, REFUSED),
        ("a tree", tree, &["compiled"]),
        ("references that double", doubling, EITHER),
        (
            "a thousand branches",
            json!({"anyOf": values(1_000, |idx| arguments(json!({"const": idx})))}),
            REFUSED,
        ),
        (
            "conditions",
            json!({"if": {}, "then": {}, "type": "object"}),
            REFUSED,
        ),
        (
            "a chosen few of many",
            json!({
                "type": "object", "properties": named(60, |_| json!({"type": "null"})),
                "additionalProperties": false, "minProperties": 30,
            }),
            REFUSED,
        ),
    ]
}

#[test]
fn hostile_schemas_of_answers_end_in_a_named_error() {
    for (name, schema, expected) in schemas() {
        check(name, &answer(Answer::JsonSchema(schema)), expected);
    }
}

#[test]
fn hostile_schemas_of_tools_end_in_a_named_error() {
    for format in [TagFormat::Glm, TagFormat::QwenXml, TagFormat::HermesJson] {
        for (name, schema, expected) in schemas() {
            let root_defs = schema.get("$defs").cloned();
            let mut schema = arguments(schema);
            if let Some(definitions) = root_defs {
                schema["$defs"] = definitions;
            }
            let asked = constraint(format, vec![tool("f", schema)], ToolChoice::Required);
            check(&format!("{format}: {name}"), &asked, expected);
        }
    }
}

#[test]
fn hostile_grammars_end_in_a_named_error() {
    const EITHER: &[&str] = &["unsupported_grammar", "compiled"];
    const LARGE: &[&str] = &["grammar_too_large"];
    const NO_GRAMMAR: &[&str] = &["unsupported_grammar"];
    let regex = |text: &str| Answer::Regex(text.to_string());
    let lark = |text: &str| Answer::Lark(text.to_string());
    let chain = |num: usize| {
        let rules = (1..num).map(|idx| format!("r{idx}: \"a\" r{} | \"b\"\n", idx + 1));
        let rules: String = rules.collect();
        lark(&format!("start: r1\n{rules}r{num}: \"x\"\n"))
    };
    let rules = (0..900).map(|idx| {
        format!(
            "r{idx}: \"a\" r{} | \"b\" r{}\n",
            (idx + 1) % 900,
            (idx * 7) % 900
        )
    });
    let many_rules = format!("start: r0\n{}", rules.collect::<String>());
    let terminals = (0..250).map(|idx| format!("T{idx}: /[a-z]{{1,40}}{idx}/\n"));
    let choices: Vec<String> = (0..250).map(|idx| format!("T{idx}")).collect();
    let many_terminals = format!(
        "start: ({})+\n{}",
        choices.join(" | "),
        terminals.collect::<String>()
    );
    for (name, hostile, expected) in [
        ("a long regex", regex(&"a".repeat(5_000)), LARGE),
        ("(a|aa)*b{1000}", regex("(a|aa)*b{1000}"), EITHER),
        ("a far look back", regex("(a|b)*a(a|b){400}"), EITHER),
        ("a very far look back", regex("(a|b)*a(a|b){20000}"), EITHER),
        (
            "repeats of repeats",
            regex("((((a{1,99}){1,99}){1,99}){1,99}){1,99}"),
            EITHER,
        ),
        (
            "parentheses",
            regex(&format!("{}a{}", "(".repeat(1_900), ")".repeat(1_900))),
            EITHER,
        ),
        ("any characters often", regex("(.{1,200}é){1,200}"), EITHER),
        ("no regex", regex("(a"), NO_GRAMMAR),
        (
            "an empty language",
            regex("[^\\x00-\\u{10ffff}]"),
            NO_GRAMMAR,
        ),
        ("no choices", Answer::Choice(vec![]), &["empty_choice"]),
        (
            "many choices",
            Answer::Choice((0..5_001).map(|i| i.to_string()).collect()),
            LARGE,
        ),
        (
            "choices with much in common",
            Answer::Choice(
                (0..5_000)
                    .map(|i| format!("{}{i}", "x".repeat(200)))
                    .collect(),
            ),
            EITHER,
        ),
        (
            "a large grammar",
            lark(&format!("start: \"a\"\n// {}", "x".repeat(70_000))),
            LARGE,
        ),
        ("no grammar", lark("start: ("), NO_GRAMMAR),
        ("left recursion", lark("start: start start | \"a\""), EITHER),
        ("a rule of itself", lark("start: start"), EITHER),
        ("rules of rules", lark(&many_rules), LARGE),
        ("a long chain of rules", chain(255), &["compiled"]),
        ("too long a chain of rules", chain(256), LARGE),
        ("terminals that overlap", lark(&many_terminals), EITHER),
        (
            "a long regex in a grammar",
            lark(&format!("start: /{}/", "(a|b)?".repeat(2_600))),
            EITHER,
        ),
        (
            "many alternatives",
            lark(&format!("start: {}", vec!["\"a\""; 2_300].join(" | "))),
            EITHER,
        ),
        (
            "many parentheses",
            lark(&format!(
                "start: {}\"a\"{}",
                "(".repeat(8_000),
                ")".repeat(8_000)
            )),
            EITHER,
        ),
        (
            "ambiguity",
            lark("start: a a a a a a\na: \"x\"* | a a"),
            EITHER,
        ),
        (
            "deep repeats",
            lark("start: a{1000}\na: b{1000}\nb: c{1000}\nc: \"x\""),
            EITHER,
        ),
        (
            "a schema past the reader",
            lark("start: %json {}"),
            NO_GRAMMAR,
        ),
        ("tokens by id", lark("start: <[5]>"), NO_GRAMMAR),
        (
            "a token by its name",
            lark("start: \"a\" <think>"),
            NO_GRAMMAR,
        ),
        (
            "no token's name",
            lark("start: \"a\\\"\" /\\//<x>"),
            NO_GRAMMAR,
        ),
        (
            "brackets in texts",
            lark("start: \"<b>\\\"<\" /<[a-z]\\/>/ // <x>\n# <y>\n"),
            &["compiled"],
        ),
    ] {
        check(name, &answer(hostile), expected);
    }
}
