//! Drafts by where they come from, counted: token by token, and request by request. A long answer weighs more in
//! the first, a short one as much as any in the second.

use super::DraftSource;

const NUM_SOURCES: usize = DraftSource::ALL.len();

/// Drafts by where they come from, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    proposed: [u64; NUM_SOURCES],
    accepted: [u64; NUM_SOURCES],
    requests: [u64; NUM_SOURCES],
    /// In millionths.
    shares: [u64; NUM_SOURCES],
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

    /// Sequences that have ended and had such drafts.
    pub fn requests(&self, source: DraftSource) -> u64 {
        self.requests[source as usize]
    }

    /// The share of its drafts that each of them accepted, 0 to 1, all together.
    pub fn shares(&self, source: DraftSource) -> f64 {
        self.shares[source as usize] as f64 / 1e6
    }

    pub(crate) fn note_proposed(&mut self, source: DraftSource) {
        self.proposed[source as usize] += 1;
    }

    pub(crate) fn note_accepted(&mut self, source: DraftSource) {
        self.accepted[source as usize] += 1;
    }

    /// A sequence has ended, which had these drafts.
    pub(crate) fn note_request(&mut self, own: &DraftTotals) {
        for source in DraftSource::ALL {
            let (proposed, accepted) = (own.proposed(source), own.accepted(source));
            if let Some(share) = (accepted * 1_000_000).checked_div(proposed) {
                self.requests[source as usize] += 1;
                self.shares[source as usize] += share;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_weighs_the_same() {
        let mut totals = DraftTotals::default();
        for (proposed, accepted) in [(100, 100), (4, 1), (0, 0)] {
            let mut own = DraftTotals::default();
            (0..proposed).for_each(|_| own.note_proposed(DraftSource::Ngram));
            (0..accepted).for_each(|_| own.note_accepted(DraftSource::Ngram));
            totals.note_request(&own);
        }
        assert_eq!(totals.requests(DraftSource::Ngram), 2);
        assert_eq!(totals.shares(DraftSource::Ngram), 1.25);
        assert_eq!(totals.requests(DraftSource::Forced), 0);
    }
}
