//! Makes inputs out of inputs, the same ones for the same seed. It knows no coverage: that is what
//! libFuzzer is for.

/// The longest input that is made, in bytes.
pub const INPUT_BYTES_MAX: usize = 4096;

/// A source of inputs.
pub struct Mutator<'a> {
    state: u64,
    dictionary: &'a [&'a str],
}

impl Mutator<'_> {
    /// A mutator whose inputs depend on the seed and the dictionary alone.
    pub fn new<'a>(seed: u64, dictionary: &'a [&'a str]) -> Mutator<'a> {
        Mutator {
            state: seed,
            dictionary,
        }
    }

    /// A changed copy of one of these inputs, of which there must be one.
    pub fn make(&mut self, inputs: &[&[u8]]) -> Vec<u8> {
        let mut bytes = inputs[self.below(inputs.len())].to_vec();
        let num_changes = 1 << self.below(4);
        for _ in 0..num_changes {
            let other = inputs[self.below(inputs.len())];
            self.change(&mut bytes, other);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let end = (at + 1 + self.short()).min(bytes.len());
        match self.below(12) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.below(256) as u8,
            2 if at < bytes.len() => {
                let step = self.below(16) as u8;
                bytes[at] = bytes[at].wrapping_add(step).wrapping_sub(8);
            }
            3 if at < end => drop(bytes.drain(at..end)),
            4 if at < end => {
                let piece = bytes[at..end].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            5 => bytes.insert(at, self.below(256) as u8),
            6 => {
                let from = self.below(other.len() + 1);
                let to = (from + 1 + 4 * self.short()).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            7 => {
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            8 => bytes.truncate(at),
            9 if at < end => {
                let value = [0, 0xff, 0x7f, 0x80, b'0', b'9', b' ', b'"'][self.below(8)];
                bytes[at..end].fill(value);
            }
            _ if !self.dictionary.is_empty() => {
                let word = self.dictionary[self.below(self.dictionary.len())];
                let end = if self.below(2) == 0 { at } else { end.max(at) };
                bytes.splice(at..end, word.bytes());
            }
            _ => bytes.insert(at, 0),
        }
    }

    /// Mostly a small number.
    fn short(&mut self) -> usize {
        let bits = self.below(7);
        self.below(1 << bits)
    }

    /// A number below another one (SplitMix64).
    fn below(&mut self, num: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % num.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_seed_others() {
        let inputs: [&[u8]; 2] = [b"once", b"upon a time"];
        let make = |seed| {
            let mut mutator = Mutator::new(seed, &["word"]);
            (0..200)
                .map(|_| mutator.make(&inputs))
                .collect::<Vec<Vec<u8>>>()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        let different: BTreeSet<Vec<u8>> = make(1).into_iter().collect();
        assert!(different.len() > 150, "{}", different.len());
        let has_word = |bytes: &&Vec<u8>| bytes.windows(4).any(|part| part == b"word");
        assert!(different.iter().any(|bytes| has_word(&bytes)));
    }
}
