//! The hashes: what blocks and rows hold, and how logits come from them.

use crate::FingerprintConfig;
use lockstep_step::{BLOCK_LEN, BlockId, Pos, StepLayout, TokenId, planted};

/// A slot of a poisoned token.
const POISONED: u64 = u64::MAX;

/// Blocks and rows, each slot a hash.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Model {
    seed: u64,
    vocab_size: u32,
    poison: Option<TokenId>,
    bias: Vec<(TokenId, f32)>,
    grain: f32,
    // (num_blocks, 64)
    slots: Vec<u64>,
    states: States,
}

/// Where the hash of a prefix is kept, which stands for recurrent state.
#[cfg_attr(test, derive(Debug, PartialEq))]
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
            grain: config.grain,
            slots: vec![0; num_slots(config)],
            states,
        }
    }

    /// Computes a step: fills its slots, writes its rows, and returns for each scored position a hash of
    /// everything the model sees there, 0 if a poisoned token is among it.
    pub(crate) fn compute(&mut self, layout: &StepLayout) -> Vec<u64> {
        self.fill(layout);
        let mut contexts = Vec::with_capacity(layout.num_scored());
        for seq_idx in 0..layout.num_seqs() {
            let state = self.state_before(layout, seq_idx);
            contexts.extend(self.walk(layout, seq_idx, state).0);
        }
        contexts
    }

    /// The state that a sequence goes on from.
    pub(crate) fn state_before(&self, layout: &StepLayout, seq_idx: usize) -> u64 {
        let start = layout.positions()[layout.rows(seq_idx).start];
        match (&self.states, layout.state_read(seq_idx), start) {
            (States::InRows(rows), Some(row), _) => rows[row.0 as usize],
            (States::InSlots(states), _, 1..) => {
                states[slot_idx(layout.slot_at(seq_idx, Pos(start - 1)))]
            }
            _ => self.seed,
        }
    }

    /// What is in the rows.
    #[cfg(planted)]
    pub(crate) fn rows_mut(&mut self) -> &mut [u64] {
        match &mut self.states {
            States::InRows(rows) => rows,
            _ => &mut [],
        }
    }

    /// What is in a slot, and the state beside it.
    #[cfg(planted)]
    pub(crate) fn slot(&self, slot: (BlockId, u32)) -> (u64, u64) {
        let state = match &self.states {
            States::InSlots(states) => states[slot_idx(slot)],
            _ => 0,
        };
        (self.slots[slot_idx(slot)], state)
    }

    #[cfg(planted)]
    pub(crate) fn set_slot(&mut self, slot: (BlockId, u32), hash: u64) {
        self.slots[slot_idx(slot)] = hash;
    }

    #[cfg(planted)]
    pub(crate) fn set_slot_state(&mut self, slot: (BlockId, u32), state: u64) {
        if let States::InSlots(states) = &mut self.states {
            states[slot_idx(slot)] = state;
        }
    }

    /// Writes the slots of all rows. Padding has a hash as any other row, and no slot to write it to.
    pub(crate) fn fill(&mut self, layout: &StepLayout) {
        for row in 0..layout.padded_rows() {
            let (token, pos) = (layout.tokens()[row], layout.positions()[row]);
            let hash = match self.poison {
                Some(TokenId(poison)) if poison == token => POISONED,
                _ => mix(mix(self.seed ^ u64::from(token)).wrapping_add(u64::from(pos))),
            };
            if let Some(slot) = layout.slot(row) {
                self.slots[slot_idx(slot)] = hash;
            }
        }
    }

    /// Walks the rows of a sequence whose slots are filled, from a state. Returns the hashes of its scored
    /// positions, and the state after its last row.
    pub(crate) fn walk(
        &mut self,
        layout: &StepLayout,
        seq_idx: usize,
        mut state: u64,
    ) -> (Vec<u64>, u64) {
        let mut contexts = Vec::new();
        let (mut attention, mut next_pos) = (self.seed, 0);
        let mut is_poisoned = false;
        let scored = &layout.scored()[..layout.num_scored()];
        for row in layout.rows(seq_idx) {
            let pos = layout.positions()[row];
            // The recurrent part reads its row and the query, never the blocks of earlier steps.
            let own = slot_idx(layout.slot_at(seq_idx, Pos(pos)));
            state = mix(state.rotate_left(7) ^ self.slots[own]);
            match (&mut self.states, layout.state_write(row)) {
                (States::InSlots(states), _) => states[own] = state,
                (States::InRows(rows), Some(row)) => rows[row.0 as usize] = state,
                _ => {}
            }
            if scored.binary_search(&(row as u32)).is_err() {
                continue;
            }
            for pos in next_pos..=pos {
                let mut at = slot_idx(layout.slot_at(seq_idx, Pos(pos)));
                // Planted: flashinfer-ai/flashinfer#3136, in a pool of this size.
                if planted!(PageIndexWrapZeroOutput) {
                    at %= 12 * BLOCK_LEN as usize;
                }
                let slot = self.slots[at];
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

    /// The logits of a context, -4 to 4 and the bias; NaN if it is poisoned.
    pub(crate) fn logits(&self, context: u64) -> Vec<f32> {
        let logit = |token: u32| {
            let hash = mix(context ^ u64::from(token + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let top = u16::try_from(hash >> 48).unwrap_or(0);
            let logit = f32::from(top) / 8192.0 - 4.0;
            match self.grain > 0.0 {
                true => (logit / self.grain).floor() * self.grain,
                false => logit,
            }
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
}

fn slot_idx((block, offset): (BlockId, u32)) -> usize {
    block.0 as usize * BLOCK_LEN as usize + offset as usize
}

/// A bijection of 64-bit words in which every input bit moves every output bit.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
