//! What an output is held to: the grammars and the look-alikes of each of its parts, made once per request.
//! It must never hold anything of a single output.

use crate::constraint::Reasoning;
use crate::session::CompiledGrammar;
use crate::spellings::Spellings;
use crate::vocabulary::GrammarVocabulary;
use lockstep_step::TokenId;
use std::sync::Arc;

/// What a [`Boundary`](crate::Boundary) holds an output to.
pub(crate) struct Program {
    /// The constraint, as it is written down.
    pub(crate) source: String,
    pub(crate) starts: Reasoning,
    pub(crate) think_open: Option<TokenId>,
    pub(crate) think_close: Option<TokenId>,
    /// The token that opens a call, where tools are known; also if none may be called.
    pub(crate) opener: Option<TokenId>,
    /// Look-alikes while the output has nothing but blanks.
    pub(crate) at_start: Arc<Spellings>,
    pub(crate) in_reasoning: Arc<Spellings>,
    pub(crate) in_answer: Arc<Spellings>,
    /// Calls that may be made.
    pub(crate) calls: Option<CallRule>,
    pub(crate) answer: AnswerRule,
    pub(crate) vocabulary: Arc<GrammarVocabulary>,
}

/// How calls are made.
pub(crate) struct CallRule {
    pub(crate) grammar: Arc<CompiledGrammar>,
    /// Look-alikes inside a call.
    pub(crate) reserved: Arc<Spellings>,
    pub(crate) close: TokenId,
    pub(crate) at_least_one: bool,
    pub(crate) at_most_one: bool,
}

/// What may stand in the answer.
pub(crate) enum AnswerRule {
    Free,
    Grammar(Arc<CompiledGrammar>),
}
