//! A chat template of any text, over any conversation: a prompt within bounds, or an error; the same again for
//! the same arguments, and tokens that say exactly what the text says.

use super::folder::Folder;
use super::jinja;
use super::note_held;
use crate::decode::byte;
use arbitrary::Unstructured;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What templates and conversations write.
pub const DICTIONARY: &[&str] = &[
    "{{ ",
    " }}",
    "{% for m in messages %}",
    "{% endfor %}",
    "{% if ",
    "{% else %}",
    "{% endif %}",
    "{% set x = ",
    "{% set ns = namespace(x=0) %}",
    "{% macro f(a) %}",
    "{% endmacro %}",
    "{{ f(1) }}",
    "{% generation %}",
    "{% endgeneration %}",
    "{% break %}",
    "{% include 'default' %}",
    "{% call ",
    "{% filter upper %}",
    "{#",
    "messages[0]",
    "m.content",
    "m['role']",
    "tools",
    " | tojson",
    " | tojson(indent=2)",
    " | trim",
    " | length",
    " | list",
    " | join(',')",
    " | string",
    " | items",
    " | selectattr('role', 'equalto', 'user')",
    " | map(attribute='content')",
    " | default('x')",
    " | indent(4)",
    " | replace('a', 'b')",
    " | batch(3)",
    " | format(1)",
    ".split(' ')",
    ".strip()",
    ".items()",
    ".get('a')",
    ".startswith('a')",
    ".replace('a', 'bb')",
    ".join(['a'])",
    "range(9999)",
    "loop.index0",
    "strftime_now('%Y-%m-%d')",
    "raise_exception('no')",
    "[::-1]",
    "[-1]",
    " ~ ",
    " * 9999",
    " ** 9",
    " // 0",
    " % 0",
    " is defined",
    " is string",
    " in ",
    "9223372036854775807",
    "-1",
    "1e308",
    "true",
    "none",
    "'%s'",
    "\u{0}",
    "\"role\": \"user\"",
    "\"content\": \"<think>\"",
    "\"tool_calls\": [",
];

/// Flags, a template as text or as blocks, and messages as JSON.
pub fn template(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let flags = byte(&mut input);
    let built = (flags & 16 != 0).then(|| jinja::source(&mut input));
    let rest = input.take_rest();
    let (source, said) = match rest.iter().position(|&byte| byte == 0) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[][..]),
    };
    let (source, said) = match &built {
        Some(built) => (built.as_bytes(), rest),
        None => (source, said),
    };
    if source.is_empty() || may_outgrow_memory(source) {
        return;
    }
    let messages: Vec<Value> = serde_json::from_slice(said).unwrap_or_else(|_| conversation());
    let folder = Folder::with(&BTreeMap::from([("chat_template.jinja", source)]));
    let package = match folder.open() {
        Ok(package) => package,
        Err(error) => {
            assert!(error.to_string().contains("chat_template.jinja"), "{error}");
            return;
        }
    };
    note_held();
    let tools = [json!({"type": "function", "function": {
        "name": "f", "description": "</s><think>", "parameters": {"type": "object"}}})];
    let tools = (flags & 1 != 0).then_some(&tools[..]);
    let mut kwargs = Map::from_iter([("enable_thinking".to_string(), json!(flags & 2 != 0))]);
    if flags & 4 != 0 {
        kwargs.insert("now".to_string(), json!("2026-11-29T18:00:00"));
    }
    let render = || package.encode_chat(&messages, tools, &kwargs, flags & 8 == 0);
    let rendered = render();
    assert_eq!(rendered, render(), "a second time");
    match rendered {
        Ok(prompt) => {
            // Whatever was structure and what was not: nothing is lost on the way.
            assert_eq!(package.tokenizer.decode(&prompt.token_ids), prompt.text);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The known limit of templates, told in `docs/fuzzing.md`: fuel counts instructions, and an instruction may
/// double what it is given. Such a template needs memory without bound, so that there is nothing to assert.
fn may_outgrow_memory(source: &[u8]) -> bool {
    let text = String::from_utf8_lossy(source);
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let growing = ["~", "+", "replace", "join"];
    let num_growing: usize = growing.iter().map(|word| text.matches(word).count()).sum();
    // Round after round: by a namespace in a loop, or by calls of itself.
    let is_round = has(&[
        "namespace",
        "macro",
        "caller",
        "include",
        "import",
        "extends",
    ]);
    let doubles =
        (is_round && (num_growing > 0 || has(&["[ns", "(ns", "{ns"]))) || num_growing > 12;
    let mut runs = text.split(|c: char| !(c.is_ascii_digit() || c == '_'));
    let has_large_number = runs.any(|run| run.len() > 4);
    let num_products = text.matches('*').count();
    let widens = num_products > 0 || has(&["indent", "format", "center"]);
    doubles || num_products > 1 || (widens && has_large_number)
}

fn conversation() -> Vec<Value> {
    vec![
        json!({"role": "system", "content": "ab"}),
        json!({"role": "user", "content": "a </s> b <think>"}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]}),
        json!({"role": "tool", "content": [{"type": "text", "text": "é"}]}),
    ]
}
