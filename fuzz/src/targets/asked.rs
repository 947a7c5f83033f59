//! What is asked of an output, read out of bytes: the requests that `agreement` and `masks` walk under.

use crate::decode::{between, byte, pick};
use crate::outline::Asked;
use crate::shapes::{Field, Parameters, Shape};
use crate::toy::{END, PIECES, VOCABULARY, piece, text, tokens};
use arbitrary::Unstructured;
use lockstep_grammar::{Compiler, GrammarLimits, Reasoning, ToolChoice};
use lockstep_step::{Bitmask, TokenId};
use lockstep_tags::TagFormat;
use std::sync::{Arc, LazyLock};

/// What the formats write.
pub const DICTIONARY: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<function=f>",
    "</function>",
    "<parameter=",
    "</parameter>",
    "{\"name\": \"f\", \"arguments\": {",
    "\"a\": ",
    "\n```\n",
    "~~~\n",
    "null",
    "true",
    "12",
    "\n",
    "fg",
    "seats",
];

/// One for the process: compiled grammars are kept by content, so an input finds what it would make.
pub static COMPILER: LazyLock<Arc<Compiler>> =
    LazyLock::new(|| Arc::new(Compiler::new(VOCABULARY.clone(), GrammarLimits::default())));

/// Reads what is asked.
pub fn asked(input: &mut Unstructured<'_>) -> Asked {
    let format = *pick(
        input,
        &[TagFormat::Glm, TagFormat::QwenXml, TagFormat::HermesJson],
    );
    let choice = match byte(input) % 8 {
        0..3 => ToolChoice::Auto,
        3..6 => ToolChoice::Required,
        6 => ToolChoice::Named("fg".to_string()),
        _ => ToolChoice::Forbidden,
    };
    let reasoning = *pick(input, &[Reasoning::Off, Reasoning::Open, Reasoning::Closed]);
    let flags = byte(input);
    Asked {
        format,
        reasoning,
        choice,
        parallel: flags & 1 != 0,
        tools: vec![("f", parameters(input)), ("fg", parameters(input))],
        answer: (flags & 6 == 6).then(|| parameters(input)),
    }
}

fn parameters(input: &mut Unstructured<'_>) -> Parameters {
    let first = match leaf(input) {
        Shape::Defined(_) => Shape::Boolean,
        shape => shape,
    };
    Parameters::new(fields(input, 2), first)
}

const NAMES: &[&str] = &["a", "ab", "b", "seats", "true"];
const WORDS: &[&str] = &[
    "a", "ab", "x y", "é", "null", "12", "true", "[1]", "", "\n", "a\"b", "</", "{",
];

fn fields(input: &mut Unstructured<'_>, depth: u32) -> Vec<Field> {
    let first = usize::from(byte(input));
    let num_fields = usize::from(byte(input)) % 4;
    // Names follow each other round, so that none comes twice.
    let names = (0..num_fields).map(|idx| NAMES[(first + idx * 2) % NAMES.len()]);
    let names: Vec<&'static str> = names.collect();
    let field = |name| Field {
        name,
        required: byte(input) & 1 == 0,
        shape: shape(input, depth),
    };
    names.into_iter().map(field).collect()
}

fn shape(input: &mut Unstructured<'_>, depth: u32) -> Shape {
    if depth == 0 {
        return leaf(input);
    }
    match byte(input) % 8 {
        0 => {
            let (min, len) = (between(input, 0, 2), between(input, 0, 3));
            let max = (len < 3).then_some(min + len);
            Shape::Array(Box::new(shape(input, depth - 1)), min, max)
        }
        1 => Shape::Object(fields(input, depth - 1)),
        2 => {
            let num_shapes = between(input, 1, 3);
            Shape::AnyOf((0..num_shapes).map(|_| shape(input, depth - 1)).collect())
        }
        3 => Shape::Nullable(Box::new(shape(input, depth - 1))),
        _ => leaf(input),
    }
}

fn leaf(input: &mut Unstructured<'_>) -> Shape {
    match byte(input) % 11 {
        0 => Shape::Null,
        1 => Shape::Boolean,
        2 => Shape::Integer(None),
        3 => {
            let low = i64::from(byte(input) as i8);
            Shape::Integer(Some((low, low + i64::from(byte(input)))))
        }
        4 => Shape::Number,
        5 => Shape::Text(0, None),
        6 => {
            let min = between(input, 0, 2);
            Shape::Text(min, Some(min + between(input, 0, 2)))
        }
        7 => Shape::Text(between(input, 0, 2), None),
        8 => {
            let first = usize::from(byte(input));
            let words = (0..=first % 3).map(|idx| WORDS[(first + idx * 5) % WORDS.len()]);
            Shape::Words(words.collect())
        }
        9 => Shape::Numbers([-12, 0, 1, 12, 120][..between(input, 1, 5) as usize].to_vec()),
        _ => Shape::Defined(between(input, 0, 1) as usize),
    }
}

/// What ends something, most wanted first.
const CLOSERS: &[&str] = &[
    "</tool_call>",
    "</arg_value>",
    "</think>",
    "\n</parameter>\n",
    "</function>\n",
    "}",
    "]",
    "\"",
    "<tool_call>",
    ",",
];

/// Reads tokens out of text: a tag that is allowed as a token is one, and of what is not allowed something
/// else that is comes in its place. Where the text is over it makes for an end.
pub struct Reader<'a> {
    rest: &'a [u8],
    planned: Vec<TokenId>,
    num_closed: usize,
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub fn new(rest: &'a [u8]) -> Reader<'a> {
        Reader {
            rest,
            planned: Vec::new(),
            num_closed: 0,
        }
    }

    /// The next token, which the mask allows; the end where nothing else is left.
    pub fn choose(&mut self, mask: &Bitmask) -> TokenId {
        if let Some(token) = self.planned.pop().filter(|&token| mask.allows(token)) {
            return token;
        }
        self.planned.clear();
        let Some((&first, after)) = self.rest.split_first() else {
            return self.close(mask);
        };
        // A byte that is in no text asks for the end.
        if first == 0xff && mask.allows(END) {
            self.rest = after;
            return END;
        }
        let tag = PIECES
            .iter()
            .filter(|word| word.len() > 1 && self.rest.starts_with(word.as_bytes()))
            .filter(|word| mask.allows(piece(word)))
            .max_by_key(|word| word.len());
        if let Some(word) = tag {
            self.rest = &self.rest[word.len()..];
            return piece(word);
        }
        self.rest = after;
        let token = TokenId(u32::from(first));
        match mask.allows(token) {
            true => token,
            false => any(mask, first).unwrap_or(END),
        }
    }

    fn close(&mut self, mask: &Bitmask) -> TokenId {
        if mask.allows(END) {
            return END;
        }
        self.num_closed += 1;
        for closer in CLOSERS {
            let mut plan = tokens(closer);
            plan.reverse();
            let fits = plan.last().is_some_and(|&token| mask.allows(token));
            // A string may hold all of them: its own end comes first now and then.
            if fits && !(self.num_closed.is_multiple_of(3) && closer.len() > 1) {
                self.planned = plan;
                return self.planned.pop().expect("a closer is not empty");
            }
        }
        any(mask, 0).unwrap_or(END)
    }
}

/// One of the allowed tokens that have a text, by a number.
fn any(mask: &Bitmask, number: u8) -> Option<TokenId> {
    let allowed = (0..mask.vocab_size()).map(TokenId);
    let allowed = allowed.filter(|&token| mask.allows(token) && !text(token).is_empty());
    let allowed: Vec<TokenId> = allowed.collect();
    let idx = usize::from(number) % allowed.len().max(1);
    allowed.get(idx).copied()
}
