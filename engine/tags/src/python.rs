//! Python's spelling of values, which some templates print in place of JSON.
//! It must never accept what is no literal: there is no expression, no call and no name in it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::{self, Value, is_blank};

/// Python's spellings of booleans and null.
pub(crate) fn scalar(text: &str) -> Option<Value> {
    match text {
        "True" => Some(Value::Bool(true)),
        "False" => Some(Value::Bool(false)),
        "None" => Some(Value::Null),
        _ => None,
    }
}

/// A list literal that fills the text: strings in either quote, numbers as in JSON, `True`, `False`,
/// `None`, lists, and dictionaries with string keys.
pub(crate) fn list(text: &str) -> Option<Value> {
    let mut reader = Reader {
        rest: text.strip_prefix('[')?,
        depth_left: json::DEPTH_MAX - 1,
    };
    let items = reader.items()?;
    reader.rest.is_empty().then_some(items)
}

struct Reader<'a> {
    rest: &'a str,
    depth_left: usize,
}

impl Reader<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(is_blank);
    }

    fn eat(&mut self, c: char) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The items of a list whose bracket is behind, with its closing bracket. A trailing comma is
    /// Python's own.
    fn items(&mut self) -> Option<Value> {
        let mut items = Vec::new();
        loop {
            if self.eat(']') {
                return Some(Value::Array(items));
            }
            items.push(self.value()?);
            if !self.eat(',') {
                return self.eat(']').then_some(Value::Array(items));
            }
        }
    }

    fn members(&mut self) -> Option<Value> {
        let mut members: Vec<(String, Value)> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        loop {
            if self.eat('}') {
                return Some(Value::Object(members));
            }
            self.skip_blanks();
            let key = self.string()?;
            if !self.eat(':') {
                return None;
            }
            let value = self.value()?;
            match places.get(&key) {
                Some(&place) => members[place].1 = value,
                None => {
                    places.insert(key.clone(), members.len());
                    members.push((key, value));
                }
            }
            if !self.eat(',') {
                return self.eat('}').then_some(Value::Object(members));
            }
        }
    }

    fn value(&mut self) -> Option<Value> {
        self.skip_blanks();
        match self.rest.chars().next()? {
            '\'' | '"' => self.string().map(Value::String),
            '[' => self.nested(Self::items),
            '{' => self.nested(Self::members),
            _ => {
                let end = self
                    .rest
                    .find(|c| is_blank(c) || matches!(c, ',' | ']' | '}'));
                let (word, rest) = self.rest.split_at(end?);
                self.rest = rest;
                scalar(word).or_else(|| {
                    let value = json::parse(word, 0).ok()?;
                    matches!(value, Value::Number(_)).then_some(value)
                })
            }
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Option<Value>) -> Option<Value> {
        self.rest = &self.rest[1..];
        self.depth_left = self.depth_left.checked_sub(1)?;
        let value = read(self)?;
        self.depth_left += 1;
        Some(value)
    }

    fn string(&mut self) -> Option<String> {
        let quote = self
            .rest
            .chars()
            .next()
            .filter(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        let mut chars = self.rest[1..].chars();
        loop {
            match chars.next()? {
                '\n' | '\r' => return None,
                '\\' => {
                    let c = chars.next()?;
                    text.push(match c {
                        '\\' | '\'' | '"' => c,
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        'x' => code(&mut chars, 2)?,
                        'u' => code(&mut chars, 4)?,
                        'U' => code(&mut chars, 8)?,
                        _ => return None,
                    });
                }
                c if c == quote => break,
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Some(text)
    }
}

/// The character that this many hexadecimal digits name.
fn code(chars: &mut core::str::Chars<'_>, num_digits: usize) -> Option<char> {
    let mut code: u32 = 0;
    for _ in 0..num_digits {
        code = code.checked_mul(16)? + chars.next()?.to_digit(16)?;
    }
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    extern crate std;

    #[test]
    fn list_literals() {
        for (text, json) in [
            ("[]", "[]"),
            ("['a', \"b\"]", r#"["a","b"]"#),
            ("[True, False, None, -1.5e3,]", "[true,false,null,-1.5e3]"),
            ("[ [1] , {'k': [2], 'k': 3} ]", r#"[[1],{"k":3}]"#),
            (
                r"['it\'s', 'a\n\\', '\x41\u00e9\U0001F33C', 'x\ty']",
                r#"["it's","a\n\\","Aé🌼","x\ty"]"#,
            ),
            ("['say \"x\"']", r#"["say \"x\""]"#),
        ] {
            assert_eq!(
                list(text).map(|value| value.to_string()).as_deref(),
                Some(json),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_literal_is_refused() {
        for text in [
            "",
            "[",
            "]",
            "[1",
            "[1 2]",
            "['a]",
            "['a\n']",
            "[a]",
            "[f(1)]",
            "[01]",
            "[null]",
            "[,]",
            r"['\q']",
            r"['\ud800']",
            r"['\x4']",
            "[1] x",
            "{'a': 1}",
            "[{1: 2}]",
            "[(1,)]",
            "[nan]",
        ] {
            assert_eq!(list(text), None, "{text}");
        }
        let deep = "[".repeat(json::DEPTH_MAX + 1) + &"]".repeat(json::DEPTH_MAX + 1);
        assert_eq!(list(&deep), None);
        assert!(list(&deep[1..deep.len() - 1]).is_some());
    }
}
