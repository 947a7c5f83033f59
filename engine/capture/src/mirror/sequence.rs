//! A sequence as the mirror knows it: what was committed, what of it is computed, and what is in flight.

use super::{Asked, Blame, Fate};
use crate::checksum::mix;
use lockstep_step::{BLOCK_LEN, QueryToken, SeqPlan, StepId, TokenId};
use std::collections::VecDeque;

/// A part of a step that was not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    step: StepId,
    start: usize,
    num_committed: usize,
    drafts: Vec<TokenId>,
    is_scored: bool,
    tokens: Vec<Option<TokenId>>,
    /// What its last scored position draws, once that is known.
    last_draw: Option<TokenId>,
}

impl Flight {
    pub(super) fn of(step: StepId, part: &SeqPlan, tokens: Vec<Option<TokenId>>) -> Flight {
        let num_committed = part.query.len() - part.num_drafts as usize;
        Flight {
            step,
            start: part.start.0 as usize,
            num_committed,
            drafts: tokens[num_committed..].iter().copied().flatten().collect(),
            is_scored: !part.scored.is_empty(),
            tokens,
            last_draw: None,
        }
    }

    fn end(&self) -> usize {
        self.start + self.num_committed + self.drafts.len()
    }
}

/// A sequence, from its prompt on.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    num_prompt: usize,
    /// Committed, and then what is taken to be right in flight.
    tokens: Vec<TokenId>,
    num_committed: usize,
    /// `hashes[i]` is that of the first `i` tokens.
    hashes: Vec<u64>,
    computed: usize,
    was_planned: bool,
    /// Whether the part that is looked at is its first since it was admitted.
    pub(super) is_admitted: bool,
    /// Whether its last part had drafts.
    pub(super) had_drafts: bool,
    pub(super) flights: Vec<Flight>,
    /// The step with which it grew though it had lost its blocks, as far as is known.
    pub(super) grew_late: Option<StepId>,
    /// The step to blame, where it is an earlier one.
    pub(super) blamed: Option<StepId>,
    /// The last step that it was in.
    last_step: Option<StepId>,
    /// Tokens of output each time that it lost its blocks, and whether it may have come back already.
    preempted: VecDeque<(usize, bool)>,
}

impl Sequence {
    pub(super) fn new(asked: &Asked<'_>) -> Sequence {
        let salt = asked
            .salt
            .bytes()
            .fold(0x5a17, |hash, byte| mix(hash ^ u64::from(byte)));
        let mut sequence = Sequence {
            num_prompt: asked.prompt.len(),
            tokens: Vec::new(),
            num_committed: 0,
            hashes: vec![salt],
            computed: 0,
            was_planned: false,
            is_admitted: false,
            had_drafts: false,
            flights: Vec::new(),
            grew_late: None,
            blamed: None,
            last_step: None,
            preempted: asked
                .preempted
                .iter()
                .map(|&at| (at as usize, false))
                .collect(),
        };
        for &token in asked.prompt {
            sequence.push(Some(token));
        }
        sequence.num_committed = sequence.tokens.len();
        sequence
    }

    fn push(&mut self, token: Option<TokenId>) {
        let hash = self.hashes[self.tokens.len()];
        self.tokens.push(token.unwrap_or_default());
        self.hashes.push(follow(hash, token));
    }

    /// Leaves what is committed.
    fn settle(&mut self) {
        self.tokens.truncate(self.num_committed);
        self.hashes.truncate(self.num_committed + 1);
    }

    /// The hash of the first `len` tokens, those in flight taken to be right.
    pub(super) fn hash(&self, len: usize) -> Option<u64> {
        self.hashes.get(len).copied()
    }

    /// Whether it has lost its blocks and was not seen since.
    pub(super) fn gave_way(&self) -> bool {
        let num_output = self.num_committed - self.num_prompt;
        self.preempted
            .front()
            .is_some_and(|lost| lost.0 >= num_output)
    }

    /// How many tokens of output it has, if it lost its blocks with these and has not come back.
    pub(super) fn lost_at(&self) -> Option<usize> {
        let num_output = self.num_committed - self.num_prompt;
        let lost = self.preempted.front()?;
        (*lost == (num_output, false)).then_some(num_output)
    }

    /// The part in flight that it goes on from.
    fn flight(&self) -> Option<&Flight> {
        let last = self.flights.last();
        last.filter(|flight| flight.start == self.computed)
    }

    /// Whether a part begins where its sequence stands, or where one begins that comes anew or back. Then takes what is
    /// in flight to be right.
    pub(super) fn place(
        &mut self,
        part: &SeqPlan,
        step: StepId,
        is_ahead: bool,
    ) -> Result<(), (Blame, String)> {
        self.settle();
        let last_step = self.last_step.replace(step);
        let follows = last_step.is_some_and(|last| last.0 + 1 == step.0);
        let start = part.start.0 as usize;
        let flight = self.flight().filter(|_| is_ahead).cloned();
        let standing = flight.as_ref().map_or(self.computed, Flight::end);
        let num_output = self.num_committed - self.num_prompt;
        let is_border = start.is_multiple_of(BLOCK_LEN as usize);
        self.is_admitted = !self.was_planned;
        if !std::mem::replace(&mut self.was_planned, true) {
            self.computed = start;
            let fits = is_border && start < self.num_committed;
            let what = || format!("begins at {start} of {}", self.num_committed);
            return fits.then_some(()).ok_or_else(|| (Blame::Cache, what()));
        }
        if start == standing {
            if let Some(lost) = self.preempted.front_mut() {
                // Nobody loses blocks and comes back between two steps.
                lost.1 |= is_border && lost.0 == num_output && !follows;
            }
            if let Some(flight) = flight.filter(|flight| flight.is_scored) {
                flight
                    .drafts
                    .iter()
                    .for_each(|&draft| self.push(Some(draft)));
                self.push(flight.last_draw);
            }
            return Ok(());
        }
        // Whoever comes back may find more than it had: others computed it meanwhile.
        let is_back = self.preempted.iter().any(|lost| lost.0 == num_output);
        let is_ahead = start > standing && !(is_back && start < self.num_committed);
        if is_ahead || !is_border {
            let stage = match self.had_drafts {
                true => Blame::Speculation,
                false => Blame::Overlap,
            };
            return Err((
                stage,
                format!("begins at {start}, and stands at {standing}"),
            ));
        }
        let is_in_flight = flight.is_some();
        self.come_back(start, standing, is_in_flight)
    }

    /// Begins anew with what was found of it, if it did lose its blocks with the tokens that it has.
    fn come_back(
        &mut self,
        start: usize,
        standing: usize,
        is_in_flight: bool,
    ) -> Result<(), (Blame, String)> {
        self.is_admitted = true;
        self.computed = start;
        let num_output = self.num_committed - self.num_prompt;
        let wrong = |what: String| Err((Blame::Overlap, what));
        if is_in_flight {
            return wrong("begins anew while a step is in flight".to_owned());
        }
        while let Some((lost_at, may_be_back)) = self.preempted.pop_front() {
            if lost_at == num_output {
                self.grew_late = None;
                return Ok(());
            }
            if !may_be_back {
                self.blamed = self.grew_late;
                return wrong(format!(
                    "lost its blocks after {lost_at} tokens and has {num_output}: \
                     a step in flight counted"
                ));
            }
        }
        wrong(format!("begins anew at {start}, and stands at {standing}"))
    }

    /// Whether a part computes the tokens that its sequence has.
    pub(super) fn check_tokens(&self, part: &SeqPlan) -> Result<(), (Blame, String)> {
        let num_committed = part.query.len() - part.num_drafts as usize;
        for (idx, token) in part.query[..num_committed].iter().enumerate() {
            let pos = part.start.0 as usize + idx;
            let own = self.tokens.get(pos);
            let is_right = match *token {
                QueryToken::Known(token) => pos < self.num_committed && own == Some(&token),
                QueryToken::Drawn { step, scored_idx } => self.flight().is_some_and(|last| {
                    let idx = last.drafts.len();
                    last.step == step && idx == scored_idx as usize && pos == last.end()
                }),
            };
            if !is_right {
                let what = format!("computes {token:?} at position {pos}, where {own:?} stands");
                return Err((Blame::Overlap, what));
            }
        }
        Ok(())
    }

    /// What the query tokens of a part stand for.
    pub(super) fn resolve(&self, part: &SeqPlan) -> Vec<Option<TokenId>> {
        let in_flight = self.flights.last().and_then(|last| last.last_draw);
        let query = part.query.iter();
        query
            .map(|token| match *token {
                QueryToken::Known(token) => Some(token),
                QueryToken::Drawn { .. } => in_flight,
            })
            .collect()
    }

    /// Notes what a step in flight has drawn at its last scored position: what is planned ahead refers to it.
    pub(super) fn drew(&mut self, step: StepId, draw: Option<TokenId>) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.step == step) {
            flight.last_draw = draw;
        }
    }

    /// Grows by what a step drew, or not at all where it failed. None if it was not in flight.
    pub(super) fn answer(&mut self, step: StepId, draws: Option<&[TokenId]>) -> Option<Fate> {
        let at = self.flights.iter().position(|flight| flight.step == step)?;
        let flight = self.flights.remove(at);
        let counts = flight.start == self.computed;
        let (mut num_accepted, mut num_drawn) = (0, 0);
        if counts && let Some(draws) = draws {
            self.settle();
            self.had_drafts = !flight.drafts.is_empty();
            let pairs = flight.drafts.iter().zip(draws);
            let num_equal = pairs.take_while(|(draft, draw)| draft == draw).count();
            num_accepted = num_equal.min(draws.len().saturating_sub(1));
            for &draw in draws.iter().take(num_accepted + 1) {
                self.push(Some(draw));
                num_drawn += 1;
            }
            self.num_committed = self.tokens.len();
            self.computed += flight.num_committed + num_accepted;
        }
        Some(Fate {
            counts,
            num_accepted,
            num_drawn,
            tokens: flight.tokens,
        })
    }
}

/// The hash of a prefix with one more token; of a token that nobody knows none is like another.
pub(super) fn follow(hash: u64, token: Option<TokenId>) -> u64 {
    match token {
        Some(token) => mix(hash ^ (u64::from(token.0) << 1)),
        None => mix(hash ^ 1),
    }
}
