//! Where the matcher of a sequence is: at home, or lent to a job that fills masks. It must never be walked
//! but by a job, a commit or a drafter, each of which leaves it at a known depth.

use alloc::{boxed::Box, string::String, string::ToString, vec::Vec};
#[cfg(planted)]
use lockstep_step::planted;
use lockstep_step::{Matcher, TokenId};

/// The constraint of one sequence.
pub(crate) struct Constraint {
    /// None while a job has it.
    matcher: Option<Box<dyn Matcher>>,
    /// Where the matcher must be between steps: where it came in, and the output's tokens after that.
    depth: u32,
}

impl Constraint {
    pub(crate) fn new(matcher: Box<dyn Matcher>) -> Constraint {
        Constraint {
            depth: matcher.depth(),
            matcher: Some(matcher),
        }
    }

    /// The depth of the matcher between steps.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether a job has the matcher.
    pub(crate) fn is_lent(&self) -> bool {
        self.matcher.is_none()
    }

    /// Gives the matcher to a job. None if another has it.
    pub(crate) fn lend(&mut self) -> Option<Box<dyn Matcher>> {
        self.matcher.take()
    }

    /// Takes it back from the job. A matcher that nobody lent is dropped.
    pub(crate) fn give_back(&mut self, matcher: Box<dyn Matcher>) {
        self.matcher.get_or_insert(matcher);
    }

    /// Takes a token of the output. An error is the sequence's own.
    pub(crate) fn consume(&mut self, token: TokenId) -> Result<(), String> {
        let Some(matcher) = &mut self.matcher else {
            return Err("the matcher has not come back".into());
        };
        matcher.consume(token).map_err(|error| error.to_string())?;
        self.depth += 1;
        Ok(())
    }

    // Planted: NVIDIA/TensorRT-LLM#18891.
    #[cfg(planted)]
    pub(crate) fn start_over(&mut self) {
        if let Some(matcher) = self
            .matcher
            .as_mut()
            .filter(|_| planted!(MatcherStartsOver))
        {
            matcher.rollback(matcher.depth());
            self.depth = 0;
        }
    }

    /// How many of these tokens the matcher takes, one after another; it stays where it is. The last may end
    /// the output, which is not for the matcher to take. All of them where a job has the matcher: nobody
    /// can say.
    pub(crate) fn num_taken(&mut self, tokens: impl Iterator<Item = Option<TokenId>>) -> usize {
        let Some(matcher) = &mut self.matcher else {
            return usize::MAX;
        };
        let (mut num_consumed, mut num_taken) = (0, 0);
        for token in tokens {
            match token.map(|token| matcher.consume(token)) {
                Some(Ok(())) => num_consumed += 1,
                Some(Err(_)) => break,
                // Whether it may end here is seen when masks are filled.
                None => {
                    num_taken = 1;
                    break;
                }
            }
        }
        if num_consumed > 0 {
            matcher.rollback(num_consumed);
        }
        num_taken + num_consumed as usize
    }

    /// What the matcher expects next, at most `num_max` tokens.
    pub(crate) fn forced(&mut self, num_max: usize) -> Vec<TokenId> {
        let matcher = self.matcher.as_mut().filter(|_| num_max > 0);
        let mut tokens = matcher.map_or(Vec::new(), |matcher| matcher.forced(num_max));
        tokens.truncate(num_max);
        tokens
    }
}
