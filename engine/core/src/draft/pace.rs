//! How many tokens to guess. Guesses cost a little each, and are free only if they come true: the depth
//! follows how far the last ones did, and after repeated misses guessing rests for a while.

/// Steps without guesses after a second miss in a row; doubled with each further one.
const REST_FIRST: u32 = 4;

/// The longest rest.
const REST_MAX: u32 = 64;

/// Guesses at first.
const DEPTH_FIRST: u32 = 3;

/// The depth of one sequence's guesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    depth: u32,
    num_misses: u32,
    rest: u32,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            depth: DEPTH_FIRST,
            num_misses: 0,
            rest: 0,
        }
    }

    /// How many tokens to guess in this step, at most.
    pub(crate) fn depth(&self, depth_max: u32) -> u32 {
        match self.rest {
            0 => self.depth.min(depth_max),
            _ => 0,
        }
    }

    /// A step went by without a guess.
    pub(crate) fn skip(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    /// What became of the guesses of a step, at least one.
    pub(crate) fn learn(&mut self, num_guessed: u32, num_true: u32) {
        if num_true == 0 {
            self.depth = 1;
            self.num_misses += 1;
            if self.num_misses >= 2 {
                let doublings = (self.num_misses - 2).min(8);
                self.rest = (REST_FIRST << doublings).min(REST_MAX);
            }
            return;
        }
        self.num_misses = 0;
        self.depth = match num_true >= num_guessed {
            true => num_guessed.saturating_mul(2),
            false => num_true + 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_follows_success_and_misses_bring_rest() {
        let mut pace = Pace::new();
        assert_eq!((pace.depth(15), pace.depth(2)), (3, 2));
        pace.learn(3, 3);
        assert_eq!((pace.depth(15), pace.depth(5)), (6, 5));
        pace.learn(6, 2);
        assert_eq!(pace.depth(15), 3);
        pace.learn(3, 0);
        assert_eq!(pace.depth(15), 1, "one miss is no habit");
        pace.learn(1, 0);
        assert_eq!(pace.depth(15), 0);
        for _ in 0..REST_FIRST {
            assert_eq!(pace.depth(15), 0);
            pace.skip();
        }
        assert_eq!(pace.depth(15), 1);
        pace.learn(1, 1);
        assert_eq!(pace.depth(15), 2);
    }

    #[test]
    fn a_rest_is_never_longer_than_its_bound() {
        let mut pace = Pace::new();
        for _ in 0..40 {
            pace.learn(1, 0);
            assert!(pace.rest <= REST_MAX);
        }
        let mut num_skipped = 0;
        while pace.depth(15) == 0 {
            pace.skip();
            num_skipped += 1;
        }
        assert_eq!(num_skipped, REST_MAX);
    }
}
