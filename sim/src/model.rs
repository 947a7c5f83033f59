//! A small model to serve: a vocabulary of bytes, words and tags, a template, and what the hashes are made to say for
//! some prompts. It must never be easier to serve than a real one: tokens end in the middle of tags and characters,
//! and the logits are wider than the vocabulary.

use lockstep_fingerprint::{Drafting, Fingerprint, FingerprintConfig, Script};
use lockstep_package::Package;
use lockstep_server::{
    ChatModel, ChatPrompt, ModelContract, ModelError, SamplingDefaults, SamplingRanges,
};
use lockstep_step::{BackendLimits, TokenId, planted};
use lockstep_tags::TagFormat;
use serde_json::{Map, Value};
use std::sync::{Arc, LazyLock};

/// Words, pieces of JSON, pieces of tags and whole characters: tokens that cross the borders that parsers look for.
const WORDS: &[&str] = &[
    " the",
    "the",
    " and",
    "ing",
    " a",
    "th",
    "in",
    "er",
    " is",
    " city",
    "city",
    "Lima",
    " Lima",
    "Paris",
    "weather",
    "add",
    "unit",
    "name",
    "arguments",
    "true",
    "false",
    "null",
    "\n\n",
    "{\"",
    "\"}",
    "\": \"",
    "\", \"",
    "\":",
    "\"}}",
    "}}",
    "{}",
    ": ",
    ", ",
    "</",
    "</th",
    "ink>",
    "<tool",
    "_call>",
    "arg_",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    " END",
    "END",
    "ST",
    "OP",
    "é",
    "日本",
    "12",
    "34",
    "0.5",
    "\"}\n",
    ">\n",
    "\n<",
    END_AND_START,
];

const END_AND_START: &str = "</tool_call> <tool_call>";

/// Control tokens; those from `<think>` on are tags of formats.
const CONTROL: &[&str] = &[
    START,
    "<|endoftext|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

/// What every sequence begins with.
const START: &str = "<|start|>";

/// Ids past the vocabulary that the logits have all the same.
const NUM_PADDING: usize = 13;

/// A word after which the template refuses the conversation.
pub const REFUSED_WORD: &str = "%refuse%";
/// A word on which the tokenizer breaks.
pub const BROKEN_WORD: &str = "%break%";
/// A character on which the logits are no numbers.
pub const POISON: char = '\u{7}';

/// The toy model.
pub struct ToyModel {
    format: TagFormat,
    tokens: Vec<Vec<u8>>,
    first_control: usize,
    // By first byte, longest first.
    by_byte: Vec<Vec<TokenId>>,
}

impl ToyModel {
    /// One that writes calls in this format.
    pub fn new(format: TagFormat) -> ToyModel {
        let bytes = (0..=255u8).map(|byte| vec![byte]);
        let words = WORDS.iter().map(|word| word.as_bytes().to_vec());
        let mut tokens: Vec<Vec<u8>> = bytes.chain(words).collect();
        let first_control = tokens.len();
        tokens.extend(CONTROL.iter().map(|tag| tag.as_bytes().to_vec()));
        let mut by_byte = vec![Vec::new(); 256];
        for (idx, token) in tokens.iter().enumerate() {
            by_byte[token[0] as usize].push(TokenId(idx as u32));
        }
        for ids in &mut by_byte {
            ids.sort_by_key(|id| std::cmp::Reverse(tokens[id.0 as usize].len()));
        }
        ToyModel {
            format,
            tokens,
            first_control,
            by_byte,
        }
    }

    /// Width of a row of logits.
    pub fn vocab_size(&self) -> u32 {
        (self.tokens.len() + NUM_PADDING) as u32
    }

    fn control(&self, tag: &str) -> TokenId {
        let idx = CONTROL.iter().position(|known| *known == tag);
        TokenId((self.first_control + idx.unwrap_or(0)) as u32)
    }

    fn end_tokens(&self) -> Vec<TokenId> {
        let ends = ["<|endoftext|>", "<|user|>", "<|observation|>"];
        let num_read = match () {
            // Planted: JustVugg/colibri#1478.
            () if planted!(EndTokensDropped) => 0,
            // Planted: onnxruntime/mobius#521.
            () if planted!(OneEndToken) => 1,
            () => ends.len(),
        };
        let ends = ends.iter().take(num_read);
        ends.map(|tag| self.control(tag)).collect()
    }

    /// Control tokens first, where they count as such, and between them the longest word at each place.
    pub fn encode(&self, text: &str, control: bool) -> Vec<TokenId> {
        let tags = CONTROL.iter().filter(|_| control);
        let found = tags.filter_map(|tag| Some((text.find(tag)?, *tag))).min();
        let Some((at, tag)) = found else {
            return self.words(text);
        };
        let (before, after) = (self.words(&text[..at]), &text[at + tag.len()..]);
        [before, vec![self.control(tag)], self.encode(after, control)].concat()
    }

    fn words(&self, text: &str) -> Vec<TokenId> {
        let (mut rest, mut ids) = (text.as_bytes(), Vec::new());
        while let Some(&first) = rest.first() {
            let fits = |id: &&TokenId| {
                let idx = id.0 as usize;
                idx < self.first_control && rest.starts_with(&self.tokens[idx])
            };
            let Some(&id) = self.by_byte[first as usize].iter().find(fits) else {
                break;
            };
            rest = &rest[self.tokens[id.0 as usize].len()..];
            ids.push(id);
        }
        ids
    }

    /// Hashes that speak this model's language, with `limits` but for the width of the logits.
    pub fn hashes(
        &self,
        limits: BackendLimits,
        drafters: Vec<Drafting>,
        fixed: bool,
    ) -> Fingerprint {
        let limits = BackendLimits {
            vocab_size: self.vocab_size(),
            ..limits
        };
        let mut config = FingerprintConfig::new(limits);
        // What the hashes alone never say for long; the first tokens that end an answer are rare.
        for (tag, value) in [
            ("<|endoftext|>", 0.15),
            ("<|user|>", 0.1),
            ("</think>", 0.6),
            ("<tool_call>", 0.3),
            ("</tool_call>", 0.5),
            ("</arg_value>", 0.4),
        ] {
            config.bias.push((self.control(tag), value));
        }
        for text in ["\"", "}", "\n", " END", "日本", "\"}}", " the"] {
            let ids = self.encode(text, false);
            config.bias.extend(ids.first().map(|id| (*id, 0.4)));
        }
        config.bias.sort_by_key(|(token, _)| *token);
        config.poison = Some(TokenId(POISON as u32));
        config.scripts = self.scripts();
        // Few values, so that many tokens are equally likely.
        config.grain = 1.0 / 64.0;
        config.drafters = drafters;
        config.static_buffers = fixed;
        Fingerprint::new(config)
    }

    fn scripts(&self) -> Vec<Script> {
        let weather = self.call("weather", &[("city", "Lima")]);
        let add = self.call("add", &[("a", "12"), ("b", "34")]);
        let bodies = [
            "Lima is the city and the city is Lima and the city is Lima END of the city".to_owned(),
            weather.clone(),
            format!("Let me see the city.\n{weather}\n{add}"),
            "日本 é 日本 é and 日本".to_owned(),
            weather.replace("</tool_call>", ""),
            "a b c d ".repeat(24),
            format!("{weather} and the city is Lima"),
            self.call("unknown", &[("x", "1")]),
            "</th".to_owned() + "ink> is the end of STOP and " + POISON_FREE,
            String::new(),
            format!("{add}{weather}{add}"),
            "{\"city\": \"Lima\", \"unit\": \"c\"}".to_owned(),
            format!("{weather} {add}"),
            "the <tool_call> city".to_owned(),
            "Lima is 12 and".to_owned(),
        ];
        let mut scripts = Vec::new();
        for (idx, body) in bodies.iter().enumerate() {
            for (sign, lead) in [('#', ""), ('$', "The city is Lima.\n</think>\n")] {
                let when = trigger(sign, idx);
                let mut output = self.encode(lead, true);
                if (sign, idx) == ('$', 9) {
                    // It ends while it thinks.
                    output = self.encode("The city is Lima", true);
                }
                // The characters of one are cut into bytes.
                match idx {
                    3 => output.extend(body.bytes().map(|byte| TokenId(u32::from(byte)))),
                    // The end of one call and the start of the next are one token of another.
                    12 => {
                        let (first, second) = body.split_once(END_AND_START).unwrap_or_default();
                        output.extend(self.encode(first, true));
                        output.extend(self.words(END_AND_START));
                        output.extend(self.encode(second, true));
                    }
                    _ => output.extend(self.encode(body, true)),
                }
                output.push(self.control("<|endoftext|>"));
                // Nobody must hear what comes after the end, though a model that drafts says it.
                output.extend(self.encode(" and the city is old", false));
                scripts.push(Script {
                    when: self.encode(&when, false),
                    output,
                });
            }
        }
        scripts
    }

    /// A call as this model writes it.
    fn call(&self, name: &str, arguments: &[(&str, &str)]) -> String {
        let mut text = String::from("<tool_call>");
        match self.format {
            TagFormat::QwenXml => {
                text += &format!("\n<function={name}>\n");
                for (key, value) in arguments {
                    text += &format!("<parameter={key}>\n{value}\n</parameter>\n");
                }
                text += "</function>\n";
            }
            TagFormat::HermesJson => {
                let is_number = |value: &str| value.parse::<u32>().is_ok();
                let pair = |(key, value): &(&str, &str)| match is_number(value) {
                    true => format!("\"{key}\": {value}"),
                    false => format!("\"{key}\": \"{value}\""),
                };
                let pairs: Vec<String> = arguments.iter().map(pair).collect();
                let pairs = pairs.join(", ");
                text += &format!("\n{{\"name\": \"{name}\", \"arguments\": {{{pairs}}}}}\n");
            }
            _ => {
                text += &format!("{name}\n");
                for (key, value) in arguments {
                    text += &format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n");
                }
            }
        }
        text + "</tool_call>"
    }
}

const POISON_FREE: &str = "Lima";

/// Outputs that can be asked for.
pub const NUM_SCRIPTS: usize = 15;

/// Those that call.
pub const CALLS: &[usize] = &[1, 2, 4, 6, 7, 10, 12];

/// Those that begin as answers of a certain form do, and go on after it.
pub const STRUCTURED: &[usize] = &[0, 11, 13, 14];

/// The word that makes the model say an output; `$` where reasoning is open, `#` where it isn't.
pub fn trigger(sign: char, idx: usize) -> String {
    let letter = char::from(b'A' + (idx % 26) as u8);
    format!("{sign}{letter}{sign}")
}

impl ChatModel for ToyModel {
    fn contract(&self) -> ModelContract {
        ModelContract {
            end_tokens: self.end_tokens(),
            sampling: SamplingDefaults {
                temperature: 0.8,
                ..SamplingDefaults::default()
            },
            ranges: SamplingRanges::default(),
            tag_format: self.format,
            reasoning_close: Some(self.control("</think>")),
            refused_in_prompts: Vec::new(),
            refused_in_output: Vec::new(),
            vocab_size: self.vocab_size(),
        }
    }

    fn encode_chat(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
    ) -> Result<ChatPrompt, ModelError> {
        let mut prompt = ChatPrompt {
            text: String::new(),
            token_ids: Vec::new(),
        };
        let mut say = |text: &str, control: bool| {
            prompt.text += text;
            // Planted: sgl-project/sglang#3427.
            let control = control && !planted!(ControlTokensSplit);
            prompt.token_ids.extend(self.encode(text, control));
        };
        say(START, true);
        if let Some(tools) = tools {
            say("<|system|>", true);
            for tool in tools {
                say(&tool["function"].to_string(), false);
            }
        }
        for message in messages {
            let role = match message["role"].as_str() {
                Some("system") => "<|system|>",
                Some("assistant") => "<|assistant|>",
                Some("tool") => "<|observation|>",
                _ => "<|user|>",
            };
            say(role, true);
            let text = message["content"].as_str().unwrap_or_default();
            say(text, false);
        }
        say("<|assistant|>", true);
        match kwargs.get("enable_thinking") {
            Some(Value::Bool(true)) => say("<think>", true),
            _ => say("<think></think>", true),
        }
        Ok(prompt)
    }

    fn encode_text(&self, text: &str, as_prompt: bool) -> Result<Vec<TokenId>, ModelError> {
        let start = if as_prompt {
            self.encode(START, true)
        } else {
            Vec::new()
        };
        Ok([start, self.encode(text, as_prompt)].concat())
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.tokens.get(token.0 as usize).map_or(&[], Vec::as_slice)
    }

    fn is_special(&self, token: TokenId) -> bool {
        (self.first_control..self.tokens.len()).contains(&(token.0 as usize))
    }
}

/// A model whose template refuses one word and whose tokenizer breaks on another.
pub struct Fragile(pub Arc<dyn ChatModel>);

impl ChatModel for Fragile {
    fn contract(&self) -> ModelContract {
        self.0.contract()
    }

    fn encode_chat(
        &self,
        messages: &[Value],
        tools: Option<&[Value]>,
        kwargs: &Map<String, Value>,
    ) -> Result<ChatPrompt, ModelError> {
        for message in messages {
            let text = message["content"].as_str().unwrap_or_default();
            if text.contains(REFUSED_WORD) {
                return Err(ModelError::Refused(format!("{REFUSED_WORD} is no word")));
            }
            if text.contains(BROKEN_WORD) {
                return Err(ModelError::Failed("the tokenizer is broken".to_owned()));
            }
        }
        self.0.encode_chat(messages, tools, kwargs)
    }

    fn encode_text(&self, text: &str, as_prompt: bool) -> Result<Vec<TokenId>, ModelError> {
        if text.contains(BROKEN_WORD) {
            return Err(ModelError::Failed("the tokenizer is broken".to_owned()));
        }
        self.0.encode_text(text, as_prompt)
    }

    fn token_bytes(&self, token: TokenId) -> &[u8] {
        self.0.token_bytes(token)
    }

    fn is_special(&self, token: TokenId) -> bool {
        self.0.is_special(token)
    }
}

/// The embedded package, read once in a process.
pub fn embedded() -> Arc<Package> {
    static PACKAGE: LazyLock<Arc<Package>> = LazyLock::new(|| {
        Arc::new(Package::embedded().expect("the embedded model is part of the program"))
    });
    PACKAGE.clone()
}
