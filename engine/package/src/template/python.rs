//! Values the way Python writes them, since chat templates are made and tested with Python's Jinja.
//!
//! `tojson` follows `json.dumps(ensure_ascii=False)` as transformers registers it: no HTML escapes,
//! a space after each separator. It must never read a clock: dates come in as values.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, Value};
use std::fmt::Write;

/// Writes a value into the prompt.
pub(super) fn write(
    out: &mut Output<'_>,
    _state: &State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    let text = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&to_str(value)),
    };
    text.map_err(Error::from)
}

/// Python's `str(value)`.
pub(super) fn to_str(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.as_str().unwrap_or("").to_string(),
        _ => repr(value),
    }
}

/// Python's `repr(value)`.
fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "None".to_string(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.to_string(),
        ValueKind::Number => number(value),
        ValueKind::String => {
            let text = value.as_str().unwrap_or("");
            let quote = if text.contains('\'') && !text.contains('"') {
                '"'
            } else {
                '\''
            };
            let mut out = String::from(quote);
            for c in text.chars() {
                match c {
                    '\n' => out.push_str("\\n"),
                    '\r' => out.push_str("\\r"),
                    '\t' => out.push_str("\\t"),
                    '\\' => out.push_str("\\\\"),
                    c if c == quote => {
                        out.push('\\');
                        out.push(c);
                    }
                    c => out.push(c),
                }
            }
            out.push(quote);
            out
        }
        ValueKind::Seq => {
            let items: Vec<String> = value
                .try_iter()
                .into_iter()
                .flatten()
                .map(|item| repr(&item))
                .collect();
            format!("[{}]", items.join(", "))
        }
        ValueKind::Map => {
            let entries = value.try_iter().into_iter().flatten().map(|key| {
                let item = value.get_item(&key).unwrap_or_default();
                format!("{}: {}", repr(&key), repr(&item))
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

/// A number as Python writes it: `1`, `1.0`, `1e-05`, `1e+16`.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else {
        return value.to_string();
    };
    if number.is_nan() {
        return "nan".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    // Both languages write the shortest digits that read back as the same number; they differ in
    // the exponent.
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{number}");
        return if plain.contains('.') {
            plain
        } else {
            format!("{plain}.0")
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// How `tojson` writes.
struct Style {
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

/// The `tojson` filter of transformers, with its keyword arguments.
pub(super) fn to_json(
    value: &Value,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get::<Option<Value>>("indent")?,
    };
    let indent = match indent {
        None => None,
        Some(indent) if indent.is_none() => None,
        Some(indent) => match indent.as_str() {
            Some(text) => Some(text.to_string()),
            None => Some(" ".repeat(usize::try_from(indent)?.min(64))),
        },
    };
    let mut style = Style {
        item_separator: if indent.is_some() { "," } else { ", " }.to_string(),
        indent,
        key_separator: ": ".to_string(),
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    if let Some(separators) = kwargs.get::<Option<Value>>("separators")?
        && !separators.is_none()
    {
        let mut parts = separators.try_iter()?.map(|part| to_str(&part));
        style.item_separator = parts.next().unwrap_or_default();
        style.key_separator = parts.next().unwrap_or_default();
    }
    kwargs.assert_all_used()?;
    let mut out = String::new();
    json(&mut out, value, &style, 0)?;
    Ok(Value::from_safe_string(out))
}

fn json(out: &mut String, value: &Value, style: &Style, depth: usize) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => json_string(out, value.as_str().unwrap_or(""), style.ensure_ascii),
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            bracketed(out, '{', '}', keys, style, depth, |out, key| {
                json_string(out, &to_str(&key), style.ensure_ascii);
                out.push_str(&style.key_separator);
                json(out, &value.get_item(&key)?, style, depth + 1)
            })?;
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            bracketed(out, '[', ']', items, style, depth, |out, item| {
                json(out, &item, style, depth + 1)
            })?;
        }
        kind => {
            let message = format!("{kind} can't be written as JSON");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

/// Items between brackets, separated and indented as the style says.
fn bracketed(
    out: &mut String,
    open: char,
    close: char,
    items: Vec<Value>,
    style: &Style,
    depth: usize,
    mut write_item: impl FnMut(&mut String, Value) -> Result<(), Error>,
) -> Result<(), Error> {
    let new_line = |out: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    };
    out.push(open);
    let some = !items.is_empty();
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        new_line(out, depth + 1);
        write_item(out, item)?;
    }
    if some {
        new_line(out, depth);
    }
    out.push(close);
    Ok(())
}

fn json_string(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            // Private characters stand for a client's brackets, which are ASCII.
            c if ensure_ascii && !c.is_ascii() && !crate::marking::is_private(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A date and time of day, without a zone: the caller's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DateTime {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl DateTime {
    /// Reads `2026-11-29` or `2026-11-29T18:00:00`, with or without a final `Z`.
    pub(super) fn parse(text: &str) -> Option<DateTime> {
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
        let number = |text: &str, digits: usize| -> Option<u32> {
            let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
            if plain { text.parse().ok() } else { None }
        };
        let mut date = date.split('-');
        let (year, month, day) = (date.next()?, date.next()?, date.next()?);
        let mut time = time.strip_suffix('Z').unwrap_or(time).split(':');
        let (hour, minute, second) = (time.next()?, time.next()?, time.next()?);
        let parsed = DateTime {
            year: number(year, 4)?,
            month: number(month, 2)?,
            day: number(day, 2)?,
            hour: number(hour, 2)?,
            minute: number(minute, 2)?,
            second: number(second, 2)?,
        };
        let leap = parsed.year.is_multiple_of(4)
            && (!parsed.year.is_multiple_of(100) || parsed.year.is_multiple_of(400));
        let days = match parsed.month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        let valid = date.next().is_none()
            && time.next().is_none()
            && parsed.year >= 1
            && (1..=days).contains(&parsed.day)
            && parsed.hour < 24
            && parsed.minute < 60
            && parsed.second < 60;
        valid.then_some(parsed)
    }

    /// The day of the week, 0 for Sunday, by Sakamoto's rule.
    fn weekday(self) -> usize {
        const OFFSETS: [u32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 {
            self.year - 1
        } else {
            self.year
        };
        let days = year + year / 4 - year / 100 + year / 400;
        ((days + OFFSETS[self.month as usize - 1] + self.day) % 7) as usize
    }

    /// `strftime` for the conversions that templates use; any other is an error that names it.
    pub(super) fn format(self, format: &str) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = format.chars();
        let (month, day) = (MONTHS[self.month as usize - 1], DAYS[self.weekday()]);
        let hour_12 = (self.hour + 11) % 12 + 1;
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut conversion = chars.next().unwrap_or('%');
            let unpadded = conversion == '-';
            if unpadded {
                conversion = chars.next().unwrap_or('%');
            }
            let two = |value: u32| {
                if unpadded {
                    value.to_string()
                } else {
                    format!("{value:02}")
                }
            };
            let part = match conversion {
                'Y' => format!("{:04}", self.year),
                'y' => two(self.year % 100),
                'm' => two(self.month),
                'd' => two(self.day),
                'e' => format!("{:2}", self.day),
                'H' => two(self.hour),
                'I' => two(hour_12),
                'M' => two(self.minute),
                'S' => two(self.second),
                'p' => if self.hour < 12 { "AM" } else { "PM" }.to_string(),
                'B' => month.to_string(),
                'b' | 'h' => month[..3].to_string(),
                'A' => day.to_string(),
                'a' => day[..3].to_string(),
                'F' => format!("{:04}-{:02}-{:02}", self.year, self.month, self.day),
                'T' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
                '%' => "%".to_string(),
                other => return Err(format!("strftime_now can't write %{other}")),
            };
            out.push_str(&part);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_pythons() {
        let of = |number: f64| super::number(&Value::from(number));
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (123456789012345.6, "123456789012345.6"),
            (1e22, "1e+22"),
            (0.0001, "0.0001"),
        ];
        for (number, expected) in cases {
            assert_eq!(of(number), expected);
        }
        assert_eq!(super::number(&Value::from(12)), "12");
    }

    #[test]
    fn dates_are_checked_and_written() {
        let now = DateTime::parse("2026-11-29T18:05:09Z").expect("a date");
        let text = now
            .format("%A %a %d %b %B %Y %y %-d %e %H:%M:%S %I %p %F %%")
            .expect("known");
        assert_eq!(
            text,
            "Sunday Sun 29 Nov November 2026 26 29 29 18:05:09 06 PM 2026-11-29 %"
        );
        for bad in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-1-1",
            "2026-11-29T25:00:00",
            "+026-11-29",
        ] {
            assert_eq!(DateTime::parse(bad), None, "{bad}");
        }
        assert!(now.format("%Q").is_err());
        assert_eq!(
            DateTime::parse("2024-02-29").map(DateTime::weekday),
            Some(4)
        );
    }
}
