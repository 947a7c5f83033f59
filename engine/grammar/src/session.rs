//! One compiled grammar, and one walk through it. All that is said to `llguidance` is said here.
//!
//! Each walk starts from a copy of the same parser, lexer included, as it was when the grammar was compiled:
//! so a walk neither waits for another nor depends on what another has seen. What is tried out before is a
//! parser of its own, since its limits are tighter.

use crate::vocabulary::GrammarVocabulary;
use llguidance::{
    Matcher,
    api::{GrammarInit, ParserLimits, TopLevelGrammar},
};
use lockstep_step::{Bitmask, MatcherError, TokenId};
use std::sync::Mutex;

/// A grammar that any number of outputs may be held to.
pub(crate) struct CompiledGrammar {
    // Only ever cloned; the lock is for the compiler, since a parser's caches can't be read by two at once.
    base: Mutex<Matcher>,
    first: Bitmask,
    nullable: bool,
}

/// How far a grammar is tried out: walks, and tokens of each.
const PROBE_WALKS: u64 = 3;
const PROBE_TOKENS: u64 = 24;

/// A row that a request needs may take this many times the fuel of a row of the trial.
const FUEL_RESERVE: u64 = 50;

impl CompiledGrammar {
    /// Compiles a grammar and tries it out.
    ///
    /// # Errors
    /// If it is none, or takes more fuel than the limits say.
    pub(crate) fn new(
        vocabulary: &GrammarVocabulary,
        grammar: TopLevelGrammar,
        limits: ParserLimits,
    ) -> Result<CompiledGrammar, String> {
        let factory = vocabulary.factory();
        let env = Some(factory.tok_env().clone());
        // Read once: that is half of the price of a parser.
        let read = GrammarInit::Serialized(grammar).to_internal(env, limits.clone());
        let (rules, lexemes) = read.map_err(|error| without_state(&error.to_string()))?;
        let compile = |limits: ParserLimits| {
            let logger = llguidance::Logger::new(0, 0);
            let init = GrammarInit::Internal(rules.clone(), lexemes.clone());
            let caps = toktrie::InferenceCapabilities::default();
            let parser = factory.create_parser_from_init_ext(init, logger, caps, limits);
            parser
                .map(|parser| Matcher::new(Ok(parser)))
                .map_err(|error| without_state(&error.to_string()))
        };
        probe(compile(limits.clone())?, vocabulary)?;
        let reserve = ParserLimits {
            step_lexer_fuel: limits.step_lexer_fuel.saturating_mul(FUEL_RESERVE),
            step_max_items: limits.step_max_items.saturating_mul(FUEL_RESERVE as usize),
            max_lexer_states: limits
                .max_lexer_states
                .saturating_mul(FUEL_RESERVE as usize),
            ..limits
        };
        let base = compile(reserve)?;
        if let Some(error) = base.get_error() {
            return Err(without_state(&error));
        }
        let mut first = Bitmask::none(vocabulary.vocab_size());
        let mut session = Session {
            matcher: base.clone(),
        };
        let filled = session
            .fill(&mut first)
            .and_then(|()| session.is_complete());
        let nullable = filled.map_err(|error| error.to_string())?;
        if first.num_allowed() == 0 && !nullable {
            return Err("the grammar admits no text that this vocabulary can write".to_string());
        }
        Ok(CompiledGrammar {
            base: Mutex::new(base),
            first,
            nullable,
        })
    }

    /// The tokens that a text may begin with.
    pub(crate) fn first(&self) -> &Bitmask {
        &self.first
    }

    /// Whether no text at all is enough.
    pub(crate) fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// A walk from the start.
    pub(crate) fn begin(&self) -> Session {
        let base = self.base.lock();
        let base = base.unwrap_or_else(std::sync::PoisonError::into_inner);
        Session {
            matcher: base.deep_clone(),
        }
    }
}

/// Walks the grammar a few times, by a rule that depends on nothing but the grammar.
fn probe(base: Matcher, vocabulary: &GrammarVocabulary) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        Err(format!(
            "the grammar takes too much fuel to be walked: {}",
            without_state(&error.to_string())
        ))
    };
    for walk in 0..PROBE_WALKS {
        let mut matcher = base.clone();
        for step in 0..PROBE_TOKENS {
            if matcher.is_stopped() {
                break;
            }
            let mask = match matcher.compute_mask() {
                Ok(mask) => mask,
                Err(error) => return failed(&error),
            };
            let allowed: Vec<u32> = mask
                .iter()
                .filter(|&token| token < vocabulary.vocab_size())
                .collect();
            if allowed.is_empty() {
                break;
            }
            // Spread over what is allowed, differently in each walk.
            let pick = (step + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(walk as u32 * 21);
            let token = allowed[(pick % allowed.len() as u64) as usize];
            if let Err(error) = matcher.consume_token(token) {
                return failed(&error);
            }
        }
    }
    Ok(())
}

/// Bytes of a message of `llguidance` that are passed on: it may quote a whole grammar.
const MESSAGE_MAX: usize = 400;

/// Messages of `llguidance` may end with a dump of its state.
fn without_state(message: &str) -> String {
    let end = message.find("\n<").unwrap_or(message.len());
    let message = message[..end].trim();
    match message.len() > MESSAGE_MAX {
        true => format!(
            "{} ...",
            &message[..message.floor_char_boundary(MESSAGE_MAX)]
        ),
        false => message.to_string(),
    }
}

/// One walk through a grammar.
pub(crate) struct Session {
    matcher: Matcher,
}

impl Session {
    /// A walk with a parser of its own.
    pub(crate) fn over(matcher: Matcher) -> Session {
        Session { matcher }
    }

    /// Writes the tokens that may come next; none where the text is complete and can't go on. Control
    /// tokens are never among them.
    pub(crate) fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        let vocab_size = mask.vocab_size();
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            *mask = Bitmask::none(vocab_size);
            return Ok(());
        }
        let allowed = self.matcher.compute_mask().map_err(broken)?;
        // The trie has one token more than the model: its own end.
        mask.assign(&allowed.as_slice()[..vocab_size.div_ceil(32) as usize]);
        Ok(())
    }

    /// Takes a token, if it is allowed.
    pub(crate) fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        let taken = self
            .matcher
            .try_consume_tokens(&[token.0])
            .map_err(broken)?;
        match taken {
            1 => Ok(()),
            _ => Err(MatcherError::Rejected(token)),
        }
    }

    /// Takes as much of a token's text as the grammar admits, if that isn't all of it.
    #[cfg(planted)]
    pub(crate) fn take_beginning(&mut self, token: TokenId, vocabulary: &GrammarVocabulary) {
        if self.consume(token).is_ok() {
            let _ = self.rollback();
            return;
        }
        let text = vocabulary.text(token);
        for len in (1..text.len()).rev() {
            let mut texts = vocabulary.texts();
            let beginning = texts.find(|(_, other)| *other == &text[..len]);
            if beginning.is_some_and(|(beginning, _)| self.consume(beginning).is_ok()) {
                return;
            }
        }
    }

    /// Takes the last token back.
    pub(crate) fn rollback(&mut self) -> Result<(), MatcherError> {
        self.matcher.rollback(1).map_err(broken)
    }

    /// Whether the text is complete.
    pub(crate) fn is_complete(&mut self) -> Result<bool, MatcherError> {
        if self.matcher.is_stopped() && !self.matcher.is_error() {
            return Ok(true);
        }
        self.matcher.is_accepting().map_err(broken)
    }

    /// Tokens that must come next, in the canonical tokenisation of the text that must. The last token of a
    /// text is left out where more text may follow, since it may be a different one then.
    pub(crate) fn forced(&self, vocabulary: &GrammarVocabulary) -> Vec<TokenId> {
        // On a copy: asking moves a parser's own bookkeeping.
        let bytes = self.matcher.clone().compute_ff_bytes();
        let mut tokens = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = rest.iter().position(|&byte| byte == BY_ID);
            let (text, from) = rest.split_at(len.unwrap_or(rest.len()));
            // Behind half a character no text is left to cut into tokens.
            let Ok(text) = std::str::from_utf8(text) else {
                break;
            };
            tokens.extend(vocabulary.tokenize(text));
            match by_id(from) {
                Some((token, after)) => {
                    tokens.push(token);
                    rest = after;
                }
                None => {
                    tokens.pop();
                    break;
                }
            }
        }
        tokens
    }
}

/// Introduces a token that is forced by its id, as in `\xff[12]`.
const BY_ID: u8 = toktrie::TokTrie::SPECIAL_TOKEN_MARKER;

fn by_id(bytes: &[u8]) -> Option<(TokenId, &[u8])> {
    let rest = bytes.strip_prefix(&[BY_ID, b'['])?;
    let end = rest.iter().position(|&byte| byte == b']')?;
    let id = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((TokenId(id), &rest[end + 1..]))
}

fn broken(error: impl std::fmt::Display) -> MatcherError {
    MatcherError::Broken(without_state(&error.to_string()))
}
