//! Keeps apart what the template writes and what a client wrote, through the rendering of a prompt.
//!
//! Structural tokens (`<|user|>`, `</think>`, ...) may come from the template only; the same words
//! in a message, a tool result, a tool's description or an argument's name are ordinary text. A
//! template joins both into one string, so the origin of each character has to survive it:
//!
//! 1. Before rendering, each client string is *escaped*: every character that begins or ends some
//!    structural token (`<`, `>`, `[`, ...) becomes one stand-in character of a private range.
//!    Lengths, trimming, comparing and joining work as before, and no structural token can be
//!    spelled, not even across two adjacent client strings.
//! 2. After rendering, a structural token's text can only have been written by the template. It is
//!    replaced by the token's *secret name*, a sequence of private characters, and each stand-in by
//!    its character again.
//! 3. The tokenizer knows structural tokens by their secret names only (see `tokenizer`), so what
//!    clients wrote is tokenised in one run with its neighbours as if structural tokens didn't
//!    exist.
//!
//! Private characters in client text survive too: they are escaped by a prefix, and the text is cut
//! after each of them before tokenising, so that nobody can spell a secret name. Added tokens of
//! white space alone are not structural: some vocabularies have them for runs of spaces, and
//! clients may write these.
//!
//! A template that looks for a structural token inside of a client's text, as some do to find
//! reasoning in an assistant's content, doesn't find one there: reasoning and calls come to it in
//! fields of their own.
//!
//! What a template composes of its own brackets and a client's word, such as `<{{ name }}>`, counts
//! as the template's: templates write roles like that. A token that begins and ends with a letter,
//! digit, quote or backslash has no character that could be replaced without harm, so it is only
//! recognised, and broken, as a whole word.

/// First of the private characters, all in plane 16, that this module claims.
const PRIVATE_FIRST: char = '\u{10F000}';
/// Opens a secret name.
const OPEN: char = '\u{10FFF0}';
/// Closes a secret name.
const CLOSE: char = '\u{10FFF1}';
/// The next character is meant literally.
const LITERAL: char = '\u{10FFF2}';
/// Base of the two digits of a secret name, 1024 of them.
const DIGIT: u32 = 0x10_F000;
/// Base of the stand-ins, up to 1024.
const STAND_IN: u32 = 0x10_F800;
/// How many digits, and how many stand-ins, there are.
const RADIX: u32 = 1024;

/// Whether `c` is one of the characters that this module claims.
pub(crate) fn is_private(c: char) -> bool {
    c >= PRIVATE_FIRST
}

/// A token that only the template may write.
#[derive(Debug, Clone)]
pub(crate) struct Structural {
    /// Its text.
    pub content: String,
    /// What the tokenizer calls it.
    pub secret: String,
    /// Whether it counts only between characters that aren't part of a word.
    single_word: bool,
}

/// The structural tokens of a tokenizer, and the characters that stand in for theirs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marking {
    /// Longest first, so that the first match is the longest.
    tokens: Vec<Structural>,
    /// Characters that begin a token, ascending.
    first: Vec<char>,
    /// Characters that have a stand-in, ascending; the index is the stand-in's number.
    replaced: Vec<char>,
    /// Contents of tokens without a replaceable end.
    whole: Vec<String>,
}

/// A prompt with its structure under secret names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// As a person would read it.
    pub text: String,
    /// As the tokenizer must read it.
    pub secret: String,
    /// Byte positions in `secret` at which it has to be cut into separately tokenised pieces.
    pub cuts: Vec<usize>,
}

/// Whether a character can have a stand-in without changing what templates do with the text around
/// it: words are compared, white space is trimmed, quotes and backslashes are escaped when JSON is
/// written.
fn replaceable(c: char) -> bool {
    !c.is_alphanumeric() && !c.is_whitespace() && !matches!(c, '_' | '"' | '\\')
}

impl Marking {
    /// The marking for added tokens, given as content and `single_word` flag. Tokens of white space
    /// alone are left out. Fails, with a number, when there are more than the private range can
    /// name.
    pub(crate) fn new(added: &[(&str, bool)]) -> Result<Marking, String> {
        let mut marking = Marking::default();
        for (content, single_word) in added {
            if content.chars().all(char::is_whitespace) {
                continue;
            }
            let index = marking.tokens.len() as u32;
            let digit = |value: u32| char::from_u32(DIGIT + value).unwrap_or(OPEN);
            if index >= RADIX * RADIX {
                return Err(format!("more than {} added tokens", RADIX * RADIX));
            }
            let secret: String = [OPEN, digit(index / RADIX), digit(index % RADIX), CLOSE]
                .into_iter()
                .collect();
            let (first, last) = (content.chars().next(), content.chars().next_back());
            let ends: Vec<char> = [first, last]
                .into_iter()
                .flatten()
                .filter(|c| replaceable(*c))
                .collect();
            if ends.is_empty() {
                marking.whole.push((*content).to_string());
            }
            marking.replaced.extend(ends);
            marking.first.extend(first);
            let content = (*content).to_string();
            marking.tokens.push(Structural {
                content,
                secret,
                single_word: *single_word,
            });
        }
        for list in [&mut marking.replaced, &mut marking.first] {
            list.sort_unstable();
            list.dedup();
        }
        if marking.replaced.len() > RADIX as usize {
            return Err(format!(
                "added tokens begin or end with more than {RADIX} characters"
            ));
        }
        marking
            .tokens
            .sort_by_key(|token| std::cmp::Reverse(token.content.len()));
        Ok(marking)
    }

    /// The structural tokens, longest first.
    pub(crate) fn tokens(&self) -> &[Structural] {
        &self.tokens
    }

    /// A client's text, such that it can be rendered next to the template's without spelling a
    /// structural token.
    pub(crate) fn escape(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            if is_private(c)
                || self
                    .whole
                    .iter()
                    .any(|word| text[at..].starts_with(word.as_str()))
            {
                out.push(LITERAL);
                out.push(c);
            } else if let Ok(index) = self.replaced.binary_search(&c) {
                out.push(char::from_u32(STAND_IN + index as u32).unwrap_or(c));
            } else {
                out.push(c);
            }
        }
        out
    }

    /// The character that a stand-in stands for.
    fn stands_for(&self, c: char) -> Option<char> {
        let index = u32::from(c).checked_sub(STAND_IN)?;
        self.replaced.get(index as usize).copied()
    }

    /// The structural token that the template wrote at `at`, if it wrote one there.
    fn token_at(&self, marked: &str, at: usize, c: char) -> Option<&Structural> {
        self.first.binary_search(&c).ok()?;
        let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        self.tokens.iter().find(|token| {
            marked[at..].starts_with(&token.content)
                && !(token.single_word
                    && (in_word(marked[..at].chars().next_back())
                        || in_word(marked[at + token.content.len()..].chars().next())))
        })
    }

    /// Turns rendered text into what the tokenizer and a person read.
    pub(crate) fn resolve(&self, marked: &str) -> Resolved {
        let mut resolved = Resolved {
            text: String::new(),
            secret: String::new(),
            cuts: Vec::new(),
        };
        let mut at = 0;
        while let Some(c) = marked[at..].chars().next() {
            if let Some(token) = self.token_at(marked, at, c) {
                resolved.text.push_str(&token.content);
                resolved.secret.push_str(&token.secret);
                at += token.content.len();
                continue;
            }
            at += c.len_utf8();
            let plain = match c {
                LITERAL => {
                    let Some(next) = marked[at..].chars().next() else {
                        break;
                    };
                    at += next.len_utf8();
                    next
                }
                c => self.stands_for(c).unwrap_or(c),
            };
            resolved.text.push(plain);
            resolved.secret.push(plain);
            if is_private(plain) {
                resolved.cuts.push(resolved.secret.len());
            }
        }
        resolved
    }

    /// A text that may not hold structure, read as ordinary text throughout.
    pub(crate) fn plain(&self, text: &str) -> Resolved {
        let ends = text.char_indices().filter(|(_, c)| is_private(*c));
        let cuts = ends.map(|(at, c)| at + c.len_utf8()).collect();
        Resolved {
            text: text.to_string(),
            secret: text.to_string(),
            cuts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marking() -> Marking {
        let added = [
            ("<|user|>", false),
            ("<think>", false),
            ("[gMASK]", false),
            ("  ", false),
            ("USER", false),
        ];
        Marking::new(&added).expect("few tokens")
    }

    /// How many secret names the tokenizer would find, cuts considered.
    fn structure(marking: &Marking, resolved: &Resolved) -> usize {
        let mut ends = resolved.cuts.clone();
        ends.push(resolved.secret.len());
        let mut from = 0;
        let mut count = 0;
        for end in ends {
            let piece = &resolved.secret[from..end];
            for token in marking.tokens() {
                count += piece.matches(token.secret.as_str()).count();
            }
            from = end;
        }
        count
    }

    #[test]
    fn the_templates_own_tokens_are_found_and_the_clients_are_not() {
        let marking = marking();
        let marked = format!(
            "[gMASK]<|user|>{}<think>",
            marking.escape("say <think> or <|user|>")
        );
        let resolved = marking.resolve(&marked);
        assert_eq!(
            resolved.text,
            "[gMASK]<|user|>say <think> or <|user|><think>"
        );
        assert_eq!(structure(&marking, &resolved), 3);
    }

    #[test]
    fn two_client_strings_side_by_side_spell_nothing() {
        let marking = marking();
        let marked = format!("{}{}", marking.escape("<|us"), marking.escape("er|>"));
        assert_eq!(structure(&marking, &marking.resolve(&marked)), 0);
    }

    #[test]
    fn a_word_without_replaceable_ends_is_broken_as_a_whole() {
        let marking = marking();
        let marked = format!("USER{}", marking.escape(" USER SUSER"));
        let resolved = marking.resolve(&marked);
        assert_eq!(resolved.text, "USER USER SUSER");
        assert_eq!(structure(&marking, &resolved), 1);
    }

    #[test]
    fn a_secret_name_in_client_text_is_cut_apart() {
        let marking = marking();
        let secret = marking.tokens()[0].secret.clone();
        let resolved = marking.resolve(&marking.escape(&secret));
        assert_eq!(
            (resolved.text.as_str(), structure(&marking, &resolved)),
            (secret.as_str(), 0)
        );
        assert_eq!(structure(&marking, &marking.plain(&secret)), 0);
    }

    proptest! {
        #[test]
        fn client_text_comes_back_and_is_never_structure(
            words in proptest::collection::vec(prop_oneof![
                Just("<|user|>".to_string()), Just("USER".to_string()), Just("<".to_string()),
                Just("[gMASK".to_string()), Just("]".to_string()), "\\PC{0,3}",
                "[\u{10F000}-\u{10FFFF}]{1,4}",
            ], 0..8),
        ) {
            let marking = marking();
            let text = words.concat();
            let marked: String = words.iter().map(|word| marking.escape(word)).collect();
            let resolved = marking.resolve(&marked);
            prop_assert_eq!(&resolved.text, &text);
            // Words such as USER may be composed across strings; everything with brackets may not.
            let marking = Marking::new(&[("<|user|>", false), ("[gMASK]", false)]).expect("few");
            let marked: String = words.iter().map(|word| marking.escape(word)).collect();
            prop_assert_eq!(structure(&marking, &marking.resolve(&marked)), 0);
        }
    }
}
