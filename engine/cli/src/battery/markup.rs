//! Text that belongs to a model's format and stands where a user reads: special tokens and tags that were not
//! parsed. Plain search in text: it must never be asked about answers to questions on markup itself.

use lockstep_tags::{THINK_TAGS, TagFormat};
use std::collections::BTreeSet;

/// Openers of calls and what closes them. Those of one pair may stand inside another.
const PAIRS: &[(&str, &str)] = &[
    ("<tool_call>", "</tool_call>"),
    ("<function=", "</function>"),
    ("<minimax:tool_call>", "</minimax:tool_call>"),
    ("<invoke name=\"", "</invoke>"),
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
    ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
];

/// The longest text between the bars of a special token, in characters.
const SPECIAL_CHARS_MAX: usize = 40;

/// How a call stands in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallInText {
    /// Opened and closed: nobody read it.
    Whole(&'static str),
    /// Opened and never closed.
    Unclosed(&'static str),
}

/// The first call that stands in a text as markup; one that is not closed counts before those that are.
pub fn call_in_text(text: &str) -> Option<CallInText> {
    let opened = PAIRS.iter().filter_map(|(open, close)| {
        let last = text.rfind(open)?;
        Some(match text[last..].contains(close) {
            true => CallInText::Whole(open),
            false => CallInText::Unclosed(open),
        })
    });
    let found: Vec<CallInText> = opened.collect();
    let unclosed = |call: &&CallInText| matches!(call, CallInText::Unclosed(_));
    found.iter().find(unclosed).or(found.first()).copied()
}

/// Tags of all known formats that stand in a text, each once; those with bars are special tokens.
pub fn tags(text: &str) -> BTreeSet<&'static str> {
    let of_formats = TagFormat::ALL.into_iter().flat_map(TagFormat::call_tags);
    let known = of_formats.chain(&THINK_TAGS).copied();
    let is_tag = |tag: &&str| !tag.starts_with("<|") && !tag.starts_with("<｜");
    known
        .filter(is_tag)
        .filter(|tag| text.contains(tag))
        .collect()
}

/// Special tokens that stand in a text, `<|…|>` and the same with wide bars, each once.
pub fn special_tokens(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (open, close) in [("<|", "|>"), ("<｜", "｜>")] {
        for (at, _) in text.match_indices(open) {
            let inner = &text[at + open.len()..];
            let Some(end) = inner.find(close) else {
                break;
            };
            let word = |c: char| c.is_alphanumeric() || "_▁-/. ".contains(c);
            let name = &inner[..end];
            let is_name = !name.is_empty() && name.chars().all(word);
            if is_name && name.chars().count() <= SPECIAL_CHARS_MAX {
                found.insert(&text[at..at + open.len() + end + close.len()]);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_with_calls_has_its_pair() {
        for format in TagFormat::ALL {
            // gpt-oss has no pair: its calls end with a special token of the turn.
            if matches!(format, TagFormat::Plain | TagFormat::Harmony) {
                continue;
            }
            let tags = format.call_tags();
            let known = |(open, close): &&(&str, &str)| tags.contains(open) && tags.contains(close);
            assert!(PAIRS.iter().any(|pair| known(&pair)), "{format}");
        }
        for (open, close) in PAIRS {
            let known = |tag: &str| TagFormat::ALL.iter().any(|f| f.call_tags().contains(&tag));
            assert!(known(open) && known(close), "{open} {close}");
        }
    }

    #[test]
    fn calls_in_text() {
        use CallInText::{Unclosed, Whole};
        let rows = [
            ("no call < here", None),
            ("a <tool_call>{\"name\": 1}", Some(Unclosed("<tool_call>"))),
            ("a <tool_call>x</tool_call> b", Some(Whole("<tool_call>"))),
            (
                "<tool_call>x</tool_call><tool_call>",
                Some(Unclosed("<tool_call>")),
            ),
            (
                "<tool_call><function=a></tool_call>",
                Some(Unclosed("<function=")),
            ),
            ("</tool_call>", None),
            (
                "<|tool_call_begin|>f:0",
                Some(Unclosed("<|tool_call_begin|>")),
            ),
        ];
        for (text, expected) in rows {
            assert_eq!(call_in_text(text), expected, "{text}");
        }
    }

    #[test]
    fn special_tokens_and_tags() {
        let specials = |text| special_tokens(text).into_iter().collect::<Vec<_>>();
        assert_eq!(specials("a<|im_end|>b<|im_end|>"), ["<|im_end|>"]);
        assert_eq!(specials("<｜end▁of▁sentence｜>"), ["<｜end▁of▁sentence｜>"]);
        assert_eq!(specials("<|<|user|>"), ["<|user|>"]);
        assert!(specials("a <| b || c |> and x<|y").is_empty());
        assert!(specials(&format!("<|{}|>", "a".repeat(41))).is_empty());
        let found = tags("x</think> <arg_key> <|call|>");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            ["</think>", "<arg_key>"]
        );
    }
}
