//! Look-alikes: tags spelled out by ordinary tokens, which a reader of text would take for the tag. For
//! each place in a text this knows which tokens would complete one. It must never forbid a token that
//! doesn't.

use crate::vocabulary::GrammarVocabulary;
use lockstep_step::{Bitmask, TokenId};

/// How much of a tag stands at the end of a text: a node of the trie of all tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partial(u16);

impl Partial {
    pub(crate) const NONE: Partial = Partial(0);
}

/// Follows some tags through a text.
pub(crate) struct Spellings {
    nodes: Vec<Node>,
    /// Tokens that are tags, and no look-alikes of any.
    structural: Vec<TokenId>,
    /// Whether a tag right after a line feed is no look-alike.
    fine_after_line_feed: bool,
    /// By node: the tokens that complete no tag. Control tokens, which have no text, are among them.
    masks: Vec<Bitmask>,
}

#[derive(Default)]
struct Node {
    path: Vec<u8>,
    /// Where a byte leads, in the order of bytes.
    next: Vec<(u8, u16)>,
    ends_tag: bool,
}

/// The node after a line feed, where that matters.
const AFTER_LINE_FEED: u16 = 1;

impl Spellings {
    /// The given tags, each of which begins with the only `<` in it. `structural` tokens are always fine.
    pub(crate) fn new(
        tags: &[&str],
        structural: &[TokenId],
        fine_after_line_feed: bool,
        vocabulary: &GrammarVocabulary,
    ) -> Spellings {
        let mut nodes = vec![Node::default(), Node::default()];
        for tag in tags {
            assert!(
                tag.starts_with('<') && !tag[1..].contains('<'),
                "{tag:?} can't be followed"
            );
            let mut at = 0;
            for (idx, &byte) in tag.as_bytes().iter().enumerate() {
                let known = nodes[at].next.iter().find(|(next, _)| *next == byte);
                at = match known {
                    Some(&(_, next)) => next as usize,
                    None => {
                        let next = nodes.len();
                        nodes[at].next.push((byte, next as u16));
                        nodes[at].next.sort_unstable();
                        nodes.push(Node {
                            path: tag.as_bytes()[..=idx].to_vec(),
                            ..Node::default()
                        });
                        next
                    }
                };
            }
            nodes[at].ends_tag = true;
        }
        let mut spellings = Spellings {
            nodes,
            structural: structural.to_vec(),
            fine_after_line_feed,
            masks: Vec::new(),
        };
        spellings.masks = spellings.masks_of(vocabulary);
        spellings
    }

    /// The place after more text; None if the text completes a tag.
    pub(crate) fn advance(&self, from: Partial, text: &[u8]) -> Option<Partial> {
        let mut at = from.0;
        for &byte in text {
            at = self.next(at, byte);
            if self.nodes[at as usize].ends_tag {
                return None;
            }
        }
        Some(Partial(at))
    }

    /// The place after a token with this text; None if the token completes a tag.
    pub(crate) fn step(&self, from: Partial, text: &[u8], token: TokenId) -> Option<Partial> {
        if !self.mask(from).allows(token) {
            return None;
        }
        match self.structural.contains(&token) {
            true => Some(Partial::NONE),
            false => self.advance(from, text),
        }
    }

    fn next(&self, at: u16, byte: u8) -> u16 {
        let next = |at: u16| {
            let next = &self.nodes[at as usize].next;
            next.iter().find(|(b, _)| *b == byte).map(|(_, to)| *to)
        };
        let restart = || match byte {
            b'\n' if self.fine_after_line_feed => AFTER_LINE_FEED,
            b'<' if at == AFTER_LINE_FEED => 0,
            _ => next(0).unwrap_or(0),
        };
        next(at).unwrap_or_else(restart)
    }

    /// The text of a partial tag.
    pub(crate) fn path(&self, at: Partial) -> &[u8] {
        &self.nodes[at.0 as usize].path
    }

    /// The tokens that complete no tag at this place.
    pub(crate) fn mask(&self, at: Partial) -> &Bitmask {
        &self.masks[at.0 as usize]
    }

    fn masks_of(&self, vocabulary: &GrammarVocabulary) -> Vec<Bitmask> {
        let mask_at = |at: usize, base: Option<&Bitmask>| {
            let size = vocabulary.vocab_size();
            let mut mask = base.cloned().unwrap_or_else(|| Bitmask::all(size));
            for (token, text) in vocabulary.texts() {
                // A token that goes on with no tag of this place reads as it does anywhere.
                let goes_on = |byte: u8| self.nodes[at].next.iter().any(|(b, _)| *b == byte);
                if base.is_some() && at as u16 != AFTER_LINE_FEED && !goes_on(text[0]) {
                    continue;
                }
                match self.advance(Partial(at as u16), text) {
                    Some(_) => mask.allow(token),
                    None => mask.forbid(token),
                }
            }
            for &token in &self.structural {
                mask.allow(token);
            }
            mask
        };
        let anywhere = mask_at(0, None);
        let rest = (1..self.nodes.len()).map(|at| mask_at(at, Some(&anywhere)));
        std::iter::once(anywhere.clone())
            .chain(rest.collect::<Vec<_>>())
            .collect()
    }
}
