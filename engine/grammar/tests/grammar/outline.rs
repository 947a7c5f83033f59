//! What an output may look like around calls and answers, told a second time: by looking back at all that was
//! written, where the crate goes on from what it remembers.
//!
//! Reasoning is any text up to the token `</think>`. In an answer that is free, the token `<tool_call>` opens a
//! call, unless a code fence of the answer is open. A tag that could be mistaken for one of these may not be
//! spelled out by other tokens. An answer that isn't free is calls or text of its grammar, behind at most two line
//! feeds; so are calls behind the first.

use crate::formats;
use crate::reference::{RuleId, Rules, Ways};
use crate::shapes::{Parameters, parameters};
use crate::toy::{END, SILENT, VOCAB_SIZE, piece, text};
use lockstep_grammar::{Answer, Constraint, Reasoning, Tool, ToolChoice};
use lockstep_step::{Bitmask, TokenId};
use lockstep_tags::TagFormat;
use proptest::prelude::*;

/// What is asked of an output.
#[derive(Clone, Debug)]
pub struct Asked {
    pub format: TagFormat,
    pub reasoning: Reasoning,
    pub choice: ToolChoice,
    pub parallel: bool,
    pub tools: Vec<(&'static str, Parameters)>,
    pub answer: Option<Parameters>,
}

impl Asked {
    pub fn constraint(&self) -> Constraint {
        let tools = self.tools.iter();
        let tool = |(name, parameters): &(&str, Parameters)| Tool {
            name: (*name).to_string(),
            parameters: Some(parameters.schema()),
            strictness: lockstep_grammar::Strictness::Schema,
        };
        Constraint {
            format: self.format,
            reasoning: self.reasoning,
            tools: tools.map(tool).collect(),
            choice: self.choice.clone(),
            parallel: self.parallel,
            answer: match &self.answer {
                Some(parameters) => Answer::JsonSchema(parameters.schema()),
                None => Answer::Free,
            },
        }
    }

    fn needs_call(&self) -> bool {
        matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    fn is_free(&self) -> bool {
        self.answer.is_none() && !self.needs_call()
    }

    /// Tools that may be called.
    fn callable(&self) -> Vec<(&str, &Parameters)> {
        let tools = self.tools.iter().filter(|(name, _)| match &self.choice {
            ToolChoice::Forbidden => false,
            ToolChoice::Auto | ToolChoice::Required => true,
            ToolChoice::Named(chosen) => name == chosen,
        });
        tools
            .map(|(name, parameters)| (*name, parameters))
            .collect()
    }

    /// What may not be spelled out where no call is.
    fn openers(&self) -> &'static [&'static str] {
        match (self.tools.is_empty(), self.format) {
            (true, _) => &[],
            (false, TagFormat::QwenXml) => &["<tool_call>", "<function="],
            (false, _) => &["<tool_call>"],
        }
    }

    /// Whether text in a call spells out a tag that would end a value.
    fn spells_value_end(&self, text: &[u8]) -> bool {
        match self.format {
            TagFormat::Glm => contains(text, "</arg_value>") || contains(text, "<arg_key>"),
            // Behind a line feed it does end the value.
            TagFormat::QwenXml => {
                let tag = b"</parameter>";
                let mut places = text.windows(tag.len()).enumerate();
                places.any(|(at, part)| part == tag && (at == 0 || text[at - 1] != b'\n'))
            }
            _ => false,
        }
    }
}

/// What may be asked of outputs of one format: two tools of any arguments, and no grammar of the answer.
pub fn asked(format: TagFormat) -> impl Strategy<Value = Asked> {
    let choice = prop_oneof![
        4 => Just(ToolChoice::Auto),
        4 => Just(ToolChoice::Required),
        1 => Just(ToolChoice::Named("fg".to_string())),
        1 => Just(ToolChoice::Forbidden),
    ];
    let reasoning = vec![Reasoning::Off, Reasoning::Open, Reasoning::Closed];
    let reasoning = proptest::sample::select(reasoning);
    (parameters(), parameters(), choice, reasoning, any::<bool>()).prop_map(
        move |(first, second, choice, reasoning, parallel)| Asked {
            format,
            reasoning,
            choice,
            parallel,
            tools: vec![("f", first), ("fg", second)],
            answer: None,
        },
    )
}

fn contains(text: &[u8], tag: &str) -> bool {
    text.windows(tag.len()).any(|part| part == tag.as_bytes())
}

/// The part of an output that is being written.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Blanks, or the beginning of `<think>`.
    Start,
    Reasoning,
    Answer,
    /// The answer under its grammar.
    Held(Ways),
    Call(Ways),
}

/// Where an output stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    part: Part,
    /// Text of this part since its start, or since the last tag in it.
    said: Vec<u8>,
    /// Text of the answer outside calls.
    content: Vec<u8>,
    pub num_calls: u32,
}

impl Spot {
    /// Whether a grammar decides what comes next.
    pub fn is_held(&self) -> bool {
        matches!(self.part, Part::Held(_) | Part::Call(_))
    }
}

/// The second witness.
pub struct Outline {
    asked: Asked,
    rules: Rules,
    call: Option<Ways>,
    answer: Option<Ways>,
}

impl Outline {
    pub fn new(asked: &Asked) -> Outline {
        let mut rules = Rules::default();
        let begin = |rules: &mut Rules, rule: RuleId| rules.begin(rule);
        let tools = asked.callable();
        let call = (!tools.is_empty()).then(|| formats::call(asked.format, &tools, &mut rules));
        let answer = asked.answer.as_ref();
        let answer = answer.map(|parameters| formats::json(parameters, &mut rules));
        Outline {
            call: call.map(|rule| begin(&mut rules, rule)),
            answer: answer.map(|rule| begin(&mut rules, rule)),
            asked: asked.clone(),
            rules,
        }
    }

    /// The start of an output.
    pub fn begin(&self) -> Spot {
        Spot {
            part: match self.asked.reasoning {
                Reasoning::Off => Part::Answer,
                Reasoning::Open => Part::Reasoning,
                Reasoning::Closed => Part::Start,
            },
            said: Vec::new(),
            content: Vec::new(),
            num_calls: 0,
        }
    }

    /// Whether an output may end here.
    pub fn may_end(&self, spot: &Spot) -> bool {
        match &spot.part {
            Part::Start | Part::Reasoning => self.asked.is_free(),
            Part::Answer => self.asked.is_free() || spot.num_calls > 0,
            Part::Held(ways) => ways.may_end(),
            Part::Call(_) => false,
        }
    }

    /// Every token that may come next, found by trying each.
    pub fn mask(&self, spot: &Spot) -> Bitmask {
        let mut mask = Bitmask::none(VOCAB_SIZE);
        let first: Option<Vec<Ways>> = match &spot.part {
            Part::Held(ways) | Part::Call(ways) => {
                Some((0..=255).map(|byte| self.rules.byte(ways, byte)).collect())
            }
            _ => None,
        };
        for token in (0..VOCAB_SIZE).map(TokenId) {
            // A token whose first byte doesn't fit need not be tried in full.
            let dead = match (&first, text(token).first()) {
                (Some(first), Some(&byte)) => !is_tag(token) && first[byte as usize].is_dead(),
                _ => false,
            };
            if !dead && (self.step(spot, token).is_some() || (token == END && self.may_end(spot))) {
                mask.allow(token);
            }
        }
        mask
    }

    /// After one more token; None if it may not come.
    pub fn step(&self, spot: &Spot, token: TokenId) -> Option<Spot> {
        if token == END {
            return None;
        }
        match &spot.part {
            Part::Start => self.start(spot, token),
            Part::Reasoning => self.reasoning(spot, token),
            Part::Answer => self.answer(spot, token),
            Part::Held(ways) => {
                let ways = self.through(ways, token)?;
                let after = self.at(spot, Part::Held(ways), token);
                (!self.spells_opener(&after.said)).then_some(after)
            }
            Part::Call(ways) => self.in_call(spot, ways, token),
        }
    }

    fn at(&self, spot: &Spot, part: Part, token: TokenId) -> Spot {
        Spot {
            part,
            said: [&spot.said[..], &text(token)].concat(),
            ..spot.clone()
        }
    }

    /// Text of a token through a grammar; tags and control tokens are no text.
    fn through(&self, ways: &Ways, token: TokenId) -> Option<Ways> {
        let text = text(token);
        if is_tag(token) || text.is_empty() {
            return None;
        }
        let mut ways = ways.clone();
        for byte in text {
            ways = self.rules.byte(&ways, byte);
            if ways.is_dead() {
                return None;
            }
        }
        Some(ways)
    }

    fn spells_opener(&self, said: &[u8]) -> bool {
        self.asked.openers().iter().any(|tag| contains(said, tag))
    }

    fn start(&self, spot: &Spot, token: TokenId) -> Option<Spot> {
        let inside = |said: &[u8]| {
            let blank = |byte: &u8| !b" \t\r\n".contains(byte);
            said[said.iter().position(blank).unwrap_or(said.len())..].to_vec()
        };
        if token == piece("<think>") && inside(&spot.said).is_empty() {
            return Some(Spot {
                part: Part::Reasoning,
                said: Vec::new(),
                ..spot.clone()
            });
        }
        let after = self.answer(spot, token)?;
        if !matches!(after.part, Part::Answer) {
            return Some(after);
        }
        if contains(&after.said, "<think>") {
            return None;
        }
        let may_still_open = b"<think>".starts_with(&inside(&after.said)[..]);
        Some(Spot {
            part: if may_still_open {
                Part::Start
            } else {
                Part::Answer
            },
            ..after
        })
    }

    fn reasoning(&self, spot: &Spot, token: TokenId) -> Option<Spot> {
        if token == piece("</think>") {
            return Some(Spot {
                part: Part::Answer,
                said: Vec::new(),
                content: Vec::new(),
                num_calls: 0,
            });
        }
        let after = self.at(spot, Part::Reasoning, token);
        let fits = !contains(&after.said, "</think>") && !self.spells_opener(&after.said);
        fits.then_some(after)
    }

    fn answer(&self, spot: &Spot, token: TokenId) -> Option<Spot> {
        if !self.asked.parallel && spot.num_calls > 0 && self.call.is_some() {
            return None;
        }
        let is_free = self.asked.is_free();
        if token == piece("<tool_call>") && !self.asked.tools.is_empty() {
            let in_fence = is_free && in_fence(&String::from_utf8_lossy(&spot.content));
            let ways = self.call.clone().filter(|_| !in_fence)?;
            return Some(Spot {
                part: Part::Call(ways),
                said: Vec::new(),
                ..spot.clone()
            });
        }
        let mut after = self.at(spot, Part::Answer, token);
        if is_free {
            after.content.extend(text(token));
            return (!self.spells_opener(&after.said)).then_some(after);
        }
        if let Some(ways) = &self.answer
            && spot.num_calls == 0
            && !self.asked.needs_call()
            && let Some(ways) = self.through(ways, token)
        {
            let held = self.at(spot, Part::Held(ways), token);
            return (!self.spells_opener(&held.said)).then_some(held);
        }
        let is_layout = matches!(&after.said[..], b"\n" | b"\n\n") && token != SILENT;
        (is_layout && !text(token).is_empty()).then_some(after)
    }

    fn in_call(&self, spot: &Spot, ways: &Ways, token: TokenId) -> Option<Spot> {
        if !is_tag(token) {
            let ways = self.through(ways, token)?;
            let after = self.at(spot, Part::Call(ways), token);
            return (!self.asked.spells_value_end(&after.said)).then_some(after);
        }
        let ways = self.rules.by_id(ways, token);
        if ways.is_dead() {
            return None;
        }
        let ended = ways.may_end();
        Some(Spot {
            part: if ended {
                Part::Answer
            } else {
                Part::Call(ways)
            },
            said: Vec::new(),
            content: spot.content.clone(),
            num_calls: spot.num_calls + u32::from(ended),
        })
    }
}

/// Tags that may be matched by their ids.
fn is_tag(token: TokenId) -> bool {
    (256..264).contains(&token.0)
}

/// Whether a code fence is open at the end of a text, line by line.
fn in_fence(text: &str) -> bool {
    let mut open: Option<(char, usize)> = None;
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    for (idx, line) in lines.iter().enumerate() {
        let is_done = idx + 1 < lines.len();
        let inside = line.trim_start_matches(' ');
        let mark = inside.chars().next().filter(|c| "`~".contains(*c));
        let Some(mark) = mark.filter(|_| line.len() - inside.len() <= 3) else {
            continue;
        };
        let rest = inside.trim_start_matches(mark);
        let len = inside.len() - rest.len();
        match open {
            None => {
                let is_span = mark == '`' && rest.contains('`');
                if len >= 3 && !is_span && is_done {
                    open = Some((mark, len));
                }
            }
            Some((opened, opened_len)) => {
                let is_bare = rest.trim_matches([' ', '\t']).is_empty();
                if opened == mark && len >= opened_len && is_bare {
                    open = None;
                }
            }
        }
    }
    open.is_some()
}

#[test]
fn fences_are_told_apart() {
    for open in [
        "```\n",
        "a\n~~~x`\nb",
        "```\n``\n",
        "````\n```\n",
        "```\r    ```",
    ] {
        assert!(in_fence(open), "{open:?}");
    }
    for closed in [
        "",
        "```",
        "```\n```",
        "``` a`\n",
        "    ```\n",
        "```\nx\n ```` \t\n",
    ] {
        assert!(!in_fence(closed), "{closed:?}");
    }
}
