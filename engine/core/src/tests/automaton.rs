//! A grammar as an explicit automaton, for tests: small enough to go through all of them.

use alloc::{string::String, vec::Vec};
use lockstep_step::{Bitmask, Matcher, MatcherError, TokenId};

/// What the matcher says when it is asked what comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hint {
    /// The tokens that the automaton leaves no choice about.
    #[default]
    Honest,
    /// As many, but others.
    Wrong,
    /// More than it was asked for, and tokens that don't exist.
    Wild,
}

/// A deterministic automaton over tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Automaton {
    /// `edges[state]`: the tokens allowed there, each with the state after it.
    pub(crate) edges: Vec<Vec<(TokenId, usize)>>,
    /// The states where the output may end.
    pub(crate) accepts: Vec<bool>,
    /// What ends an output.
    pub(crate) end: TokenId,
    /// Whether it ends this output too.
    pub(crate) ends: bool,
    pub(crate) hint: Hint,
    /// Filling fails in this state.
    pub(crate) broken_at: Option<usize>,
    /// The states that were left, the first of them first.
    pub(crate) left: Vec<usize>,
    pub(crate) state: usize,
}

impl Automaton {
    fn step(&self, state: usize, token: TokenId) -> Option<usize> {
        let found = self.edges[state].iter().find(|edge| edge.0 == token);
        found.map(|edge| edge.1)
    }

    /// Whether a token may be drawn in a state.
    pub(crate) fn allows(&self, state: usize, token: TokenId) -> bool {
        (token == self.end && self.accepts[state]) || self.step(state, token).is_some()
    }

    fn expected(&self, num_max: usize) -> Vec<TokenId> {
        let (mut state, mut tokens) = (self.state, Vec::new());
        while tokens.len() < num_max
            && !self.accepts[state]
            && let [(token, next)] = self.edges[state][..]
        {
            tokens.push(token);
            state = next;
        }
        tokens
    }
}

impl Matcher for Automaton {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        if self.broken_at == Some(self.state) {
            return Err(MatcherError::Broken(String::from("out of fuel")));
        }
        for token in (0..mask.vocab_size()).map(TokenId) {
            if self.allows(self.state, token) {
                mask.allow(token);
            }
        }
        Ok(())
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        let is_end = self.ends && token == self.end;
        assert!(!is_end, "an end token is fed to no matcher");
        let next = self.step(self.state, token);
        let next = next.ok_or(MatcherError::Rejected(token))?;
        self.left.push(self.state);
        self.state = next;
        Ok(())
    }

    fn rollback(&mut self, num_tokens: u32) {
        for _ in 0..num_tokens {
            self.state = self.left.pop().expect("so many were taken");
        }
    }

    fn depth(&self) -> u32 {
        self.left.len() as u32
    }

    fn can_finish(&self) -> bool {
        self.accepts[self.state]
    }

    fn forced(&mut self, num_max: usize) -> Vec<TokenId> {
        match self.hint {
            Hint::Honest => self.expected(num_max),
            Hint::Wrong => {
                let expected = self.expected(num_max).into_iter();
                expected.map(|token| TokenId(token.0 ^ 1)).collect()
            }
            Hint::Wild => {
                let mut tokens = self.expected(num_max + 3);
                tokens.extend([TokenId(u32::MAX), TokenId(5)]);
                tokens
            }
        }
    }
}
