//! Where two outcomes begin to differ. They are compared with `==`, and nothing is left out.

use super::crowd::Outcome;
use lockstep_core::{EventKind, Finish};
use std::fmt::{self, Debug};

/// The first difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Output tokens before it.
    pub at: u32,
    /// What differs.
    pub field: &'static str,
    /// What the request says plainly.
    pub expected: String,
    /// What it said.
    pub got: String,
}

impl Difference {
    /// A run that came to no end, in these words.
    pub fn no_end(why: String) -> Difference {
        Difference {
            at: 0,
            field: "end",
            expected: "the plain output".to_owned(),
            got: why,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            at,
            field,
            expected,
            got,
        } = self;
        write!(f, "{field} at token {at}: expected {expected}, got {got}")
    }
}

/// The first difference between the beginning of what was expected and what came before a client went away.
pub fn difference_before_the_end(expected: &Outcome, got: &Outcome) -> Option<Difference> {
    let is_cut = |kind: &EventKind| match kind {
        EventKind::Finished(finished) => finished.finish == Finish::Aborted,
        _ => false,
    };
    match got.split_last() {
        Some(((_, last), before)) if is_cut(last) && before.len() <= expected.len() => {
            difference(&expected[..before.len()].to_vec(), &before.to_vec())
        }
        // Nobody came, or the end came first.
        None => None,
        Some(_) => difference(expected, got),
    }
}

/// The first difference between what was expected and what came. None if they are equal.
pub fn difference(expected: &Outcome, got: &Outcome) -> Option<Difference> {
    if expected == got {
        return None;
    }
    let num_equal = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
    let at = |events: &Outcome| events.get(num_equal).map(|event| event.0);
    let (field, expected_text, got_text) = match (expected.get(num_equal), got.get(num_equal)) {
        (Some((_, a)), Some((_, b))) if a != b => field(a, b),
        (a, b) => ("events", shown(&a), shown(&b)),
    };
    Some(Difference {
        at: at(expected).or(at(got)).unwrap_or(0),
        field,
        expected: expected_text,
        got: got_text,
    })
}

/// The field in which two pieces of news differ.
fn field(expected: &EventKind, got: &EventKind) -> (&'static str, String, String) {
    match (expected, got) {
        (
            EventKind::Token {
                token: a,
                bytes: a_bytes,
                logprobs: a_logprobs,
                digest: a_digest,
            },
            EventKind::Token {
                token: b,
                bytes: b_bytes,
                logprobs: b_logprobs,
                digest: b_digest,
            },
        ) => first(&[
            ("token", a == b, &|| (shown(a), shown(b))),
            ("bytes", a_bytes == b_bytes, &|| {
                (shown(a_bytes), shown(b_bytes))
            }),
            ("logprobs", a_logprobs == b_logprobs, &|| {
                (shown(a_logprobs), shown(b_logprobs))
            }),
            ("digest", a_digest == b_digest, &|| {
                (shown(a_digest), shown(b_digest))
            }),
        ]),
        (EventKind::Finished(a), EventKind::Finished(b)) => first(&[
            ("finish", a.finish == b.finish, &|| {
                (shown(&a.finish), shown(&b.finish))
            }),
            ("usage", a.usage == b.usage, &|| {
                (shown(&a.usage), shown(&b.usage))
            }),
            ("dropped_call", a.dropped_call == b.dropped_call, &|| {
                (shown(&a.dropped_call), shown(&b.dropped_call))
            }),
        ]),
        (a, b) => ("event", shown(a), shown(b)),
    }
}

type Field<'a> = (&'static str, bool, &'a dyn Fn() -> (String, String));

fn first(fields: &[Field<'_>]) -> (&'static str, String, String) {
    let (name, _, texts) = fields.iter().find(|field| !field.1).unwrap_or(&fields[0]);
    let (expected, got) = texts();
    (name, expected, got)
}

/// A value in a line that is not too long.
fn shown(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::{Finished, Usage};
    use lockstep_step::{Digest, TokenId};

    fn token(token: u32, digest: u64) -> (u32, EventKind) {
        let kind = EventKind::Token {
            token: TokenId(token),
            bytes: vec![b'a'],
            logprobs: None,
            digest: Digest(digest),
        };
        (1, kind)
    }

    fn end(completion_tokens: u32) -> (u32, EventKind) {
        let finished = Finished {
            finish: Finish::Length,
            usage: Usage {
                completion_tokens,
                ..Usage::default()
            },
            dropped_call: None,
        };
        (1, EventKind::Finished(finished))
    }

    #[test]
    fn what_was_cut_short_is_a_beginning() {
        let mut aborted = end(1);
        if let EventKind::Finished(finished) = &mut aborted.1 {
            finished.finish = Finish::Aborted;
        }
        let expected = vec![token(5, 1), token(6, 1), end(2)];
        let check = |got: &[(u32, EventKind)]| {
            let found = difference_before_the_end(&expected, &got.to_vec());
            found.map(|found| found.field)
        };
        assert_eq!(check(&[]), None);
        assert_eq!(check(&[token(5, 1), aborted.clone()]), None);
        assert_eq!(check(&expected), None);
        assert_eq!(check(&[token(5, 2), aborted.clone()]), Some("digest"));
        assert_eq!(check(&[token(5, 1)]), Some("events"));
        let long = [token(5, 1), token(6, 1), token(7, 1), token(8, 1), aborted];
        assert_eq!(check(&long), Some("event"));
    }

    #[test]
    fn the_first_difference_is_named() {
        let expected = vec![token(5, 1), end(1)];
        assert_eq!(difference(&expected, &expected.clone()), None);
        let cases = [
            (vec![token(6, 1), end(1)], "token"),
            (vec![token(5, 2), end(1)], "digest"),
            (vec![token(5, 1), end(2)], "usage"),
            (vec![token(5, 1)], "events"),
            (vec![token(5, 1), token(5, 1)], "event"),
            (vec![token(5, 1), end(1), end(1)], "events"),
            (vec![token(5, 1), (2, end(1).1)], "events"),
        ];
        for (got, field) in cases {
            let found = difference(&expected, &got).expect("they differ");
            assert_eq!(found.field, field, "{found}");
        }
    }
}
