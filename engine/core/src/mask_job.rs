//! Filling the mask rows of one sequence in one step, as a value that can run anywhere. A matcher is walked
//! over the drafts and rolled back; it must never be left anywhere but where it was.

use alloc::{boxed::Box, format, string::String, string::ToString, vec::Vec};
use lockstep_step::{Bitmask, Matcher, SeqId, StepId, TokenId, planted};

/// Which job it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaskJobId {
    /// The step whose rows are filled.
    pub step: StepId,
    /// The sequence whose rows they are.
    pub seq: SeqId,
}

/// The rows of one constrained sequence, yet to be filled. It holds the sequence's matcher: a job that is
/// dropped takes it along, and the sequence ends with an error.
///
/// ```text
/// scored      0        1        2        3         rows to fill
/// drafts          a        b        c              a is between row 0 and row 1
/// filled      0        1                           if row 1 forbids b, or b is an end token
/// ```
#[must_use = "the matcher in it must come back"]
pub struct MaskJob {
    pub(crate) id: MaskJobId,
    pub(crate) matcher: Box<dyn Matcher>,
    /// Where the matcher has to be, before and after.
    pub(crate) depth: u32,
    /// Scored positions, one more than there are drafts.
    pub(crate) num_rows: usize,
    /// The drafts up to the first end token: no matcher is fed one, and nothing follows it.
    pub(crate) drafts: Vec<TokenId>,
    /// The token that closes reasoning by force, at the first position.
    pub(crate) closing: Option<TokenId>,
    pub(crate) vocab_size: u32,
}

/// What became of a [`MaskJob`].
#[must_use = "the matcher in it must come back"]
pub struct MaskDone {
    pub(crate) id: MaskJobId,
    /// None if it is lost.
    pub(crate) matcher: Option<Box<dyn Matcher>>,
    pub(crate) filled: Result<FilledRows, String>,
}

/// The rows that a job filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilledRows {
    /// From the first scored position on, at least one; up to the first draft that can't be drawn.
    pub(crate) masks: Vec<Bitmask>,
    /// Tokens that were taken from the matcher again.
    pub(crate) num_rolled_back: u32,
}

impl MaskJob {
    /// Which job it is.
    pub fn id(&self) -> MaskJobId {
        self.id
    }

    /// Fills the rows. What comes out is a function of the job alone.
    pub fn run(mut self) -> MaskDone {
        let filled = self.fill();
        MaskDone {
            id: self.id,
            matcher: Some(self.matcher),
            filled,
        }
    }

    fn fill(&mut self) -> Result<FilledRows, String> {
        self.check_depth("before its masks were filled")?;
        let mut masks = Vec::with_capacity(self.num_rows);
        let mut num_taken = 0;
        let walked = self.walk(&mut masks, &mut num_taken);
        if num_taken > 0 {
            self.matcher.rollback(num_taken);
        }
        self.check_depth(&format!("after {num_taken} tokens were rolled back"))?;
        match walked {
            // Further on, the failure is the next step's, if the sequence ever comes there.
            Err(error) if masks.is_empty() || planted!(RefusedDraftIsAFault) => Err(error),
            _ => Ok(FilledRows {
                masks,
                num_rolled_back: num_taken,
            }),
        }
    }

    /// Fills rows up to the first draft that is not allowed: it can't be drawn, so what would follow it
    /// doesn't matter.
    fn walk(&mut self, masks: &mut Vec<Bitmask>, num_taken: &mut u32) -> Result<(), String> {
        for idx in 0..self.num_rows {
            let mut mask = Bitmask::none(self.vocab_size);
            let filled = self.matcher.fill(&mut mask);
            filled.map_err(|error| error.to_string())?;
            if mask.vocab_size() != self.vocab_size {
                let (wrong, right) = (mask.vocab_size(), self.vocab_size);
                return Err(format!(
                    "the matcher wrote a mask of {wrong} tokens for {right}"
                ));
            }
            // The constraint wins where both speak: it may be in the middle of something.
            if let Some(token) = self.closing.filter(|&t| idx == 0 && mask.allows(t)) {
                mask = Bitmask::none(self.vocab_size);
                mask.allow(token);
            }
            // Planted: vllm-project/vllm#44297.
            if planted!(MaskOncePerStep)
                && let Some(first) = masks.first()
                && first.num_allowed() > self.vocab_size / 2
            {
                mask = first.clone();
            }
            let draft = self.drafts.get(idx).copied();
            // Planted: vllm-project/vllm#53777.
            if planted!(RefusedDraftIsAFault) && draft.is_some_and(|draft| !mask.allows(draft)) {
                return Err(format!("the draft {draft:?} is not allowed"));
            }
            let draft = draft.filter(|&draft| mask.allows(draft));
            masks.push(mask);
            match draft {
                Some(draft) if self.matcher.consume(draft).is_ok() => *num_taken += 1,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn check_depth(&self, when: &str) -> Result<(), String> {
        let (is, should) = (self.matcher.depth(), self.depth);
        if is == should {
            return Ok(());
        }
        Err(format!(
            "the matcher is at {is} tokens and not at {should} {when}"
        ))
    }
}

impl MaskDone {
    /// A job that never ended, and what is known of the reason. Its sequence ends with it.
    pub fn lost(id: MaskJobId, reason: String) -> MaskDone {
        MaskDone {
            id,
            matcher: None,
            filled: Err(reason),
        }
    }
}

#[cfg(test)]
mod tests;
