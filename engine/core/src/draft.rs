//! Who proposes drafts. A closed set; a drafter may change speed and never output. Drafts live in the plan
//! and in what is in flight, never in the sequence: a stale draft can't outlive its step. What a sequence
//! does keep is an index of its own committed tokens, and how well it guessed lately.

mod matches;
mod pace;
mod recent;

use crate::constraint::Constraint;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use lockstep_step::TokenId;
use matches::MatchIndex;
use pace::Pace;
pub(crate) use recent::RecentOutputs;

/// Where a draft comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DraftSource {
    /// The constraint leaves no choice.
    Forced,
    /// The same text was written before, by this request or by another lately: the longest match.
    Suffix,
    /// The last few tokens occurred before in this request: the latest place.
    Ngram,
    /// A recording. For tests and replays.
    Replay,
}

impl DraftSource {
    /// All of them, in the order in which they are asked.
    pub const ALL: [DraftSource; 4] = [
        DraftSource::Forced,
        DraftSource::Suffix,
        DraftSource::Ngram,
        DraftSource::Replay,
    ];

    /// Its name in flags and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            DraftSource::Forced => "forced",
            DraftSource::Suffix => "suffix",
            DraftSource::Ngram => "ngram",
            DraftSource::Replay => "replay",
        }
    }
}

/// Drafts by where they come from, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    proposed: [u64; DraftSource::ALL.len()],
    accepted: [u64; DraftSource::ALL.len()],
}

impl DraftTotals {
    /// Drafts that were part of a step.
    pub fn proposed(&self, source: DraftSource) -> u64 {
        self.proposed[source as usize]
    }

    /// Of these, those that were drawn.
    pub fn accepted(&self, source: DraftSource) -> u64 {
        self.accepted[source as usize]
    }

    pub(crate) fn note_proposed(&mut self, source: DraftSource) {
        self.proposed[source as usize] += 1;
    }

    pub(crate) fn note_accepted(&mut self, source: DraftSource) {
        self.accepted[source as usize] += 1;
    }
}

/// The most drafts of one step that a drafter can be asked for.
pub const DRAFT_DEPTH_MAX: u32 = 15;

/// Which drafters work for a sequence, and how far ahead each may look; 0 is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Tokens that the constraint forces.
    pub forced: u32,
    /// Tokens that followed the longest earlier match, in this request or in recent outputs.
    pub suffix: u32,
    /// Tokens that followed the latest earlier occurrence of the last few, in this request.
    pub ngram: u32,
}

impl Speculation {
    /// Nothing is proposed.
    pub const OFF: Speculation = Speculation {
        forced: 0,
        suffix: 0,
        ngram: 0,
    };
}

/// Why a list of drafters can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeculationError(alloc::string::String);

impl fmt::Display for SpeculationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no drafter, expected off, or some of forced, suffix, ngram, \
             each with a depth of 1 to {DRAFT_DEPTH_MAX} where wanted: ngram,forced:7",
            self.0
        )
    }
}

impl core::error::Error for SpeculationError {}

impl FromStr for Speculation {
    type Err = SpeculationError;

    /// `off`, or names of drafters with the depth of each: `ngram,forced:7`.
    fn from_str(text: &str) -> Result<Speculation, SpeculationError> {
        let mut speculation = Speculation::OFF;
        if text == "off" {
            return Ok(speculation);
        }
        for part in text.split(',') {
            let wrong = || SpeculationError(part.into());
            let (name, depth) = match part.split_once(':') {
                Some((name, depth)) => (name, depth.parse().map_err(|_| wrong())?),
                None => (part, 8),
            };
            let slot = match name {
                "forced" => &mut speculation.forced,
                "suffix" => &mut speculation.suffix,
                "ngram" => &mut speculation.ngram,
                _ => return Err(wrong()),
            };
            if !(1..=DRAFT_DEPTH_MAX).contains(&depth) || *slot != 0 {
                return Err(wrong());
            }
            *slot = depth;
        }
        Ok(speculation)
    }
}

impl fmt::Display for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Speculation::OFF {
            return f.write_str("off");
        }
        let parts = [
            ("forced", self.forced),
            ("suffix", self.suffix),
            ("ngram", self.ngram),
        ];
        let used = parts.into_iter().filter(|part| part.1 > 0);
        for (idx, (name, depth)) in used.enumerate() {
            write!(f, "{}{name}:{depth}", if idx > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// What drafts for one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drafter {
    /// Some of the drafters that look at what was written.
    Live(Speculation),
    /// Proposes a recorded output, token by token, right or wrong. For tests and replays.
    Replay {
        /// The output that is expected, from its first token.
        output: Vec<TokenId>,
        /// Drafts per step, at most.
        depth_max: u32,
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
}

/// What is known of a text that drafts are wanted for.
pub(crate) struct Written<'a> {
    /// All committed tokens.
    pub(crate) tokens: &'a [TokenId],
    /// How many of them are output.
    pub(crate) num_output: u32,
    pub(crate) constraint: Option<&'a mut Constraint>,
    pub(crate) recent: &'a RecentOutputs,
}

/// A sequence's drafter, and what it remembers.
#[derive(Clone, Debug)]
pub(crate) struct DraftState {
    drafter: Drafter,
    /// Of the sequence's own tokens.
    own: MatchIndex,
    pace: Pace,
    /// Whether it looks at what others said, and they at what it said: not where it has a salt, since then
    /// nobody may learn from the speed of an answer what others asked.
    shares: bool,
}

/// Agreeing tokens that make the longest match worth a guess.
const SUFFIX_LEN_MIN: usize = 3;

/// Agreeing tokens that make the latest place worth one.
const NGRAM_LEN_MIN: usize = 2;

impl DraftState {
    pub(crate) fn new(drafter: Drafter, shares: bool) -> DraftState {
        DraftState {
            shares,
            drafter,
            own: MatchIndex::default(),
            pace: Pace::new(),
        }
    }

    /// Whether what it said may be drafted for others.
    pub(crate) fn shares(&self) -> bool {
        self.shares
    }

    pub(crate) fn set(&mut self, drafter: Drafter) {
        self.drafter = drafter;
    }

    /// Drafts for the positions after the last committed token.
    pub(crate) fn propose(&mut self, written: Written<'_>, bounds: DraftBounds) -> Vec<Draft> {
        let mut drafts = match &self.drafter {
            Drafter::Live(speculation) => self.look(*speculation, written, bounds.num_max),
            Drafter::Replay { output, depth_max } => {
                let rest = output.get(written.num_output as usize..).unwrap_or(&[]);
                let num = rest.len().min(bounds.num_max).min(*depth_max as usize);
                from(DraftSource::Replay, &rest[..num]).collect()
            }
        };
        let inside = |draft: &Draft| draft.token.0 < bounds.vocab_size;
        let num_inside = drafts.iter().take_while(|draft| inside(draft)).count();
        drafts.truncate(num_inside);
        drafts
    }

    /// What is forced comes first; a guess goes on from there.
    fn look(&mut self, wanted: Speculation, written: Written<'_>, num_max: usize) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = Vec::new();
        if let Some(constraint) = written.constraint
            && wanted.forced > 0
        {
            let forced = constraint.forced(num_max.min(wanted.forced as usize));
            drafts.extend(from(DraftSource::Forced, &forced));
        }
        if wanted.suffix == 0 && wanted.ngram == 0 {
            return drafts;
        }
        self.own.extend(written.tokens);
        let tail = written.tokens.len().saturating_sub(matches::LEN_MAX);
        let mut text = written.tokens[tail..].to_vec();
        text.extend(drafts.iter().map(|draft| draft.token));
        let num_left = num_max.saturating_sub(drafts.len());
        let depth = |depth_max: u32| num_left.min(self.pace.depth(depth_max) as usize);
        let (suffix, ngram) = (depth(wanted.suffix), depth(wanted.ngram));
        if suffix == 0 && ngram == 0 {
            self.pace.skip();
            return drafts;
        }
        // Own text may be copied past its end, as far as the copy goes: so a pattern is repeated.
        let copied = |from: usize, num: usize, drafts: &mut Vec<Draft>, source| {
            for idx in from..from + num {
                let past = idx.checked_sub(written.tokens.len());
                let token = past.map_or_else(|| written.tokens[idx], |past| drafts[past].token);
                drafts.push(Draft { token, source });
            }
        };
        if suffix > 0 {
            let own = self.own.find(written.tokens, &text, SUFFIX_LEN_MIN);
            let recent = match self.shares {
                true => written.recent.find(&text, SUFFIX_LEN_MIN),
                false => None,
            };
            match (own, recent) {
                (Some(own), recent) if recent.is_none_or(|recent| recent.len <= own.len) => {
                    copied(own.next, suffix, &mut drafts, DraftSource::Suffix);
                    return drafts;
                }
                (_, Some(recent)) => {
                    let guess = written.recent.after(recent);
                    let guess = &guess[..guess.len().min(suffix)];
                    drafts.extend(from(DraftSource::Suffix, guess));
                    if !guess.is_empty() {
                        return drafts;
                    }
                }
                _ => {}
            }
        }
        if ngram > 0
            && let Some(own) = self.own.latest(written.tokens, &text, NGRAM_LEN_MIN)
        {
            copied(own.next, ngram, &mut drafts, DraftSource::Ngram);
        }
        drafts
    }

    /// What became of the drafts of a step: of each source so many, of which so many were accepted.
    pub(crate) fn learn(&mut self, drafts: &[Draft], num_accepted: usize) {
        let is_guess =
            |draft: &&Draft| matches!(draft.source, DraftSource::Suffix | DraftSource::Ngram);
        let num_guessed = drafts.iter().filter(is_guess).count();
        let num_before = drafts.len() - num_guessed;
        // A guess that something before it made void says nothing about guessing.
        if num_guessed > 0 && num_accepted >= num_before {
            let num_true = num_accepted - num_before;
            self.pace.learn(num_guessed as u32, num_true as u32);
        }
    }
}

fn from(source: DraftSource, tokens: &[TokenId]) -> impl Iterator<Item = Draft> + '_ {
    tokens.iter().map(move |&token| Draft { token, source })
}

#[cfg(test)]
mod tests;
