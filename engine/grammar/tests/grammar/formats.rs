//! How values and calls are written, in rules of the plain recogniser: the second half of the second witness.
//!
//! JSON is written with at most one gap of 1 to 64 blanks between two of its tokens, none before the first or
//! after the last; properties in the order of the schema; whole numbers without a fraction or an exponent, `-0`
//! only where a range goes from below zero to zero or more; strings with the short escapes of JSON alone.

use crate::reference::{Kinds, RuleId, Rules, TextRule};
use crate::shapes::{Field, Parameters, Shape};
use crate::toy::piece;
use lockstep_tags::TagFormat;
use serde_json::Value;

/// Writes rules for one schema.
struct Writer<'a> {
    rules: &'a mut Rules,
    parameters: &'a Parameters,
    definitions: Vec<RuleId>,
    gap: RuleId,
}

/// The rule of JSON under a schema.
pub fn json(parameters: &Parameters, rules: &mut Rules) -> RuleId {
    Writer::new(rules, parameters).object(&parameters.fields)
}

/// The rule of one call, behind the opening tag and through the closing one.
pub fn call(format: TagFormat, tools: &[(&str, &Parameters)], rules: &mut Rules) -> RuleId {
    let mut calls = Vec::new();
    for (name, parameters) in tools {
        let mut writer = Writer::new(rules, parameters);
        let call = match format {
            TagFormat::Glm => writer.glm(name),
            TagFormat::QwenXml => writer.qwen_xml(name),
            _ => writer.hermes_json(name),
        };
        let close = rules.tag(piece("</tool_call>"));
        calls.push(rules.seq(&[call, close]));
    }
    rules.alt(&calls)
}

impl<'a> Writer<'a> {
    fn new(rules: &'a mut Rules, parameters: &'a Parameters) -> Writer<'a> {
        let blank = rules.bytes(&[(b' ', b' '), (b'\t', b'\n'), (b'\r', b'\r')]);
        let gap = rules.repeat(blank, 0, Some(64));
        let definitions: Vec<RuleId> = parameters
            .definitions
            .iter()
            .map(|_| rules.later())
            .collect();
        let mut writer = Writer {
            rules,
            parameters,
            definitions: definitions.clone(),
            gap,
        };
        for (definition, shape) in definitions.into_iter().zip(&parameters.definitions) {
            let rule = writer.value(shape);
            writer.rules.say(definition, rule);
        }
        writer
    }

    /// JSON tokens or values, with a gap between each two.
    fn spaced(&mut self, parts: &[RuleId]) -> RuleId {
        let mut all = Vec::new();
        for (idx, &part) in parts.iter().enumerate() {
            if idx > 0 {
                all.push(self.gap);
            }
            all.push(part);
        }
        self.rules.seq(&all)
    }

    fn choice(&mut self, words: &[String]) -> RuleId {
        let words: Vec<RuleId> = words.iter().map(|word| self.rules.literal(word)).collect();
        self.rules.alt(&words)
    }

    fn value(&mut self, shape: &Shape) -> RuleId {
        match shape {
            Shape::Null => self.rules.literal("null"),
            Shape::Boolean => self.choice(&["true".into(), "false".into()]),
            Shape::Integer(None) => self.whole(),
            Shape::Integer(Some((low, high))) => {
                let mut spelled: Vec<String> = (*low..=*high).map(|n| n.to_string()).collect();
                if *low < 0 && *high >= 0 {
                    spelled.push("-0".into());
                }
                self.choice(&spelled)
            }
            Shape::Number => self.number(),
            Shape::Text(min, max) => self.string(*min, *max),
            Shape::Words(words) => {
                let spelled: Vec<String> =
                    words.iter().map(|w| Value::from(*w).to_string()).collect();
                self.choice(&spelled)
            }
            Shape::Numbers(numbers) => {
                let spelled: Vec<String> = numbers.iter().map(i64::to_string).collect();
                self.choice(&spelled)
            }
            Shape::Array(item, min, max) => self.array(item, *min, *max),
            Shape::Object(fields) => self.object(fields),
            Shape::AnyOf(shapes) => {
                let rules: Vec<RuleId> = shapes.iter().map(|shape| self.value(shape)).collect();
                self.rules.alt(&rules)
            }
            Shape::Nullable(shape) => {
                let rules = [self.value(shape), self.value(&Shape::Null)];
                self.rules.alt(&rules)
            }
            Shape::Defined(idx) => self.definitions[*idx],
        }
    }

    fn digits(&mut self, min: u32) -> RuleId {
        let digit = self.rules.bytes(&[(b'0', b'9')]);
        self.rules.repeat(digit, min, None)
    }

    fn whole(&mut self) -> RuleId {
        let minus = self.rules.literal("-");
        let sign = self.rules.optional(minus);
        let zero = self.rules.literal("0");
        let first = self.rules.bytes(&[(b'1', b'9')]);
        let more = self.digits(0);
        let other = self.rules.seq(&[first, more]);
        let size = self.rules.alt(&[zero, other]);
        self.rules.seq(&[sign, size])
    }

    fn number(&mut self) -> RuleId {
        let whole = self.whole();
        let digits = self.digits(1);
        let point = self.rules.literal(".");
        let fraction = self.rules.seq(&[point, digits]);
        let e = self.rules.bytes(&[(b'e', b'e'), (b'E', b'E')]);
        let sign = self.rules.bytes(&[(b'+', b'+'), (b'-', b'-')]);
        let sign = self.rules.optional(sign);
        let exponent = self.rules.seq(&[e, sign, digits]);
        let (fraction, exponent) = (self.rules.optional(fraction), self.rules.optional(exponent));
        self.rules.seq(&[whole, fraction, exponent])
    }

    fn string(&mut self, min: u32, max: Option<u32>) -> RuleId {
        let ascii = self
            .rules
            .bytes(&[(b' ', b'!'), (b'#', b'['), (b']', b'~')]);
        let letters: Vec<(u8, u8)> = b"\"\\bfnrt".iter().map(|b| (*b, *b)).collect();
        let letter = self.rules.bytes(&letters);
        let backslash = self.rules.literal("\\");
        let escape = self.rules.seq(&[backslash, letter]);
        let mut choices = vec![ascii, escape];
        // Well-formed UTF-8, by the table of the Unicode standard.
        for bytes in [
            &[(0xc2, 0xdf), (0x80, 0xbf)][..],
            &[(0xe0, 0xe0), (0xa0, 0xbf), (0x80, 0xbf)],
            &[(0xe1, 0xec), (0x80, 0xbf), (0x80, 0xbf)],
            &[(0xed, 0xed), (0x80, 0x9f), (0x80, 0xbf)],
            &[(0xee, 0xef), (0x80, 0xbf), (0x80, 0xbf)],
            &[(0xf0, 0xf0), (0x90, 0xbf), (0x80, 0xbf), (0x80, 0xbf)],
            &[(0xf1, 0xf3), (0x80, 0xbf), (0x80, 0xbf), (0x80, 0xbf)],
            &[(0xf4, 0xf4), (0x80, 0x8f), (0x80, 0xbf), (0x80, 0xbf)],
        ] {
            let bytes: Vec<RuleId> = bytes
                .iter()
                .map(|range| self.rules.bytes(&[*range]))
                .collect();
            choices.push(self.rules.seq(&bytes));
        }
        let character = self.rules.alt(&choices);
        let inside = self.rules.repeat(character, min, max);
        let quote = self.rules.literal("\"");
        self.rules.seq(&[quote, inside, quote])
    }

    fn array(&mut self, item: &Shape, min: u32, max: Option<u32>) -> RuleId {
        let [open, close, comma] = ["[", "]", ","].map(|text| self.rules.literal(text));
        let mut choices = Vec::new();
        if min == 0 {
            choices.push(self.spaced(&[open, close]));
        }
        if max != Some(0) {
            let item = self.value(item);
            let more = self.rules.seq(&[self.gap, comma, self.gap, item]);
            let min = min.saturating_sub(1);
            let more = self.rules.repeat(more, min, max.map(|max| max - 1));
            let items = self.rules.seq(&[item, more]);
            choices.push(self.spaced(&[open, items, close]));
        }
        self.rules.alt(&choices)
    }

    fn object(&mut self, fields: &[Field]) -> RuleId {
        let members = self.members(fields, false);
        let open = self.rules.literal("{");
        self.rules.seq(&[open, members])
    }

    /// The members of an object that are left, and its end.
    fn members(&mut self, fields: &[Field], after_one: bool) -> RuleId {
        let Some((field, rest)) = fields.split_first() else {
            let close = self.rules.literal("}");
            return self.rules.seq(&[self.gap, close]);
        };
        let key = self.rules.literal(&Value::from(field.name).to_string());
        let [comma, colon] = [",", ":"].map(|text| self.rules.literal(text));
        let value = self.value(&field.shape);
        let mut parts = vec![key, colon, value];
        if after_one {
            parts.insert(0, comma);
        }
        let member = self.spaced(&parts);
        let then = self.members(rest, true);
        let with = self.rules.seq(&[self.gap, member, then]);
        if field.required {
            return with;
        }
        let without = self.members(rest, after_one);
        self.rules.alt(&[with, without])
    }

    /// A value where strings are raw and all else is JSON.
    fn raw_value(
        &mut self,
        shape: &Shape,
        without: &[&'static str],
        begins_other: fn(Kinds, &str) -> bool,
    ) -> RuleId {
        let text = TextRule {
            min: 0,
            max: None,
            without: without.to_vec(),
            reads_as_other,
            begins_other,
            kinds: kinds(self.parameters, shape),
        };
        let mut choices = Vec::new();
        self.raw_choices(shape, &text, &mut choices);
        self.rules.alt(&choices)
    }

    /// `text` is what any text there must be.
    fn raw_choices(&mut self, shape: &Shape, text: &TextRule, out: &mut Vec<RuleId>) {
        let parameters = self.parameters;
        match shape {
            Shape::Text(min, max) => out.push(self.rules.text(TextRule {
                min: *min,
                max: *max,
                ..text.clone()
            })),
            Shape::Words(words) => {
                let as_text = |word: &&&str| !reads_as_other(text.kinds, word);
                let words = words.iter().filter(as_text);
                let words: Vec<String> = words.map(|word| (*word).to_string()).collect();
                out.push(self.choice(&words));
            }
            Shape::AnyOf(shapes) => {
                for shape in shapes {
                    self.raw_choices(shape, text, out);
                }
            }
            Shape::Nullable(shape) => {
                self.raw_choices(shape, text, out);
                out.push(self.value(&Shape::Null));
            }
            Shape::Defined(idx) => {
                self.raw_choices(&parameters.definitions[*idx], text, out);
            }
            shape => out.push(self.value(shape)),
        }
    }

    fn glm(&mut self, name: &str) -> RuleId {
        let tags = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];
        let [key_open, key_close, open, close] = tags.map(|tag| self.rules.tag(piece(tag)));
        let line_feed = self.rules.literal("\n");
        let layout = self.rules.optional(line_feed);
        let mut parts = vec![self.rules.literal(name), layout];
        for field in &self.parameters.fields {
            let key = self.rules.literal(field.name);
            let value = self.raw_value(&field.shape, &["</arg_value>", "<arg_key>"], begins_other);
            let argument = [key_open, key, key_close, layout, open, value, close, layout];
            let argument = self.rules.seq(&argument);
            parts.push(self.given(field, argument));
        }
        self.rules.seq(&parts)
    }

    fn qwen_xml(&mut self, name: &str) -> RuleId {
        let mut parts = vec![self.rules.literal(&format!("\n<function={name}>\n"))];
        for field in &self.parameters.fields {
            let open = self.rules.literal(&format!("<parameter={}>\n", field.name));
            let value = self.raw_value(
                &field.shape,
                &["</parameter>", "<parameter="],
                begins_other_by_line,
            );
            let close = self.rules.literal("\n</parameter>\n");
            let argument = self.rules.seq(&[open, value, close]);
            parts.push(self.given(field, argument));
        }
        parts.push(self.rules.literal("</function>\n"));
        self.rules.seq(&parts)
    }

    fn given(&mut self, field: &Field, argument: RuleId) -> RuleId {
        match field.required {
            true => argument,
            false => self.rules.optional(argument),
        }
    }

    fn hermes_json(&mut self, name: &str) -> RuleId {
        let open = format!("\n{{\"name\": {}, \"arguments\": ", Value::from(name));
        let open = self.rules.literal(&open);
        let fields = self.parameters.fields.clone();
        let arguments = self.object(&fields);
        let close = self.rules.literal("}\n");
        self.rules.seq(&[open, arguments, close])
    }
}

/// What the raw text of a value may be read as beside text.
fn kinds(parameters: &Parameters, shape: &Shape) -> Kinds {
    let none = Kinds::default();
    let or = |a: Kinds, b: Kinds| Kinds {
        null: a.null || b.null,
        boolean: a.boolean || b.boolean,
        integer: a.integer || b.integer,
        fraction: a.fraction || b.fraction,
        array: a.array || b.array,
        object: a.object || b.object,
    };
    let null = Kinds { null: true, ..none };
    let integer = Kinds {
        integer: true,
        ..none
    };
    match shape {
        Shape::Null => null,
        Shape::Boolean => Kinds {
            boolean: true,
            ..none
        },
        Shape::Integer(_) | Shape::Numbers(_) => integer,
        Shape::Number => Kinds {
            fraction: true,
            ..integer
        },
        Shape::Text(..) | Shape::Words(_) => none,
        Shape::Array(..) => Kinds {
            array: true,
            ..none
        },
        Shape::Object(_) => Kinds {
            object: true,
            ..none
        },
        Shape::AnyOf(shapes) => shapes
            .iter()
            .map(|shape| kinds(parameters, shape))
            .fold(none, or),
        Shape::Nullable(shape) => or(kinds(parameters, shape), null),
        Shape::Defined(idx) => kinds(parameters, &parameters.definitions[*idx]),
    }
}

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

fn reads_as_other(kinds: Kinds, text: &str) -> bool {
    let inside = text.trim_matches(BLANKS);
    (kinds.null && inside == "null")
        || (kinds.boolean && matches!(inside, "true" | "false"))
        || is_number(kinds, inside)
        || begins_other(kinds, text)
}

fn begins_other(kinds: Kinds, text: &str) -> bool {
    let inside = text.trim_start_matches(BLANKS);
    (kinds.array && inside.starts_with('[')) || (kinds.object && inside.starts_with('{'))
}

/// So that a line feed is not the end of a value and more of a text at once, no text goes on in a second line
/// where its first is a scalar that the value may be.
fn begins_other_by_line(kinds: Kinds, text: &str) -> bool {
    let is_scalar = |line: &str| {
        let any_number = Kinds {
            integer: true,
            fraction: true,
            ..Kinds::default()
        };
        (kinds.null && line == "null")
            || (kinds.boolean && matches!(line, "true" | "false"))
            || ((kinds.integer || kinds.fraction) && is_number(any_number, line))
    };
    let line = text.split_once('\n').map(|(line, _)| line);
    begins_other(kinds, text) || line.is_some_and(is_scalar)
}

/// A number as JSON writes it; with an exponent it may be whole or not, and counts as both.
fn is_number(kinds: Kinds, text: &str) -> bool {
    if !kinds.integer && !kinds.fraction {
        return false;
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (size, exponent) = match text.split_once(['e', 'E']) {
        Some((size, exponent)) => (size, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match size.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (size, None),
    };
    let whole = whole.strip_prefix('-').unwrap_or(whole);
    let exponent_fits =
        exponent.is_none_or(|text| digits(text.strip_prefix(['+', '-']).unwrap_or(text)));
    let fits = digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent_fits;
    let is_whole =
        exponent.is_some() || fraction.is_none_or(|text| text.bytes().all(|b| b == b'0'));
    fits && (is_whole || kinds.fraction)
}
