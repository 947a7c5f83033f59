//! From what a user says to a request of the engine: the template, the tools, the tags. The server does the
//! same for its wire formats; this is the way of commands that talk to a model directly. It must never
//! let a user's text become a structural token.

use crate::{exit::Failure, flags::SamplingArgs, session, tools};
use clap::Args;
use lockstep_core::Request;
use lockstep_package::{EncodedPrompt, Package, SamplingRanges, Special};
use lockstep_step::{SamplingParams, TokenId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// What a conversation begins with.
#[derive(Args, Clone, Debug)]
pub struct DialogueArgs {
    /// A system message.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tools that the model may call: a JSON array as in the OpenAI API.
    #[arg(long, value_name = "FILE.json")]
    pub tools: Option<PathBuf>,
    /// A variable of the chat template, such as enable_thinking=false; JSON, or else a text.
    #[arg(long = "template-arg", value_name = "NAME=VALUE")]
    pub template_args: Vec<String>,
}

/// How long an answer may be, and where it ends.
#[derive(Args, Clone, Debug)]
pub struct LimitArgs {
    /// The most tokens of an answer [default: what fits].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Ends the answer where this text would begin; may be repeated.
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Goes on past end tokens, to --max-tokens.
    #[arg(long, requires = "max_tokens")]
    pub ignore_eos: bool,
}

/// A conversation, and all that a request is made from.
pub struct Dialogue {
    /// Messages so far, as templates read them.
    pub messages: Vec<Value>,
    tools: Vec<Value>,
    tool_set: ToolSet,
    template_args: Map<String, Value>,
}

impl Dialogue {
    /// Reads the flags.
    ///
    /// # Errors
    /// A tools file or a template argument that can't be used.
    pub fn new(args: &DialogueArgs) -> Result<Dialogue, Failure> {
        let (tools, tool_set) = match &args.tools {
            None => (Vec::new(), ToolSet::default()),
            Some(path) => tools::read(path)?,
        };
        let mut template_args = Map::new();
        for arg in &args.template_args {
            let Some((name, value)) = arg.split_once('=') else {
                let what = format!("--template-arg {arg} has no `=`");
                return Err(Failure::usage(
                    what,
                    "write NAME=VALUE, such as enable_thinking=false",
                ));
            };
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            template_args.insert(name.to_owned(), value);
        }
        let system = args.system.iter();
        let messages = system
            .map(|text| json!({"role": "system", "content": text}))
            .collect();
        Ok(Dialogue {
            messages,
            tools,
            tool_set,
            template_args,
        })
    }

    /// Adds what the user says.
    pub fn user(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}));
    }

    /// The prompt for the model's next answer.
    ///
    /// # Errors
    /// A package without a template, or a template that refuses the conversation.
    pub fn encode(&self, package: &Package) -> Result<EncodedPrompt, Failure> {
        if !self.tools.is_empty() && package.contract.tag_format.is_none() {
            return Err(Failure::input(
                format!("{} writes tool calls in no known format", package.name),
                "name the format with --tool-format, or leave --tools out",
            ));
        }
        // `strict` is said to the engine, not to the model.
        let listed: Vec<Value> = self.tools.iter().map(without_strict).collect();
        let tools = (!listed.is_empty()).then_some(listed.as_slice());
        package
            .encode_chat(&self.messages, tools, &self.template_args, true)
            .map_err(|error| {
                let next = "`lockstep generate` without --chat takes a plain prompt";
                Failure::input(error, next)
            })
    }

    /// Whether a tool's calls must be of its schema.
    pub fn has_strict_tools(&self) -> bool {
        let strict = |tool: &Value| tool["function"]["strict"] == true;
        self.tools.iter().any(strict)
    }

    /// The conversation as the API has it.
    pub fn body(&self) -> Map<String, Value> {
        let fields = json!({
            "messages": self.messages,
            "tools": self.tools,
            "chat_template_kwargs": self.template_args,
        });
        fields.as_object().cloned().unwrap_or_default()
    }

    /// A request for the model's next answer.
    pub fn request(
        &self,
        package: &Package,
        prompt: &EncodedPrompt,
        sampling: SamplingParams,
        limits: &LimitArgs,
    ) -> Request {
        let reasoning = package.contract.reasoning.is_some();
        let format = lockstep_server::tag_format(package.contract.tag_format);
        let tags = ParserOptions {
            format,
            starts_in_reasoning: reasoning && lockstep_tags::starts_in_reasoning(&prompt.text),
            reasoning,
            delivery: Delivery::Eager,
            tools: self.tool_set.clone().into(),
        };
        let prompt = prompt.token_ids.iter().copied().map(TokenId).collect();
        request(package, prompt, sampling, limits, tags)
    }
}

/// A plain prompt: tokens that it spells out are meant.
///
/// # Errors
/// A package without a tokenizer.
pub fn encode_plain(package: &Package, text: &str) -> Result<Vec<TokenId>, Failure> {
    let body = package.tokenizer.encode(text, Special::Parse);
    let body = body.map_err(|error| Failure::input(error, ""))?;
    let prefix = package.tokenizer.prompt_prefix().iter().copied();
    Ok(prefix.chain(body).map(TokenId).collect())
}

/// A request whose text passes through as it comes.
pub fn plain_request(
    package: &Package,
    prompt: Vec<TokenId>,
    sampling: SamplingParams,
    limits: &LimitArgs,
) -> Request {
    let tags = ParserOptions {
        format: TagFormat::Plain,
        starts_in_reasoning: false,
        reasoning: false,
        delivery: Delivery::Eager,
        tools: ToolSet::default().into(),
    };
    request(package, prompt, sampling, limits, tags)
}

fn request(
    package: &Package,
    prompt: Vec<TokenId>,
    sampling: SamplingParams,
    limits: &LimitArgs,
    tags: ParserOptions,
) -> Request {
    let end_tokens = package.contract.end_tokens.iter().copied().map(TokenId);
    let max_len = u32::try_from(package.contract.max_len).unwrap_or(u32::MAX);
    let rest = max_len.saturating_sub(prompt.len() as u32).max(1);
    Request {
        sampling,
        max_tokens: limits.max_tokens.unwrap_or(rest),
        end_tokens: if limits.ignore_eos {
            Vec::new()
        } else {
            end_tokens.collect()
        },
        stop_strings: limits.stop.clone(),
        tags,
        matcher: None,
        reasoning: None,
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
        prompt,
    }
}

/// Sampling by flags, else by the package, else by a seed that is drawn.
///
/// # Errors
/// A value out of range.
pub fn sampling(package: &Package, args: &SamplingArgs) -> Result<SamplingParams, Failure> {
    let seed = args.seed.map_or_else(session::draw_seed, Ok)?;
    let params = args.resolve(session::sampling_defaults(package), seed)?;
    check_ranges(&package.contract.ranges, &params)?;
    Ok(params)
}

/// Refuses what the package's contract has no place for.
fn check_ranges(ranges: &SamplingRanges, params: &SamplingParams) -> Result<(), Failure> {
    // 0 keeps all tokens, as the largest number would.
    let counted = |k: u32| {
        if k == 0 {
            f64::from(u32::MAX)
        } else {
            f64::from(k)
        }
    };
    let top_k = ranges
        .top_k
        .map(|(least, most)| (counted(least), counted(most)));
    let all = [
        (
            "temperature",
            f64::from(params.temperature),
            ranges.temperature,
        ),
        ("top-p", f64::from(params.top_p), ranges.top_p),
        ("top-k", counted(params.top_k), top_k),
        ("min-p", f64::from(params.min_p), ranges.min_p),
        (
            "repetition-penalty",
            f64::from(params.repetition_penalty),
            ranges.repetition_penalty,
        ),
    ];
    for (name, used, range) in all {
        // Ends as the flag was read: 0.6 is not the same number in 32 bits.
        let (least, most) = match range {
            Some((least, most)) if name != "top-k" => {
                (f64::from(least as f32), f64::from(most as f32))
            }
            Some(range) => range,
            None => continue,
        };
        if used < least || used > most {
            let what = format!("--{name} is {used}, outside the range of this model");
            return Err(Failure::usage(
                what,
                format!("give a number from {least} to {most}"),
            ));
        }
    }
    Ok(())
}

fn without_strict(tool: &Value) -> Value {
    let mut tool = tool.clone();
    if let Some(function) = tool["function"].as_object_mut() {
        function.shift_remove("strict");
    }
    tool
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(template_args: &[&str]) -> DialogueArgs {
        let template_args = template_args.iter().map(|arg| (*arg).to_owned()).collect();
        DialogueArgs {
            system: Some("Be brief.".to_owned()),
            tools: None,
            template_args,
        }
    }

    #[test]
    fn template_arguments_are_json_or_text() {
        let dialogue = Dialogue::new(&args(&["enable_thinking=false", "reasoning_effort=low"]));
        let dialogue = dialogue.expect("both are fine");
        assert_eq!(dialogue.template_args["enable_thinking"], json!(false));
        assert_eq!(dialogue.template_args["reasoning_effort"], json!("low"));
        assert_eq!(
            dialogue.messages,
            [json!({"role": "system", "content": "Be brief."})]
        );
        assert!(Dialogue::new(&args(&["enable_thinking"])).is_err());
    }
}
