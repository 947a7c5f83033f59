//! A request of a run: the body of a chat completion that its axes ask for, read as the server reads it, and
//! a prompt of the wanted length. It must never depend on the deployment.

use super::{
    axes::{Ask, Constraint, Sampling},
    dice::Dice,
    models::LawModel,
};
use crate::exit::Failure;
use lockstep_core::Request;
use lockstep_package::EMBEDDED_BATTERY;
use lockstep_server::ReadRequest;
use lockstep_step::TokenId;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Requests of the same axes that differ in the rest.
pub const NUM_VARIANTS: u64 = 3;

/// A text that short prompts are made longer with; it comes first, so that prompts begin alike.
const STORY: &str = "\
    The harbour lay still. A boat came in with the tide, and two people stepped ashore. One of \
    them carried a lamp, the other a letter that nobody had opened. They asked for the keeper, \
    and were told to wait. So they sat down on the wall, counted the gulls, and spoke of the \
    weather. At noon the keeper came and read the letter twice. Then she laughed, took the lamp, \
    and went up the stairs. ";

/// A request that can be made as often as it is needed.
pub struct Wish {
    ask: Ask,
    read: ReadRequest,
    prompt: Vec<TokenId>,
    salt: &'static str,
    /// What was read.
    pub body: Value,
}

impl Wish {
    /// The request of these axes and this variant, for a model.
    ///
    /// # Errors
    /// If the model can't be asked so.
    pub fn new(model: &LawModel, ask: Ask, variant: u64, seed: u64) -> Result<Wish, Failure> {
        let lane = [ask.sampling as u64, ask.constraint as u64, variant];
        let lane = lane
            .iter()
            .fold(u64::from(ask.length), |lane, part| lane * 16 + part);
        let mut dice = Dice::new(seed, 1 << 32 | lane);
        let row = &ROWS[dice.below(ROWS.len())];
        let body = body(ask, row, &mut dice);
        let reader = model.reader(ask.format);
        let read = reader.chat(&body).map_err(|error| {
            let what = format!("{} can't be asked {ask:?}: {error}", model.name);
            Failure::input(what, "the models to try are named with --model")
        })?;
        let own = read.prompts.first().cloned().unwrap_or_default();
        Ok(Wish {
            ask,
            prompt: of_length(&own, &model.encode(STORY), ask.length as usize),
            read,
            // Its prefix is its own.
            salt: if dice.once_in(8) { "apart" } else { "" },
            body,
        })
    }

    /// Tokens of its prompt.
    pub fn prompt_len(&self) -> usize {
        self.prompt.len()
    }

    /// The request, anew.
    ///
    /// # Errors
    /// If its constraint can't be held.
    pub fn request(&self, model: &LawModel) -> Result<Request, Failure> {
        let request = model.reader(self.ask.format).request(&self.read);
        let request = request.map_err(|error| Failure::input(error, ""))?;
        Ok(Request {
            prompt: self.prompt.clone(),
            token_events: true,
            cache_salt: self.salt.to_owned(),
            ..request
        })
    }
}

/// Conversations of the battery that offer tools and have called none yet.
static ROWS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let read = |line: &str| serde_json::from_str::<Value>(line).ok();
    let has_tools = |row: &Value| {
        row["tools"]
            .as_array()
            .is_some_and(|tools| !tools.is_empty())
    };
    let is_said = |message: &Value| {
        ["system", "user"]
            .map(Value::from)
            .contains(&message["role"])
    };
    let is_begun = |row: &Value| {
        row["messages"]
            .as_array()
            .is_some_and(|all| all.iter().all(is_said))
    };
    let rows = EMBEDDED_BATTERY.lines().filter_map(read);
    rows.filter(|row| has_tools(row) && is_begun(row)).collect()
});

fn body(ask: Ask, row: &Value, dice: &mut Dice) -> Value {
    let held = ask.constraint != Constraint::None;
    let mut body = json!({
        "messages": row["messages"],
        "seed": dice.below(1 << 20),
        "max_tokens": if held { 24 + dice.below(64) } else { 8 + dice.below(32) },
        // Most think little, so that there are calls and JSON within the limit.
        "chat_template_kwargs": {"enable_thinking": dice.once_in(4)},
    });
    if dice.once_in(3) {
        body["reasoning"] = json!({"max_tokens": dice.below(12)});
    }
    if ask.constraint == Constraint::JsonSchema {
        let named = json!({"name": "answer", "schema": schema(dice)});
        body["response_format"] = json!({"type": "json_schema", "json_schema": named});
    } else {
        let mut tools = row["tools"].clone();
        for tool in tools.as_array_mut().into_iter().flatten() {
            tool["function"]["strict"] = json!(held);
        }
        body["tools"] = tools;
        let choice = if ask.constraint == Constraint::Required {
            "required"
        } else {
            "auto"
        };
        body["tool_choice"] = json!(choice);
        if held && dice.once_in(3) {
            body["parallel_tool_calls"] = json!(false);
        }
    }
    if !held && dice.once_in(3) {
        body["stop"] = json!(["e", "on"]);
    }
    sampling(ask.sampling, &mut body, dice);
    body
}

fn sampling(sampling: Sampling, body: &mut Value, dice: &mut Dice) {
    body["temperature"] = json!(0);
    if sampling == Sampling::Greedy {
        return;
    }
    body["temperature"] = json!(dice.pick(&[0.4, 0.8, 1.2]));
    body["top_p"] = json!(dice.pick(&[1.0, 0.95, 0.7]));
    body["top_k"] = json!(dice.pick(&[0, 40, 5]));
    body["min_p"] = json!(dice.pick(&[0.0, 0.05]));
    match sampling {
        Sampling::Greedy | Sampling::Seeded => {}
        Sampling::Penalties => {
            body["frequency_penalty"] = json!(dice.pick(&[0.6, 1.1]));
            body["presence_penalty"] = json!(dice.pick(&[0.0, 0.7]));
            body["repetition_penalty"] = json!(dice.pick(&[1.0, 1.3]));
            let mut biased = serde_json::Map::new();
            for token in [17usize, 40, 300].map(|token| token + dice.below(200)) {
                biased.insert(token.to_string(), json!(dice.pick(&[-4, -1, 1, 2])));
            }
            body["logit_bias"] = Value::Object(biased);
        }
        Sampling::Logprobs => {
            body["logprobs"] = json!(true);
            body["top_logprobs"] = json!(dice.below(6));
        }
    }
}

fn schema(dice: &mut Dice) -> Value {
    let schemas = [
        json!({"type": "object", "additionalProperties": false, "required": ["city", "days"],
            "properties": {"city": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 0, "maximum": 99}}}),
        json!({"type": "array", "minItems": 2, "maxItems": 4,
            "items": {"enum": ["north", "east", "south", "west"]}}),
        json!({"type": "object", "additionalProperties": false,
            "required": ["kind", "confirmed_by_the_customer", "note"],
            "properties": {"kind": {"const": "reservation_request"},
                "confirmed_by_the_customer": {"type": "boolean"},
                "note": {"type": ["string", "null"], "maxLength": 10}}}),
    ];
    schemas[dice.below(schemas.len())].clone()
}

/// The end of a prompt, after as much of the story as is missing.
fn of_length(own: &[TokenId], story: &[TokenId], len: usize) -> Vec<TokenId> {
    let missing = len.saturating_sub(own.len());
    let told = story.iter().cycle().take(missing).copied();
    let kept = own[own.len().saturating_sub(len)..].iter().copied();
    told.chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::axes::{Format, LENGTHS};

    #[test]
    fn prompts_have_the_wanted_length() {
        let model = LawModel::open("fingerprint", None).expect("part of the program");
        for length in LENGTHS {
            for &constraint in Constraint::ALL {
                let ask = Ask {
                    sampling: Sampling::Penalties,
                    constraint,
                    format: Format::QwenXml,
                    length,
                };
                let wish = Wish::new(&model, ask, 0, 1).expect("it can be asked");
                let request = wish.request(&model).expect("it can be held");
                assert_eq!(request.prompt.len(), length as usize);
                let is_held = constraint != Constraint::None;
                assert_eq!(request.matcher.is_some(), is_held, "{}", wish.body);
            }
        }
    }

    #[test]
    fn the_same_axes_make_the_same_request() {
        let model = LawModel::open("fingerprint", None).expect("part of the program");
        let ask = Ask {
            sampling: Sampling::Seeded,
            constraint: Constraint::Auto,
            format: Format::Glm,
            length: 100,
        };
        let body = |variant| {
            Wish::new(&model, ask, variant, 1)
                .expect("it can be asked")
                .body
        };
        assert_eq!(body(0), body(0));
        assert_ne!(body(0), body(1));
    }
}
