//! The vocabularies that masks are measured over: a model's own, with the tags of all formats added where
//! it has none, and one that is made up to a given size.

use lockstep_grammar::{GrammarVocabulary, Tokenize, VocabularyParts};
use lockstep_package::Package;
use lockstep_step::TokenId;
use std::{collections::BTreeMap, sync::Arc};

/// A vocabulary, ready to be measured.
pub struct Named {
    /// Shown above its figures.
    pub name: String,
    pub vocabulary: Arc<GrammarVocabulary>,
    pub tokenize: Tokenize,
}

const TAGS: [&str; 6] = [
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

/// A package's own vocabulary.
pub fn of_package(package: &Package) -> Named {
    let vocab_size = u32::try_from(package.contract.vocab_size).unwrap_or(u32::MAX);
    let tokens = (0..vocab_size).map(|id| package.tokenizer.decode_token(id).to_vec());
    let special = (0..vocab_size).map(|id| package.tokenizer.is_special(id));
    named(
        "the model's vocabulary",
        tokens.collect(),
        special.collect(),
    )
}

/// A made-up vocabulary: all bytes, then ever longer words of a few hundred syllables, with and without a
/// space before them, as byte-pair vocabularies have them.
pub fn synthetic(num_tokens: u32) -> Named {
    let num_tokens = num_tokens as usize;
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|byte| vec![byte]).collect();
    let marks = [
        "\": ", "\", \"", "\"}", "\"]", "{\"", "[\"", ": ", ", ", "\n\n", "\n</", ">\n", "</",
    ];
    tokens.extend(marks.iter().map(|mark| mark.as_bytes().to_vec()));
    let mut syllables = Vec::new();
    for start in [
        "", "b", "ch", "d", "f", "gr", "h", "l", "m", "n", "p", "r", "s", "st", "t", "w",
    ] {
        for middle in ["a", "e", "i", "o", "u", "ea", "ou"] {
            for end in ["", "n", "r", "s", "t"] {
                syllables.push(format!("{start}{middle}{end}"));
            }
        }
    }
    let mut words = vec![String::new()];
    'all: for from in 0.. {
        for syllable in &syllables {
            let word = format!("{}{syllable}", words[from]);
            for text in [format!(" {word}"), word.clone()] {
                tokens.push(text.into_bytes());
                if tokens.len() >= num_tokens {
                    break 'all;
                }
            }
            words.push(word);
        }
    }
    let special = vec![false; tokens.len()];
    named(&format!("{num_tokens} made-up tokens"), tokens, special)
}

fn named(name: &str, mut tokens: Vec<Vec<u8>>, mut special: Vec<bool>) -> Named {
    let mut num_added = 0;
    for tag in TAGS {
        if !tokens.iter().any(|token| token == tag.as_bytes()) {
            tokens.push(tag.as_bytes().to_vec());
            special.push(false);
            num_added += 1;
        }
    }
    let end = TokenId(u32::try_from(tokens.len()).unwrap_or(u32::MAX));
    tokens.push(b"<|end|>".to_vec());
    special.push(true);
    let name = format!(
        "{name} ({} tokens, {num_added} of them tags added)",
        tokens.len()
    );
    let tokenize = longest_match(&tokens, &special);
    let vocabulary = GrammarVocabulary::new(VocabularyParts {
        token_bytes: tokens,
        special,
        end_tokens: vec![end],
        tokenize: tokenize.clone(),
    });
    let vocabulary = vocabulary.unwrap_or_else(|error| panic!("{name}: {error}"));
    Named {
        name,
        vocabulary: Arc::new(vocabulary),
        tokenize,
    }
}

/// Always the longest token: near enough to what a model writes, and the same for every vocabulary.
fn longest_match(tokens: &[Vec<u8>], special: &[bool]) -> Tokenize {
    let texts = tokens.iter().zip(special).zip(0..);
    let ids: BTreeMap<Vec<u8>, u32> = texts
        .filter(|((text, special), _)| !text.is_empty() && !**special)
        .map(|((text, _), id)| (text.clone(), id))
        .collect();
    let len_max = ids.keys().map(Vec::len).max().unwrap_or(1);
    Arc::new(move |text: &str| {
        let mut found = Vec::new();
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let lens = (1..=len_max.min(rest.len())).rev();
            let longest = lens
                .filter(|&len| !cuts_tag(rest, len))
                .find_map(|len| ids.get(&rest[..len]).map(|&id| (len, id)));
            // A vocabulary without this byte can't write the text.
            let Some((len, id)) = longest else { break };
            found.push(TokenId(id));
            rest = &rest[len..];
        }
        found
    })
}

/// Whether a tag begins inside the first `len` bytes, so that a token there would cut it.
fn cuts_tag(text: &[u8], len: usize) -> bool {
    (1..len).any(|from| {
        TAGS.iter()
            .any(|tag| text[from..].starts_with(tag.as_bytes()))
    })
}
