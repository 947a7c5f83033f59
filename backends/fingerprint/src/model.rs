//! The hashes: what blocks and rows hold, and how logits come from them.

use crate::FingerprintConfig;
use lockstep_step::{BLOCK_LEN, Pos, SeqPlan, TokenId};

/// A slot of a poisoned token.
const POISONED: u64 = u64::MAX;

/// Blocks and rows, each slot a hash.
pub(crate) struct Model {
    seed: u64,
    vocab_size: u32,
    poison: Option<TokenId>,
    bias: Vec<(TokenId, f32)>,
    // (num_blocks, 64)
    slots: Vec<u64>,
    states: States,
}

/// Where the hash of a prefix is kept, which stands for recurrent state.
pub(crate) enum States {
    /// The model has none.
    None,
    /// In the rows of the plan: (num_rows).
    InRows(Vec<u64>),
    /// Beside each slot: (num_blocks, 64). So does a head that starts from what the model made of the
    /// position before.
    InSlots(Vec<u64>),
}

impl States {
    /// As the model itself keeps them.
    pub(crate) fn in_rows(config: &FingerprintConfig) -> States {
        match config.limits.num_rows {
            0 => States::None,
            num_rows => States::InRows(vec![0; num_rows as usize]),
        }
    }

    /// As a head beside the model keeps them.
    pub(crate) fn in_slots(config: &FingerprintConfig) -> States {
        match config.limits.num_rows {
            0 => States::None,
            _ => States::InSlots(vec![0; num_slots(config)]),
        }
    }
}

fn num_slots(config: &FingerprintConfig) -> usize {
    config.limits.num_blocks as usize * BLOCK_LEN as usize
}

impl Model {
    pub(crate) fn new(config: &FingerprintConfig, states: States) -> Model {
        Model {
            seed: mix(config.seed ^ 0x6c6f_636b_7374_6570),
            vocab_size: config.limits.vocab_size,
            poison: config.poison,
            bias: config.bias.clone(),
            slots: vec![0; num_slots(config)],
            states,
        }
    }

    /// Computes the query of a sequence: fills its slots, writes its rows, and returns for each scored
    /// position a hash of everything the model sees there, 0 if a poisoned token is among it.
    pub(crate) fn compute(&mut self, seq: &SeqPlan, query: &[TokenId]) -> Vec<u64> {
        let state = self.state_before(seq);
        self.compute_from(seq, query, state).0
    }

    /// The state that a sequence goes on from.
    pub(crate) fn state_before(&self, seq: &SeqPlan) -> u64 {
        match (&self.states, seq.rows.read, seq.start.0) {
            (States::InRows(rows), Some(row), _) => rows[row.0 as usize],
            (States::InSlots(states), _, start @ 1..) => states[self.slot(seq, Pos(start - 1))],
            _ => self.seed,
        }
    }

    /// The same from a state that is handed in; the state after the query comes back beside the hashes.
    pub(crate) fn compute_from(
        &mut self,
        seq: &SeqPlan,
        query: &[TokenId],
        mut state: u64,
    ) -> (Vec<u64>, u64) {
        for (query_idx, &token) in query.iter().enumerate() {
            let pos = Pos(seq.start.0 + query_idx as u32);
            let idx = self.slot(seq, pos);
            self.slots[idx] = if self.poison == Some(token) {
                POISONED
            } else {
                mix(mix(self.seed ^ u64::from(token.0)).wrapping_add(u64::from(pos.0)))
            };
        }
        let mut contexts = Vec::with_capacity(seq.scored.len());
        let (mut attention, mut next_pos) = (self.seed, 0);
        let mut is_poisoned = false;
        for query_idx in 0..query.len() as u32 {
            let pos = seq.start.0 + query_idx;
            // The recurrent part reads its row and the query, never the blocks of earlier steps.
            let idx = self.slot(seq, Pos(pos));
            state = mix(state.rotate_left(7) ^ self.slots[idx]);
            self.keep(seq, query_idx, idx, state);
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
            let recurrent = match self.states {
                States::None => 0,
                _ => mix(state),
            };
            let context = mix(attention ^ recurrent).max(1);
            contexts.push(if is_poisoned { 0 } else { context });
        }
        (contexts, state)
    }

    /// Keeps the state after a query token that lies in slot `idx`.
    fn keep(&mut self, seq: &SeqPlan, query_idx: u32, idx: usize, state: u64) {
        match &mut self.states {
            States::None => {}
            States::InSlots(states) => states[idx] = state,
            States::InRows(rows) => {
                let writes = seq.rows.writes.iter();
                for write in writes.filter(|write| write.query_idx == query_idx) {
                    rows[write.row.0 as usize] = state;
                }
            }
        }
    }

    /// The logits of a context, -4 to 4 and the bias; NaN if it is poisoned.
    pub(crate) fn logits(&self, context: u64) -> Vec<f32> {
        let logit = |token: u32| {
            let hash = mix(context ^ u64::from(token + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let top = u16::try_from(hash >> 48).unwrap_or(0);
            f32::from(top) / 8192.0 - 4.0
        };
        if context == 0 {
            return vec![f32::NAN; self.vocab_size as usize];
        }
        let mut logits: Vec<f32> = (0..self.vocab_size).map(logit).collect();
        for &(token, value) in &self.bias {
            if let Some(logit) = logits.get_mut(token.0 as usize) {
                *logit += value;
            }
        }
        logits
    }

    fn slot(&self, seq: &SeqPlan, pos: Pos) -> usize {
        let (block, offset) = seq.slot(pos);
        block.0 as usize * BLOCK_LEN as usize + offset as usize
    }
}

/// A bijection of 64-bit words in which every input bit moves every output bit.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
