//! For tests: everything one parse says, how every cut and both deliveries are compared, and that
//! no byte is lost.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::cases::{Reading, fold};
use crate::event::{Delivery, Ended, Finished, TagError, TagErrorKind, TagEvent};
use crate::format::TagFormat;
use crate::parser::{Machine, ParserOptions, TagParser};
use crate::schema::ToolSet;
use crate::trail::Fate;

/// Everything that may not depend on the cut.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<String>,
    pub(crate) result: Result<Finished, TagError>,
    /// What became of each byte, neighbours of one fate joined.
    pub(crate) trail: Vec<(Fate, String)>,
}

/// Tools of several shapes: strings and integers, a union at the root, no schema at all.
pub(crate) fn tools() -> Arc<ToolSet> {
    let note = r#"{"type":"object","properties":{"t":{"type":"string"},"n":{"type":"integer"}}}"#;
    let pick = r#"{"anyOf":[
        {"properties":{"kind":{"const":"num"},"v":{"type":"integer"}}},
        {"properties":{"kind":{"const":"txt"},"v":{"type":"string"}}}]}"#;
    let set = [
        ("note".into(), Some(note)),
        ("pick".into(), Some(pick)),
        ("go".into(), None),
    ];
    Arc::new(ToolSet::new(set).unwrap())
}

pub(crate) fn options(
    format: TagFormat,
    starts_in_reasoning: bool,
    delivery: Delivery,
) -> ParserOptions {
    ParserOptions {
        format,
        starts_in_reasoning,
        reasoning: true,
        delivery,
        tools: tools(),
    }
}

pub(crate) fn run_with(options: ParserOptions, pieces: &[&str], ended: Ended) -> Outcome {
    let mut parser = TagParser::new(options);
    run_parser(&mut parser, pieces, ended)
}

pub(crate) fn run_parser(parser: &mut TagParser, pieces: &[&str], ended: Ended) -> Outcome {
    let mut events = Vec::new();
    let pushed = pieces
        .iter()
        .try_for_each(|piece| parser.push(piece, &mut events));
    let result = pushed.and_then(|()| parser.finish(ended, &mut events));

    let text = |select: fn(&TagEvent) -> Option<&String>| -> String {
        events
            .iter()
            .filter_map(select)
            .map(String::as_str)
            .collect()
    };
    let Reading { tool_calls, .. } = fold(&events, ended, None);
    Outcome {
        reasoning: text(|event| match event {
            TagEvent::Reasoning(text) => Some(text),
            _ => None,
        }),
        content: text(|event| match event {
            TagEvent::Content(text) => Some(text),
            _ => None,
        }),
        calls: tool_calls
            .iter()
            .map(|(name, arguments)| format!("{name} {arguments}"))
            .collect(),
        result,
        trail: match parser.machine() {
            Machine::Channels(channels) => channels.trail.notes.clone(),
            Machine::Messages(messages) => messages.trail.notes.clone(),
        },
    }
}

/// Runs one text in one piece, in characters, in every two pieces if it is short, and under both
/// deliveries: all must agree, and every byte must be accounted for.
pub(crate) fn run(
    format: TagFormat,
    starts_in_reasoning: bool,
    text: &str,
    ended: Ended,
) -> Outcome {
    const SHORT: usize = 400;
    let whole = run_with(
        options(format, starts_in_reasoning, Delivery::Whole),
        &[text],
        ended,
    );
    let mut cuts: Vec<Vec<&str>> = vec![vec![text], text.split_inclusive(|_| true).collect()];
    if text.len() <= SHORT {
        cuts.extend(
            text.char_indices()
                .map(|(at, _)| vec![&text[..at], &text[at..]]),
        );
    }
    for pieces in &cuts {
        for delivery in [Delivery::Whole, Delivery::Eager] {
            let cut = run_with(
                options(format, starts_in_reasoning, delivery),
                pieces,
                ended,
            );
            assert_eq!(cut, whole, "{format} {delivery:?} {pieces:?}");
        }
    }
    check_accounts(format, text, &whole);
    whole
}

/// No byte is lost: the fates of all pieces join to the text, and what was said is what they say.
pub(crate) fn check_accounts(format: TagFormat, text: &str, outcome: &Outcome) {
    let of = |fate: Option<Fate>| -> String {
        let pieces = outcome.trail.iter();
        let chosen = pieces.filter(|(known, _)| fate.is_none_or(|fate| fate == *known));
        chosen.map(|(_, text)| text.as_str()).collect()
    };
    let accounted = of(None);
    match &outcome.result {
        Ok(_) => assert_eq!(accounted, text, "{format}"),
        Err(error) => {
            assert!(text.starts_with(&accounted), "{accounted:?} of {text:?}");
            let calls = of(Some(Fate::Call));
            assert!(calls.ends_with(&error.markup), "{error:?} in {text:?}");
            assert!(error.offset <= text.len(), "{error:?} in {text:?}");
        }
    }
    if format != TagFormat::Harmony {
        // Harmony joins messages of one channel with line feeds that stand nowhere in the output.
        assert_eq!(of(Some(Fate::Reasoning)), outcome.reasoning, "{text:?}");
        assert_eq!(of(Some(Fate::Content)), outcome.content, "{text:?}");
    }
    if outcome.calls.is_empty() && outcome.result == Ok(nothing_found()) {
        assert_eq!(of(Some(Fate::Call)), "", "{format} {text:?}");
    }
}

fn nothing_found() -> Finished {
    Finished {
        num_calls: 0,
        dropped_call: None,
    }
}

/// Examples of one format, whose outputs start in content.
pub(crate) struct Examples(pub(crate) TagFormat);

impl Examples {
    pub(crate) fn run(&self, text: &str, ended: Ended) -> Outcome {
        run(self.0, false, text, ended)
    }

    /// Content and calls of an output that ends by itself.
    #[track_caller]
    pub(crate) fn check(&self, text: &str, content: &str, calls: &[&str]) {
        let outcome = self.run(text, Ended::Eos);
        assert!(outcome.result.is_ok(), "{text:?}: {:?}", outcome.result);
        let said = (outcome.content.as_str(), outcome.reasoning.as_str());
        assert_eq!(said, (content, ""), "{text:?}");
        assert_eq!(outcome.calls, calls, "{text:?}");
    }

    /// The error of an output that ends by itself: what is wrong with which part of the text, what
    /// was expected there, and how much of the text the markup of the call is.
    #[track_caller]
    pub(crate) fn check_error(
        &self,
        text: &str,
        kind: TagErrorKind,
        wrong: &str,
        expected: &str,
        calls: &[&str],
    ) {
        let outcome = self.run(text, Ended::Eos);
        let error = match outcome.result {
            Err(error) => error,
            Ok(_) => panic!("{text:?} was read: {outcome:?}"),
        };
        assert_eq!(
            (error.kind, error.expected.as_str()),
            (kind, expected),
            "{text:?}"
        );
        assert!(
            text[error.offset..].starts_with(wrong),
            "{text:?}: wrong is {:?}",
            &text[error.offset..]
        );
        assert_eq!(outcome.calls, calls, "{text:?}");
    }

    /// What the token limit cuts off: content and calls before it, the dropped markup.
    #[track_caller]
    pub(crate) fn check_cut(
        &self,
        text: &str,
        content: &str,
        calls: &[&str],
        dropped: Option<&str>,
    ) {
        let outcome = self.run(text, Ended::Length);
        assert_eq!(outcome.content, content, "{text:?}");
        assert_eq!(outcome.calls, calls, "{text:?}");
        let finished = Finished {
            num_calls: calls.len() as u32,
            dropped_call: dropped.map(String::from),
        };
        assert_eq!(outcome.result, Ok(finished), "{text:?}");
    }
}
