//! Chooses tokens at random, with a liking for what brings an output to its end.

use crate::toy::{END, VOCAB_SIZE, piece, spelled, text, tokens};
use lockstep_step::{Bitmask, TokenId};

/// What ends something in one of the formats.
const CLOSERS: &[&str] = &[
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "</arg_value>",
    "\n</parameter>\n",
    "</function>\n",
    "\"",
    "]",
    "}",
    "}\n",
    ",",
    "\n```\n",
    "</arg_",
    "\n</",
];

/// What looks like a tag or a fence, or almost.
const LURES: &[&str] = &[
    "\n\n",
    "\x0c<think>",
    " <think>",
    "<thin",
    "</think",
    "<tool_call",
    "<function=",
    "</arg_value",
    "<arg_key",
    "</parameter",
    "\n```\n",
    "~~~\n",
    "null",
    "true",
    "12",
    "0",
    " [",
    "{",
    "\\u00",
    "\x7f",
    "\u{10ffff}",
];

/// Whole values, and what is almost one. A `$` stands for the end of a value that is text.
const VALUES: &[&str] = &[
    "null$", "true$", "12$", "0$", "-1$", "7$", "ab$", "[1]$", "{}$", "$", "null\nx", "1\n2",
    "1.5\nx", "false\n", "null ", " 1", "1e5", "12a", "nulls",
];

/// A source of choices, the same for the same seed.
pub struct Walker {
    state: u64,
    /// Tokens that are meant to come next, last first.
    planned: Vec<TokenId>,
    /// Whether a value may begin here.
    at_value: bool,
    /// How often it ends where it may: one in so many.
    pub ends_one_in: usize,
    /// How often it aims for an end of something: one in so many.
    pub closes_one_in: usize,
}

impl Walker {
    pub fn new(seed: u64) -> Walker {
        Walker {
            state: seed,
            planned: Vec::new(),
            at_value: false,
            ends_one_in: 8,
            closes_one_in: 3,
        }
    }

    /// A number below another one (SplitMix64).
    pub fn below(&mut self, num: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % num as u64) as usize
    }

    pub fn one_in(&mut self, num: usize) -> bool {
        self.below(num) == 0
    }

    /// Gives up what was planned.
    pub fn forget(&mut self) {
        self.planned.clear();
        self.at_value = false;
    }

    /// One of the allowed tokens.
    pub fn choose(&mut self, mask: &Bitmask) -> TokenId {
        let token = self.chosen(mask);
        self.at_value = text(token) == b"<arg_value>" || text(token).ends_with(b"\n");
        token
    }

    fn chosen(&mut self, mask: &Bitmask) -> TokenId {
        if self.at_value && self.planned.is_empty() && self.one_in(2) {
            let end = match mask.allows(piece("<tool_call>")) || self.one_in(4) {
                true => "",
                false => "\n</parameter>\n",
            };
            let value = VALUES[self.below(VALUES.len())].replace('$', end);
            self.planned = tokens(&value);
            self.planned.reverse();
        }
        if let Some(token) = self.planned.pop().filter(|&token| mask.allows(token)) {
            return token;
        }
        self.planned.clear();
        if mask.allows(END) && self.one_in(self.ends_one_in) {
            return END;
        }
        let texts = match self.below(self.closes_one_in.max(2)) {
            0 => CLOSERS,
            1 if self.one_in(3) => LURES,
            _ => &[],
        };
        if !texts.is_empty() {
            let closers = texts.iter().filter_map(|closer| {
                let mut plan = tokens(closer);
                if texts == LURES && self.state.is_multiple_of(2) {
                    plan = spelled(closer);
                }
                plan.reverse();
                plan.last()
                    .is_some_and(|&token| mask.allows(token))
                    .then_some(plan)
            });
            let mut closers: Vec<Vec<TokenId>> = closers.collect();
            if !closers.is_empty() {
                self.planned = closers.swap_remove(self.below(closers.len()));
                return self.planned.pop().expect("a closer is not empty");
            }
        }
        let allowed = (0..VOCAB_SIZE)
            .map(TokenId)
            .filter(|&token| mask.allows(token));
        let allowed: Vec<TokenId> = allowed.filter(|&token| token != END).collect();
        match allowed.len() {
            0 => END,
            len => allowed[self.below(len)],
        }
    }
}
