//! How a vocabulary spells bytes: the way from a token's name to the bytes that it stands for.
//!
//! It must never fall back on a guess: a decoder that isn't known is refused by name.

use super::AddedToken;
use serde_json::Value;
use std::collections::BTreeMap;

/// The largest token id that is believed. Real vocabularies are below 2^19.
pub(super) const TOKEN_ID_MAX: u32 = (1 << 22) - 1;

/// How a vocabulary spells the bytes of its tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spelling {
    /// Each character stands for one byte, as in GPT-2.
    byte_level: bool,
    /// `▁` stands for a space.
    metaspace: bool,
    /// `<0x41>` stands for one byte.
    byte_fallback: bool,
    /// Whether decoding a whole text drops one space from its start.
    pub(super) strips_leading_space: bool,
}

impl Spelling {
    pub(super) fn of(root: &Value) -> Result<Spelling, String> {
        let mut text = Spelling {
            byte_level: false,
            metaspace: false,
            byte_fallback: false,
            strips_leading_space: false,
        };
        match root.get("decoder") {
            None | Some(Value::Null) => {
                // Without a decoder, the pre-tokeniser is what says how text became token names.
                let pre = root
                    .get("pre_tokenizer")
                    .map(Value::to_string)
                    .unwrap_or_default();
                text.byte_level = pre.contains("\"ByteLevel\"");
                text.metaspace = pre.contains("\"Metaspace\"");
            }
            Some(decoder) => text.add(decoder)?,
        }
        Ok(text)
    }

    fn add(&mut self, decoder: &Value) -> Result<(), String> {
        match decoder.get("type").and_then(Value::as_str) {
            Some("Sequence") => {
                for part in decoder
                    .get("decoders")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    self.add(part)?;
                }
            }
            Some("ByteLevel") => self.byte_level = true,
            Some("ByteFallback") => self.byte_fallback = true,
            Some("Fuse") => {}
            Some("Metaspace") => {
                self.metaspace = true;
                let scheme = decoder.get("prepend_scheme").and_then(Value::as_str);
                self.strips_leading_space = scheme != Some("never");
            }
            Some("Replace") => {
                let pattern = decoder.pointer("/pattern/String").and_then(Value::as_str);
                let content = decoder.get("content").and_then(Value::as_str);
                if (pattern, content) != (Some("▁"), Some(" ")) {
                    return Err(format!("decoder {decoder} is not supported"));
                }
                self.metaspace = true;
            }
            Some("Strip") => {
                let start = decoder.get("start").and_then(Value::as_u64);
                let stop = decoder.get("stop").and_then(Value::as_u64);
                if start > Some(1) || stop > Some(0) {
                    return Err(format!("decoder {decoder} is not supported"));
                }
                self.strips_leading_space = start == Some(1);
            }
            other => {
                return Err(format!(
                    "decoder type is {other:?}, expected ByteLevel, ByteFallback, Fuse, Metaspace, \
                     Replace, Strip or a Sequence of them"
                ));
            }
        }
        Ok(())
    }

    /// The bytes that a vocabulary entry stands for.
    fn bytes(self, name: &str, alphabet: &BTreeMap<char, u8>) -> Vec<u8> {
        if self.byte_level {
            let mut bytes = Vec::with_capacity(name.len());
            for c in name.chars() {
                match alphabet.get(&c) {
                    Some(byte) => bytes.push(*byte),
                    None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            return bytes;
        }
        if self.byte_fallback
            && let Some(hex) = name
                .strip_prefix("<0x")
                .and_then(|rest| rest.strip_suffix('>'))
            && hex.len() == 2
            && let Ok(byte) = u8::from_str_radix(hex, 16)
        {
            return vec![byte];
        }
        if self.metaspace {
            return name.replace('▁', " ").into_bytes();
        }
        name.as_bytes().to_vec()
    }
}

/// GPT-2's alphabet: printable bytes stand for themselves, the others for characters from U+0100
/// on.
fn byte_alphabet() -> BTreeMap<char, u8> {
    let mut alphabet = BTreeMap::new();
    let mut moved = 0x100;
    for byte in 0..=255u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = match printable {
            true => u32::from(byte),
            false => {
                moved += 1;
                moved - 1
            }
        };
        if let Some(c) = char::from_u32(code) {
            alphabet.insert(c, byte);
        }
    }
    alphabet
}

/// The exact bytes of every token, by id.
pub(super) fn token_bytes(
    inner: &tokenizers::Tokenizer,
    added: &BTreeMap<u32, AddedToken>,
    text: Spelling,
) -> Result<Vec<Box<[u8]>>, String> {
    let alphabet = byte_alphabet();
    // Sorted, since the library's map has no defined order.
    let vocab: BTreeMap<u32, String> = inner
        .get_vocab(true)
        .into_iter()
        .map(|(name, id)| (id, name))
        .collect();
    let largest = vocab.last_key_value().map_or(0, |(id, _)| *id);
    if largest > TOKEN_ID_MAX {
        return Err(format!(
            "a token has id {largest}, expected at most {TOKEN_ID_MAX}"
        ));
    }
    if vocab.is_empty() {
        return Err("the vocabulary is empty, expected tokens".to_string());
    }
    let mut bytes = vec![Box::default(); largest as usize + 1];
    for (id, name) in vocab {
        bytes[id as usize] = match added.get(&id) {
            Some(token) => token.content.as_bytes().into(),
            None => text.bytes(&name, &alphabet).into(),
        };
    }
    Ok(bytes)
}
