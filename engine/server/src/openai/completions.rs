//! `POST /v1/completions`: plain continuation of a text or of tokens.
//! Text passes through as the model wrote it: nothing is parsed and nothing trimmed.

use crate::answer::ChoiceReader;
use crate::constraint::{Asked, AskedAnswer, AskedCalls, AskedConstraint, constraint};
use crate::http::error::{ApiError, json_response};
use crate::http::fields::Fields;
#[cfg(planted)]
use crate::job::started_twice;
use crate::job::{
    Job, cache_salt, check_model, choices, count_clamped, count_unknown, plain_text, prompt_error,
    speculation, stop_strings, token_count,
};
use crate::model::decode;
use crate::openai::chat_request::stream_options;
use crate::openai::chat_response::ChatHead;
use crate::openai::completions_response::{CompletionStream, collect};
use crate::sampling::AskedSampling;
use crate::sse;
use crate::state::Shared;
use crate::structured;
use axum::body::Body;
use axum::http::Response;
use lockstep_grammar::Reasoning;
use lockstep_step::TokenId;
#[cfg(planted)]
use lockstep_step::planted;
use serde_json::{Value, json};

/// The length of an answer where the request doesn't say, by the API's own definition.
const MAX_TOKENS_DEFAULT: u32 = 16;

/// Answers a request.
pub(crate) async fn answer(
    shared: &Shared,
    request_id: &str,
    body: &Value,
) -> Result<Response<Body>, ApiError> {
    let Completion {
        job,
        include_usage,
        echoes,
    } = read(shared, body)?;
    let generation =
        job.submit(shared, request_id)
            .await
            .map_err(|error| match error.param.as_deref() {
                Some("messages") => ApiError {
                    param: Some("prompt".to_string()),
                    ..error
                },
                _ => error,
            })?;
    let head = ChatHead {
        id: crate::openai::chat_response::fresh_id("cmpl-")?,
        ..ChatHead::new(shared, &job, job.wants_tokens)?
    };
    if job.stream {
        let readers = (0..job.num_choices()).map(|_| ChoiceReader::new(false));
        let encoder = CompletionStream::new(head, readers.collect(), include_usage, echoes);
        return Ok(sse::response(generation, encoder, shared.config.keep_alive));
    }
    let body = collect(generation, &head, &echoes).await?;
    Ok(json_response(200, &body))
}

/// A request, understood.
pub(crate) struct Completion {
    pub(crate) job: Job,
    include_usage: bool,
    /// What each prompt's texts begin with: the prompt where it is echoed, or nothing.
    echoes: Vec<String>,
}

/// Reads a request.
pub(crate) fn read(shared: &Shared, body: &Value) -> Result<Completion, ApiError> {
    let mut fields = Fields::new(body, "")?;
    check_model(shared, &mut fields)?;
    fields.accept(&["user", "metadata"]);
    let answer = structured::answer(&mut fields)?;
    let nothing = |value: &Value| *value == json!("") || *value == json!(false);
    fields.refuse("suffix", nothing, "this model can't fill in a middle")?;
    let echo = fields.bool("echo")?.unwrap_or(false);
    for name in ["use_beam_search", "prompt_logprobs"] {
        fields.refuse(name, nothing, "this server doesn't have it")?;
    }
    let n = choices(shared, &mut fields)?;
    let best_of = json!(n);
    fields.refuse(
        "best_of",
        |value| *value == best_of,
        "each of n choices is drawn once and all are returned",
    )?;
    let expected = "a string, an array of strings, or one or more arrays of token ids";
    let prompt = fields.required("prompt", expected)?;
    let prompts = prompts(shared, prompt)?;
    let echoes = echoes(shared, echo, prompt, &prompts);
    let stream = fields.bool("stream")?.unwrap_or(false);
    let include_usage = stream_options(&mut fields, stream)?;
    let logprobs = fields.integer("logprobs", 0, 5)?;
    let logprobs = logprobs.and_then(|top| u32::try_from(top).ok());
    if echo && logprobs.is_some() {
        let why = "together with logprobs: those of a prompt are not computed";
        return Err(ApiError::unsupported("echo", why));
    }
    let asked = AskedSampling::read(
        &mut fields,
        shared.contract.vocab_size,
        shared.config.limits.bias_max,
    )?;
    let max_tokens = token_count(&mut fields, "max_tokens")?.unwrap_or(MAX_TOKENS_DEFAULT);
    let stop_strings = stop_strings(shared, &mut fields, "stop")?;
    let ignore_eos = fields.bool("ignore_eos")?.unwrap_or(false);
    let cache_salt = cache_salt(shared, &mut fields)?;
    let speculation = speculation(shared, &mut fields)?;
    count_unknown(shared, &fields);
    let policy = shared.config.sampling_policy;
    let used = asked.resolve(&shared.contract, &shared.ranges(), policy)?;
    count_clamped(shared, &used.warnings);
    let mut sampling = used.params;
    sampling.top_logprobs = logprobs;
    let constraint = held(shared, answer.as_ref(), ignore_eos)?;
    let job = Job {
        prompts,
        n,
        sampling,
        max_tokens: Some(max_tokens),
        ignore_eos,
        speculation,
        stop_strings,
        tags: plain_text(),
        constraint,
        reasoning: None,
        wants_tokens: logprobs.is_some(),
        stream,
        cache_salt,
        warnings: used.warnings,
    };
    Ok(Completion {
        job,
        include_usage,
        echoes,
    })
}

/// What the texts are held to.
fn held(
    shared: &Shared,
    answer: Option<&AskedAnswer>,
    ignore_eos: bool,
) -> Result<Option<AskedConstraint>, ApiError> {
    constraint(
        &shared.contract,
        shared.grammars.rules(shared.config.tool_grammar),
        Reasoning::Off,
        &Asked {
            tools: &[],
            calls: &AskedCalls::auto(),
            answer,
            ignore_eos,
        },
    )
}

/// What each prompt's texts begin with.
fn echoes(shared: &Shared, echo: bool, prompt: &Value, prompts: &[Vec<TokenId>]) -> Vec<String> {
    match (echo, prompt) {
        (false, _) => vec![String::new(); prompts.len()],
        // As it was sent, without what every sequence begins with.
        (true, Value::String(text)) => vec![text.clone()],
        (true, _) => {
            let decoded = prompts
                .iter()
                .map(|tokens| decode(shared.model.as_ref(), tokens));
            decoded.collect()
        }
    }
}

fn prompts(shared: &Shared, prompt: &Value) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let max = shared.config.limits.prompts_max;
    let items = match prompt {
        Value::String(text) => return Ok(vec![encode(shared, text, "prompt")?]),
        Value::Array(items) => items,
        other => {
            let expected = "a string, an array of strings, or one or more arrays of token ids";
            return Err(ApiError::value("prompt", other, expected));
        }
    };
    if items.first().is_some_and(Value::is_number) {
        return Ok(vec![token_ids(shared, items, "prompt")?]);
    }
    if items.is_empty() || items.len() > max {
        let message = format!("prompt has {} prompts, expected 1 to {max}", items.len());
        return Err(ApiError::field("too_many", "prompt", message));
    }
    let numbered = items.iter().enumerate();
    numbered
        .map(|(idx, item)| {
            let path = format!("prompt[{idx}]");
            match item {
                Value::String(text) => encode(shared, text, &path),
                Value::Array(ids) => token_ids(shared, ids, &path),
                other => Err(ApiError::value(
                    path,
                    other,
                    "a string or an array of token ids",
                )),
            }
        })
        .collect()
}

fn encode(shared: &Shared, text: &str, path: &str) -> Result<Vec<TokenId>, ApiError> {
    let tokens = shared.model.encode_text(text, true);
    let tokens = tokens.map_err(|error| prompt_error(path, error))?;
    // Planted: sgl-project/sglang#888, on the other side.
    #[cfg(planted)]
    let tokens = started_twice(shared, vec![tokens], planted!(StartTwiceInCompletions)).concat();
    match tokens.is_empty() {
        true => {
            let message = format!("{path} has no tokens, expected at least one");
            Err(ApiError::field("empty_prompt", path, message))
        }
        false => Ok(tokens),
    }
}

/// Reads an array of token ids.
pub(crate) fn token_ids(
    shared: &Shared,
    items: &[Value],
    path: &str,
) -> Result<Vec<TokenId>, ApiError> {
    let size = shared.contract.vocab_size;
    let ids: Result<Vec<TokenId>, ApiError> = items
        .iter()
        .enumerate()
        .map(|(idx, item)| {
            let id = item.as_u64().filter(|id| *id < u64::from(size));
            id.map(|id| TokenId(id as u32)).ok_or_else(|| {
                let expected = format!("a token id from 0 to {}", size.saturating_sub(1));
                ApiError::value(format!("{path}[{idx}]"), item, &expected)
            })
        })
        .collect();
    match ids {
        Ok(ids) if ids.is_empty() => {
            let message = format!("{path} has no tokens, expected at least one");
            Err(ApiError::field("empty_prompt", path, message))
        }
        ids => ids,
    }
}
