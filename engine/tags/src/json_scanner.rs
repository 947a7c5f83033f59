//! Follows strict JSON one character at a time, to find where a value ends and where it is wrong.
//! It must accept exactly the texts that `json::parse` accepts; it keeps no value.

use alloc::vec::Vec;

use crate::json::is_blank;

/// What a character is to the value that is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// Part of the value, or a blank before it.
    Inside,
    /// The last character of the value.
    Last,
    /// No part of the value any more: a number ended before it.
    After,
}

/// An array or an object that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nest {
    Array,
    Object,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value.
    Value,
    /// The first item of an array, or its end.
    FirstItem,
    /// The first key of an object, or its end.
    FirstKey,
    /// A key after a comma.
    Key,
    Colon,
    /// A comma or the end of what is open.
    AfterItem,
    String {
        is_key: bool,
        part: StringPart,
    },
    /// The rest of `null`, `true` or `false`.
    Word(&'static str),
    Number(Number),
}

/// Where inside a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringPart {
    Plain,
    /// After a backslash.
    Escape,
    /// After `\u` and this many digits, whose value is `code`.
    Digits {
        num: u8,
        code: u32,
        after_high: bool,
    },
    /// After the first half of a surrogate pair.
    LowBackslash,
    LowLetter,
}

/// Where inside a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// The scanner of one value.
pub(crate) struct JsonScanner {
    state: State,
    open: Vec<Nest>,
    depth_max: usize,
}

impl JsonScanner {
    pub(crate) fn new(depth_max: usize) -> JsonScanner {
        JsonScanner {
            state: State::Value,
            open: Vec::new(),
            depth_max,
        }
    }

    /// Takes the next character; the error says what was expected in its place.
    pub(crate) fn take(&mut self, c: char) -> Result<Scanned, &'static str> {
        match self.state {
            State::String { is_key, part } => self.take_string(is_key, part, c),
            State::Word(rest) => match rest.strip_prefix(c) {
                Some("") => Ok(self.item_ended()),
                Some(rest) => Ok(self.go(State::Word(rest))),
                None => Err("a JSON value"),
            },
            State::Number(number) => self.take_number(number, c),
            _ if is_blank(c) => Ok(Scanned::Inside),
            State::Value => self.take_value(c),
            State::FirstItem if c == ']' => Ok(self.close()),
            State::FirstItem => self.take_value(c),
            State::FirstKey if c == '}' => Ok(self.close()),
            State::FirstKey | State::Key if c == '"' => Ok(self.go(State::String {
                is_key: true,
                part: StringPart::Plain,
            })),
            State::FirstKey | State::Key => Err("a key in double quotes"),
            State::Colon if c == ':' => Ok(self.go(State::Value)),
            State::Colon => Err("`:`"),
            State::AfterItem => match (self.open.last(), c) {
                (Some(Nest::Array), ',') => Ok(self.go(State::Value)),
                (Some(Nest::Object), ',') => Ok(self.go(State::Key)),
                (Some(Nest::Array), ']') | (Some(Nest::Object), '}') => Ok(self.close()),
                (Some(Nest::Array), _) => Err("`,` or `]`"),
                (Some(Nest::Object), _) => Err("`,` or `}`"),
                (None, _) => Err("the end of the value"),
            },
        }
    }

    fn go(&mut self, state: State) -> Scanned {
        self.state = state;
        Scanned::Inside
    }

    /// A value inside what is open has ended with this character, or the value itself.
    fn item_ended(&mut self) -> Scanned {
        self.state = State::AfterItem;
        match self.open.is_empty() {
            true => Scanned::Last,
            false => Scanned::Inside,
        }
    }

    fn close(&mut self) -> Scanned {
        self.open.pop();
        self.item_ended()
    }

    fn nest(&mut self, nest: Nest, first: State) -> Result<Scanned, &'static str> {
        if self.open.len() == self.depth_max {
            return Err("fewer nested arrays and objects");
        }
        self.open.push(nest);
        Ok(self.go(first))
    }

    fn take_value(&mut self, c: char) -> Result<Scanned, &'static str> {
        Ok(match c {
            'n' => self.go(State::Word("ull")),
            't' => self.go(State::Word("rue")),
            'f' => self.go(State::Word("alse")),
            '"' => self.go(State::String {
                is_key: false,
                part: StringPart::Plain,
            }),
            '-' => self.go(State::Number(Number::Minus)),
            '0' => self.go(State::Number(Number::Zero)),
            '1'..='9' => self.go(State::Number(Number::Whole)),
            '[' => self.nest(Nest::Array, State::FirstItem)?,
            '{' => self.nest(Nest::Object, State::FirstKey)?,
            _ => return Err("a JSON value"),
        })
    }

    fn take_string(
        &mut self,
        is_key: bool,
        part: StringPart,
        c: char,
    ) -> Result<Scanned, &'static str> {
        let next = match (part, c) {
            (StringPart::Plain, '"') if is_key => return Ok(self.go(State::Colon)),
            (StringPart::Plain, '"') => return Ok(self.item_ended()),
            (StringPart::Plain, '\\') => StringPart::Escape,
            (StringPart::Plain, '\0'..='\u{1f}') => {
                return Err("no raw control character in a string");
            }
            (StringPart::Plain, _) => StringPart::Plain,
            (StringPart::Escape, 'u') => digits(false),
            (StringPart::Escape, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {
                StringPart::Plain
            }
            (StringPart::Escape, _) => return Err("a JSON escape"),
            (StringPart::LowBackslash, '\\') => StringPart::LowLetter,
            (StringPart::LowLetter, 'u') => digits(true),
            (StringPart::LowBackslash | StringPart::LowLetter, _) => {
                return Err("no half of a surrogate pair");
            }
            (
                StringPart::Digits {
                    num,
                    code,
                    after_high,
                },
                c,
            ) => {
                let Some(digit) = c.to_digit(16) else {
                    return Err("`\\u` and four hexadecimal digits");
                };
                let (num, code) = (num + 1, code * 16 + digit);
                match (num, code, after_high) {
                    (..4, _, _) => StringPart::Digits {
                        num,
                        code,
                        after_high,
                    },
                    (_, 0xDC00..=0xDFFF, true) => StringPart::Plain,
                    (_, _, true) | (_, 0xDC00..=0xDFFF, false) => {
                        return Err("no half of a surrogate pair");
                    }
                    (_, 0xD800..=0xDBFF, false) => StringPart::LowBackslash,
                    _ => StringPart::Plain,
                }
            }
        };
        Ok(self.go(State::String { is_key, part: next }))
    }

    fn take_number(&mut self, number: Number, c: char) -> Result<Scanned, &'static str> {
        let next = match (number, c) {
            (Number::Minus, '0') => Number::Zero,
            (Number::Minus, '1'..='9') | (Number::Whole, '0'..='9') => Number::Whole,
            (Number::Zero, '0'..='9') => return Err("no digit after a leading zero"),
            (Number::Zero | Number::Whole, '.') => Number::Point,
            (Number::Point | Number::Fraction, '0'..='9') => Number::Fraction,
            (Number::Zero | Number::Whole | Number::Fraction, 'e' | 'E') => Number::Exponent,
            (Number::Exponent, '+' | '-') => Number::ExponentSign,
            (Number::Exponent | Number::ExponentSign | Number::ExponentDigits, '0'..='9') => {
                Number::ExponentDigits
            }
            (Number::Zero | Number::Whole | Number::Fraction | Number::ExponentDigits, c) => {
                return match self.item_ended() {
                    Scanned::Inside => self.take(c),
                    _ => Ok(Scanned::After),
                };
            }
            _ => return Err("a digit"),
        };
        Ok(self.go(State::Number(next)))
    }
}

fn digits(after_high: bool) -> StringPart {
    StringPart::Digits {
        num: 0,
        code: 0,
        after_high,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;
    extern crate std;

    /// Whether the scanner takes the text as one whole value, blanks around it allowed.
    fn accepts(text: &str, depth_max: usize) -> bool {
        let mut scanner = JsonScanner::new(depth_max);
        // The blank ends a number that fills the text.
        let mut rest = text.chars().chain([' ']);
        for c in rest.by_ref() {
            match scanner.take(c) {
                Ok(Scanned::Inside) => {}
                Ok(Scanned::Last) => return rest.all(is_blank),
                Ok(Scanned::After) => return is_blank(c) && rest.all(is_blank),
                Err(_) => return false,
            }
        }
        false
    }

    fn check(text: &str) {
        assert_eq!(accepts(text, 4), json::parse(text, 4).is_ok(), "{text:?}");
    }

    #[test]
    fn single_values_are_judged_as_the_reader_does() {
        let values = [
            "",
            " ",
            "null",
            "nul",
            "nulll",
            "true ",
            "false",
            "1",
            "01",
            "-",
            "-0",
            "-01",
            "1.",
            "1.5",
            "1.e5",
            "1e",
            "1e+",
            "1E-07",
            "2e5x",
            "\"\"",
            "\"a",
            "\"\n\"",
            r#""\""#,
            r#""\q""#,
            r#""\u12""#,
            r#""\u12G4""#,
            r#""\ud83c\udf3c""#,
            r#""\ud83c""#,
            r#""\udf3c""#,
            r#""\ud83c\u0041""#,
            r#""\ud83cx""#,
            r#""\ud83c\n""#,
            "[]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1]]",
            "[[[[1]]]]",
            "[[[[[1]]]]]",
            "{}",
            "{\"a\":1}",
            "{\"a\" : [ 1 , 2.5 ] }",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "{\"a\":1 \"b\":2}",
            "{{",
            "[1}",
            "{\"a\":1]",
            "tru",
            "\u{a0}1",
            "1\u{a0}",
        ];
        for value in values {
            check(value);
            check(&format!(" \n{value}\t"));
            check(&format!("[{value},{value}]"));
            check(&format!("{{\"k\":{value}}}"));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn any_text_is_judged_as_the_reader_does(pieces in prop::collection::vec(
            prop::sample::select(alloc::vec![
                "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"b\":", "\\", "\\u", "d83c", "\\udf3c",
                "n", "null", "true", "-", "0", "12", ".", "e", "+", " ", "\n", "é", "{\"a\":", "[1,",
            ]),
            0..14,
        )) {
            let text: String = pieces.concat();
            prop_assert_eq!(accepts(&text, 3), json::parse(&text, 3).is_ok(), "{:?}", text);
        }
    }
}
