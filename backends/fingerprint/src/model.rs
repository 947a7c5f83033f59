//! The hashes: what blocks and rows hold, and how logits come from them.

use lockstep_step::{BLOCK_LEN, BackendLimits, Pos, SeqPlan, TokenId};

/// A slot of a poisoned token.
const POISONED: u64 = u64::MAX;

/// Blocks and rows, each slot a hash.
pub(crate) struct Model {
    seed: u64,
    vocab_size: u32,
    poison: Option<TokenId>,
    // (num_blocks, 64)
    slots: Vec<u64>,
    // (num_rows); each the hash of a prefix
    rows: Vec<u64>,
}

impl Model {
    pub(crate) fn new(limits: BackendLimits, seed: u64, poison: Option<TokenId>) -> Model {
        Model {
            seed: mix(seed ^ 0x6c6f_636b_7374_6570),
            vocab_size: limits.vocab_size,
            poison,
            slots: vec![0; limits.num_blocks as usize * BLOCK_LEN as usize],
            rows: vec![0; limits.num_rows as usize],
        }
    }

    /// Computes the query of a sequence: fills its slots, writes its rows, and returns for each scored
    /// position a hash of everything the model sees there, 0 if a poisoned token is among it.
    pub(crate) fn compute(&mut self, seq: &SeqPlan, query: &[TokenId]) -> Vec<u64> {
        for (query_idx, &token) in query.iter().enumerate() {
            let pos = Pos(seq.start.0 + query_idx as u32);
            let idx = self.slot(seq, pos);
            self.slots[idx] = if self.poison == Some(token) {
                POISONED
            } else {
                mix(mix(self.seed ^ u64::from(token.0)).wrapping_add(u64::from(pos.0)))
            };
        }
        let mut state = seq
            .rows
            .read
            .map_or(self.seed, |row| self.rows[row.0 as usize]);
        let mut contexts = Vec::with_capacity(seq.scored.len());
        let (mut attention, mut next_pos) = (self.seed, 0);
        let mut is_poisoned = false;
        for query_idx in 0..query.len() as u32 {
            let pos = seq.start.0 + query_idx;
            // The recurrent part reads its row and the query, never the blocks of earlier steps.
            let slot = self.slots[self.slot(seq, Pos(pos))];
            state = mix(state.rotate_left(7) ^ slot);
            for write in seq
                .rows
                .writes
                .iter()
                .filter(|write| write.query_idx == query_idx)
            {
                self.rows[write.row.0 as usize] = state;
            }
            if !seq
                .scored
                .iter()
                .any(|scored| scored.query_idx == query_idx)
            {
                continue;
            }
            for pos in next_pos..=pos {
                let slot = self.slots[self.slot(seq, Pos(pos))];
                is_poisoned |= slot == POISONED;
                attention = mix(attention.rotate_left(9) ^ slot);
            }
            next_pos = pos + 1;
            let recurrent = if self.rows.is_empty() { 0 } else { mix(state) };
            let context = mix(attention ^ recurrent).max(1);
            contexts.push(if is_poisoned { 0 } else { context });
        }
        contexts
    }

    /// The logits of a context, -4 to 4; NaN if it is poisoned.
    pub(crate) fn logits(&self, context: u64) -> Vec<f32> {
        let logit = |token: u32| {
            let hash = mix(context ^ u64::from(token + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let top = u16::try_from(hash >> 48).unwrap_or(0);
            f32::from(top) / 8192.0 - 4.0
        };
        if context == 0 {
            return vec![f32::NAN; self.vocab_size as usize];
        }
        (0..self.vocab_size).map(logit).collect()
    }

    fn slot(&self, seq: &SeqPlan, pos: Pos) -> usize {
        let (block, offset) = seq.slot(pos);
        block.0 as usize * BLOCK_LEN as usize + offset as usize
    }
}

/// A bijection of 64-bit words in which every input bit moves every output bit.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
