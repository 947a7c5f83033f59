//! What the reader of a sequence may learn, as one closed enum. Events never tell how a step was batched.

use alloc::{string::String, vec::Vec};
use core::fmt;
use lockstep_step::{Digest, Logprobs, PlanError, SeqError, SeqId, TokenId};
use lockstep_tags::{TagError, TagErrorKind};

/// One piece of news about one sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The sequence.
    pub seq: SeqId,
    /// Output tokens committed so far; it never falls.
    pub at: u32,
    /// The news.
    pub kind: EventKind,
}

/// The kinds of news. A sequence's last event is [`EventKind::Finished`], and there is exactly one.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The sequence is part of a step for the first time.
    Scheduled,
    /// A token was committed. It comes before the text that it brings.
    Token {
        /// The token.
        token: TokenId,
        /// What it adds to the text; empty for end tokens and dropped ones. May be half a character.
        bytes: Vec<u8>,
        /// Where the request asked for them.
        logprobs: Option<Logprobs>,
        /// Digest of the raw logits that it was drawn from.
        digest: Digest,
    },
    /// Text of the reasoning channel, whole characters.
    Reasoning(String),
    /// Text of the answer, whole characters.
    Content(String),
    /// A call starts.
    CallBegin {
        /// Number of the call, from 0.
        index: u32,
        /// The tool.
        name: String,
    },
    /// A piece of a call's arguments; together they are the text of a JSON object.
    CallArguments {
        /// Number of the call.
        index: u32,
        /// The piece.
        fragment: String,
    },
    /// A call is complete.
    CallEnd {
        /// Number of the call.
        index: u32,
    },
    /// A control token was out of place and is not part of the text.
    DroppedSpecial {
        /// The token.
        token: TokenId,
    },
    /// The sequence lost its blocks and will be computed again; nothing of its output changes.
    Preempted,
    /// The end.
    Finished(Finished),
}

/// How a sequence ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Why.
    pub finish: Finish,
    /// What it took.
    pub usage: Usage,
    /// The markup of a call that the token limit cut off.
    pub dropped_call: Option<String>,
}

/// Why a sequence ended. Of several reasons the first in this order counts: an error, the length, calls,
/// a stop.
#[derive(Clone, Debug, PartialEq)]
pub enum Finish {
    /// The model drew this end token.
    EndToken(TokenId),
    /// This stop string appeared in the content.
    StopString(String),
    /// `max_tokens` were drawn, or the longest sequence that the engine can hold was reached.
    Length,
    /// The output ended by itself, by token or by string, after at least one whole call.
    ToolCalls,
    /// The client asked for it.
    Aborted,
    /// Something went wrong with this sequence.
    Error(RequestError),
}

/// Tokens, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: u32,
    /// Of the output, the end token included.
    pub completion_tokens: u32,
    /// Of the output, those drawn while reasoning was open, its closing tag included.
    pub reasoning_tokens: u32,
    /// Of the prompt, those whose computation was found in the prefix cache when the sequence was first
    /// admitted. It depends on what ran before, and nothing else does.
    pub cached_tokens: u32,
}

/// What went wrong with one sequence. Others never notice.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestError {
    /// A call cannot be read.
    Tag(TagError),
    /// The backend could not go on with this sequence.
    Seq(SeqError),
    /// The constraint failed, in its own words.
    Matcher(String),
    /// The step failed, in the backend's words.
    Engine(String),
    /// The engine planned something that its own rules refuse; nothing was computed.
    PlanRefused(PlanError),
}

impl RequestError {
    /// The names of all, those of calls first.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        let own = [
            "not_finite",
            "nothing_allowed",
            "plan_refused",
            "grammar_failed",
            "step_failed",
        ];
        TagErrorKind::ALL
            .map(TagErrorKind::as_str)
            .into_iter()
            .chain(own)
    }

    /// A stable name.
    pub fn kind(&self) -> &'static str {
        match self {
            RequestError::Tag(error) => error.kind.as_str(),
            RequestError::Seq(SeqError::NotFinite { .. }) => "not_finite",
            RequestError::Seq(SeqError::NothingAllowed { .. }) => "nothing_allowed",
            RequestError::Seq(SeqError::Refused(_)) | RequestError::PlanRefused(_) => {
                "plan_refused"
            }
            RequestError::Matcher(_) => "grammar_failed",
            RequestError::Engine(_) => "step_failed",
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Tag(error) => write!(f, "{error}"),
            RequestError::Seq(error) => write!(f, "{error}"),
            RequestError::Matcher(message) => write!(f, "{message}"),
            RequestError::Engine(message) => write!(f, "the step failed: {message}"),
            RequestError::PlanRefused(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for RequestError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use lockstep_step::Pos;

    #[test]
    fn each_error_of_its_own_is_among_the_kinds() {
        let pos = Pos(1);
        let errors = [
            RequestError::Seq(SeqError::NothingAllowed { pos }),
            RequestError::Seq(SeqError::NotFinite {
                op: "add".to_string(),
                layer: None,
                pos,
            }),
            RequestError::Matcher("no".to_string()),
            RequestError::Engine("no".to_string()),
        ];
        for error in errors {
            assert!(RequestError::kinds().any(|kind| kind == error.kind()));
        }
        assert_eq!(RequestError::kinds().count(), TagErrorKind::ALL.len() + 5);
    }
}
