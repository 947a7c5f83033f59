//! A vocabulary that is small enough to try every token: all bytes, the tags, and some longer pieces that
//! straddle what the formats write.

use lockstep_grammar::{
    Answer, Boundary, Compiler, Constraint, ConstraintError, GrammarLimits, GrammarVocabulary,
    Reasoning, Strictness, Tool, ToolChoice, VocabularyParts,
};
use lockstep_step::{Bitmask, Matcher, TokenId};
use lockstep_tags::TagFormat;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// Tokens after the 256 single bytes.
pub const PIECES: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "\n\n",
    "<tool",
    "_call>",
    "<arg",
    "_value>",
    "</",
    "</arg_",
    "think>",
    "<function=",
    "<param",
    "eter=",
    "</parameter>",
    ">\n",
    "\n</",
    "```",
    "```\n",
    "\": ",
    "{\"",
    "\"}",
    "},",
    "true",
    "null",
    "12",
    "é",
    "a b",
    "x</arg_value>y",
];

/// Control tokens after those: the end, and one that means nothing.
pub const END: TokenId = TokenId(256 + PIECES.len() as u32);
pub const SILENT: TokenId = TokenId(END.0 + 1);
pub const VOCAB_SIZE: u32 = SILENT.0 + 2;

/// The text of a token, tags included.
pub fn text(token: TokenId) -> Vec<u8> {
    match token.0 {
        id @ 0..256 => vec![id as u8],
        id => PIECES
            .get(id as usize - 256)
            .map_or(Vec::new(), |piece| piece.as_bytes().to_vec()),
    }
}

pub fn piece(text: &str) -> TokenId {
    let found = PIECES.iter().position(|piece| *piece == text);
    TokenId(256 + found.unwrap_or_else(|| panic!("no piece {text:?}")) as u32)
}

/// Tags as tokens, all else as the longest pieces that are no tags.
pub fn tokens(text: &str) -> Vec<TokenId> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let cuts_tag = |piece: &str| {
            let inside = (1..piece.len()).filter(|&idx| rest.is_char_boundary(idx));
            inside
                .into_iter()
                .any(|idx| PIECES[..8].iter().any(|tag| rest[idx..].starts_with(tag)))
        };
        let found = PIECES
            .iter()
            .filter(|piece| rest.starts_with(**piece) && !cuts_tag(piece));
        match found.max_by_key(|piece| piece.len()) {
            Some(found) => {
                out.push(piece(found));
                rest = &rest[found.len()..];
            }
            None => {
                let len = rest.chars().next().map_or(1, char::len_utf8);
                match len {
                    1 => out.push(TokenId(u32::from(first))),
                    len => out.extend(
                        rest.as_bytes()[..len]
                            .iter()
                            .map(|b| TokenId(u32::from(*b))),
                    ),
                }
                rest = &rest[len..];
            }
        }
    }
    out
}

/// The same without any tag as a token.
pub fn spelled(text: &str) -> Vec<TokenId> {
    text.bytes().map(|byte| TokenId(u32::from(byte))).collect()
}

pub static VOCABULARY: LazyLock<Arc<GrammarVocabulary>> = LazyLock::new(|| {
    let ids = (0..VOCAB_SIZE).map(TokenId);
    let parts = VocabularyParts {
        token_bytes: ids
            .clone()
            .map(|id| {
                if id == END {
                    b"<|end|>".to_vec()
                } else {
                    text(id)
                }
            })
            .collect(),
        special: ids.map(|id| id == END || id == SILENT).collect(),
        end_tokens: vec![END],
        tokenize: Arc::new(tokens),
    };
    Arc::new(GrammarVocabulary::new(parts).expect("a vocabulary"))
});

pub fn tool(name: &str, parameters: Value) -> Tool {
    Tool {
        name: name.to_string(),
        parameters: Some(parameters),
        strictness: Strictness::Schema,
    }
}

pub fn constraint(format: TagFormat, tools: Vec<Tool>, choice: ToolChoice) -> Constraint {
    Constraint {
        format,
        reasoning: Reasoning::Off,
        tools,
        choice,
        parallel: true,
        answer: Answer::Free,
    }
}

/// A compiler that the tests of this process share.
static COMPILER: LazyLock<Compiler> =
    LazyLock::new(|| Compiler::new(VOCABULARY.clone(), GrammarLimits::default()));

pub fn matcher(constraint: &Constraint) -> Boundary {
    COMPILER
        .matcher(constraint)
        .expect("a constraint that can be held")
        .expect("a constraint that holds something")
}

/// Why a constraint can't be held.
pub fn refusal(constraint: &Constraint) -> ConstraintError {
    match COMPILER.matcher(constraint) {
        Err(error) => error,
        Ok(_) => panic!("it can be held"),
    }
}

pub fn mask(matcher: &mut Boundary) -> Bitmask {
    let mut mask = Bitmask::none(VOCAB_SIZE);
    matcher.fill(&mut mask).expect("a mask");
    mask
}

/// Takes tokens as long as they are allowed; the mask and the matcher must agree on each.
pub fn walk(matcher: &mut Boundary, tokens: &[TokenId]) -> usize {
    for (idx, &token) in tokens.iter().enumerate() {
        let allowed = mask(matcher).allows(token);
        let taken = matcher.consume(token).is_ok();
        assert_eq!(
            allowed,
            taken,
            "token {idx} {:?}",
            String::from_utf8_lossy(&text(token))
        );
        if !taken {
            let said: Vec<u8> = tokens[..idx]
                .iter()
                .flat_map(|&token| text(token))
                .collect();
            println!(
                "after {:?}: no {:?}",
                String::from_utf8_lossy(&said),
                String::from_utf8_lossy(&text(token))
            );
            return idx;
        }
    }
    tokens.len()
}

/// Whether an output of these tokens is allowed to its end.
pub fn admits(constraint: &Constraint, tokens: &[TokenId]) -> bool {
    let mut matcher = matcher(constraint);
    let num_taken = walk(&mut matcher, tokens);
    assert_eq!(mask(&mut matcher).allows(END), matcher.can_finish());
    num_taken == tokens.len() && matcher.can_finish()
}
