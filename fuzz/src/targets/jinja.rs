//! Templates that are well formed: blocks that close, and expressions over what a conversation has. What is
//! not well formed comes as text.

use crate::decode::{byte, pick};
use arbitrary::Unstructured;

const VALUES: &[&str] = &[
    "messages",
    "messages[0]",
    "messages[-1].content",
    "messages[::-1]",
    "messages[1:]",
    "m",
    "m.role",
    "m['content']",
    "m.tool_calls",
    "m.tool_calls[0].function.arguments",
    "m.missing",
    "tools",
    "x",
    "bos_token",
    "eos_token",
    "add_generation_prompt",
    "enable_thinking",
    "loop.index0",
    "loop.last",
    "now",
    "none",
    "true",
    "-7",
    "2.5",
    "1e300",
    "'a </s>\\n<think>'",
    "'é'",
    "[1, 'b', none]",
    "{'k': m, 'j': [x]}",
    "range(7)",
];

const FILTERS: &[&str] = &[
    "| tojson",
    "| tojson(indent=2)",
    "| tojson(ensure_ascii=true, sort_keys=true)",
    "| trim",
    "| length",
    "| list",
    "| string",
    "| first",
    "| last",
    "| items",
    "| dictsort",
    "| upper",
    "| default('d')",
    "| int",
    "| float",
    "| round(1)",
    "| sort",
    "| unique",
    "| reverse",
    "| batch(2)",
    "| selectattr('role', 'equalto', 'user')",
    "| map(attribute='content')",
    "| groupby('role')",
    "| pprint",
    "| urlencode",
    "| indent(3)",
    ".strip()",
    ".split('a')",
    ".items()",
    ".keys()",
    ".get('role', 'r')",
    ".startswith('a')",
    ".title()",
    ".count('a')",
    ".lstrip('a')",
    "[0]",
    "[-3:]",
    "[::0]",
    "['items']",
];

const OPERATORS: &[&str] = &[
    "==",
    "!=",
    "<",
    ">=",
    "and",
    "or",
    "in",
    "not in",
    "+",
    "-",
    "~",
    "*",
    "/",
    "//",
    "%",
    "**",
    "is defined and",
    "is string or",
    "is mapping and",
    "if true else",
];

/// A template of a few blocks.
pub fn source(input: &mut Unstructured<'_>) -> String {
    let mut out = String::new();
    block(input, &mut out, 3);
    out
}

fn block(input: &mut Unstructured<'_>, out: &mut String, depth: u32) {
    for _ in 0..byte(input) % 4 {
        let kind = byte(input) % 10;
        let dash = if kind & 1 == 1 { "-" } else { "" };
        match kind {
            0 => out.push_str(" </s> a\n\n"),
            1..=4 => {
                let expression = expression(input);
                out.push_str(&format!("{{{{{dash} {expression} {dash}}}}}"));
            }
            5 => {
                let expression = expression(input);
                out.push_str(&format!("{{%{dash} set x = {expression} %}}"));
            }
            _ if depth == 0 => out.push('.'),
            6 | 7 => {
                let condition = expression(input);
                out.push_str(&format!("{{%{dash} if {condition} %}}"));
                block(input, out, depth - 1);
                out.push_str("{% else %}");
                block(input, out, depth - 1);
                out.push_str("{% endif %}");
            }
            8 => {
                let items = expression(input);
                out.push_str(&format!("{{% for m in {items} {dash}%}}"));
                block(input, out, depth - 1);
                out.push_str("{% endfor %}");
            }
            _ => {
                out.push_str("{% generation %}");
                block(input, out, depth - 1);
                out.push_str("{% endgeneration %}");
            }
        }
    }
}

fn expression(input: &mut Unstructured<'_>) -> String {
    let mut text = pick(input, VALUES).to_string();
    for _ in 0..byte(input) % 3 {
        let filter = pick(input, FILTERS);
        let gap = if filter.starts_with('|') { " " } else { "" };
        text = format!("({text}){gap}{filter}");
    }
    if byte(input).is_multiple_of(4) {
        let (operator, right) = (pick(input, OPERATORS), pick(input, VALUES));
        text = format!("{text} {operator} {right}");
    }
    text
}
