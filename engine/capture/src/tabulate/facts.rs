//! What is known of a sequence's part of a step. A fact that is not known is an error with a reason.

use crate::capture::{Capture, Step};
use crate::mirror::{Fate, Seen};
use crate::record::{ConstraintRecord, FinishRecord, RequestRecord, Why};
use crate::replay::{Place, plans};
use lockstep_core::RequestError;
use lockstep_step::{SeqId, SeqPlan, StepId};
use std::collections::BTreeMap;
use std::fmt;

/// Something that can be asked of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// The number of the step.
    Step,
    /// Sequences in the step.
    NumSeqs,
    /// Whether it was planned before the step before it was answered.
    IsAhead,
    /// Whether the step failed.
    IsFailed,
    /// The position of its first query token.
    Start,
    /// Its query tokens.
    QueryLen,
    /// Drafts among them.
    NumDrafts,
    /// Positions that it draws at.
    NumScored,
    /// Drafts that were right.
    NumAccepted,
    /// Tokens that its sequence grew by.
    NumDrawn,
    /// Drafts of the sequence's part before it that were right; 0 in its first.
    PreviousNumAccepted,
    /// Drafts of the sequence's part before it; 0 in its first.
    PreviousNumDrafts,
    /// Whether it verifies fewer drafts than the part before it accepted.
    Shorter,
    /// Whether the sequence's first part that counts.
    IsFirst,
    /// Whether the last of it that was recorded.
    IsLast,
    /// Whether it names rows.
    HasRows,
    /// Whether the request is constrained.
    IsConstrained,
    /// Mask rows of its positions.
    NumMaskRows,
    /// Of these, those that were left empty.
    MasksLeftOut,
    /// The token that its first draw follows: the last one of its query that is no draft.
    Token,
    /// The temperature, in thousandths.
    Temperature,
    /// Tokens of the prompt.
    PromptLen,
    /// How the sequence ended.
    Finish,
    /// The error with which it did.
    Error,
    /// Whether logits were others than a replay computes.
    LogitsDiffer,
    /// Whether a mask was another than a replay makes.
    MaskDiffers,
    /// Whether another token was drawn, of the same logits and mask.
    DrawDiffers,
}

/// What a fact can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers.
    Number,
    /// It holds or it doesn't.
    Flag,
    /// One of a few names.
    Name,
}

/// The finish of a sequence whose end was not recorded, and the error of one that ended well.
const OPEN: &str = "open";
const NONE: &str = "none";

impl Fact {
    /// All, with their names in expressions and what kind they are.
    pub const ALL: [(Fact, &'static str, Kind); 27] = [
        (Fact::Step, "step", Kind::Number),
        (Fact::NumSeqs, "num_seqs", Kind::Number),
        (Fact::IsAhead, "is_ahead", Kind::Flag),
        (Fact::IsFailed, "is_failed", Kind::Flag),
        (Fact::Start, "start", Kind::Number),
        (Fact::QueryLen, "query_len", Kind::Number),
        (Fact::NumDrafts, "num_drafts", Kind::Number),
        (Fact::NumScored, "num_scored", Kind::Number),
        (Fact::NumAccepted, "num_accepted", Kind::Number),
        (Fact::NumDrawn, "num_drawn", Kind::Number),
        (
            Fact::PreviousNumAccepted,
            "previous_num_accepted",
            Kind::Number,
        ),
        (Fact::PreviousNumDrafts, "previous_num_drafts", Kind::Number),
        (Fact::Shorter, "shorter", Kind::Flag),
        (Fact::IsFirst, "is_first", Kind::Flag),
        (Fact::IsLast, "is_last", Kind::Flag),
        (Fact::HasRows, "has_rows", Kind::Flag),
        (Fact::IsConstrained, "is_constrained", Kind::Flag),
        (Fact::NumMaskRows, "num_mask_rows", Kind::Number),
        (Fact::MasksLeftOut, "masks_left_out", Kind::Number),
        (Fact::Token, "token", Kind::Number),
        (Fact::Temperature, "temperature", Kind::Number),
        (Fact::PromptLen, "prompt_len", Kind::Number),
        (Fact::Finish, "finish", Kind::Name),
        (Fact::Error, "error", Kind::Name),
        (Fact::LogitsDiffer, "logits_differ", Kind::Flag),
        (Fact::MaskDiffers, "mask_differs", Kind::Flag),
        (Fact::DrawDiffers, "draw_differs", Kind::Flag),
    ];

    /// The one of this name, with its kind.
    pub fn named(name: &str) -> Option<(Fact, Kind)> {
        let found = Fact::ALL.iter().find(|own| own.1 == name);
        found.map(|&(fact, _, kind)| (fact, kind))
    }

    /// What it says, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Fact::Step => "the number of the step",
            Fact::NumSeqs => "sequences in the step",
            Fact::IsAhead => "whether it was planned before the step before it was answered",
            Fact::IsFailed => "whether the step failed",
            Fact::Start => "the position of its first query token",
            Fact::QueryLen => "its query tokens",
            Fact::NumDrafts => "drafts among them",
            Fact::NumScored => "positions that it draws at",
            Fact::NumAccepted => "drafts that were right",
            Fact::NumDrawn => "tokens that its sequence grew by",
            Fact::PreviousNumAccepted => {
                "drafts of the sequence's part before it that were right; 0 in its first"
            }
            Fact::PreviousNumDrafts => "drafts of the sequence's part before it; 0 in its first",
            Fact::Shorter => "whether it verifies fewer drafts than the part before it accepted",
            Fact::IsFirst => "whether the sequence's first part that counts",
            Fact::IsLast => "whether the last of it that was recorded",
            Fact::HasRows => "whether it names rows",
            Fact::IsConstrained => "whether the request is constrained",
            Fact::NumMaskRows => "mask rows of its positions",
            Fact::MasksLeftOut => "of these, those that were left empty",
            Fact::Token => {
                "the token that its first draw follows: the last one of its query that is no draft"
            }
            Fact::Temperature => "the temperature, in thousandths",
            Fact::PromptLen => "tokens of the prompt",
            Fact::Finish => "how the sequence ended",
            Fact::Error => "the error with which it did",
            Fact::LogitsDiffer => "whether logits were others than a replay computes",
            Fact::MaskDiffers => "whether a mask was another than a replay makes",
            Fact::DrawDiffers => "whether another token was drawn, of the same logits and mask",
        }
    }

    /// The names that it can have, for one that has names.
    pub fn names(self) -> Vec<&'static str> {
        match self {
            Fact::Finish => Why::NAMES.into_iter().chain([OPEN]).collect(),
            Fact::Error => RequestError::kinds().chain([NONE]).collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Fact::ALL[*self as usize].1)
    }
}

/// What a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(i64),
    Flag(bool),
    Name(&'a str),
}

type Ends<'a> = BTreeMap<SeqId, (Option<StepId>, &'a FinishRecord)>;

/// What became of a part that counts: it begins where its sequence stands, which has not ended by then.
fn counted<'a>(seen: &'a Seen, ends: &Ends<'_>, step: StepId, seq: SeqId) -> Option<&'a Fate> {
    let is_over = ends.get(&seq).is_some_and(|(end, _)| Some(step) > *end);
    let fate = seen.fates.get(&(step, seq))?;
    (fate.counts && !is_over).then_some(fate)
}

/// A capture, put together for its parts.
pub(super) struct Facts<'a> {
    capture: &'a Capture,
    seen: Seen,
    ends: Ends<'a>,
    last_steps: BTreeMap<SeqId, StepId>,
    places: Option<BTreeMap<(StepId, SeqId), Vec<&'a Place>>>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(capture: &'a Capture, places: Option<&'a [Place]>) -> Facts<'a> {
        let seen = plans::fates(capture);
        let ends = plans::ends(capture);
        let mut last_steps = BTreeMap::new();
        for &(step, seq) in seen.fates.keys() {
            if counted(&seen, &ends, step, seq).is_some() {
                last_steps.insert(seq, step);
            }
        }
        let places = places.map(|places| {
            let mut all: BTreeMap<_, Vec<&Place>> = BTreeMap::new();
            for place in places {
                all.entry((place.step, place.seq)).or_default().push(place);
            }
            all
        });
        Facts {
            ends,
            capture,
            last_steps,
            places,
            seen,
        }
    }

    /// What is wrong with the first plan that is.
    pub(super) fn wrong_plan(&self) -> Option<String> {
        self.seen.mistakes.first().map(|wrong| wrong.what.clone())
    }

    /// Parts that count, in the order of steps.
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        let mut before: BTreeMap<SeqId, Before> = BTreeMap::new();
        let mut num_output: BTreeMap<SeqId, usize> = BTreeMap::new();
        let mut parts = Vec::new();
        for (&id, step) in &self.capture.steps {
            for plan in &step.plan.seqs {
                let seq = plan.seq;
                let fate = counted(&self.seen, &self.ends, id, seq);
                let (Some(fate), Some(request)) = (fate, self.capture.requests.get(&seq)) else {
                    continue;
                };
                // Of what was drawn past the end nothing counts.
                let num_before = num_output.entry(seq).or_default();
                let end = self.ends.get(&seq).map(|(_, own)| own.completion_tokens);
                let left = end.map(|num| (num as usize).saturating_sub(*num_before));
                let num_drawn = fate.num_drawn.min(left.unwrap_or(usize::MAX));
                *num_before += num_drawn;
                let num_accepted = fate.num_accepted.min(num_drawn);
                let own = Before {
                    num_accepted: num_accepted as i64,
                    num_drafts: i64::from(plan.num_drafts),
                };
                parts.push(Part {
                    all: self,
                    id,
                    step,
                    plan,
                    fate,
                    num_accepted,
                    num_drawn,
                    request,
                    before: before.insert(seq, own),
                });
            }
        }
        parts
    }
}

/// What the sequence's part before it came to.
#[derive(Clone, Copy)]
struct Before {
    num_accepted: i64,
    num_drafts: i64,
}

/// A sequence's part of a step that counts.
pub(super) struct Part<'a> {
    all: &'a Facts<'a>,
    id: StepId,
    step: &'a Step,
    plan: &'a SeqPlan,
    fate: &'a Fate,
    num_accepted: usize,
    num_drawn: usize,
    request: &'a RequestRecord,
    before: Option<Before>,
}

impl Part<'_> {
    pub(super) fn step(&self) -> StepId {
        self.id
    }

    pub(super) fn seq(&self) -> SeqId {
        self.plan.seq
    }

    /// What a fact is of this part, or why that is not known.
    pub(super) fn value(&self, fact: Fact) -> Result<Value<'_>, &'static str> {
        let count = |own: usize| Ok(Value::Number(own as i64));
        let number = |own: u32| Ok(Value::Number(i64::from(own)));
        let flag = |own: bool| Ok(Value::Flag(own));
        let before = self.before.unwrap_or(Before {
            num_accepted: 0,
            num_drafts: 0,
        });
        let num_drafts = i64::from(self.plan.num_drafts);
        match fact {
            Fact::Step => Ok(Value::Number(self.id.0 as i64)),
            Fact::NumSeqs => self.num_seqs(),
            Fact::IsAhead => flag(self.step.is_ahead),
            Fact::IsFailed => flag(matches!(self.step.output, Some(Err(_)))),
            Fact::Start => number(self.plan.start.0),
            Fact::QueryLen => count(self.plan.query.len()),
            Fact::NumDrafts => number(self.plan.num_drafts),
            Fact::NumScored => count(self.plan.scored.len()),
            Fact::NumAccepted => count(self.num_accepted),
            Fact::NumDrawn => count(self.num_drawn),
            Fact::PreviousNumAccepted => Ok(Value::Number(before.num_accepted)),
            Fact::PreviousNumDrafts => Ok(Value::Number(before.num_drafts)),
            Fact::Shorter => flag(num_drafts < before.num_accepted),
            Fact::IsFirst => flag(self.before.is_none()),
            Fact::IsLast => flag(self.all.last_steps.get(&self.plan.seq) == Some(&self.id)),
            Fact::HasRows => {
                let rows = &self.plan.rows;
                flag(rows.read.is_some() || !rows.writes.is_empty())
            }
            Fact::IsConstrained => flag(self.request.constraint != ConstraintRecord::None),
            Fact::NumMaskRows => count(self.mask_rows().count()),
            Fact::MasksLeftOut => count(self.mask_rows().filter(|own| !own).count()),
            Fact::Token => self.token(),
            Fact::Temperature => {
                let thousandths = f64::from(self.request.sampling.temperature) * 1000.0;
                Ok(Value::Number(thousandths.round() as i64))
            }
            Fact::PromptLen => count(self.request.prompt.len()),
            Fact::Finish => {
                let end = self.all.ends.get(&self.plan.seq);
                Ok(Value::Name(end.map_or(OPEN, |(_, own)| own.why.name())))
            }
            Fact::Error => {
                let end = self.all.ends.get(&self.plan.seq);
                Ok(Value::Name(match end.map(|(_, own)| &own.why) {
                    Some(Why::Error(kind, _)) => kind,
                    _ => NONE,
                }))
            }
            Fact::LogitsDiffer => self.differs(|place| Ok(place.logits_differ())),
            Fact::MaskDiffers => self.differs(|place| {
                let why =
                    "its constraint is not in the capture, so that no replay can make its mask";
                place.mask_differs().ok_or(why)
            }),
            Fact::DrawDiffers => self.differs(|place| Ok(place.draw_differs() == Some(true))),
        }
    }

    fn num_seqs(&self) -> Result<Value<'_>, &'static str> {
        match self.all.capture.header.is_whole {
            true => Ok(Value::Number(self.step.plan.seqs.len() as i64)),
            false => Err("the capture was taken out of a longer one, and parts of others with it"),
        }
    }

    /// Whether each mask row of its positions was filled.
    fn mask_rows(&self) -> impl Iterator<Item = bool> {
        let scored = self.plan.scored.iter();
        let masked = scored.filter(|scored| scored.mask.is_some());
        masked.map(|scored| plans::mask(self.step, Some(scored)).is_some())
    }

    fn token(&self) -> Result<Value<'_>, &'static str> {
        let at = self.plan.query.len() - self.plan.num_drafts as usize;
        let token = self.fate.tokens.get(at.wrapping_sub(1)).copied().flatten();
        let token = token.ok_or("nothing tells what an earlier step drew there")?;
        Ok(Value::Number(i64::from(token.0)))
    }

    /// Whether something differs at one of the positions that its sequence grew by.
    fn differs(
        &self,
        differs: impl Fn(&Place) -> Result<bool, &'static str>,
    ) -> Result<Value<'_>, &'static str> {
        let places = self.all.places.as_ref();
        let places = places.ok_or("it takes a replay, and none was given")?;
        let own = places.get(&(self.id, self.plan.seq));
        let own = own.map_or(&[][..], Vec::as_slice);
        if own.len() < self.num_drawn {
            return Err("the replay did not come to it");
        }
        let differing: Result<Vec<bool>, _> = own.iter().map(|place| differs(place)).collect();
        Ok(Value::Flag(differing?.contains(&true)))
    }
}
