//! The only randomness of the command: numbers that follow from a seed, the same on every machine.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed; `lane` tells apart what is drawn for different ends.
    pub fn new(seed: u64, lane: u64) -> Dice {
        Dice(mix(seed ^ mix(lane.wrapping_add(0x9e37_79b9_7f4a_7c15))))
    }

    /// The next word.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `num`, which is at least 1.
    pub fn below(&mut self, num: usize) -> usize {
        (self.word() % num.max(1) as u64) as usize
    }

    /// One of these, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// True once in so many times.
    pub fn once_in(&mut self, num: usize) -> bool {
        self.below(num) == 0
    }

    /// Brings items into any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for idx in (1..items.len()).rev() {
            items.swap(idx, self.below(idx + 1));
        }
    }
}

/// A bijection of words, in which every input bit moves every output bit.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_gives_others() {
        let words = |seed, lane| {
            let mut dice = Dice::new(seed, lane);
            [dice.word(), dice.word(), dice.word()]
        };
        assert_eq!(words(1, 2), words(1, 2));
        assert_ne!(words(1, 2), words(2, 2));
        assert_ne!(words(1, 2), words(1, 3));
        let mut dice = Dice::new(7, 0);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[dice.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
        let mut items: Vec<usize> = (0..20).collect();
        dice.shuffle(&mut items);
        assert_ne!(items, (0..20).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..20).collect::<Vec<_>>());
    }
}
