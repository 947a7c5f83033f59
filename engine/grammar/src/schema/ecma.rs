//! The syntax of ECMA-262's regular expressions in Unicode mode. It must never read a construct as a simpler one: what
//! has no exact counterpart is refused by name.

use super::pattern::{Node, Range};

/// How deep groups may nest.
const GROUPS_MAX: usize = 32;

/// Reads a pattern.
pub(super) fn parse(source: &str) -> Result<Node, String> {
    Parser::parse(source)
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
