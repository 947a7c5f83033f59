//! A client's request in the engine's words: prompts, how to draw, when to end. Both APIs are
//! turned into this, and from here on nothing knows which one it was.

use crate::constraint::{
    Asked, AskedAnswer, AskedCalls, AskedConstraint, DeclaredTool, constraint, reasoning,
};
use crate::driver::{Input, Submission, SubmitError};
use crate::generation::Generation;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::model::{ChatPrompt, ModelError};
use crate::net::oneshot;
use crate::sampling::{AskedSampling, choice_seed};
use crate::state::{DeliveryPolicy, Shared};
use lockstep_core::{DraftSource, QueueKind, ReasoningBudget, Refusal, Request, Speculation};
use lockstep_grammar::{Boundary, ToolChoice};
use lockstep_step::{Matcher, ModelDrafter, SamplingParams, TokenId, planted};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet, starts_in_reasoning};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A request, ready for the engine.
pub(crate) struct Job {
    /// At least one; choice `p * n + i` is the `i`th of prompt `p`.
    pub(crate) prompts: Vec<Vec<TokenId>>,
    pub(crate) n: u32,
    pub(crate) sampling: SamplingParams,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) ignore_eos: bool,
    /// Who drafts, where the request says so.
    pub(crate) speculation: Option<Speculation>,
    pub(crate) stop_strings: Vec<String>,
    pub(crate) tags: ParserOptions,
    /// What the answers are held to.
    pub(crate) constraint: Option<AskedConstraint>,
    pub(crate) reasoning: Option<ReasoningBudget>,
    pub(crate) wants_tokens: bool,
    pub(crate) stream: bool,
    /// Only requests of the same salt share what they computed.
    pub(crate) cache_salt: String,
    /// What the client should know about how its request was understood.
    pub(crate) warnings: Vec<Value>,
}

impl Job {
    pub(crate) fn num_choices(&self) -> usize {
        self.prompts.len() * self.n as usize
    }

    /// The seed that repeats a choice.
    pub(crate) fn seed(&self, choice: usize) -> u64 {
        choice_seed(self.sampling.seed, choice as u32 % self.n)
    }

    pub(crate) fn request(
        &self,
        shared: &Shared,
        choice: usize,
        matcher: Option<&Boundary>,
    ) -> Request {
        let prompt = self.prompts[choice / self.n as usize].clone();
        let room = shared
            .backend
            .seq_len_max
            .saturating_sub(prompt.len() as u32);
        let fallback = shared.config.default_max_tokens.unwrap_or(u32::MAX);
        let mut sampling = self.sampling.clone();
        sampling.seed = self.seed(choice);
        Request {
            prompt,
            sampling,
            max_tokens: match room {
                // It will be refused, in the numbers of the request.
                0 => self.max_tokens.unwrap_or(1),
                room => self.max_tokens.unwrap_or(fallback).min(room),
            },
            end_tokens: match self.ignore_eos {
                true => Vec::new(),
                false => shared.contract.end_tokens.clone(),
            },
            stop_strings: self.stop_strings.clone(),
            tags: self.tags.clone(),
            matcher: matcher.map(|matcher| Box::new(matcher.restarted()) as Box<dyn Matcher>),
            speculation: self.speculation,
            reasoning: self.reasoning.clone(),
            token_events: self.wants_tokens,
            cache_salt: self.cache_salt.clone(),
        }
    }

    /// Hands it to the engine.
    pub(crate) async fn submit(
        &self,
        shared: &Shared,
        request_id: &str,
    ) -> Result<Generation, ApiError> {
        let matcher = match &self.constraint {
            Some(asked) => {
                let made = shared.grammars.matcher(asked, &shared.metrics).await;
                // Planted: vllm-project/vllm#47312.
                if planted!(GrammarErrorEndsAll) && made.is_err() {
                    let _ = shared.inputs.send(Input::Stop);
                }
                made?
            }
            None => None,
        };
        let choices = 0..self.num_choices();
        let (reply, answer) = oneshot::channel();
        let submission = Submission {
            request_id: request_id.to_string(),
            requests: choices
                .map(|choice| self.request(shared, choice, matcher.as_ref()))
                .collect(),
            wants_tokens: self.wants_tokens,
            // A unary answer is bounded by its tokens, and read as fast as it comes.
            buffer_bytes_max: match self.stream {
                true => shared.config.limits.stream_buffer_bytes_max,
                false => usize::MAX,
            },
            reply,
        };
        if shared.status.is_draining() {
            return Err(refused(shared, &SubmitError::Draining));
        }
        // What could not be sent must be dropped at once: it holds the sender of the answer.
        let sent = shared.inputs.send(Input::Submit(submission)).is_ok();
        match (sent, answer.await) {
            (true, Ok(Ok(generation))) => {
                shared.metrics.request(self.num_choices());
                Ok(generation)
            }
            (true, Ok(Err(error))) => Err(refused(shared, &error)),
            _ => {
                let reason = shared.status.stopped().unwrap_or_default();
                let message = format!("the engine stopped: {reason}");
                Err(ApiError::new(503, "engine_stopped", message))
            }
        }
    }
}

/// What every sequence begins with, before what begins with it already.
#[cfg(planted)]
pub(crate) fn started_twice(
    shared: &Shared,
    prompts: Vec<Vec<TokenId>>,
    is_on: bool,
) -> Vec<Vec<TokenId>> {
    let start = shared.model.encode_text("", true).unwrap_or_default();
    let start = if is_on { start } else { Vec::new() };
    let prompts = prompts.into_iter();
    prompts
        .map(|prompt| [start.clone(), prompt].concat())
        .collect()
}

fn refused(shared: &Shared, error: &SubmitError) -> ApiError {
    match error {
        SubmitError::Draining => ApiError {
            retry_after_s: Some(shared.config.retry_after_s),
            ..ApiError::new(503, "shutting_down", "the server is shutting down")
        },
        SubmitError::Refused(refusal @ Refusal::QueueFull { .. }) => {
            shared
                .metrics
                .count("vllm:admission_rejections_total", "", 1);
            ApiError {
                retry_after_s: Some(shared.config.retry_after_s),
                ..ApiError::new(429, refusal.kind(), refusal.to_string())
            }
        }
        SubmitError::Refused(refusal @ Refusal::NeverFits { kind, .. }) => {
            let field = match kind {
                QueueKind::Requests => "n",
                QueueKind::Tokens => "prompt",
            };
            ApiError::field(refusal.kind(), field, refusal.to_string())
        }
        SubmitError::Refused(refusal @ Refusal::PromptTooLong { .. }) => ApiError {
            param: Some("messages".to_string()),
            ..ApiError::new(400, "context_length_exceeded", refusal.to_string())
        },
        SubmitError::Refused(refusal) => ApiError::new(400, refusal.kind(), refusal.to_string()),
    }
}

/// What both chat APIs say about a conversation.
pub(crate) struct Conversation {
    /// In the shape that templates read.
    pub(crate) messages: Vec<Value>,
    /// The tools that the request declares.
    pub(crate) tools: Vec<DeclaredTool>,
    /// Whether they may or must be called.
    pub(crate) calls: AskedCalls,
    /// What the answer itself may be.
    pub(crate) answer: Option<AskedAnswer>,
    /// The template's own arguments.
    pub(crate) kwargs: Map<String, Value>,
    /// A limit on reasoning, with the field that asked for it.
    pub(crate) budget: Option<(&'static str, u32)>,
}

impl Conversation {
    /// The tools as the model reads about them: none where none may be called.
    pub(crate) fn listed_tools(&self) -> Vec<Value> {
        if self.calls.choice == ToolChoice::Forbidden {
            return Vec::new();
        }
        self.tools.iter().map(|tool| tool.listed.clone()).collect()
    }

    /// The prompt.
    pub(crate) fn encode(&self, shared: &Shared) -> Result<ChatPrompt, ApiError> {
        let tools = self.listed_tools();
        let listed = (!tools.is_empty()).then_some(&tools[..]);
        let prompt = shared
            .model
            .encode_chat(&self.messages, listed, &self.kwargs);
        prompt.map_err(|error| prompt_error("messages", error))
    }
}

/// What both chat APIs say about the answer.
pub(crate) struct AnswerOptions {
    pub(crate) n: u32,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) stop_strings: Vec<String>,
    pub(crate) ignore_eos: bool,
    /// Who drafts, where the request says so.
    pub(crate) speculation: Option<Speculation>,
    /// Most likely tokens to report, if log-probabilities are wanted at all.
    pub(crate) logprobs: Option<u32>,
    pub(crate) stream: bool,
    pub(crate) cache_salt: String,
    pub(crate) sampling: AskedSampling,
}

/// Renders a conversation and readies it for the engine.
pub(crate) fn chat_job(
    shared: &Shared,
    conversation: &Conversation,
    options: AnswerOptions,
) -> Result<Job, ApiError> {
    let contract = &shared.contract;
    let listed = conversation.listed_tools();
    if !listed.is_empty() && contract.tag_format == TagFormat::Plain {
        return Err(ApiError::unsupported(
            "tools",
            "this model has no known way of writing tool calls; send tool_choice none or no tools",
        ));
    }
    let tools = tool_set(&listed)?;
    let prompt = conversation.encode(shared)?;
    let starts_in_reasoning = starts_in_reasoning(&prompt.text);
    let constraint = constraint(
        contract,
        shared.grammars.rules(shared.config.tool_grammar),
        reasoning(contract, starts_in_reasoning),
        &Asked {
            tools: &conversation.tools,
            calls: &conversation.calls,
            answer: conversation.answer.as_ref(),
            ignore_eos: options.ignore_eos,
        },
    )?;
    let held = constraint
        .as_ref()
        .is_some_and(AskedConstraint::holds_calls);
    let budget = match (conversation.budget, contract.reasoning_close) {
        (None, _) => None,
        (Some((_, max_tokens)), Some(close)) => Some(ReasoningBudget {
            max_tokens,
            close: vec![close],
        }),
        (Some((field, _)), None) => {
            return Err(ApiError::unsupported(field, "this model does not reason"));
        }
    };
    let used =
        options
            .sampling
            .resolve(contract, &shared.ranges(), shared.config.sampling_policy)?;
    count_clamped(shared, &used.warnings);
    let mut sampling = used.params;
    sampling.top_logprobs = options.logprobs;
    Ok(Job {
        prompts: vec![prompt.token_ids],
        n: options.n,
        sampling,
        max_tokens: options.max_tokens,
        ignore_eos: options.ignore_eos,
        speculation: options.speculation,
        stop_strings: options.stop_strings,
        tags: ParserOptions {
            format: contract.tag_format,
            starts_in_reasoning,
            reasoning: contract.reasoning_close.is_some(),
            delivery: delivery(shared.config.delivery, held),
            tools: Arc::new(tools),
        },
        constraint,
        reasoning: budget,
        wants_tokens: options.logprobs.is_some(),
        stream: options.stream,
        cache_salt: options.cache_salt,
        warnings: used.warnings,
    })
}

/// When calls are delivered, and whether a grammar holds them.
fn delivery(policy: DeliveryPolicy, held: bool) -> Delivery {
    match (policy, held) {
        (DeliveryPolicy::Eager, _) | (DeliveryPolicy::Auto, true) => Delivery::Eager,
        (DeliveryPolicy::Whole, _) | (DeliveryPolicy::Auto, false) => Delivery::Whole,
    }
}

pub(crate) fn count_clamped(shared: &Shared, warnings: &[Value]) {
    let moved = warnings.len() as u64;
    shared
        .metrics
        .count("lockstep_clamped_parameters_total", "", moved);
}

/// Text passes through such a parser as it is.
pub(crate) fn plain_text() -> ParserOptions {
    ParserOptions {
        format: TagFormat::Plain,
        starts_in_reasoning: false,
        reasoning: false,
        delivery: Delivery::Whole,
        tools: Arc::new(ToolSet::default()),
    }
}

/// The declared tools, as the parser of calls needs them.
fn tool_set(tools: &[Value]) -> Result<ToolSet, ApiError> {
    let declared = tools.iter().map(|tool| {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default().to_string();
        let schema = function
            .get("parameters")
            .filter(|schema| !schema.is_null());
        (name, schema.map(Value::to_string))
    });
    let declared: Vec<(String, Option<String>)> = declared.collect();
    let declared = declared
        .iter()
        .map(|(name, schema)| (name.clone(), schema.as_deref()));
    ToolSet::new(declared).map_err(|error| {
        let named = |tool: &Value| tool["function"]["name"] == error.tool.as_str();
        let idx = tools.iter().rposition(named).unwrap_or(0);
        ApiError::field("invalid_tool", format!("tools[{idx}]"), error.to_string())
    })
}

pub(crate) fn prompt_error(param: &str, error: ModelError) -> ApiError {
    match error {
        ModelError::Refused(message) => ApiError::field("invalid_conversation", param, message),
        ModelError::Unsupported(message) => ApiError::field("unsupported_route", param, message),
        ModelError::Failed(message) => {
            tracing::error!("a prompt could not be made: {message}");
            ApiError::new(500, "template_failed", message)
        }
    }
}

/// Stop strings: one, or an array of them.
pub(crate) fn stop_strings(
    shared: &Shared,
    fields: &mut Fields<'_>,
    name: &'static str,
) -> Result<Vec<String>, ApiError> {
    let limits = &shared.config.limits;
    let max = limits.stop_strings_max;
    let (items, single) = match fields.get(name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => (&items[..], false),
        Some(other) => (std::slice::from_ref(other), true),
    };
    if items.len() > max {
        let path = fields.path(name);
        let message = format!("{path} has {} strings, expected at most {max}", items.len());
        return Err(ApiError::field("too_many", path, message));
    }
    let mut strings = Vec::with_capacity(items.len());
    for (idx, item) in items.iter().enumerate() {
        let path = match single {
            true => fields.path(name),
            false => format!("{}[{idx}]", fields.path(name)),
        };
        let bytes_max = limits.stop_string_bytes_max;
        match item.as_str() {
            Some(text) if !text.is_empty() && text.len() <= bytes_max => {
                strings.push(text.to_string());
            }
            _ => {
                let expected = format!("a string of 1 to {bytes_max} bytes");
                return Err(ApiError::value(path, item, &expected));
            }
        }
    }
    Ok(strings)
}

/// Who drafts for this request; it changes how fast the answer comes, and nothing in it.
pub(crate) fn speculation(
    shared: &Shared,
    fields: &mut Fields<'_>,
) -> Result<Option<Speculation>, ApiError> {
    let Some(text) = fields.string("speculate")?.map(str::to_string) else {
        return Ok(None);
    };
    let models = [
        (ModelDrafter::Mtp, DraftSource::Mtp),
        (ModelDrafter::DraftModel, DraftSource::DraftModel),
    ];
    let known = |read: Speculation| {
        let missing = models.into_iter().find(|&(model, source)| {
            read.depth(source) > 0 && shared.models.is_some_and(|there| !there.has(model))
        });
        match missing {
            Some((_, source)) => Err(format!("this server has no {} drafter", source.as_str())),
            None => Ok(Some(read)),
        }
    };
    let read = text.parse::<Speculation>();
    read.map_err(|error| error.to_string())
        .and_then(known)
        .map_err(|error| {
            let message = format!("speculate: {error}");
            ApiError::field("invalid_value", fields.path("speculate"), message)
        })
}

/// A whole number of tokens, at least 1.
pub(crate) fn token_count(
    fields: &mut Fields<'_>,
    name: &'static str,
) -> Result<Option<u32>, ApiError> {
    let count = fields.integer(name, 1, i64::from(u32::MAX))?;
    Ok(count.and_then(|count| u32::try_from(count).ok()))
}

/// The salt of a request's prefixes; empty where none is given.
pub(crate) fn cache_salt(shared: &Shared, fields: &mut Fields<'_>) -> Result<String, ApiError> {
    let Some(salt) = fields.string("cache_salt")? else {
        return Ok(String::new());
    };
    let bytes_max = shared.config.limits.cache_salt_bytes_max;
    if salt.is_empty() || salt.len() > bytes_max {
        let expected = format!("a string of 1 to {bytes_max} bytes");
        return Err(fields.wrong("cache_salt", &json!(salt), &expected));
    }
    Ok(salt.to_string())
}

/// `n`, within the server's limit.
pub(crate) fn choices(shared: &Shared, fields: &mut Fields<'_>) -> Result<u32, ApiError> {
    let n = fields.integer("n", 1, i64::from(shared.config.limits.n_max))?;
    Ok(n.and_then(|n| u32::try_from(n).ok()).unwrap_or(1))
}

/// Checks that the asked model is the one that is served.
pub(crate) fn check_model(shared: &Shared, fields: &mut Fields<'_>) -> Result<(), ApiError> {
    let Some(asked) = fields.string("model")? else {
        return Ok(());
    };
    let names = &shared.config.model_names;
    if names.iter().any(|name| name == asked) {
        return Ok(());
    }
    Err(ApiError {
        param: Some("model".to_string()),
        ..ApiError::new(
            404,
            "model_not_found",
            format!("model is {asked:?}, this server has {}", names.join(", ")),
        )
    })
}

/// Counts fields that nobody asked for.
pub(crate) fn count_unknown(shared: &Shared, fields: &Fields<'_>) {
    let unknown = fields.unknown();
    let count = unknown.len() as u64;
    shared
        .metrics
        .count("lockstep_unknown_fields_total", "", count);
    if count > 0 {
        tracing::debug!("unknown fields ignored: {}", unknown.join(", "));
    }
}

/// The warning that the token limit cut a call off.
pub(crate) fn dropped_call_warning(choice: usize) -> Value {
    json!({
        "code": "dropped_call",
        "choice": choice,
        "message": "the token limit was reached inside a tool call, which was left out",
    })
}
