//! Which drafters work for a sequence, and how far ahead each may look: what a flag or a request says.

use super::DraftSource;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// The most drafts of one step that a drafter can be asked for.
pub const DRAFT_DEPTH_MAX: u32 = 15;

/// The depth of a drafter that is named without one.
const DEPTH_DEFAULT: u32 = 8;

/// The same of a model that drafts: each further token costs a pass of it, and is less likely right.
const MODEL_DEPTH_DEFAULT: u32 = 3;

/// Which drafters work for a sequence, and how far ahead each may look; 0 is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speculation {
    /// Tokens that the constraint forces.
    pub forced: u32,
    /// Tokens that followed the longest earlier match, in this request or in recent outputs.
    pub suffix: u32,
    /// Tokens that followed the latest earlier occurrence of the last few, in this request.
    pub ngram: u32,
    /// Tokens that the checkpoint's own head expects, where nothing above has any.
    pub mtp: u32,
    /// Tokens that a smaller model expects, where nothing above has any.
    pub draft_model: u32,
}

/// The drafters that can be named.
const NAMED: [DraftSource; 5] = [
    DraftSource::Forced,
    DraftSource::Suffix,
    DraftSource::Ngram,
    DraftSource::Mtp,
    DraftSource::DraftModel,
];

impl Speculation {
    /// Nothing is proposed.
    pub const OFF: Speculation = Speculation {
        forced: 0,
        suffix: 0,
        ngram: 0,
        mtp: 0,
        draft_model: 0,
    };

    /// The depth of a drafter.
    pub fn depth(&self, source: DraftSource) -> u32 {
        let mut own = *self;
        own.slot(source).map_or(0, |depth| *depth)
    }

    fn slot(&mut self, source: DraftSource) -> Option<&mut u32> {
        match source {
            DraftSource::Forced => Some(&mut self.forced),
            DraftSource::Suffix => Some(&mut self.suffix),
            DraftSource::Ngram => Some(&mut self.ngram),
            DraftSource::Mtp => Some(&mut self.mtp),
            DraftSource::DraftModel => Some(&mut self.draft_model),
            DraftSource::Replay => None,
        }
    }
}

/// Why a list of drafters can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeculationError(String);

impl fmt::Display for SpeculationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no drafter, expected off, or some of ", self.0)?;
        for source in NAMED {
            write!(f, "{}, ", source.as_str())?;
        }
        write!(
            f,
            "each with a depth of 1 to {DRAFT_DEPTH_MAX} where wanted: ngram,forced:7"
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
                Some((name, depth)) => (name, Some(depth.parse().map_err(|_| wrong())?)),
                None => (part, None),
            };
            let source = NAMED.into_iter().find(|source| source.as_str() == name);
            let source = source.ok_or_else(wrong)?;
            let depth = depth.unwrap_or(match source {
                DraftSource::Mtp | DraftSource::DraftModel => MODEL_DEPTH_DEFAULT,
                _ => DEPTH_DEFAULT,
            });
            let slot = speculation.slot(source).filter(|slot| **slot == 0);
            if !(1..=DRAFT_DEPTH_MAX).contains(&depth) {
                return Err(wrong());
            }
            *slot.ok_or_else(wrong)? = depth;
        }
        Ok(speculation)
    }
}

impl fmt::Display for Speculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Speculation::OFF {
            return f.write_str("off");
        }
        let used = NAMED.into_iter().filter(|&source| self.depth(source) > 0);
        for (idx, source) in used.enumerate() {
            let comma = if idx > 0 { "," } else { "" };
            write!(f, "{comma}{}:{}", source.as_str(), self.depth(source))?;
        }
        Ok(())
    }
}
