//! Finish rules and visible text, token by token.

use super::*;
use crate::ReasoningBudget;
use alloc::{boxed::Box, string::ToString, vec};
use lockstep_step::{Digest, SamplingParams};
use lockstep_tags::{Delivery, ParserOptions, TagErrorKind, TagFormat, ToolSet};

const END: TokenId = TokenId(0);
const CONTROL: TokenId = TokenId(1);

/// Token 0 ends, token 1 is special, the rest are what the test says.
struct Case {
    pieces: Vec<&'static [u8]>,
    request: Request,
}

fn case(pieces: &[&'static str]) -> Case {
    let tools = [(
        "book".to_string(),
        Some(r#"{"type":"object","properties":{"seats":{"type":"integer"}}}"#),
    )];
    Case {
        pieces: pieces.iter().map(|piece| piece.as_bytes()).collect(),
        request: Request {
            prompt: vec![TokenId(2)],
            sampling: SamplingParams::greedy(),
            max_tokens: 1000,
            end_tokens: vec![END],
            stop_strings: vec![],
            tags: ParserOptions {
                format: TagFormat::Glm,
                starts_in_reasoning: false,
                reasoning: true,
                delivery: Delivery::Eager,
                tools: ToolSet::new(tools).expect("the schema is fine").into(),
            },
            matcher: None,
            reasoning: None,
            speculation: None,
            token_events: false,
            cache_salt: "".into(),
        },
    }
}

impl Case {
    fn stop(mut self, stops: &[&str]) -> Case {
        self.request.stop_strings = stops.iter().map(|stop| stop.to_string()).collect();
        self
    }

    fn length(mut self, max_tokens: u32) -> Case {
        self.request.max_tokens = max_tokens;
        self
    }

    /// Pushes all pieces, then the end token, until the output ends. Returns the content, everything else,
    /// the ending, and the counts of tokens and reasoning tokens.
    fn run(mut self) -> (String, Vec<EventKind>, Ending, (u32, u32)) {
        let mut bytes: Vec<Box<[u8]>> = vec![b"<|end|>"[..].into(), b"<|control|>"[..].into()];
        bytes.extend(self.pieces.iter().map(|&piece| Box::from(piece)));
        let num_tokens = bytes.len() as u32;
        let vocabulary = Vocabulary::new(bytes, vec![true, true]);
        let max_tokens = self.request.max_tokens;
        let mut chain = OutputChain::new(&mut self.request, max_tokens);
        let (mut content, mut others) = (String::new(), vec![]);
        let mut said = Said::default();
        for token in (2..num_tokens).chain([0]) {
            // A piece that is spelled like the special token stands for it.
            let is_control = vocabulary.bytes(TokenId(token)) == b"<|control|>";
            let draw = Draw {
                token: if is_control { CONTROL } else { TokenId(token) },
                digest: Digest(0),
                logprobs: None,
            };
            let ending = chain.push(draw, &vocabulary, &mut said);
            for kind in said.kinds.drain(..) {
                match kind {
                    EventKind::Content(text) => content.push_str(&text),
                    other => others.push(other),
                }
            }
            if let Some(ending) = ending {
                let counts = (chain.num_tokens(), chain.num_reasoning_tokens());
                return (content, others, ending, counts);
            }
        }
        panic!("the end token must end it");
    }
}

const CALL: &str = "<tool_call>book<arg_key>seats</arg_key><arg_value>4</arg_value></tool_call>";

#[test]
fn text_passes_and_the_end_token_stays_invisible() {
    let (content, others, ending, counts) = case(&["Hel", "lo <", "b>"]).run();
    assert_eq!((content.as_str(), others.len()), ("Hello <b>", 0));
    assert_eq!(ending.finish, Finish::EndToken(END));
    assert_eq!(counts, (4, 0));
}

#[test]
fn a_stop_string_cuts_across_tokens_and_hides_what_the_parser_held() {
    let (content, _, ending, _) = case(&["on", "e ST", "O", "P two"]).stop(&["STOP"]).run();
    assert_eq!(content, "one ");
    assert_eq!(ending.finish, Finish::StopString("STOP".into()));
    // The parser holds `<` as a possible tag, so the match shows only at the end: it counts all the same.
    let (content, _, ending, _) = case(&["a", "<"]).stop(&["<"]).run();
    assert_eq!(content, "a");
    assert_eq!(ending.finish, Finish::StopString("<".into()));
    let (content, _, ending, _) = case(&["a", "<"]).stop(&["a<b"]).run();
    assert_eq!(content, "a<", "text that can't become a match is released");
    assert_eq!(ending.finish, Finish::EndToken(END));
}

#[test]
fn stop_strings_are_not_looked_for_in_reasoning_or_calls() {
    let pieces = ["<think>", "STOP", "</think>", "x", CALL, "end"];
    let (content, others, ending, counts) = case(&pieces).stop(&["STOP", "seats", "xend"]).run();
    assert_eq!(content, "xend", "a call in between breaks a match");
    assert!(others.contains(&EventKind::Reasoning("STOP".into())));
    assert!(others.contains(&EventKind::CallEnd { index: 0 }));
    assert_eq!(ending.finish, Finish::ToolCalls);
    assert_eq!(counts.0, 7);
}

#[test]
fn error_comes_before_length_before_calls_before_stop() {
    let finish = |case: Case| case.run().2.finish;
    assert_eq!(finish(case(&[CALL])), Finish::ToolCalls);
    assert_eq!(
        finish(case(&[CALL, "and", "STOP"]).stop(&["STOP"])),
        Finish::ToolCalls
    );
    assert_eq!(finish(case(&[CALL, "more"]).length(2)), Finish::Length);
    assert_eq!(
        finish(case(&["a", "b"]).length(3)),
        Finish::EndToken(END),
        "it ended in time"
    );
    let cut = case(&[
        "so: ",
        "<tool_call>book<arg_key>seats</arg_key><arg_va",
        "x",
    ])
    .length(2)
    .run();
    assert_eq!(cut.2.finish, Finish::Length);
    assert!(
        cut.2
            .dropped_call
            .is_some_and(|markup| markup.contains("seats"))
    );
    assert_eq!(cut.0, "so: ", "no markup in the content");
    for pieces in [
        &["<tool_call>book<arg_key>seats</arg_key>"][..],
        &[CALL, "<tool_call>book<arg_key>"],
    ] {
        let Finish::Error(RequestError::Tag(error)) = finish(case(pieces)) else {
            panic!("an unfinished call is an error");
        };
        assert_eq!(error.kind, TagErrorKind::UnterminatedToolCall);
    }
}

#[test]
fn a_special_token_out_of_place_is_dropped_and_said_so() {
    let (content, others, ending, counts) = case(&["a", "<|control|>", "b"]).run();
    assert_eq!(content, "ab");
    assert_eq!(others, [EventKind::DroppedSpecial { token: CONTROL }]);
    assert_eq!((ending.finish, counts.0), (Finish::EndToken(END), 4));
}

#[test]
fn half_a_character_at_the_end_is_a_replacement_character() {
    let mut halves = case(&["a"]);
    halves.pieces.push(b"\xe2\x82");
    let (content, ..) = halves.run();
    assert_eq!(content, "a\u{FFFD}");
}

#[test]
fn tokens_of_reasoning_are_counted_with_their_closing_tag() {
    let mut open = case(&["one", " two", "</th", "ink>", "answer"]);
    open.request.tags.starts_in_reasoning = true;
    let (content, _, _, counts) = open.run();
    assert_eq!((content.as_str(), counts), ("answer", (6, 4)));
}

#[test]
fn a_budget_speaks_up_only_while_reasoning_is_open() {
    let mut request = case(&[]).request;
    request.tags.starts_in_reasoning = true;
    request.reasoning = Some(ReasoningBudget {
        max_tokens: 1,
        close: vec![TokenId(3)],
    });
    let bytes: [&[u8]; 4] = [b"", b"", b"hm", b"</think>"];
    let vocabulary = Vocabulary::new(bytes.map(Box::from).into(), vec![true, true]);
    let mut chain = OutputChain::new(&mut request, 10);
    let mut push = |token: u32| {
        let before = chain.forced();
        let draw = Draw {
            token: TokenId(token),
            digest: Digest(0),
            logprobs: None,
        };
        assert!(
            chain
                .push(draw, &vocabulary, &mut Said::default())
                .is_none()
        );
        (before, chain.drafts_max(0))
    };
    assert_eq!(push(2), (None, 0));
    assert_eq!(
        push(3),
        (Some(TokenId(3)), 7),
        "closed: nothing is left to force"
    );
    assert_eq!(push(2).0, None);
}
