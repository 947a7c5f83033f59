//! Grammar and parser agree: the law of `engine/grammar/tests/grammar/agreement.rs`, which
//! `bench.rs` holds an output against.

use super::asked::{COMPILER, Reader, asked};
use super::note_held;
use crate::bench::{Bench, told};
use crate::decode::byte;
use crate::toy::{END, mask, tokens};
use arbitrary::Unstructured;
use lockstep_step::{Matcher, TokenId};
use lockstep_tags::Delivery;

/// Longer walks are given up.
const TOKENS_MAX: usize = 300;

/// What is asked, how the text is cut, and a text: once as a walk through the masks, once as it stands.
pub fn agreement(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let asked = asked(&mut input);
    let mut cut = usize::from(byte(&mut input));
    let mut piece_len = || {
        cut = cut.wrapping_mul(5).wrapping_add(1);
        cut % 13 + 1
    };
    let Some(bench) = Bench::new(asked, &COMPILER) else {
        return;
    };
    let rest = input.take_rest();
    if let Some(walked) = walk(&bench, &mut Reader::new(rest)) {
        note_held();
        assert!(bench.admits(&walked), "{:?}", told(&walked));
        bench.check(&walked, &mut piece_len);
    }
    let spoken = tokens(&String::from_utf8_lossy(rest));
    let spoken = &spoken[..spoken.len().min(TOKENS_MAX)];
    let admitted = bench.admits(spoken);
    match bench.read(&told(spoken), Delivery::Whole, &mut piece_len) {
        Err(error) => {
            assert!(!admitted, "{:?} was let through: {error:?}", told(spoken));
        }
        Ok(_) if admitted => {
            note_held();
            bench.check(spoken, &mut piece_len);
        }
        Ok(_) => {}
    }
}

/// Walks to the end; None if that takes too many tokens.
fn walk(bench: &Bench, reader: &mut Reader<'_>) -> Option<Vec<TokenId>> {
    let mut boundary = bench.begin();
    let mut taken = Vec::new();
    while taken.len() < TOKENS_MAX {
        let here = mask(&mut boundary);
        assert_eq!(here.allows(END), boundary.can_finish());
        let token = reader.choose(&here);
        if token == END {
            assert!(here.allows(END), "nothing may follow {:?}", told(&taken));
            return Some(taken);
        }
        boundary.consume(token).expect("it is in the mask");
        taken.push(token);
    }
    None
}
