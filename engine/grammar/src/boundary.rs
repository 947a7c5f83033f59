//! Where free text ends and constrained text begins. The one place that decides it, for reasoning, calls,
//! and answers under a grammar; on every route, in every format.
//!
//! ```text
//!            <think>              </think>
//!   Start ------------> Reasoning ---------> Answer <-----------+
//!     |                                        |                |
//!     +----------------------------------------+   <tool_call>  |
//!                                              +-----> Call ----+ </tool_call>
//! ```
//! In free text the mask of a place is prepared in advance: all tokens but those that would spell out a tag.
//! In a call, and in an answer under a grammar, a [`Session`] decides. Tags are tokens: only the token opens
//! or closes anything, and look-alikes of it can't be written where a reader would take them for it.

#[cfg(planted)]
mod misdeeds;

use crate::constraint::Reasoning;
use crate::nesting::Nesting;
use crate::place::{LAYOUT_MAX, Place};
use crate::program::{AnswerRule, Program};
use crate::session::Session;
use crate::spellings::Partial;
use lockstep_step::{Bitmask, Matcher, MatcherError, TokenId, planted};
use lockstep_tags::Fence;
use std::sync::Arc;

impl Program {
    /// Whether any output will do.
    pub(crate) fn is_free(&self) -> bool {
        self.opener.is_none() && matches!(self.answer, AnswerRule::Free)
    }

    /// Whether text may be written in the answer.
    fn has_free_answer(&self) -> bool {
        let required = self.calls.as_ref().is_some_and(|calls| calls.at_least_one);
        matches!(self.answer, AnswerRule::Free) && !required
    }

    fn initial(&self) -> Place {
        match self.starts {
            Reasoning::Open => Place::Reasoning(Partial::NONE),
            Reasoning::Closed => Place::Start {
                partial: Partial::NONE,
                layout_left: LAYOUT_MAX,
                fence: Fence::new(),
            },
            Reasoning::Off => self.answer_start(Fence::new()),
        }
    }

    /// The answer, with nothing in it yet.
    fn answer_start(&self, fence: Fence) -> Place {
        match self.has_free_answer() {
            true => Place::Free {
                partial: Partial::NONE,
                fence,
                num_calls: 0,
            },
            false => Place::Between {
                num_calls: 0,
                layout_left: LAYOUT_MAX,
            },
        }
    }
}

/// Holds one output to a constraint.
pub struct Boundary {
    program: Arc<Program>,
    place: Place,
    /// One per token: where the output stood before it, and what it did to the sessions.
    taken: Vec<(Place, Effect)>,
    /// Of calls and of the answer, in order; those before the last are complete.
    sessions: Vec<Session>,
    /// Why it can't go on, if it can't.
    failed: Option<MatcherError>,
}

/// What a token did to the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    /// Began one, without being part of it.
    Began,
    /// Was taken by the last one.
    Taken,
    /// Began one and was taken by it.
    BeganAndTaken,
}

impl Boundary {
    pub(crate) fn new(program: Arc<Program>) -> Boundary {
        Boundary {
            place: program.initial(),
            taken: Vec::new(),
            sessions: Vec::new(),
            failed: None,
            program,
        }
    }

    /// Holds another output to the same constraint, from its first token.
    pub fn restarted(&self) -> Boundary {
        Boundary::new(self.program.clone())
    }

    fn session(&mut self) -> Result<&mut Session, MatcherError> {
        let none = || MatcherError::Broken("no grammar is open".to_string());
        self.sessions.last_mut().ok_or_else(none)
    }

    /// Whether a call may be opened here.
    fn may_open(&self, num_calls: u32, in_fence: bool) -> bool {
        let calls = self.program.calls.as_ref();
        !in_fence && calls.is_some() && !self.is_over(num_calls)
    }

    /// Whether nothing may follow but the end.
    fn is_over(&self, num_calls: u32) -> bool {
        let calls = self.program.calls.as_ref();
        calls.is_some_and(|calls| calls.at_most_one && num_calls > 0)
    }

    /// Tokens of one place, without the end tokens.
    fn fill_place(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        let program = self.program.clone();
        match self.place.clone() {
            Place::Start {
                partial,
                layout_left,
                ..
            } => {
                if program.has_free_answer() {
                    mask.copy_from(program.at_start.mask(partial));
                    self.set_opener(mask, 0, false);
                } else {
                    self.fill_between(mask, 0, layout_left)?;
                }
                if let (Some(open), Partial::NONE) = (program.think_open, partial) {
                    mask.allow(open);
                }
            }
            Place::Reasoning(partial) => {
                mask.copy_from(program.in_reasoning.mask(partial));
                if let Some(opener) = program.opener {
                    mask.forbid(opener);
                }
                if let Some(close) = program.think_close {
                    mask.allow(close);
                }
            }
            Place::Free { num_calls, .. } if self.is_over(num_calls) => {
                mask.clear();
            }
            Place::Free {
                partial,
                fence,
                num_calls,
            } => {
                mask.copy_from(program.in_answer.mask(partial));
                self.set_opener(mask, num_calls, fence.is_open());
            }
            Place::Between {
                num_calls,
                layout_left,
            } => self.fill_between(mask, num_calls, layout_left)?,
            Place::Constrained { partial, .. } => {
                self.session()?.fill(mask)?;
                mask.intersect(program.in_answer.mask(partial));
            }
            Place::Call {
                partial, nesting, ..
            } => {
                self.session()?.fill(mask)?;
                if let Some(calls) = &program.calls {
                    mask.intersect(calls.reserved.mask(partial));
                }
                if nesting.is_deep() {
                    keep_flat(mask, program.vocabulary.flat());
                }
            }
        }
        Ok(())
    }

    fn set_opener(&self, mask: &mut Bitmask, num_calls: u32, in_fence: bool) {
        let Some(opener) = self.program.opener else {
            return;
        };
        match self.may_open(num_calls, in_fence) {
            true => mask.allow(opener),
            false => mask.forbid(opener),
        }
    }

    /// Before an answer that is no free text: a call, the answer's first token, or layout.
    fn fill_between(
        &mut self,
        mask: &mut Bitmask,
        num_calls: u32,
        layout_left: u8,
    ) -> Result<(), MatcherError> {
        let program = self.program.clone();
        match &program.answer {
            AnswerRule::Grammar(grammar) if num_calls == 0 && !self.needs_call(num_calls) => {
                mask.copy_from(grammar.first());
                mask.intersect(program.in_answer.mask(Partial::NONE));
            }
            _ => mask.clear(),
        }
        if self.may_open(num_calls, false) {
            self.set_opener(mask, num_calls, false);
        }
        if !self.is_over(num_calls) {
            for num_line_feeds in 1..=layout_left {
                for &token in program.vocabulary.line_feeds(num_line_feeds) {
                    mask.allow(token);
                }
            }
        }
        Ok(())
    }

    fn needs_call(&self, num_calls: u32) -> bool {
        let calls = self.program.calls.as_ref();
        calls.is_some_and(|calls| calls.at_least_one) && num_calls == 0
    }

    fn may_finish(&self) -> bool {
        match &self.place {
            Place::Start { .. } | Place::Reasoning(_) => self.program.has_free_answer(),
            Place::Free { .. } => true,
            Place::Between { num_calls, .. } => {
                let nothing_is_fine = match &self.program.answer {
                    AnswerRule::Grammar(grammar) => grammar.is_nullable(),
                    AnswerRule::Free => false,
                };
                *num_calls > 0 || (nothing_is_fine && !self.needs_call(0))
            }
            Place::Constrained { complete, .. } => *complete,
            Place::Call { .. } => false,
        }
    }

    /// Where a token leads. Sessions have moved by the effect; nothing else has.
    fn step(&mut self, token: TokenId) -> Result<(Place, Effect), MatcherError> {
        let program = self.program.clone();
        let rejected = || Err(MatcherError::Rejected(token));
        if program.vocabulary.is_end(token) || token.0 >= program.vocabulary.vocab_size() {
            return rejected();
        }
        let text = program.vocabulary.text(token);
        match self.place.clone() {
            Place::Start { partial, .. }
                if Some(token) == program.think_open && partial == Partial::NONE =>
            {
                Ok((Place::Reasoning(Partial::NONE), Effect::None))
            }
            Place::Start { layout_left, .. } if !program.has_free_answer() => {
                self.step_between(token, 0, layout_left)
            }
            Place::Start { partial, fence, .. } => {
                if self.opens_call(token, 0, fence.is_open()) {
                    return self.begin_call(Some(fence), 0);
                }
                match program.at_start.step(partial, text, token) {
                    Some(partial_then) => {
                        let place = self.after_start(partial, partial_then, text, fence);
                        Ok((place, Effect::None))
                    }
                    None => rejected(),
                }
            }
            Place::Reasoning(partial) => {
                if Some(token) == program.think_close {
                    return Ok((program.answer_start(Fence::new()), Effect::None));
                }
                let is_opener = Some(token) == program.opener;
                match program.in_reasoning.step(partial, text, token) {
                    Some(partial) if !is_opener => Ok((Place::Reasoning(partial), Effect::None)),
                    _ => rejected(),
                }
            }
            Place::Free {
                partial,
                fence,
                num_calls,
            } => self.step_free(token, partial, fence, num_calls),
            Place::Between {
                num_calls,
                layout_left,
            } => self.step_between(token, num_calls, layout_left),
            Place::Constrained { partial, .. } => {
                let Some(partial) = program.in_answer.step(partial, text, token) else {
                    return rejected();
                };
                let session = self.session()?;
                session.consume(token)?;
                let complete = session.is_complete()?;
                Ok((Place::Constrained { partial, complete }, Effect::Taken))
            }
            Place::Call {
                partial,
                fence,
                num_calls,
                nesting,
            } => {
                if nesting.is_deep() && !self.may_nest(token)? {
                    return rejected();
                }
                let nesting = nesting.advance(text);
                self.step_call(token, partial, (fence, num_calls, nesting))
            }
        }
    }

    /// Whether a token may be taken where nothing more should be opened.
    fn may_nest(&mut self, token: TokenId) -> Result<bool, MatcherError> {
        let vocabulary = self.program.vocabulary.clone();
        if vocabulary.flat().allows(token) {
            return Ok(true);
        }
        let mut mask = Bitmask::none(vocabulary.vocab_size());
        self.fill_place(&mut mask)?;
        Ok(mask.allows(token))
    }

    fn step_free(
        &mut self,
        token: TokenId,
        partial: Partial,
        mut fence: Fence,
        num_calls: u32,
    ) -> Result<(Place, Effect), MatcherError> {
        let program = self.program.clone();
        if self.opens_call(token, num_calls, fence.is_open()) {
            return self.begin_call(Some(fence), num_calls);
        }
        let text = program.vocabulary.text(token);
        let fits = Some(token) != program.opener && !self.is_over(num_calls);
        match program.in_answer.step(partial, text, token) {
            Some(partial) if fits => {
                fence.push(&String::from_utf8_lossy(text));
                let place = Place::Free {
                    partial,
                    fence,
                    num_calls,
                };
                Ok((place, Effect::None))
            }
            _ => Err(MatcherError::Rejected(token)),
        }
    }

    /// Where text leads that comes while the output has nothing but blanks: to the answer, unless it may
    /// still become `<think>`.
    fn after_start(&self, before: Partial, after: Partial, text: &[u8], mut fence: Fence) -> Place {
        let program = &self.program;
        fence.push(&String::from_utf8_lossy(text));
        let begun = [program.at_start.path(before), text].concat();
        // Blanks as the reader of tags has them: a form feed is text already.
        let is_blank = |byte: &u8| b" \t\r\n".contains(byte);
        let num_blanks = begun.iter().take_while(|byte| is_blank(byte)).count();
        if b"<think>".starts_with(&begun[num_blanks..]) {
            return Place::Start {
                partial: after,
                layout_left: 0,
                fence,
            };
        }
        let partial = program
            .in_answer
            .advance(Partial::NONE, program.at_start.path(after));
        Place::Free {
            partial: partial.unwrap_or(Partial::NONE),
            fence,
            num_calls: 0,
        }
    }

    fn step_between(
        &mut self,
        token: TokenId,
        num_calls: u32,
        layout_left: u8,
    ) -> Result<(Place, Effect), MatcherError> {
        let program = self.program.clone();
        if self.opens_call(token, num_calls, false) {
            return self.begin_call(None, num_calls);
        }
        if let AnswerRule::Grammar(grammar) = &program.answer
            && num_calls == 0
            && !self.needs_call(num_calls)
            && grammar.first().allows(token)
            && let Some(partial) = self.opens_no_tag(token)
        {
            let mut session = grammar.begin();
            session.consume(token)?;
            let complete = session.is_complete()?;
            self.sessions.push(session);
            let place = Place::Constrained { partial, complete };
            return Ok((place, Effect::BeganAndTaken));
        }
        let len = program.vocabulary.text(token).len();
        let is_layout =
            (1..=layout_left).any(|num| program.vocabulary.line_feeds(num).contains(&token));
        if !is_layout || self.is_over(num_calls) {
            return Err(MatcherError::Rejected(token));
        }
        let layout_left = layout_left - len as u8;
        let place = match self.place.clone() {
            Place::Start { partial, fence, .. } => Place::Start {
                partial,
                layout_left,
                fence,
            },
            _ => Place::Between {
                num_calls,
                layout_left,
            },
        };
        Ok((place, Effect::None))
    }

    /// The place after an answer's first token, if that spells out no tag.
    fn opens_no_tag(&self, token: TokenId) -> Option<Partial> {
        let text = self.program.vocabulary.text(token);
        self.program.in_answer.step(Partial::NONE, text, token)
    }

    fn opens_call(&self, token: TokenId, num_calls: u32, in_fence: bool) -> bool {
        Some(token) == self.program.opener && self.may_open(num_calls, in_fence)
    }

    fn begin_call(
        &mut self,
        fence: Option<Fence>,
        num_calls: u32,
    ) -> Result<(Place, Effect), MatcherError> {
        let program = self.program.clone();
        let none = || MatcherError::Broken("no call may be made".to_string());
        let calls = program.calls.as_ref().ok_or_else(none)?;
        self.sessions.push(calls.grammar.begin());
        let place = Place::Call {
            partial: Partial::NONE,
            fence,
            num_calls,
            nesting: Nesting::default(),
        };
        Ok((place, Effect::Began))
    }

    fn step_call(
        &mut self,
        token: TokenId,
        partial: Partial,
        (fence, num_calls, nesting): (Option<Fence>, u32, Nesting),
    ) -> Result<(Place, Effect), MatcherError> {
        let program = self.program.clone();
        let none = || MatcherError::Broken("no call may be made".to_string());
        let calls = program.calls.as_ref().ok_or_else(none)?;
        if token == calls.close {
            self.session()?.consume(token)?;
            let num_calls = num_calls + 1;
            let place = match fence {
                Some(fence) => Place::Free {
                    partial: Partial::NONE,
                    fence,
                    num_calls,
                },
                None => Place::Between {
                    num_calls,
                    layout_left: LAYOUT_MAX,
                },
            };
            // Planted: mlc-ai/xgrammar#161.
            if planted!(EndNotInHistory) {
                return Ok((place, Effect::None));
            }
            return Ok((place, Effect::Taken));
        }
        let text = program.vocabulary.text(token);
        let Some(partial) = calls.reserved.step(partial, text, token) else {
            return Err(MatcherError::Rejected(token));
        };
        self.session()?.consume(token)?;
        let place = Place::Call {
            partial,
            fence,
            num_calls,
            nesting,
        };
        Ok((place, Effect::Taken))
    }

    fn undo(&mut self) -> Result<(), MatcherError> {
        let num_taken = self.taken.len();
        let (place, effect) = self
            .taken
            .pop()
            .unwrap_or_else(|| panic!("{num_taken} tokens were taken, one more is taken back"));
        // Planted: vllm-project/vllm#46272.
        let was_complete = planted!(TerminationStays) && self.may_finish();
        self.place = place;
        if let Place::Constrained { complete, .. } = &mut self.place {
            *complete |= was_complete;
        }
        match effect {
            Effect::None => Ok(()),
            Effect::Began | Effect::BeganAndTaken => {
                self.sessions.pop();
                Ok(())
            }
            Effect::Taken => self.session()?.rollback(),
        }
    }

    /// Tokens that the grammar leaves no choice about, read off its forced text.
    fn forced_tokens(&self) -> Vec<TokenId> {
        let session = match &self.place {
            Place::Constrained { .. } | Place::Call { .. } => self.sessions.last(),
            _ => None,
        };
        session.map_or_else(Vec::new, |session| session.forced(&self.program.vocabulary))
    }
}

/// Leaves only tokens that open nothing, where there are any.
fn keep_flat(mask: &mut Bitmask, flat: &Bitmask) {
    let mut kept = mask.clone();
    kept.intersect(flat);
    if kept.num_allowed() > 0 {
        mask.copy_from(&kept);
    }
}

impl Matcher for Boundary {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let vocab_size = self.program.vocabulary.vocab_size();
        if mask.vocab_size() != vocab_size {
            return Err(MatcherError::Broken(format!(
                "a mask over {} tokens for a grammar over {vocab_size}",
                mask.vocab_size()
            )));
        }
        self.fill_place(mask)?;
        #[cfg(planted)]
        self.misfill(mask);
        let may_finish = self.may_finish();
        for &token in self.program.vocabulary.end_tokens() {
            match may_finish {
                true => mask.allow(token),
                false => mask.forbid(token),
            }
        }
        Ok(())
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        #[cfg(planted)]
        self.take_beginning(token);
        let (place, effect) = self.step(token)?;
        let before = std::mem::replace(&mut self.place, place);
        self.taken.push((before, effect));
        Ok(())
    }

    fn rollback(&mut self, num_tokens: u32) {
        for _ in 0..num_tokens {
            if let Err(error) = self.undo() {
                self.failed.get_or_insert(error);
            }
        }
    }

    fn depth(&self) -> u32 {
        self.taken.len() as u32
    }

    fn can_finish(&self) -> bool {
        self.failed.is_none() && self.may_finish()
    }

    fn source(&self) -> Option<&str> {
        Some(&self.program.source)
    }

    fn forced(&mut self, num_max: usize) -> Vec<TokenId> {
        let mut tokens = self.forced_tokens();
        tokens.truncate(num_max);
        tokens
    }
}
