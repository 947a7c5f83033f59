//! Drafters that play back what a request is known to say: as it is, so much at a time as chance will have
//! it, or spoilt on purpose. They may never change a byte either.

use super::{dice::Dice, models::LawModel};
use lockstep_core::Drafter;
use lockstep_step::{BLOCK_LEN, TokenId};

/// A recording as it is.
pub fn random(truth: &[TokenId], depth: u32, dice: &mut Dice) -> Drafter {
    // Their number has no factor in common with much, so that any length meets any place.
    let depths = (0..13).map(|_| dice.below(depth as usize + 1) as u32);
    Drafter::Replay {
        output: truth.to_vec(),
        depths: depths.collect(),
    }
}

/// A recording that is right for a while and then wrong: another token, one that ends the output, one that
/// means structure, one that there is not, and wrong ones around the ends of blocks.
pub fn adversarial(
    model: &LawModel,
    truth: &[TokenId],
    prompt_len: usize,
    depth: u32,
    dice: &mut Dice,
) -> Drafter {
    let vocab_size = model.vocab_size();
    let (ends, specials) = (model.end_tokens(), model.special_tokens());
    let one_of = |tokens: &[TokenId], dice: &mut Dice| match tokens.len() {
        0 => TokenId(0),
        len => tokens[dice.below(len)],
    };
    let mut output = truth.to_vec();
    // What would come after the end.
    output.extend((0..4).map(|_| TokenId(dice.below(vocab_size as usize) as u32)));
    let every = 2 + dice.below(5);
    for (idx, token) in output.iter_mut().enumerate() {
        let position = prompt_len + idx;
        let near_an_end = (position + 1) % BLOCK_LEN as usize <= 1;
        if !(dice.once_in(every) || near_an_end && dice.once_in(2)) {
            continue;
        }
        *token = match dice.below(6) {
            0 => one_of(&ends, dice),
            1 | 2 => one_of(&specials, dice),
            3 => TokenId(vocab_size + dice.below(2) as u32),
            _ => TokenId((token.0 + 1 + dice.below(3) as u32) % vocab_size),
        };
    }
    Drafter::Replay {
        output,
        depths: vec![depth],
    }
}
