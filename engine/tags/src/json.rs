//! Strict JSON: values whose numbers keep their digits and whose objects keep their order.
//! It must never accept what RFC 8259 refuses, nor round a number.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// How deep arrays and objects may nest in text that a model or a client wrote.
pub const DEPTH_MAX: usize = 128;

/// One JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as it was written, digit for digit.
    Number(String),
    /// A string, unescaped.
    String(String),
    /// An array in order.
    Array(Vec<Value>),
    /// An object in the order of first appearance; of a repeated key the last value stands.
    Object(Vec<(String, Value)>),
}

/// Where text stopped being JSON, and what would have been JSON there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Byte offset in the text.
    pub offset: usize,
    /// What was expected at the offset.
    pub expected: &'static str,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: expected {}", self.offset, self.expected)
    }
}

impl core::error::Error for JsonError {}

/// Space, tab, CR and LF: the blanks of JSON and of every tag format.
pub fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Cuts JSON blanks, and no other white space, off both ends.
pub fn trim_blanks(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// Reads one value that fills the whole text, blanks around it allowed. Fails at the first byte
/// that is not strict JSON, or where nesting passes `depth_max`.
pub fn parse(text: &str, depth_max: usize) -> Result<Value, JsonError> {
    let mut reader = Reader {
        text,
        pos: 0,
        depth_left: depth_max,
    };
    reader.skip_blanks();
    let value = reader.value()?;
    reader.skip_blanks();
    if reader.pos < text.len() {
        return Err(reader.error("the end of the text"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    pos: usize,
    depth_left: usize,
}

impl Reader<'_> {
    fn error(&self, expected: &'static str) -> JsonError {
        JsonError {
            offset: self.pos,
            expected,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.pos += 1;
        }
    }

    fn value(&mut self) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'[') => self.nested(Self::array),
            Some(b'{') => self.nested(Self::object),
            _ => Err(self.error("a JSON value")),
        }
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, JsonError> {
        if !self.text[self.pos..].starts_with(word) {
            return Err(self.error("a JSON value"));
        }
        self.pos += word.len();
        Ok(value)
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Value, JsonError>,
    ) -> Result<Value, JsonError> {
        if self.depth_left == 0 {
            return Err(self.error("fewer nested arrays and objects"));
        }
        self.depth_left -= 1;
        self.pos += 1;
        let value = read(self)?;
        self.depth_left += 1;
        Ok(value)
    }

    /// Reads to the closing bracket; the opening one is behind.
    fn array(&mut self) -> Result<Value, JsonError> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.pos += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_blanks();
            items.push(self.value()?);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.pos += 1,
                Some(b']') => {
                    self.pos += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.error("`,` or `]`")),
            }
        }
    }

    /// Reads to the closing brace; the opening one is behind.
    fn object(&mut self) -> Result<Value, JsonError> {
        let mut members: Vec<(String, Value)> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.pos += 1;
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.error("a key in double quotes"));
            }
            let key = self.string()?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return Err(self.error("`:`"));
            }
            self.pos += 1;
            self.skip_blanks();
            let value = self.value()?;
            match places.get(&key) {
                Some(&place) => members[place].1 = value,
                None => {
                    places.insert(key.clone(), members.len());
                    members.push((key, value));
                }
            }
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.pos += 1,
                Some(b'}') => {
                    self.pos += 1;
                    return Ok(Value::Object(members));
                }
                _ => return Err(self.error("`,` or `}`")),
            }
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.error("a digit"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.pos += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.pos;
        if self.peek() == Some(b'-') {
            self.pos += 1;
        }
        if self.peek() == Some(b'0') {
            self.pos += 1;
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.error("no digit after a leading zero"));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.pos += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.pos += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.pos += 1;
            }
            self.digits()?;
        }
        Ok(Value::Number(String::from(&self.text[start..self.pos])))
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.pos += 1;
        let mut string = String::new();
        loop {
            let start = self.pos;
            while self
                .peek()
                .is_some_and(|b| b != b'"' && b != b'\\' && b >= 0x20)
            {
                self.pos += 1;
            }
            string.push_str(&self.text[start..self.pos]);
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(_) => return Err(self.error("no raw control character in a string")),
                None => return Err(self.error("a closing `\"`")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let plain = match self.text.as_bytes().get(self.pos + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error("a JSON escape")),
        };
        self.pos += 2;
        Ok(plain)
    }

    /// Reads `\uXXXX`, or a surrogate pair of two; a lone surrogate is refused, since no string
    /// that is text can hold it.
    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let start = self.pos;
        let high = self.hex_unit()?;
        let code = match high {
            0xD800..=0xDBFF => match self.hex_unit() {
                Ok(low @ 0xDC00..=0xDFFF) => 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00),
                _ => 0xD800,
            },
            other => other,
        };
        char::from_u32(code).ok_or(JsonError {
            offset: start,
            expected: "no half of a surrogate pair",
        })
    }

    fn hex_unit(&mut self) -> Result<u32, JsonError> {
        let bytes = self.text.as_bytes();
        let digits = bytes
            .get(self.pos..self.pos + 6)
            .filter(|unit| unit.starts_with(b"\\u") && unit[2..].iter().all(u8::is_ascii_hexdigit))
            .ok_or(JsonError {
                offset: self.pos,
                expected: "`\\u` and four hexadecimal digits",
            })?;
        let code = digits[2..].iter().fold(0, |code, &digit| {
            code * 16 + char::from(digit).to_digit(16).unwrap_or_default()
        });
        self.pos += 6;
        Ok(code)
    }
}

impl Value {
    /// The value under a key; `None` where there is none or this is no object.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The text of a string value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Whether both are the same JSON value: numbers by value (`3` is `3.0`) with every digit
    /// counting, objects whatever the order of their keys, strings exactly.
    pub fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => Decimal::of(a) == Decimal::of(b),
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
            }
            (Value::Object(a), Value::Object(b)) => {
                let b: BTreeMap<&str, &Value> = b.iter().map(|(k, v)| (k.as_str(), v)).collect();
                a.len() == b.len()
                    && a.iter()
                        .all(|(k, v)| b.get(k.as_str()).is_some_and(|w| v.same(w)))
            }
            _ => self == other,
        }
    }

    /// Writes the value without blanks, numbers as they were read.
    pub fn write(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(text) => out.push_str(text),
            Value::String(text) => write_string(text, out),
            Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_string(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

/// Writes a JSON string with its quotes.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    write_escaped(text, out);
    out.push('"');
}

/// Writes the inside of a JSON string. Each character is escaped by itself, so pieces of a text
/// may be written one after the other.
pub fn write_escaped(text: &str, out: &mut String) {
    let mut start = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[start..i]);
        start = i + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            8 => out.push_str("\\b"),
            12 => out.push_str("\\f"),
            _ => {
                out.push_str("\\u00");
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
                }
            }
        }
    }
    out.push_str(&text[start..]);
}

/// A decimal number in lowest terms: `digits` has no zero at either end, and its last digit
/// counts `10^exponent`. Zero has no digits.
#[derive(PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Takes the text of a valid JSON number.
    pub(crate) fn of(number: &str) -> Decimal {
        let (negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = String::from(whole);
        digits.push_str(fraction);
        let kept = digits.trim_end_matches('0');
        let dropped = digits.len() - kept.len();
        let digits = String::from(kept.trim_start_matches('0'));
        if digits.is_empty() {
            return Decimal {
                negative: false,
                digits,
                exponent: 0,
            };
        }
        let exponent = exponent_of(exponent)
            .saturating_add_unsigned(dropped as u64)
            .saturating_sub_unsigned(fraction.len() as u64);
        Decimal {
            negative,
            digits,
            exponent,
        }
    }

    /// Whether the number has no fractional part: `3`, `3.0` and `25e2`, not `2.5`.
    pub(crate) fn is_integer(&self) -> bool {
        self.exponent >= 0
    }
}

/// Exponents past the range of `i64` saturate: no two numbers a model writes differ only there.
fn exponent_of(text: &str) -> i64 {
    let text = text.strip_prefix('+').unwrap_or(text);
    text.parse().unwrap_or(if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    })
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
