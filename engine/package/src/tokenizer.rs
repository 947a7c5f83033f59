//! Text to token ids and token ids to bytes, by a `tokenizer.json`.
//!
//! It must never turn what a client wrote into a structural token, and the bytes of a sequence are
//! always the concatenation of its tokens' bytes, so that text can be streamed token by token.
//!
//! The file's structural tokens are renamed when it is loaded, in the list of added tokens and in
//! the model's vocabulary alike, to secret names that no text holds (see `marking`); merges that
//! would spell one are left out. Hence everything else of the file, normaliser and pre-tokeniser
//! included, works as its makers meant it, flags of added tokens (`lstrip`, `rstrip`, `normalized`)
//! included.
//!
//! Sentencepiece-like vocabularies mark the start of a word with `▁` and drop the space that this
//! makes at the start of a text. That is a property of the text, not of a token:
//! [`Tokenizer::strips_leading_space`] says whether the first byte of a *whole* text is such a
//! space. What a model generates continues a prompt, so it is never stripped.

mod spelling;

use crate::error::PackageError;
use crate::marking::{Marking, Resolved};
use serde_json::Value;
use spelling::TOKEN_ID_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether structural tokens spelled out in a text are taken for what they spell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// Never: the text is ordinary, whatever it says.
    None,
    /// Always: the text is trusted, as a prompt given for plain completion is.
    Parse,
}

/// A token that was added to the model's vocabulary by hand.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AddedToken {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub content: String,
    /// Whether it is never shown.
    pub special: bool,
}

/// A tokenizer that knows each token's exact bytes.
pub struct Tokenizer {
    /// `None` in packages without a `tokenizer.json`, such as fixtures for arithmetic.
    inner: Option<tokenizers::Tokenizer>,
    path: PathBuf,
    marking: Arc<Marking>,
    added: BTreeMap<u32, AddedToken>,
    /// Indexed by token id; empty where there is no such token.
    token_bytes: Vec<Box<[u8]>>,
    prompt_prefix: Vec<u32>,
    strips_leading_space: bool,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Tokenizer {{ {} tokens of {} }}",
            self.token_bytes.len(),
            self.path.display()
        )
    }
}

impl Tokenizer {
    /// Builds the tokenizer from the contents of a `tokenizer.json`; `path` is for error messages.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Tokenizer, PackageError> {
        let mut root: Value = serde_json::from_slice(text).map_err(|error| PackageError::Json {
            path: path.to_path_buf(),
            message: error.to_string(),
        })?;
        let wrong = |message: String| PackageError::tokenizer(path, message);
        let added = added_tokens(&root).map_err(wrong)?;
        let flags: Vec<(&str, bool)> = added
            .iter()
            .map(|(token, single)| (token.content.as_str(), *single))
            .collect();
        let marking = Marking::new(&flags).map_err(wrong)?;
        rename(&mut root, &marking);
        let spelling = spelling::Spelling::of(&root).map_err(wrong)?;
        let renamed = serde_json::to_vec(&root).map_err(|error| wrong(error.to_string()))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(&renamed)
            .map_err(|error| wrong(format!("the tokenizer can't be built: {error}")))?;
        // Padding and truncation belong to training; a prompt is what it is.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|error| wrong(error.to_string()))?;
        let added: BTreeMap<u32, AddedToken> = added
            .into_iter()
            .map(|(token, _)| (token.id, token))
            .collect();
        check_ids(&inner, &marking, &added).map_err(wrong)?;
        let token_bytes = spelling::token_bytes(&inner, &added, spelling).map_err(wrong)?;
        let prompt_prefix = inner
            .encode("", true)
            .map_err(|error| wrong(error.to_string()))?
            .get_ids()
            .to_vec();
        Ok(Tokenizer {
            inner: Some(inner),
            path: path.to_path_buf(),
            marking: Arc::new(marking),
            added,
            token_bytes,
            prompt_prefix,
            strips_leading_space: spelling.strips_leading_space,
        })
    }

    /// The stand-in for a missing `tokenizer.json`: each encoding fails and says so.
    pub fn absent(path: &Path) -> Tokenizer {
        Tokenizer {
            inner: None,
            path: path.to_path_buf(),
            marking: Arc::new(Marking::default()),
            added: BTreeMap::new(),
            token_bytes: Vec::new(),
            prompt_prefix: Vec::new(),
            strips_leading_space: false,
        }
    }

    /// Whether there is a tokenizer at all; a package without one can be computed with but not
    /// served.
    pub fn is_present(&self) -> bool {
        self.inner.is_some()
    }

    /// The token ids of `text`, without any that a sequence might have to begin with.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, PackageError> {
        match special {
            Special::None => self.encode_resolved(&self.marking.plain(text)),
            Special::Parse => {
                let mut resolved = self.marking.resolve(text);
                if resolved.text != text {
                    // Private characters in the text read as stand-ins; it is ordinary text between
                    // its tokens.
                    resolved = self.parse_around_private(text);
                }
                self.encode_resolved(&resolved)
            }
        }
    }

    /// Like `Marking::resolve` for a text that was not escaped: its private characters are what
    /// they are.
    fn parse_around_private(&self, text: &str) -> Resolved {
        let mut all = Resolved {
            text: text.to_string(),
            secret: String::new(),
            cuts: Vec::new(),
        };
        for piece in text.split_inclusive(crate::marking::is_private) {
            let body = piece.trim_end_matches(crate::marking::is_private);
            all.secret.push_str(&self.marking.resolve(body).secret);
            all.secret.push_str(&piece[body.len()..]);
            all.cuts.push(all.secret.len());
        }
        all
    }

    pub(crate) fn encode_resolved(&self, resolved: &Resolved) -> Result<Vec<u32>, PackageError> {
        let Some(inner) = &self.inner else {
            let message = format!(
                "{} isn't there, so text can't be encoded",
                self.path.display()
            );
            return Err(PackageError::Encode { message });
        };
        let mut ids = Vec::new();
        let mut from = 0;
        for to in resolved.cuts.iter().copied().chain([resolved.secret.len()]) {
            let piece = &resolved.secret[from..to];
            from = to;
            if !piece.is_empty() {
                let encoding =
                    inner
                        .encode_fast(piece, false)
                        .map_err(|error| PackageError::Encode {
                            message: format!("text can't be encoded: {error}"),
                        })?;
                ids.extend_from_slice(encoding.get_ids());
            }
        }
        Ok(ids)
    }

    /// The tokens that the file puts before a plain text, such as a begin token. Chat templates
    /// write their own.
    pub fn prompt_prefix(&self) -> &[u32] {
        &self.prompt_prefix
    }

    /// The exact bytes of a token: possibly half of a character. Empty for ids that aren't tokens.
    pub fn decode_token(&self, id: u32) -> &[u8] {
        self.token_bytes.get(id as usize).map_or(&[], |bytes| bytes)
    }

    /// The exact bytes of every token, by id.
    pub fn token_bytes(&self) -> &[Box<[u8]>] {
        &self.token_bytes
    }

    /// The text of a sequence; bytes that aren't UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|id| self.decode_token(*id))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// One more than the largest token id. The model's `vocab_size` may be larger, never smaller.
    pub fn vocab_size(&self) -> usize {
        self.token_bytes.len()
    }

    /// Whether the token is marked as one that is never shown.
    pub fn is_special(&self, id: u32) -> bool {
        self.added.get(&id).is_some_and(|token| token.special)
    }

    /// Whether the token was added by hand: special, or structural such as `<think>`.
    pub fn is_added(&self, id: u32) -> bool {
        self.added.contains_key(&id)
    }

    /// All tokens added by hand, in order of id.
    pub fn added_tokens(&self) -> impl Iterator<Item = &AddedToken> {
        self.added.values()
    }

    /// The id of an added token by its text, or of a vocabulary entry as the file spells it.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        let added = self.added.values().find(|added| added.content == token);
        added
            .map(|added| added.id)
            .or_else(|| self.inner.as_ref()?.token_to_id(token))
    }

    /// Whether decoding a whole text drops one space from its start (see the module's notes).
    pub fn strips_leading_space(&self) -> bool {
        self.strips_leading_space
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn marking(&self) -> &Arc<Marking> {
        &self.marking
    }
}

/// The `added_tokens` of a tokenizer file, each with its `single_word` flag.
fn added_tokens(root: &Value) -> Result<Vec<(AddedToken, bool)>, String> {
    let mut added = Vec::new();
    let mut seen = BTreeSet::new();
    let empty = Vec::new();
    let items = match root.get("added_tokens") {
        None | Some(Value::Null) => &empty,
        Some(Value::Array(items)) => items,
        Some(other) => return Err(format!("added_tokens is {other}, expected an array")),
    };
    for (index, item) in items.iter().enumerate() {
        let id = item
            .get("id")
            .and_then(Value::as_u64)
            .and_then(|id| u32::try_from(id).ok());
        let content = item.get("content").and_then(Value::as_str);
        let (Some(id @ 0..=TOKEN_ID_MAX), Some(content)) = (id, content) else {
            return Err(format!(
                "added_tokens[{index}] is {item}, expected an id up to {TOKEN_ID_MAX} and a content"
            ));
        };
        if content.is_empty() || content.chars().any(crate::marking::is_private) {
            return Err(format!(
                "added_tokens[{index}] is {content:?}, expected ordinary text"
            ));
        }
        if !seen.insert(content.to_string()) {
            return Err(format!(
                "added_tokens[{index}] is {content:?}, which is there already"
            ));
        }
        let flag = |name: &str| item.get(name).and_then(Value::as_bool).unwrap_or(false);
        let token = AddedToken {
            id,
            content: content.to_string(),
            special: flag("special"),
        };
        added.push((token, flag("single_word")));
    }
    Ok(added)
}

/// Gives structural tokens their secret names, wherever the file names them.
fn rename(root: &mut Value, marking: &Marking) {
    let secrets: BTreeMap<&str, &str> = marking
        .tokens()
        .iter()
        .map(|token| (token.content.as_str(), token.secret.as_str()))
        .collect();
    let replace = |value: &mut Value| {
        if let Some(secret) = value.as_str().and_then(|name| secrets.get(name)) {
            *value = Value::from(*secret);
        }
    };
    for token in root
        .get_mut("added_tokens")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        token.get_mut("content").map(replace);
    }
    let Some(model) = root.get_mut("model") else {
        return;
    };
    model.get_mut("unk_token").map(replace);
    let mut in_vocab = false;
    match model.get_mut("vocab") {
        Some(Value::Object(vocab)) => {
            for (content, secret) in &secrets {
                if let Some(id) = vocab.swap_remove(*content) {
                    vocab.insert((*secret).to_string(), id);
                    in_vocab = true;
                }
            }
        }
        // Unigram models list pairs of piece and score.
        Some(Value::Array(pieces)) => {
            for piece in pieces {
                piece.get_mut(0).map(replace);
            }
        }
        _ => {}
    }
    if let Some(Value::Array(merges)) = model.get_mut("merges")
        && in_vocab
    {
        merges.retain(|merge| {
            let (left, right) = match merge {
                Value::String(pair) => pair.split_once(' ').unwrap_or((pair, "")),
                pair => (
                    pair.get(0).and_then(Value::as_str).unwrap_or(""),
                    pair.get(1).and_then(Value::as_str).unwrap_or(""),
                ),
            };
            let whole = format!("{left}{right}");
            ![left, right, &whole]
                .iter()
                .any(|name| secrets.contains_key(name))
        });
    }
}

/// The library numbers added tokens by itself; they must come out as the file says.
fn check_ids(
    inner: &tokenizers::Tokenizer,
    marking: &Marking,
    added: &BTreeMap<u32, AddedToken>,
) -> Result<(), String> {
    let secrets: BTreeMap<&str, &str> = marking
        .tokens()
        .iter()
        .map(|token| (token.content.as_str(), token.secret.as_str()))
        .collect();
    for token in added.values() {
        let name = secrets
            .get(token.content.as_str())
            .copied()
            .unwrap_or(&token.content);
        let actual = inner.token_to_id(name);
        if actual != Some(token.id) {
            return Err(format!(
                "added token {:?} has id {}, expected {actual:?} from its place in the vocabulary",
                token.content, token.id
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
