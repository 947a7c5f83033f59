//! Patterns: regular expressions of ECMA-262 in Unicode mode, turned into ones that match a whole text and mean
//! the same to the recogniser. It must never guess: syntax that has no exact counterpart is refused by name.

use llguidance::derivre::{RegexAst, RegexBuilder};
use std::fmt::Write;

/// Steps that one question about a pattern may take.
const FUEL: u64 = 20_000;
/// Places that a pattern may have once its counted repeats are written out.
const PLACES_MAX: usize = 4_000;
/// How deep its groups may nest.
const GROUPS_MAX: usize = 32;
/// Alternatives that anchors may split a pattern into.
const SPLIT_MAX: usize = 64;

/// A pattern that matches whole texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    /// In the syntax of Rust's `regex-syntax`; no anchors, no slash.
    regex: String,
}

/// A question about a pattern took too long to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooComplex;

impl Pattern {
    /// Reads a pattern that is searched for, as the keyword `pattern` says.
    ///
    /// # Errors
    /// What in it can't be enforced.
    pub(super) fn searched(source: &str) -> Result<Pattern, String> {
        let node = Parser::parse(source)?;
        if node.places() > PLACES_MAX {
            return Err(format!(
                "a pattern of {} places with its repeats written out, expected at most {PLACES_MAX}",
                node.places()
            ));
        }
        let mut whole = Vec::new();
        for branch in unanchored(node)? {
            let mut parts = Vec::new();
            if !branch.at_start {
                parts.push(anything());
            }
            parts.push(branch.node);
            if !branch.at_end {
                parts.push(anything());
            }
            whole.push(Node::Concat(parts));
        }
        let mut regex = String::new();
        Node::Or(whole).write(&mut regex);
        Ok(Pattern { regex })
    }

    /// A pattern of our own, in the recogniser's syntax, that matches whole texts.
    pub(super) fn whole(regex: &str) -> Pattern {
        Pattern {
            regex: regex.to_string(),
        }
    }

    /// Texts of so many characters.
    pub(super) fn of_length(min: u64, max: Option<u64>) -> Pattern {
        let max = max.map(|max| max.to_string()).unwrap_or_default();
        Pattern::whole(&format!("(?s:.{{{min},{max}}})"))
    }

    /// The regular expression.
    pub(super) fn as_regex(&self) -> &str {
        &self.regex
    }

    /// Whether the whole text matches.
    pub(super) fn matches(&self, text: &str) -> Result<bool, TooComplex> {
        let mut builder = RegexBuilder::new();
        let expr = builder.mk_regex(&self.regex).map_err(|_| TooComplex)?;
        let mut regex = builder
            .to_regex_limited(expr, FUEL)
            .map_err(|_| TooComplex)?;
        Ok(regex.is_match(text))
    }

    /// Whether some text matches all of them.
    pub(super) fn meet<'a>(
        patterns: impl IntoIterator<Item = &'a Pattern>,
    ) -> Result<bool, TooComplex> {
        Pattern::meet_outside(patterns, &[])
    }

    /// Whether some text matches all of them and none of the excluded regular expressions.
    pub(super) fn meet_outside<'a>(
        patterns: impl IntoIterator<Item = &'a Pattern>,
        excluded: &[String],
    ) -> Result<bool, TooComplex> {
        let mut parts: Vec<RegexAst> = patterns
            .into_iter()
            .map(|p| RegexAst::Regex(p.regex.clone()))
            .collect();
        let excluded = excluded.iter().map(|regex| RegexAst::Regex(regex.clone()));
        parts.extend(excluded.map(|regex| RegexAst::Not(Box::new(regex))));
        let mut builder = RegexBuilder::new();
        let expr = builder.mk(&RegexAst::And(parts)).map_err(|_| TooComplex)?;
        let mut regex = builder
            .to_regex_limited(expr, FUEL)
            .map_err(|_| TooComplex)?;
        Ok(!regex.always_empty())
    }
}

/// A range of characters, both ends included.
type Range = (u32, u32);

#[derive(Clone, Debug)]
enum Node {
    Class(Vec<Range>),
    Concat(Vec<Node>),
    Or(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
    Start,
    End,
}

fn anything() -> Node {
    Node::Repeat(Box::new(Node::Class(vec![(0, 0x10_FFFF)])), 0, None)
}

impl Node {
    fn places(&self) -> usize {
        match self {
            Node::Class(_) => 1,
            Node::Concat(parts) | Node::Or(parts) => parts
                .iter()
                .fold(1, |sum, part| part.places().saturating_add(sum)),
            Node::Repeat(part, min, max) => {
                let times = max.unwrap_or(min + 1).max(1);
                part.places().saturating_mul(times as usize)
            }
            Node::Start | Node::End => 0,
        }
    }

    fn has_anchor(&self) -> bool {
        match self {
            Node::Class(_) => false,
            Node::Concat(parts) | Node::Or(parts) => parts.iter().any(Node::has_anchor),
            Node::Repeat(part, ..) => part.has_anchor(),
            Node::Start | Node::End => true,
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Node::Class(ranges) => write_class(ranges, out),
            Node::Concat(parts) => parts.iter().for_each(|part| part.write(out)),
            Node::Or(parts) => {
                out.push_str("(?:");
                for (index, part) in parts.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "|" });
                    part.write(out);
                }
                out.push(')');
            }
            Node::Repeat(part, min, max) => {
                out.push_str("(?:");
                part.write(out);
                let _ = match max {
                    Some(max) => write!(out, "){{{min},{max}}}"),
                    None => write!(out, "){{{min},}}"),
                };
            }
            Node::Start | Node::End => {}
        }
    }
}

/// Writes a class with every character but letters and digits as an escape, so that no syntax around it can
/// take hold of it.
fn write_class(ranges: &[Range], out: &mut String) {
    let put = |c: u32, out: &mut String| match char::from_u32(c) {
        Some(c) if c.is_ascii_alphanumeric() => out.push(c),
        _ => {
            let _ = write!(out, "\\x{{{c:x}}}");
        }
    };
    if let [(first, last)] = ranges
        && first == last
    {
        return put(*first, out);
    }
    if ranges.is_empty() {
        // A class that nothing is in.
        out.push_str("[^\\x{0}-\\x{10ffff}]");
        return;
    }
    out.push('[');
    for (first, last) in ranges {
        put(*first, out);
        if last > first {
            out.push('-');
            put(*last, out);
        }
    }
    out.push(']');
}

/// A branch of a pattern with its anchors taken off.
struct Branch {
    at_start: bool,
    at_end: bool,
    node: Node,
}

/// Splits a pattern into branches whose only anchors were at their ends.
fn unanchored(node: Node) -> Result<Vec<Branch>, String> {
    let mut out = Vec::new();
    let mut pending = vec![node];
    while let Some(node) = pending.pop() {
        if out.len() + pending.len() > SPLIT_MAX {
            return Err(format!(
                "anchors in more than {SPLIT_MAX} branches, expected fewer"
            ));
        }
        let mut parts = match node {
            Node::Or(branches) if branches.iter().any(Node::has_anchor) => {
                pending.extend(branches.into_iter().rev());
                continue;
            }
            Node::Concat(parts) => parts,
            other => vec![other],
        };
        let (mut at_start, mut at_end) = (false, false);
        while let Some(Node::Start) = parts.first() {
            at_start = true;
            parts.remove(0);
        }
        while let Some(Node::End) = parts.last() {
            at_end = true;
            parts.pop();
        }
        let Some(at) = parts.iter().position(Node::has_anchor) else {
            out.push(Branch {
                at_start,
                at_end,
                node: Node::Concat(parts),
            });
            continue;
        };
        // An anchor within the first or the last part: write its branches out.
        let inner = match parts.remove(at) {
            Node::Or(branches) if at == 0 || at == parts.len() => branches,
            Node::Concat(inner) if at == 0 || at == parts.len() => vec![Node::Concat(inner)],
            _ => {
                return Err("an anchor inside it, expected `^` at its start, `$` at its end".into());
            }
        };
        for branch in inner.into_iter().rev() {
            let mut whole = Vec::new();
            if at_start {
                whole.push(Node::Start);
            }
            whole.extend(parts[..at].iter().cloned());
            match branch {
                Node::Concat(inner) => whole.extend(inner),
                other => whole.push(other),
            }
            whole.extend(parts[at..].iter().cloned());
            if at_end {
                whole.push(Node::End);
            }
            pending.push(Node::Concat(whole));
        }
    }
    Ok(out)
}

const DIGITS: &[Range] = &[(0x30, 0x39)];
const WORDS: &[Range] = &[(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];
/// White space and line ends of ECMA-262.
const SPACES: &[Range] = &[
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
];
/// What `.` does not match.
const LINE_ENDS: &[Range] = &[(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)];

/// All characters outside the ranges.
fn complement(ranges: &[Range]) -> Vec<Range> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let (mut out, mut next) = (Vec::new(), 0);
    for (first, last) in sorted {
        if first > next {
            out.push((next, first - 1));
        }
        next = next.max(last + 1);
    }
    if next <= 0x10_FFFF {
        out.push((next, 0x10_FFFF));
    }
    scalars(out)
}

/// Cuts the surrogates out of ranges: no text holds them.
fn scalars(ranges: Vec<Range>) -> Vec<Range> {
    let mut out = Vec::new();
    for (first, last) in ranges {
        if first < 0xD800 {
            out.push((first, last.min(0xD7FF)));
        }
        if last > 0xDFFF {
            out.push((first.max(0xE000), last));
        }
    }
    out
}

struct Parser {
    text: Vec<char>,
    pos: usize,
    groups: usize,
}

impl Parser {
    fn parse(source: &str) -> Result<Node, String> {
        let text = source.chars().collect();
        let mut parser = Parser {
            text,
            pos: 0,
            groups: 0,
        };
        let node = parser.branches()?;
        match parser.peek() {
            None => Ok(node),
            Some(_) => Err(parser.refuse("a `)` without its `(`")),
        }
    }

    fn refuse(&self, what: &str) -> String {
        format!(
            "{what} before character {} of the pattern can't be enforced",
            self.pos
        )
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.pos).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.pos += usize::from(c.is_some());
        c
    }

    fn take(&mut self, text: &str) -> bool {
        let end = self.pos + text.chars().count();
        let found = self
            .text
            .get(self.pos..end)
            .is_some_and(|t| t.iter().copied().eq(text.chars()));
        if found {
            self.pos = end;
        }
        found
    }

    fn branches(&mut self) -> Result<Node, String> {
        let mut branches = vec![self.sequence()?];
        while self.take("|") {
            branches.push(self.sequence()?);
        }
        match branches.len() {
            1 => Ok(branches.remove(0)),
            _ => Ok(Node::Or(branches)),
        }
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut parts = Vec::new();
        while let Some(c) = self.peek() {
            if matches!(c, '|' | ')') {
                break;
            }
            let atom = self.atom()?;
            parts.push(self.quantified(atom)?);
        }
        Ok(Node::Concat(parts))
    }

    fn quantified(&mut self, atom: Node) -> Result<Node, String> {
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let (min, max) = self.counts()?;
                return self.repeat(atom, min, max);
            }
            _ => return Ok(atom),
        };
        self.pos += 1;
        self.repeat(atom, min, max)
    }

    fn repeat(&mut self, atom: Node, min: u32, max: Option<u32>) -> Result<Node, String> {
        // A lazy quantifier matches the same texts.
        self.take("?");
        if matches!(self.peek(), Some('*' | '+' | '?' | '{')) {
            return Err(self.refuse("a second quantifier"));
        }
        if atom.has_anchor() {
            return Err(self.refuse("a repeated anchor"));
        }
        Ok(Node::Repeat(Box::new(atom), min, max))
    }

    /// Reads `{2}`, `{2,}` or `{2,5}`.
    fn counts(&mut self) -> Result<(u32, Option<u32>), String> {
        self.pos += 1;
        let min = self.number()?;
        let max = match self.take(",") {
            false => Some(min),
            true if self.peek() == Some('}') => None,
            true => Some(self.number()?),
        };
        if !self.take("}") || max.is_some_and(|max| max < min) {
            return Err(self.refuse("a `{` that opens no count"));
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<u32, String> {
        let start = self.pos;
        while self.peek().is_some_and(|c| c.is_ascii_digit()) {
            self.pos += 1;
        }
        let digits: String = self.text[start..self.pos].iter().collect();
        let number = digits.parse().ok().filter(|number| *number <= 10_000);
        number.ok_or_else(|| self.refuse("a `{` that opens no count up to 10000"))
    }

    fn atom(&mut self) -> Result<Node, String> {
        match self.next() {
            Some('^') => Ok(Node::Start),
            Some('$') => Ok(Node::End),
            Some('.') => Ok(Node::Class(complement(LINE_ENDS))),
            Some('(') => self.group(),
            Some('[') => self.class(),
            Some('\\') => self.escape(false).map(Node::Class),
            Some('*' | '+' | '?' | '{') => Err(self.refuse("a quantifier of nothing")),
            Some(c) => Ok(Node::Class(vec![(c.into(), c.into())])),
            None => Err(self.refuse("an early end")),
        }
    }

    fn group(&mut self) -> Result<Node, String> {
        for (opener, name) in [
            ("?=", "lookahead"),
            ("?!", "lookahead"),
            ("?<=", "lookbehind"),
        ] {
            if self.take(opener) {
                return Err(self.refuse(name));
            }
        }
        if self.take("?<!") {
            return Err(self.refuse("lookbehind"));
        }
        if self.take("?<") {
            while self
                .next()
                .ok_or_else(|| self.refuse("an open group name"))?
                != '>'
            {}
        } else if self.peek() == Some('?') && !self.take("?:") {
            return Err(self.refuse("a group with flags"));
        }
        self.groups += 1;
        if self.groups > GROUPS_MAX {
            return Err(self.refuse("too deep a group"));
        }
        let inner = self.branches()?;
        self.groups -= 1;
        match self.take(")") {
            true => Ok(inner),
            false => Err(self.refuse("an open group")),
        }
    }

    fn class(&mut self) -> Result<Node, String> {
        let negated = self.take("^");
        let mut ranges: Vec<Range> = Vec::new();
        loop {
            let first = match self.next() {
                None => return Err(self.refuse("an open class")),
                Some(']') => break,
                Some(c) => self.member(c)?,
            };
            let single = matches!(first[..], [(a, b)] if a == b);
            let is_range = self.peek() == Some('-') && self.text.get(self.pos + 1) != Some(&']');
            if !is_range {
                ranges.extend(first);
                continue;
            }
            self.pos += 1;
            let last = match self.next() {
                None => return Err(self.refuse("an open class")),
                Some(c) => self.member(c)?,
            };
            match (single, &last[..]) {
                (true, [(a, b)]) if a == b && first[0].0 <= *a => ranges.push((first[0].0, *a)),
                _ => return Err(self.refuse("a `-` in a class between what is no range")),
            }
        }
        match negated {
            true => Ok(Node::Class(complement(&ranges))),
            false => Ok(Node::Class(scalars(ranges))),
        }
    }

    fn member(&mut self, c: char) -> Result<Vec<Range>, String> {
        match c {
            '\\' => self.escape(true),
            c => Ok(vec![(c.into(), c.into())]),
        }
    }

    fn escape(&mut self, in_class: bool) -> Result<Vec<Range>, String> {
        let c = self.next().ok_or_else(|| self.refuse("an early end"))?;
        let one = |c: u32| Ok(vec![(c, c)]);
        match c {
            'd' => Ok(DIGITS.to_vec()),
            'D' => Ok(complement(DIGITS)),
            'w' => Ok(WORDS.to_vec()),
            'W' => Ok(complement(WORDS)),
            's' => Ok(SPACES.to_vec()),
            'S' => Ok(complement(SPACES)),
            't' => one(0x09),
            'n' => one(0x0A),
            'v' => one(0x0B),
            'f' => one(0x0C),
            'r' => one(0x0D),
            'b' if in_class => one(0x08),
            '0' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => one(0),
            'c' => match self.next() {
                Some(c) if c.is_ascii_alphabetic() => one(u32::from(c) % 32),
                _ => Err(self.refuse("`\\c` without a letter")),
            },
            'x' => self.hex(2).and_then(one),
            'u' => self.unicode().and_then(one),
            'b' | 'B' => Err(self.refuse("a word boundary")),
            'p' | 'P' => Err(self.refuse("a Unicode property")),
            '0'..='9' | 'k' => Err(self.refuse("a back reference")),
            c if c.is_ascii_alphabetic() => Err(self.refuse(&format!("the escape `\\{c}`"))),
            c => one(c.into()),
        }
    }

    fn hex(&mut self, digits: usize) -> Result<u32, String> {
        let mut value = 0;
        for _ in 0..digits {
            let digit = self.next().and_then(|c| c.to_digit(16));
            value = value * 16 + digit.ok_or_else(|| self.refuse("an escape of too few digits"))?;
        }
        Ok(value)
    }

    fn unicode(&mut self) -> Result<u32, String> {
        if self.take("{") {
            let mut value = 0_u32;
            while !self.take("}") {
                let digit = self.next().and_then(|c| c.to_digit(16));
                let digit = digit.ok_or_else(|| self.refuse("an open `\\u{`"))?;
                value = value.saturating_mul(16).saturating_add(digit);
            }
            return match value {
                0..=0x10_FFFF => Ok(value),
                _ => Err(self.refuse("an escape beyond Unicode")),
            };
        }
        let high = self.hex(4)?;
        if (0xD800..0xDC00).contains(&high) && self.take("\\u") {
            let low = self.hex(4)?;
            if (0xDC00..0xE000).contains(&low) {
                return Ok(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
            }
            return Err(self.refuse("half of a surrogate pair"));
        }
        match high {
            0xD800..=0xDFFF => Err(self.refuse("half of a surrogate pair")),
            _ => Ok(high),
        }
    }
}
