//! The tree by itself.

use super::*;
use alloc::vec::Vec;

fn tokens(words: &[u32]) -> Vec<TokenId> {
    let word = |&word: &u32| (0..BLOCK_LEN).map(move |idx| TokenId(word * 100 + idx));
    words.iter().flat_map(word).collect()
}

fn grow(tree: &mut PrefixTree, salt: &str, words: &[u32], first_block: u32) -> Vec<BlockId> {
    let tokens = tokens(words);
    let (full, _): (&[BlockTokens], _) = tokens.as_chunks();
    let mut chain: Vec<BlockId> = Vec::new();
    for (idx, tokens) in full.iter().enumerate() {
        let before = chain.last().copied();
        let known = tree.child(salt, before, tokens);
        chain.push(known.unwrap_or_else(|| {
            let block = BlockId(first_block + idx as u32);
            tree.insert(&Arc::from(salt), before, tokens, block);
            block
        }));
    }
    chain
}

#[test]
fn prefixes_are_found_by_tokens_and_salt_alone() {
    let mut tree = PrefixTree::default();
    let first = grow(&mut tree, "", &[1, 2, 3], 0);
    let second = grow(&mut tree, "", &[1, 2, 4], 10);
    assert_eq!(second, [0, 1, 12].map(BlockId), "the beginning is shared");
    assert_eq!(tree.find("", &tokens(&[1, 2, 3])).blocks, first);
    assert_eq!(tree.find("", &tokens(&[1, 2, 4, 5])).blocks, second);
    assert_eq!(
        tree.find("", &tokens(&[2, 3])).blocks,
        [],
        "not at its place"
    );
    assert_eq!(tree.find("a", &tokens(&[1, 2])).blocks, [], "another salt");
    // One token less, or another last one, is another block.
    let mut short = tokens(&[1, 2]);
    short.pop();
    assert_eq!(tree.find("", &short).blocks, first[..1]);
    short.push(TokenId(7));
    assert_eq!(tree.find("", &short).blocks, first[..1]);
    assert!(tree.is_sound());
}

#[test]
fn the_last_state_on_the_way_is_found() {
    let mut tree = PrefixTree::default();
    let chain = grow(&mut tree, "", &[1, 2, 3], 0);
    assert_eq!(tree.find("", &tokens(&[1, 2, 3])).state, None);
    tree.set_row(chain[0], RowId(7));
    tree.set_row(chain[1], RowId(8));
    assert!(!tree.lacks_row(chain[1]) && tree.lacks_row(chain[2]));
    let state = |tree: &PrefixTree, words: &[u32]| tree.find("", &tokens(words)).state;
    assert_eq!(state(&tree, &[1, 2, 3]), Some((2, RowId(8))));
    assert_eq!(state(&tree, &[1, 9]), Some((1, RowId(7))));
    tree.remove_row(RowId(8));
    assert_eq!(state(&tree, &[1, 2, 3]), Some((1, RowId(7))));
    assert!(tree.is_sound() && tree.holds_row(RowId(7)) && !tree.holds_row(RowId(8)));
}

#[test]
fn what_goes_takes_along_what_came_after_it() {
    let mut tree = PrefixTree::default();
    grow(&mut tree, "", &[1, 2, 3], 0);
    grow(&mut tree, "", &[1, 4], 10);
    grow(&mut tree, "other", &[1], 20);
    tree.set_row(BlockId(2), RowId(5));
    let removed = tree.remove(BlockId(1));
    assert_eq!(
        removed,
        [(BlockId(2), Some(RowId(5))), (BlockId(1), None)],
        "the last first"
    );
    assert!(tree.is_sound() && !tree.holds_row(RowId(5)));
    let rest = tree.find("", &tokens(&[1, 4])).blocks;
    assert_eq!(rest, [BlockId(0), BlockId(11)]);
    assert_eq!(tree.remove(BlockId(0)).len(), 2);
    assert_eq!(tree.remove(BlockId(0)), [], "it is gone");
    assert_eq!(tree.remove(BlockId(20)).len(), 1);
    assert_eq!(tree.roots.len(), 0, "a salt without prefixes is forgotten");
    assert!(tree.is_sound() && !tree.holds_block(BlockId(11)));
}
