//! Masks and matchers: each row that counted is that of a fresh matcher, walked over exactly the tokens before
//! it. Where only the closing of reasoning is missing the rules of logits are to blame.

use super::Finding;
use super::asked::Asked;
use super::turns::{Turn, turns};
use crate::life::Life;
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_core::{EventKind, Finish, ReasoningBudget, RequestError};
use lockstep_server::ChatModel;
use lockstep_step::{Bitmask, Matcher, SeqId, TokenId};
use lockstep_tags::TagParser;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(run: &Run) -> Vec<Finding> {
    let asked = Asked::of(run);
    let lives = run.lives.iter().enumerate();
    let found = lives.map(|(idx, book)| {
        let life = book.open();
        Walk::new(run, &asked, &life).first().map(|mut finding| {
            finding.life = idx;
            finding
        })
    });
    found.flatten().collect()
}

/// One sequence on its way.
struct Held {
    matcher: Option<Box<dyn Matcher>>,
    reasoning: Reasoning,
    end_tokens: Vec<TokenId>,
    is_over: bool,
    /// Whether it is over since its matcher refused a token.
    refused: bool,
}

struct Walk<'a> {
    run: &'a Run,
    asked: &'a Asked<'a>,
    life: &'a Life,
    held: BTreeMap<SeqId, Held>,
    unknown: BTreeSet<SeqId>,
}

impl<'a> Walk<'a> {
    fn new(run: &'a Run, asked: &'a Asked<'a>, life: &'a Life) -> Walk<'a> {
        Walk {
            run,
            asked,
            life,
            held: BTreeMap::new(),
            unknown: BTreeSet::new(),
        }
    }

    fn first(mut self) -> Option<Finding> {
        let turns = turns(self.life);
        let found = turns.iter().find_map(|turn| self.turn(turn));
        found.or_else(|| self.refusal())
    }

    fn fresh(&self, seq: SeqId) -> Option<Held> {
        let request = self.asked.request(self.life.submits.get(&seq)?)?;
        Some(Held {
            reasoning: Reasoning::new(TagParser::new(request.tags), request.reasoning),
            matcher: request.matcher,
            end_tokens: request.end_tokens,
            is_over: false,
            refused: false,
        })
    }

    fn turn(&mut self, turn: &Turn<'_>) -> Option<Finding> {
        let seq = turn.part.seq;
        if !self.held.contains_key(&seq) && !self.unknown.contains(&seq) {
            match self.fresh(seq) {
                Some(held) => drop(self.held.insert(seq, held)),
                None => drop(self.unknown.insert(seq)),
            }
        }
        for (idx, draw) in turn.draws.iter().enumerate() {
            let held = self.held.get_mut(&seq)?;
            if held.is_over {
                return None;
            }
            let vocab_size = self.run.model.contract().vocab_size;
            let wrong = held.differs(turn, idx, vocab_size);
            held.take(draw.token, self.run.model.as_ref());
            if let Some((stage, what)) = wrong {
                let is_anothers = stage == Stage::Grammar && self.is_anothers(seq);
                return Some(Finding {
                    stage: if is_anothers { Stage::Package } else { stage },
                    life: 0,
                    step: Some(turn.step.0),
                    what: format!("{seq:?} at {idx} of step {}: {what}", turn.step),
                });
            }
        }
        let held = self.held.get(&seq).filter(|held| !held.is_over)?;
        let idx = turn.unmasked.filter(|_| held.matcher.is_some())?;
        let grew = self.life.grew.contains(&(turn.step, seq));
        grew.then(|| Finding {
            stage: Stage::Grammar,
            life: 0,
            step: Some(turn.step.0),
            what: format!(
                "{seq:?} at {idx} of step {}: its mask is missing",
                turn.step
            ),
        })
    }

    /// A sequence that its matcher has ended, where a fresh one goes on.
    fn refusal(&mut self) -> Option<Finding> {
        let life = self.life;
        life.events.iter().find_map(|event| {
            let EventKind::Finished(finished) = &event.kind else {
                return None;
            };
            let Finish::Error(RequestError::Matcher(error)) = &finished.finish else {
                return None;
            };
            let held = self.held.remove(&event.seq);
            let mut held = held.or_else(|| self.fresh(event.seq))?;
            let mut mask = Bitmask::none(self.run.model.contract().vocab_size);
            let goes_on = held.matcher.as_mut()?.fill(&mut mask).is_ok() && !held.refused;
            if !goes_on {
                return None;
            }
            Some(Finding {
                stage: Stage::Grammar,
                life: 0,
                step: life.ended_with.get(&event.seq).map(|step| step.0),
                what: format!(
                    "{:?} ended, and a fresh matcher goes on: {error}",
                    event.seq
                ),
            })
        })
    }

    /// Whether all rows of a sequence are those of another request's constraint: then it is no row that is wrong, but
    /// the grammar that was taken for another.
    fn is_anothers(&self, seq: SeqId) -> bool {
        let turns = turns(self.life);
        let own: Vec<&Turn<'_>> = turns.iter().filter(|turn| turn.part.seq == seq).collect();
        let mut others = self.asked.matchers();
        others.any(|mut matcher| own.iter().all(|turn| self.explains(&mut matcher, turn)))
    }

    fn explains(&self, matcher: &mut Box<dyn Matcher>, turn: &Turn<'_>) -> bool {
        let contract = self.run.model.contract();
        let mut drawn = turn.draws.iter().enumerate();
        drawn.all(|(idx, draw)| {
            let row = turn.part.scored[idx].mask;
            let told = row.and_then(|row| turn.masks?.get(row));
            let mut mask = Bitmask::none(contract.vocab_size);
            let is_right = matcher.fill(&mut mask).is_ok() && Some(&mask) == told;
            is_right
                && (contract.end_tokens.contains(&draw.token)
                    || matcher.consume(draw.token).is_ok())
        })
    }
}

impl Held {
    /// What is wrong with a row.
    fn differs(&mut self, turn: &Turn<'_>, idx: usize, vocab_size: u32) -> Option<(Stage, String)> {
        let row = turn.part.scored[idx].mask;
        let closing = self.reasoning.closing();
        let mut free = Bitmask::all(vocab_size);
        if let Some(matcher) = &mut self.matcher
            && let Err(error) = matcher.fill(&mut free)
        {
            // Then the sequence must end, and others see that it does.
            let _ = error;
            return None;
        }
        let closing = closing.filter(|&token| free.allows(token));
        let mut wanted = free.clone();
        if let Some(token) = closing {
            wanted.clear();
            wanted.allow(token);
        }
        let told = row.and_then(|row| turn.masks?.get(row));
        match (told, row) {
            (Some(told), _) if *told == wanted => None,
            (Some(told), _) if closing.is_some() && *told == free => {
                Some((Stage::Sampler, "reasoning had to be closed here".to_owned()))
            }
            (Some(told), _) => {
                let (told, wanted) = (told.num_allowed(), wanted.num_allowed());
                let what =
                    format!("{told} tokens allowed, a fresh matcher allows {wanted}, or others");
                Some((Stage::Grammar, what))
            }
            (None, Some(_)) => Some((Stage::Grammar, "its mask is missing".to_owned())),
            (None, None) if self.matcher.is_some() => {
                Some((Stage::Grammar, "it has no mask".to_owned()))
            }
            (None, None) if closing.is_some() => {
                Some((Stage::Sampler, "reasoning had to be closed here".to_owned()))
            }
            (None, None) => None,
        }
    }

    fn take(&mut self, token: TokenId, model: &dyn ChatModel) {
        if self.end_tokens.contains(&token) {
            self.is_over = true;
            return;
        }
        let refuses = |matcher: &mut Box<dyn Matcher>| matcher.consume(token).is_err();
        self.refused = self.matcher.as_mut().is_some_and(refuses);
        self.is_over = self.refused;
        self.reasoning.push(token, model);
    }
}

/// Where reasoning stands, and whether it has to be closed: written again from its definition.
struct Reasoning {
    parser: TagParser,
    budget: Option<ReasoningBudget>,
    pending: Vec<u8>,
    num_tokens: u32,
    num_closed: usize,
}

impl Reasoning {
    fn new(parser: TagParser, budget: Option<ReasoningBudget>) -> Reasoning {
        Reasoning {
            parser,
            budget,
            pending: Vec::new(),
            num_tokens: 0,
            num_closed: 0,
        }
    }

    fn closing(&self) -> Option<TokenId> {
        let budget = self.budget.as_ref()?;
        let is_due = self.parser.in_reasoning() && self.num_tokens >= budget.max_tokens;
        budget
            .close
            .get(self.num_closed)
            .copied()
            .filter(|_| is_due)
    }

    fn push(&mut self, token: TokenId, model: &dyn ChatModel) {
        if let Some(closing) = self.closing() {
            self.num_closed = if token == closing {
                self.num_closed + 1
            } else {
                0
            };
        }
        self.num_tokens += u32::from(self.parser.in_reasoning());
        self.pending
            .extend_from_slice(super::chain::text_of(token, model));
        let whole = match std::str::from_utf8(&self.pending) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.pending.len(),
        };
        let bytes: Vec<u8> = self.pending.drain(..whole).collect();
        // An error of the parser ends the sequence, and others see that it does.
        let text = String::from_utf8_lossy(&bytes);
        let _ = self.parser.push(&text, &mut Vec::new());
    }
}
