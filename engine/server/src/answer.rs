//! Engine events to pieces of an answer, the same for unary and streamed responses of each API.
//!
//! Blanks at both ends of reasoning and of content are layout of the template, and left out: they
//! are held back until something stands after them. It must never make a piece depend on how
//! events were cut.

use crate::generation::Update;
use crate::http::error::ApiError;
use lockstep_core::{EventKind, Finish, Finished, RequestError, Usage};
use lockstep_step::{Logprobs, TokenId};
use serde_json::{Value, json};

/// A piece of one choice's answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// A token, before the text that it brings.
    Token {
        token: TokenId,
        bytes: Vec<u8>,
        logprobs: Option<Logprobs>,
    },
    Reasoning(String),
    Content(String),
    CallBegin {
        index: u32,
        name: String,
    },
    CallArguments {
        index: u32,
        fragment: String,
    },
    CallEnd {
        index: u32,
    },
    /// The last piece, exactly once.
    End(Outcome),
}

/// How a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    pub(crate) usage: Usage,
    /// Whether the token limit cut a call off.
    pub(crate) dropped_call: bool,
}

/// Why a choice ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    Stop,
    StopString(String),
    Length,
    ToolCalls,
    Failed(Failure),
}

/// An error after the answer began.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// What was wrong where, for programs; the whole markup of a call that can't be read.
    pub(crate) detail: Option<Value>,
}

impl Failure {
    /// The error that clients see.
    pub(crate) fn error(&self) -> ApiError {
        ApiError {
            detail: self.detail.clone().map(Box::new),
            ..ApiError::new(self.status, self.code, self.message.clone())
        }
    }
}

fn detail(error: &RequestError) -> Option<Value> {
    match error {
        RequestError::Tag(error) => Some(json!({
            "offset": error.offset,
            "expected": error.expected,
            "markup": error.markup,
        })),
        RequestError::Seq(_)
        | RequestError::Matcher(_)
        | RequestError::Engine(_)
        | RequestError::PlanRefused(_) => None,
    }
}

/// Reads one choice's updates.
#[derive(Debug)]
pub(crate) struct ChoiceReader {
    /// Whether blanks at the ends are left out: not in plain completions.
    trims: bool,
    reasoning: Trimmer,
    content: Trimmer,
    ended: bool,
}

impl ChoiceReader {
    pub(crate) fn new(trims: bool) -> ChoiceReader {
        ChoiceReader {
            trims,
            reasoning: Trimmer::default(),
            content: Trimmer::default(),
            ended: false,
        }
    }

    /// The pieces that an update brings.
    pub(crate) fn read(&mut self, update: Update, out: &mut Vec<Piece>) {
        let kind = match update {
            Update::Event(kind) => kind,
            Update::Cut(cut) => {
                let (status, code, message) = cut.parts();
                let end = End::Failed(Failure {
                    status,
                    code,
                    message,
                    detail: None,
                });
                return self.end(end, Usage::default(), false, out);
            }
        };
        match kind {
            EventKind::Scheduled | EventKind::Preempted | EventKind::DroppedSpecial { .. } => {}
            EventKind::Token {
                token,
                bytes,
                logprobs,
                digest: _,
            } => out.push(Piece::Token {
                token,
                bytes,
                logprobs,
            }),
            EventKind::Reasoning(text) => {
                let text = self.trimmed(text, |reader| &mut reader.reasoning);
                out.extend(text.map(Piece::Reasoning));
            }
            EventKind::Content(text) => {
                let text = self.trimmed(text, |reader| &mut reader.content);
                out.extend(text.map(Piece::Content));
            }
            EventKind::CallBegin { index, name } => out.push(Piece::CallBegin { index, name }),
            EventKind::CallArguments { index, fragment } => {
                out.push(Piece::CallArguments { index, fragment });
            }
            EventKind::CallEnd { index } => out.push(Piece::CallEnd { index }),
            EventKind::Finished(finished) => {
                let Finished {
                    finish,
                    usage,
                    dropped_call,
                } = finished;
                let end = match finish {
                    Finish::EndToken(_) => End::Stop,
                    Finish::StopString(text) => End::StopString(text),
                    Finish::Length => End::Length,
                    Finish::ToolCalls => End::ToolCalls,
                    Finish::Aborted => End::Failed(Failure {
                        status: 500,
                        code: "aborted",
                        message: "the request was aborted".to_string(),
                        detail: None,
                    }),
                    Finish::Error(error) => End::Failed(Failure {
                        status: 500,
                        code: error.kind(),
                        message: error.to_string(),
                        detail: detail(&error),
                    }),
                };
                self.end(end, usage, dropped_call.is_some(), out);
            }
        }
    }

    fn trimmed(
        &mut self,
        text: String,
        of: impl Fn(&mut ChoiceReader) -> &mut Trimmer,
    ) -> Option<String> {
        let text = match self.trims {
            true => of(self).push(&text),
            false => text,
        };
        (!text.is_empty()).then_some(text)
    }

    fn end(&mut self, end: End, usage: Usage, dropped_call: bool, out: &mut Vec<Piece>) {
        if !self.ended {
            self.ended = true;
            out.push(Piece::End(Outcome {
                end,
                usage,
                dropped_call,
            }));
        }
    }
}

/// Leaves out blanks at both ends of a text that comes in pieces.
#[derive(Debug, Default)]
struct Trimmer {
    started: bool,
    held: String,
}

impl Trimmer {
    /// What is certain to be inside, now that `text` has come.
    fn push(&mut self, text: &str) -> String {
        let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
        let text = match self.started {
            true => text,
            false => text.trim_start_matches(blank),
        };
        let inside = text.trim_end_matches(blank);
        if inside.is_empty() {
            if self.started {
                self.held.push_str(text);
            }
            return String::new();
        }
        self.started = true;
        let mut out = std::mem::take(&mut self.held);
        out.push_str(inside);
        self.held.push_str(&text[inside.len()..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn trimming_does_not_depend_on_cuts(pieces in proptest::collection::vec("[ \na]{0,4}", 0..8)) {
            let mut trimmer = Trimmer::default();
            let joined: String = pieces.iter().map(|piece| trimmer.push(piece)).collect();
            let whole: String = pieces.concat();
            prop_assert_eq!(joined, whole.trim_matches([' ', '\n']));
        }
    }
}
