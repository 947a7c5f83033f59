//! Which drafts are accepted. A pure function: speculation is right exactly if this is.

use lockstep_step::TokenId;

/// What a step adds to a sequence: the accepted drafts, then the bonus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Drafts that equal the tokens drawn in their place, up to the first that doesn't.
    pub num_accepted: usize,
    /// The token drawn right after them.
    pub bonus: TokenId,
}

/// Compares drafts with draws. `draws[i]` was drawn given the drafts before `i`, so it counts only if all
/// of those were accepted. Draws may end early, where later ones don't matter: then the last draw that
/// counts is the bonus. None if nothing was drawn at all.
///
/// ```text
/// drafts    a  b  x         the sequence goes on with  a  b  c
/// draws     a  b  c  z      a, b accepted; c is the bonus; z was drawn after x and is void
/// ```
pub(crate) fn verify(
    drafts: impl Iterator<Item = TokenId>,
    mut draws: impl ExactSizeIterator<Item = TokenId> + Clone,
) -> Option<Verdict> {
    let last = draws.len().checked_sub(1)?;
    let pairs = drafts.zip(draws.clone());
    let num_equal = pairs.take_while(|(draft, draw)| draft == draw).count();
    let num_accepted = num_equal.min(last);
    Some(Verdict {
        num_accepted,
        bonus: draws.nth(num_accepted)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    /// All words of length <= 4 over three tokens.
    fn words() -> Vec<Vec<TokenId>> {
        let mut words = vec![vec![]];
        let mut from = 0;
        for _ in 0..4 {
            let to = words.len();
            for idx in from..to {
                for token in 0..3 {
                    let mut word = words[idx].clone();
                    word.push(TokenId(token));
                    words.push(word);
                }
            }
            from = to;
        }
        words
    }

    /// The tokens a plain run would commit, one at a time: it draws `draws[i]`, and the next draw is
    /// known only if the draft in that place was the same token.
    fn plain(drafts: &[TokenId], draws: &[TokenId]) -> Vec<TokenId> {
        let mut tokens = vec![];
        for (idx, &draw) in draws.iter().enumerate() {
            tokens.push(draw);
            if drafts.get(idx) != Some(&draw) {
                break;
            }
        }
        tokens
    }

    #[test]
    fn all_drafts_and_draws_of_length_4_over_three_tokens_agree_with_a_plain_run() {
        let words = words();
        assert_eq!(words.len(), 1 + 3 + 9 + 27 + 81);
        let (mut num_full, mut num_partial) = (0, 0);
        for drafts in &words {
            for draws in &words {
                let committed = plain(drafts, draws);
                let Some(verdict) = verify(drafts.iter().copied(), draws.iter().copied()) else {
                    assert!(draws.is_empty());
                    continue;
                };
                let mut tokens = drafts[..verdict.num_accepted].to_vec();
                tokens.push(verdict.bonus);
                assert_eq!(tokens, committed, "drafts {drafts:?}, draws {draws:?}");
                if verdict.num_accepted == drafts.len() {
                    num_full += 1;
                } else {
                    num_partial += 1;
                }
            }
        }
        assert!(num_full > 0 && num_partial > 0);
    }
}
