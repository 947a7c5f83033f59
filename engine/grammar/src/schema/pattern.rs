//! Patterns: regular expressions of ECMA-262 in Unicode mode, turned into ones that match a whole text and mean
//! the same to the recogniser. It must never guess: syntax that has no exact counterpart is refused by name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;

use llguidance::derivre::{Regex, RegexAst, RegexBuilder};

use super::ecma;

/// Steps that one question about a pattern may take.
const FUEL: u64 = 20_000;
/// Steps that the recogniser takes to find out whether patterns meet; it gives up beyond.
const FUEL_OF_RECOGNISER: u64 = 10_000;
/// Places that a pattern may have once its counted repeats are written out.
const PLACES_MAX: usize = 4_000;
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
        let node = ecma::parse(source)?;
        if node.places() > PLACES_MAX {
            return Err(format!(
                "{} places with its repeats written out, expected at most {PLACES_MAX}",
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

    /// Whether some text matches all of them.
    pub(super) fn meet<'a>(
        patterns: impl IntoIterator<Item = &'a Pattern>,
    ) -> Result<bool, TooComplex> {
        Pattern::meet_outside(patterns, &[], FUEL)
    }

    /// The same with the effort that the recogniser makes when it asks this again.
    pub(super) fn meet_in_recogniser<'a>(
        patterns: impl IntoIterator<Item = &'a Pattern>,
    ) -> Result<bool, TooComplex> {
        Pattern::meet_outside(patterns, &[], FUEL_OF_RECOGNISER)
    }

    /// Whether some text matches all of them and is itself in none of the excluded regular expressions.
    pub(super) fn leave<'a>(
        patterns: impl IntoIterator<Item = &'a Pattern>,
        excluded: &[String],
    ) -> Result<bool, TooComplex> {
        Pattern::meet_outside(patterns, excluded, FUEL)
    }

    fn meet_outside<'a>(
        patterns: impl IntoIterator<Item = &'a Pattern>,
        excluded: &[String],
        fuel: u64,
    ) -> Result<bool, TooComplex> {
        let mut parts: Vec<RegexAst> = patterns
            .into_iter()
            .map(|p| RegexAst::Regex(p.regex.clone()))
            .collect();
        let excluded = excluded.iter().map(|regex| RegexAst::Regex(regex.clone()));
        parts.extend(excluded.map(|regex| RegexAst::Not(Box::new(regex))));
        let mut builder = RegexBuilder::new();
        let expr = builder.mk(&RegexAst::And(parts)).map_err(|_| TooComplex)?;
        if builder.exprset().is_positive(expr) {
            return Ok(true);
        }
        let mut regex = builder
            .to_regex_limited(expr, fuel)
            .map_err(|_| TooComplex)?;
        Ok(!regex.always_empty())
    }
}

/// Patterns that have been compiled to be asked about texts.
#[derive(Default)]
pub(super) struct Matcher {
    compiled: RefCell<BTreeMap<Pattern, Regex>>,
}

impl Matcher {
    /// Whether the whole text matches.
    pub(super) fn matches(&self, pattern: &Pattern, text: &str) -> Result<bool, TooComplex> {
        let mut compiled = self.compiled.borrow_mut();
        if let Some(regex) = compiled.get_mut(pattern) {
            return Ok(regex.is_match(text));
        }
        let mut builder = RegexBuilder::new();
        let expr = builder.mk_regex(&pattern.regex).map_err(|_| TooComplex)?;
        let mut regex = builder
            .to_regex_limited(expr, FUEL)
            .map_err(|_| TooComplex)?;
        let matches = regex.is_match(text);
        compiled.insert(pattern.clone(), regex);
        Ok(matches)
    }
}

/// A range of characters, both ends included.
pub(super) type Range = (u32, u32);

/// A part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Node {
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

    pub(super) fn has_anchor(&self) -> bool {
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
                return Err(
                    "an anchor inside it, expected `^` at its start, `$` at its end".into(),
                );
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
