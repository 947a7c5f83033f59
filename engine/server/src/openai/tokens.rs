//! `POST /tokenize` and `/detokenize`: what the model reads, and what it means.
//! Nothing here runs the model.

use crate::http::error::ApiError;
use crate::http::fields::Fields;
use crate::job::{check_model, count_unknown, prompt_error};
use crate::model::decode;
use crate::openai::chat_messages::{messages, tools};
use crate::openai::completions::token_ids;
use crate::state::Shared;
use serde_json::{Map, Value, json};

/// Text, or a conversation, to tokens.
pub(crate) fn tokenize(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    let mut fields = Fields::new(body, "")?;
    check_model(shared, &mut fields)?;
    fields.accept(&["add_generation_prompt"]);
    let with_text = fields.bool("return_token_strs")?.unwrap_or(false);
    let add_special = fields.bool("add_special_tokens")?.unwrap_or(true);
    let prompt = fields.string("prompt")?;
    let conversation = fields.array("messages")?;
    let kwargs = fields.object("chat_template_kwargs")?;
    let kwargs = kwargs.map_or_else(Map::new, |kwargs| kwargs.map().clone());
    let declared = fields.array("tools")?.unwrap_or_default();
    count_unknown(shared, &fields);
    let tokens = match (prompt, conversation) {
        (Some(text), None) => shared.model.encode_text(text, add_special),
        (None, Some(items)) => {
            let tools = tools(declared, shared.config.limits.tools_max)?;
            let tools: Vec<Value> = tools.into_iter().map(|tool| tool.listed).collect();
            let tools = (!tools.is_empty()).then_some(&tools[..]);
            let prompt = shared.model.encode_chat(&messages(items)?, tools, &kwargs);
            prompt.map(|prompt| prompt.token_ids)
        }
        (None, None) => return Err(fields.missing("prompt", "a string, or messages")),
        (Some(_), Some(_)) => {
            let message = "both prompt and messages are there, expected one of them";
            return Err(ApiError::field("invalid_value", "prompt", message));
        }
    };
    let param = if prompt.is_some() {
        "prompt"
    } else {
        "messages"
    };
    let tokens = tokens.map_err(|error| prompt_error(param, error))?;
    let mut answer = json!({
        "count": tokens.len(),
        "max_model_len": shared.backend.seq_len_max,
        "tokens": tokens,
    });
    if with_text {
        let texts = tokens
            .iter()
            .map(|token| decode(shared.model.as_ref(), &[*token]));
        answer["token_strs"] = json!(texts.collect::<Vec<String>>());
    }
    Ok(answer)
}

/// Tokens to text.
pub(crate) fn detokenize(shared: &Shared, body: &Value) -> Result<Value, ApiError> {
    let mut fields = Fields::new(body, "")?;
    check_model(shared, &mut fields)?;
    fields.required("tokens", "an array of token ids")?;
    let items = fields.array("tokens")?.unwrap_or_default();
    count_unknown(shared, &fields);
    let tokens = match items {
        [] => Vec::new(),
        items => token_ids(shared, items, "tokens")?,
    };
    Ok(json!({"prompt": decode(shared.model.as_ref(), &tokens)}))
}
