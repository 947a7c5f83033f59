//! The vocabulary as grammars see it: each token's text, the tokens that are tags, and the trie that masks
//! are computed over.

use llguidance::{ParserFactory, api::ParserLimits};
use lockstep_step::{Bitmask, TokenId};
use std::{collections::BTreeMap, sync::Arc};
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

/// Turns text into tokens, as the model's own tokenizer does, without reading control tokens out of it.
pub type Tokenize = Arc<dyn Fn(&str) -> Vec<TokenId> + Send + Sync>;

/// What a model's tokenizer is made of.
pub struct VocabularyParts {
    /// The text of each token, as bytes; empty where the id is no token. As many as a row of logits is wide.
    pub token_bytes: Vec<Vec<u8>>,
    /// Whether each token is a control token, which never appears as text.
    pub special: Vec<bool>,
    /// The tokens that end an answer.
    pub end_tokens: Vec<TokenId>,
    /// The canonical tokenisation.
    pub tokenize: Tokenize,
}

/// A vocabulary, prepared once per model.
pub struct GrammarVocabulary {
    parts: VocabularyParts,
    vocab_size: u32,
    /// Tokens without text, by id: control tokens and ids that are no token.
    silent: Vec<bool>,
    /// Tokens of one line feed, and of two.
    line_feeds: [Vec<TokenId>; 2],
    /// Tokens without an opening bracket of JSON.
    flat: Bitmask,
    /// The tokens that tags are.
    tags: BTreeMap<&'static str, TokenId>,
    factory: ParserFactory,
}

/// Texts that most constrained strings may contain, each among those before it: for these, masks are
/// prepared in advance. None has the character that tags begin with; the later ones have nothing that JSON
/// would escape, and bounds that short strings can still hold.
const SLICES: [&str; 4] = [
    r#"[^<]+"#,
    r#"[^"\\\x00-\x1F\x7F<]+"#,
    r#"[^"\\\x00-\x1F\x7F<]{1,30}"#,
    r#"[^"\\\x00-\x1F\x7F<]{1,10}"#,
];

impl GrammarVocabulary {
    /// Prepares a vocabulary.
    ///
    /// # Errors
    /// If the parts contradict each other, in words.
    pub fn new(parts: VocabularyParts) -> Result<GrammarVocabulary, String> {
        let num_tokens = parts.token_bytes.len();
        if parts.special.len() != num_tokens {
            let num_flags = parts.special.len();
            return Err(format!("{num_tokens} tokens with {num_flags} flags"));
        }
        // Ids of the trie have 24 bits; one more is the end that no token of the model is.
        let vocab_size = u32::try_from(num_tokens)
            .ok()
            .filter(|&size| (1..(1 << 24) - 2).contains(&size))
            .ok_or_else(|| format!("{num_tokens} tokens, expected 1 to {}", (1 << 24) - 3))?;
        let silent: Vec<bool> = parts
            .token_bytes
            .iter()
            .zip(&parts.special)
            .map(|(bytes, &special)| special || bytes.is_empty())
            .collect();
        let mut words = parts.token_bytes.clone();
        for (id, word) in words.iter_mut().enumerate() {
            // Tags are matched by id, never by text.
            if silent[id] || is_tag_text(word) {
                word.clear();
            }
        }
        words.push(Vec::new());
        let info = TokRxInfo::new(vocab_size + 1, vocab_size);
        let trie = TokTrie::from(&info, &words);
        let env: TokEnv = Arc::new(Env { trie });
        let slices = SLICES.map(str::to_string);
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| format!("the vocabulary can't be prepared: {error}"))?;
        factory.quiet();
        // Looked for here: each request asks for several, and a vocabulary is long.
        let mut tags = BTreeMap::new();
        for (id, text) in (0..vocab_size).zip(&parts.token_bytes) {
            if let Some(&tag) = TAGS.iter().find(|tag| tag.as_bytes() == text) {
                tags.entry(tag).or_insert(TokenId(id));
            }
        }
        let mut flat = Bitmask::all(vocab_size);
        for (id, text) in (0..vocab_size).zip(&parts.token_bytes) {
            if text.iter().any(|byte| matches!(byte, b'[' | b'{')) {
                flat.forbid(TokenId(id));
            }
        }
        let exactly = |text: &[u8]| {
            let ids = (0..vocab_size).zip(&parts.token_bytes).zip(&silent);
            let found = ids.filter(|((_, bytes), silent)| !**silent && *bytes == text);
            found.map(|((id, _), _)| TokenId(id)).collect()
        };
        Ok(GrammarVocabulary {
            line_feeds: [exactly(b"\n"), exactly(b"\n\n")],
            tags,
            flat,
            vocab_size,
            parts,
            silent,
            factory,
        })
    }

    /// Width of a mask.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    /// Ids from here on have no text, not even that of a control token.
    #[cfg(planted)]
    pub(crate) fn num_tokens(&self) -> u32 {
        let texts = &self.parts.token_bytes;
        let last = texts.iter().rposition(|text| !text.is_empty());
        last.map_or(0, |last| last as u32 + 1)
    }

    /// The text of a token; empty for control tokens.
    pub(crate) fn text(&self, token: TokenId) -> &[u8] {
        match self.silent.get(token.0 as usize) {
            Some(false) => &self.parts.token_bytes[token.0 as usize],
            _ => &[],
        }
    }

    /// All tokens that have a text, in ascending order of their ids.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (TokenId, &[u8])> {
        let ids = 0..self.vocab_size();
        ids.map(|id| (TokenId(id), self.text(TokenId(id))))
            .filter(|(_, text)| !text.is_empty())
    }

    /// The token that one of the [`TAGS`] is, if it is one: the first whose text is exactly the tag.
    pub(crate) fn tag(&self, spelled: &str) -> Option<TokenId> {
        self.tags.get(spelled).copied()
    }

    pub(crate) fn end_tokens(&self) -> &[TokenId] {
        &self.parts.end_tokens
    }

    pub(crate) fn is_end(&self, token: TokenId) -> bool {
        self.parts.end_tokens.contains(&token)
    }

    /// The tokens that open no bracket of JSON.
    pub(crate) fn flat(&self) -> &Bitmask {
        &self.flat
    }

    /// The tokens that are this many line feeds, 1 or 2, and nothing else.
    pub(crate) fn line_feeds(&self, num: u8) -> &[TokenId] {
        match num {
            1 => &self.line_feeds[0],
            _ => &self.line_feeds[1],
        }
    }

    pub(crate) fn tokenize(&self, text: &str) -> Vec<TokenId> {
        (self.parts.tokenize)(text)
    }

    /// A factory of parsers under these limits.
    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    /// The limits that every parser has.
    pub(crate) fn limits(&self) -> ParserLimits {
        self.factory.limits().clone()
    }
}

/// Tags of all formats that a grammar can hold, and those of reasoning.
pub(crate) const TAGS: [&str; 8] = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

fn is_tag_text(text: &[u8]) -> bool {
    TAGS.iter().any(|tag| tag.as_bytes() == text)
}

struct Env {
    trie: TokTrie,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.greedy_tokenize(bytes)
    }

    /// Not so: a mask is then exactly the tokens whose bytes the grammar admits, and depends on nothing
    /// else. Canonical tokens are offered as drafts instead.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
