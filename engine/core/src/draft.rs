//! Who proposes drafts. A closed set; a drafter may change speed and never output. Drafts live in the plan
//! and in what is in flight, never in the sequence: a stale draft can't outlive its step. What a sequence
//! does keep is an index of its own committed tokens, and how well it guessed lately.

mod followers;
mod matches;
mod pace;
mod recent;
mod speculation;
mod totals;

use crate::constraint::Constraint;
use alloc::{borrow::Cow, vec::Vec};
use followers::{FollowerTree, likeliest};
use lockstep_step::{Backend, ModelDrafter, TokenId};
use matches::MatchIndex;
use pace::Pace;
pub(crate) use recent::RecentOutputs;
pub use speculation::{DRAFT_DEPTH_MAX, Speculation, SpeculationError};
pub use totals::DraftTotals;

/// Where a draft comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DraftSource {
    /// The constraint leaves no choice.
    Forced,
    /// What is likely to follow the last few tokens, by what followed them in this request and in what was
    /// said lately; and what a longer match goes on with.
    Suffix,
    /// The last few tokens occurred before in this request: the latest place.
    Ngram,
    /// The checkpoint's own head for tokens after the next.
    Mtp,
    /// A smaller model with the same tokenizer.
    DraftModel,
    /// A recording. For tests and replays.
    Replay,
}

impl DraftSource {
    /// All of them, in the order in which they are asked.
    pub const ALL: [DraftSource; 6] = [
        DraftSource::Forced,
        DraftSource::Suffix,
        DraftSource::Ngram,
        DraftSource::Mtp,
        DraftSource::DraftModel,
        DraftSource::Replay,
    ];

    /// Its name in flags and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            DraftSource::Forced => "forced",
            DraftSource::Suffix => "suffix",
            DraftSource::Ngram => "ngram",
            DraftSource::Mtp => "mtp",
            DraftSource::DraftModel => "draft_model",
            DraftSource::Replay => "replay",
        }
    }

    /// Whether it may well be wrong, so that its depth follows how often it was right.
    pub(crate) fn is_guess(self) -> bool {
        !matches!(self, DraftSource::Forced | DraftSource::Replay)
    }
}

impl From<ModelDrafter> for DraftSource {
    fn from(drafter: ModelDrafter) -> DraftSource {
        match drafter {
            ModelDrafter::Mtp => DraftSource::Mtp,
            ModelDrafter::DraftModel => DraftSource::DraftModel,
        }
    }
}

/// What drafts for one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drafter {
    /// Those that look at what was written, and models that draft.
    Live(Speculation),
    /// Proposes a recorded output, token by token, right or wrong. For tests and replays.
    Replay {
        /// The output that is expected, from its first token.
        output: Vec<TokenId>,
        /// Drafts per step, at most: at the output's token `i` as many as `depths[i % depths.len()]` says, none
        /// if that is empty.
        depths: Vec<u32>,
    },
}

/// A proposed token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) token: TokenId,
    pub(crate) source: DraftSource,
}

/// Which drafts may be proposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DraftBounds {
    /// Drafts, at most.
    pub(crate) num_max: usize,
    /// Tokens that exist: a draft outside ends the proposal.
    pub(crate) vocab_size: u32,
    /// Sequences that run. Among many a draft is worth less and costs as much.
    pub(crate) num_running: usize,
}

impl DraftBounds {
    /// What of a proposal is inside them.
    pub(crate) fn keep(&self, mut drafts: Vec<Draft>) -> Vec<Draft> {
        drafts.truncate(self.num_max);
        let inside = |draft: &&Draft| draft.token.0 < self.vocab_size;
        let num_inside = drafts.iter().take_while(inside).count();
        drafts.truncate(num_inside);
        drafts
    }
}

/// What is known of a text that drafts are wanted for.
pub(crate) struct Written<'a> {
    /// All committed tokens.
    pub(crate) tokens: &'a [TokenId],
    /// How many of them are output.
    pub(crate) num_output: usize,
    /// Where a step is in flight that draws for this text: its drafts, each taken to be right. One more token
    /// that nobody knows follows them, and the new drafts follow that.
    pub(crate) in_flight: Option<&'a [Draft]>,
    pub(crate) constraint: Option<&'a mut Constraint>,
    pub(crate) recent: &'a RecentOutputs,
}

/// Models that draft and are there to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelDrafters {
    /// The checkpoint's own head.
    pub mtp: bool,
    /// A smaller model.
    pub draft_model: bool,
}

impl ModelDrafters {
    /// Those of a backend.
    pub fn of(backend: &impl Backend) -> ModelDrafters {
        ModelDrafters {
            mtp: backend.has_drafter(ModelDrafter::Mtp),
            draft_model: backend.has_drafter(ModelDrafter::DraftModel),
        }
    }

    /// Whether this one is there.
    pub fn has(&self, drafter: ModelDrafter) -> bool {
        match drafter {
            ModelDrafter::Mtp => self.mtp,
            ModelDrafter::DraftModel => self.draft_model,
        }
    }
}

/// A model that is to be asked for drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) drafter: ModelDrafter,
    pub(crate) num_max: usize,
}

/// A sequence's drafter, and what it remembers.
#[derive(Clone, Debug)]
pub(crate) struct DraftState {
    drafter: Drafter,
    /// Of the sequence's own tokens.
    own: MatchIndex,
    /// What followed what in them, as far as that has been read.
    followers: FollowerTree,
    num_read: usize,
    pace: Pace,
    /// Whether it looks at what others said, and they at what it said: not where it has a salt, since then
    /// nobody may learn from the speed of an answer what others asked.
    shares: bool,
    /// Of the last step that was committed.
    num_accepted: usize,
    pub(crate) totals: DraftTotals,
}

/// A guess goes on as long as all of it is at least as likely.
const SHARE_MIN: f32 = 0.45;

/// Agreeing tokens that are taken for a copy of what stands there. In a crowd fewer are enough, since nobody
/// then looks what else is likely: that is a few microseconds for each sequence.
const COPY_LEN_MIN: usize = 16;
const COPY_LEN_MIN_IN_CROWD: usize = 3;

/// Sequences that are a crowd.
const CROWD_MIN: usize = 64;

/// The last tokens of a text that are read to learn what follows what, at most.
const READ_MAX: usize = 1 << 14;

impl DraftState {
    pub(crate) fn new(drafter: Drafter, shares: bool) -> DraftState {
        DraftState {
            shares,
            drafter,
            own: MatchIndex::default(),
            followers: FollowerTree::default(),
            num_read: 0,
            pace: Pace::new(),
            num_accepted: 0,
            totals: DraftTotals::default(),
        }
    }

    /// Whether what it said may be drafted for others.
    pub(crate) fn shares(&self) -> bool {
        self.shares
    }

    pub(crate) fn set(&mut self, drafter: Drafter) {
        self.drafter = drafter;
    }

    /// Drafts that the last committed step accepted.
    pub(crate) fn num_accepted(&self) -> usize {
        self.num_accepted
    }

    /// Drafts for the positions after the last token, whether that is committed or in flight.
    pub(crate) fn propose(&mut self, written: Written<'_>, bounds: DraftBounds) -> Vec<Draft> {
        let num_in_flight = written.in_flight.map_or(0, |drafts| drafts.len() + 1);
        let drafts = match &self.drafter {
            Drafter::Live(speculation) => self.look(*speculation, written, bounds),
            Drafter::Replay { output, depths } => {
                let at = written.num_output + num_in_flight;
                let depth = match depths.len() {
                    0 => 0,
                    len => depths[at % len] as usize,
                };
                let rest = output.get(at..).unwrap_or(&[]);
                let num = rest.len().min(bounds.num_max).min(depth);
                from(DraftSource::Replay, &rest[..num]).collect()
            }
        };
        bounds.keep(drafts)
    }

    /// Of these models the one that would be asked where nothing else has a guess; it needs a text that is
    /// committed to its end. None while guessing rests.
    pub(crate) fn model(&self, there: ModelDrafters) -> Option<Asked> {
        let Drafter::Live(wanted) = &self.drafter else {
            return None;
        };
        let asked = [
            (ModelDrafter::Mtp, wanted.mtp),
            (ModelDrafter::DraftModel, wanted.draft_model),
        ];
        let paced = asked.map(|(drafter, depth_max)| Asked {
            drafter,
            num_max: self.pace.depth(depth_max) as usize,
        });
        let mut usable = paced.into_iter().filter(|asked| there.has(asked.drafter));
        usable.find(|asked| asked.num_max > 0)
    }

    /// What is forced comes first; a guess goes on from there.
    fn look(
        &mut self,
        wanted: Speculation,
        written: Written<'_>,
        bounds: DraftBounds,
    ) -> Vec<Draft> {
        let (num_max, in_crowd) = (bounds.num_max, bounds.num_running >= CROWD_MIN);
        if num_max == 0 {
            return Vec::new();
        }
        let in_flight = written.in_flight.unwrap_or(&[]);
        // The token in flight is guessed too, and left out at the end.
        let num_unknown = usize::from(written.in_flight.is_some());
        let num_max = num_max + num_unknown;
        let mut drafts: Vec<Draft> = Vec::new();
        if let Some(constraint) = written.constraint
            && wanted.forced > 0
        {
            let num = num_max.min(wanted.forced as usize + num_unknown);
            let forced = constraint.forced(in_flight.len() + num);
            let agree = in_flight.iter().zip(&forced);
            if agree.clone().all(|(draft, token)| draft.token == *token) {
                let rest = forced.get(in_flight.len()..).unwrap_or(&[]);
                drafts.extend(from(DraftSource::Forced, rest));
            }
        }
        if wanted.suffix > 0 || wanted.ngram > 0 {
            let text = Text {
                tokens: written.tokens,
                in_flight,
            };
            let num_left = num_max - drafts.len();
            let num_unknown = num_unknown.saturating_sub(drafts.len());
            let depth = |depth_max: u32| match self.pace.depth(depth_max) as usize {
                0 => 0,
                depth => (depth + num_unknown).min(num_left),
            };
            // How likely they are says where guesses end; the pace, when to rest.
            let suffix = match depth(wanted.suffix) {
                0 => 0,
                depth if in_crowd => depth,
                _ => (wanted.suffix as usize + num_unknown).min(num_left),
            };
            let ngram = if wanted.suffix > 0 {
                0
            } else {
                depth(wanted.ngram)
            };
            if suffix > 0 {
                let recent = Some(written.recent).filter(|_| !in_crowd);
                self.guess_likely(suffix, &text, recent, &mut drafts);
            } else if ngram > 0 {
                let end = text
                    .end(matches::LEN_MAX, &text.ahead(&drafts))
                    .into_owned();
                if let Some(place) = self.own.latest(text.tokens, &end) {
                    text.copy(place.next, ngram, DraftSource::Ngram, &mut drafts);
                }
            }
        }
        if !drafts.iter().any(|draft| draft.source.is_guess()) {
            self.pace.skip();
        }
        drafts.drain(..num_unknown.min(drafts.len()));
        drafts
    }

    /// Appends what is likely to follow: what a long match goes on with, or else as much as is likely enough
    /// all together. In a crowd, where there is no time for `recent`, only the former.
    fn guess_likely(
        &mut self,
        num_max: usize,
        text: &Text<'_>,
        recent: Option<&RecentOutputs>,
        drafts: &mut Vec<Draft>,
    ) {
        let ahead = text.ahead(drafts);
        let copied = self.own.follow(text.tokens, &ahead);
        let len_min = recent.map_or(COPY_LEN_MIN_IN_CROWD, |_| COPY_LEN_MIN);
        if let Some(copied) = copied.filter(|copied| copied.len >= len_min) {
            let num = num_max.min(copied.len);
            return text.copy(copied.next, num, DraftSource::Suffix, drafts);
        }
        let Some(recent) = recent else {
            return;
        };
        self.read(text.tokens);
        let end = text.end(followers::CONTEXT_MAX, &ahead);
        let trees = [&self.followers, recent.tree()];
        let mut places = trees.map(|tree| (tree, tree.find(&end)));
        let num_trees = if self.shares { 2 } else { 1 };
        let places = &mut places[..num_trees];
        let mut share = 1.0;
        for _ in 0..num_max {
            let Some((token, likely)) = likeliest(places) else {
                break;
            };
            share *= likely;
            if share < SHARE_MIN {
                break;
            }
            let source = DraftSource::Suffix;
            drafts.push(Draft { token, source });
            for (tree, place) in places.iter_mut() {
                *place = tree.step(*place, token);
            }
        }
    }

    /// Reads what was committed since the last time, of a long text its end.
    fn read(&mut self, tokens: &[TokenId]) {
        let from = self.num_read.max(tokens.len().saturating_sub(READ_MAX));
        for &token in &tokens[from..] {
            self.followers.push(token);
        }
        self.num_read = tokens.len();
    }

    /// What became of the drafts of a step.
    pub(crate) fn learn(&mut self, drafts: &[Draft], num_accepted: usize) {
        self.num_accepted = num_accepted;
        let is_guess = |draft: &&Draft| draft.source.is_guess();
        let num_guessed = drafts.iter().filter(is_guess).count();
        let num_before = drafts.len() - num_guessed;
        // A guess that something before it made void says nothing about guessing.
        if num_guessed > 0 && num_accepted >= num_before {
            let num_true = num_accepted - num_before;
            self.pace.learn(num_guessed as u32, num_true as u32);
        }
    }
}

/// A sequence's own text, up to what is in flight.
struct Text<'a> {
    tokens: &'a [TokenId],
    in_flight: &'a [Draft],
}

impl Text<'_> {
    /// What comes after the tokens: drafts in flight, and those before a guess.
    fn ahead(&self, drafts: &[Draft]) -> Vec<TokenId> {
        let after = self.in_flight.iter().chain(drafts);
        after.map(|draft| draft.token).collect()
    }

    /// The last tokens, so many of those that are committed, with what comes after them.
    fn end(&self, num: usize, ahead: &[TokenId]) -> Cow<'_, [TokenId]> {
        let tail = self.tokens.len().saturating_sub(num);
        let mut end = Cow::Borrowed(&self.tokens[tail..]);
        if !ahead.is_empty() {
            end.to_mut().extend_from_slice(ahead);
        }
        end
    }

    /// Appends what follows an earlier place. It may be copied past the text's end, as far as the copy goes:
    /// so a pattern is repeated.
    fn copy(&self, next: usize, num: usize, source: DraftSource, drafts: &mut Vec<Draft>) {
        drafts.reserve_exact(num);
        for idx in next..next + num {
            let token = match idx.checked_sub(self.tokens.len()) {
                None => self.tokens[idx],
                Some(past) => {
                    let in_flight = self.in_flight.get(past);
                    in_flight.map_or_else(
                        || drafts[past - self.in_flight.len()].token,
                        |draft| draft.token,
                    )
                }
            };
            drafts.push(Draft { token, source });
        }
    }
}

fn from(source: DraftSource, tokens: &[TokenId]) -> impl Iterator<Item = Draft> + '_ {
    tokens.iter().map(move |&token| Draft { token, source })
}

#[cfg(test)]
mod tests;
