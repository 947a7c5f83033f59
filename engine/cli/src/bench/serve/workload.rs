//! What is asked: chat requests made of the battery of the embedded model, or of words. It must never depend
//! on an answer or on a clock: the same seed and index give the same request.

use clap::ValueEnum;
use lockstep_numerics::draw_u64;
use serde_json::{Map, Value, json};

/// Mixed into the seed, so that the order of requests shares no draws with their arrivals.
const ORDER: u64 = 0x6f72_6465_7200_0000;
/// The same for the words of made-up prompts.
const WORDS: u64 = 0x776f_7264_7300_0000;

/// What kind of requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Tools on offer, one of which must be called, held to a grammar.
    ToolCall,
    /// Questions that are answered in text.
    Chat,
    /// Questions whose answer must be JSON of a small schema.
    Json,
    /// These three in turn.
    Mixed,
    /// Prompts and answers of a given length, without a meaning.
    Synthetic,
}

impl Workload {
    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::ToolCall => "tool-call",
            Workload::Chat => "chat",
            Workload::Json => "json",
            Workload::Mixed => "mixed",
            Workload::Synthetic => "synthetic",
        }
    }
}

/// What all requests share.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The model's name in the API.
    pub model: String,
    /// The most tokens of an answer; of made-up requests, exactly so many.
    pub max_tokens: u32,
    /// 0 takes the most likely token.
    pub temperature: f64,
    /// Orders the battery and draws words; with a temperature, the seed of request 0.
    pub seed: u64,
}

/// A source of requests, by index.
pub struct Requests {
    shape: Shape,
    /// In their order: what is asked, without what all share. Empty where words are drawn.
    questions: Vec<Map<String, Value>>,
    /// Words of a made-up prompt.
    num_words: u64,
}

impl Requests {
    /// Requests made of the battery, a JSON object a line.
    ///
    /// # Errors
    /// A battery that can't be read, or has nothing of the kind.
    pub fn of_battery(battery: &str, workload: Workload, shape: Shape) -> Result<Requests, String> {
        let mut kinds: Vec<fn(&Value) -> Option<Value>> = Vec::new();
        if matches!(workload, Workload::ToolCall | Workload::Mixed) {
            kinds.push(tool_call);
        }
        if matches!(workload, Workload::Chat | Workload::Mixed) {
            kinds.push(chat);
        }
        if matches!(workload, Workload::Json | Workload::Mixed) {
            kinds.push(json_answer);
        }
        let rows = battery.lines().enumerate().map(|(idx, line)| {
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", idx + 1))
        });
        let rows = rows.collect::<Result<Vec<Value>, String>>()?;
        let by_kind = kinds.into_iter().map(|kind| {
            let found = rows.iter().filter_map(kind);
            let found = found.filter_map(|question| match question {
                Value::Object(question) => Some(question),
                _ => None,
            });
            shuffled(found.collect(), shape.seed ^ ORDER)
        });
        let by_kind: Vec<Vec<_>> = by_kind.collect();
        let num = by_kind.iter().map(Vec::len).max().unwrap_or(0);
        if by_kind.iter().any(Vec::is_empty) {
            return Err(format!("nothing of the kind {}", workload.name()));
        }
        // Shorter kinds begin again, so that each has the same share.
        let in_turn = |idx: usize| {
            by_kind
                .iter()
                .map(move |kind| kind[idx % kind.len()].clone())
        };
        Ok(Requests {
            shape,
            questions: (0..num).flat_map(in_turn).collect(),
            num_words: 0,
        })
    }

    /// Requests of so many words each.
    pub fn of_words(num_words: u64, shape: Shape) -> Requests {
        Requests {
            shape,
            questions: Vec::new(),
            num_words,
        }
    }

    /// Different requests; beyond, they repeat. None if there is no end of them.
    pub fn num_different(&self) -> Option<usize> {
        (!self.questions.is_empty()).then_some(self.questions.len())
    }

    /// The body of a streamed request.
    pub fn body(&self, idx: u64, salt: Option<&str>) -> Value {
        let mut body = match self.questions.len() {
            0 => self.made_up(idx),
            num => self.questions[(idx % num as u64) as usize].clone(),
        };
        let Shape {
            model,
            max_tokens,
            temperature,
            seed,
        } = &self.shape;
        let shared = json!({
            "model": model,
            "max_tokens": max_tokens,
            "temperature": temperature,
            // What every reader of JSON keeps.
            "seed": seed.wrapping_add(idx) >> 11,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Value::Object(shared) = shared {
            body.extend(shared);
        }
        if let Some(salt) = salt {
            body.insert("cache_salt".to_owned(), json!(salt));
        }
        Value::Object(body)
    }

    fn made_up(&self, idx: u64) -> Map<String, Value> {
        let words: Vec<&str> = (0..self.num_words)
            .map(|at| draw_u64(self.shape.seed ^ WORDS, (idx << 32) | at))
            .map(|draw| SOME_WORDS[(draw % SOME_WORDS.len() as u64) as usize])
            .collect();
        let mut body = Map::new();
        let message = json!([{"role": "user", "content": words.join(" ")}]);
        body.insert("messages".to_owned(), message);
        body.insert("ignore_eos".to_owned(), json!(true));
        body
    }
}

const SOME_WORDS: [&str; 32] = [
    "time", "water", "people", "house", "light", "number", "city", "river", "music", "paper",
    "winter", "friend", "street", "garden", "letter", "morning", "window", "market", "story",
    "bread", "train", "island", "school", "doctor", "summer", "bridge", "color", "animal",
    "kitchen", "mountain", "answer", "evening",
];

/// Another order, by Fisher and Yates.
fn shuffled<T>(mut items: Vec<T>, seed: u64) -> Vec<T> {
    for idx in (1..items.len()).rev() {
        let other = draw_u64(seed, idx as u64) % (idx as u64 + 1);
        items.swap(idx, other as usize);
    }
    items
}

/// A row that is answered by calls.
fn tool_call(row: &Value) -> Option<Value> {
    row["expected"]["calls"].as_array()?.first()?;
    Some(json!({
        "messages": as_api(row["messages"].as_array()?),
        "tools": row["tools"],
        "tool_choice": "required",
        "chat_template_kwargs": template_arguments(row),
    }))
}

/// A row that is answered in text. No tool is on offer: without a grammar, a call that the model should not
/// have made may be malformed, and the server is not to blame for it.
fn chat(row: &Value) -> Option<Value> {
    row["expected"]["answer"].as_str()?;
    Some(json!({
        "messages": as_api(row["messages"].as_array()?),
        "chat_template_kwargs": template_arguments(row),
    }))
}

/// A row that is answered by one call, asked for the call's arguments as JSON instead.
fn json_answer(row: &Value) -> Option<Value> {
    if row["kind"] != "call" {
        return None;
    }
    let wanted = &row["expected"]["calls"][0]["name"];
    let tools = row["tools"].as_array()?;
    let tool = tools
        .iter()
        .find(|tool| tool["function"]["name"] == *wanted)?;
    let mut schema = tool["function"]["parameters"].clone();
    if schema["properties"].as_object()?.is_empty() {
        return None;
    }
    bound(&mut schema);
    Some(json!({
        "messages": as_api(row["messages"].as_array()?),
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema},
        },
        // Thinking would be most of the answer.
        "chat_template_kwargs": {"enable_thinking": false},
    }))
}

/// Makes a schema's values end: a model that writes one text for ever would be measured for that alone.
fn bound(schema: &mut Value) {
    let kind = schema["type"].as_str().map(str::to_owned);
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    match kind.as_deref() {
        Some("string") if !schema.contains_key("enum") => {
            schema.insert("maxLength".to_owned(), json!(32));
        }
        Some("array") => {
            schema.insert("maxItems".to_owned(), json!(4));
            schema.get_mut("items").map(bound);
        }
        Some("object") => {
            schema.insert("additionalProperties".to_owned(), json!(false));
            let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
            properties
                .into_iter()
                .flatten()
                .for_each(|(_, own)| bound(own));
        }
        _ => {}
    }
}

fn template_arguments(row: &Value) -> Map<String, Value> {
    ["enable_thinking", "reasoning_effort"]
        .into_iter()
        .filter(|name| !row[*name].is_null())
        .map(|name| (name.to_owned(), row[name].clone()))
        .collect()
}

/// Messages with what the API wants besides: ids of calls, and arguments as text.
fn as_api(messages: &[Value]) -> Vec<Value> {
    let mut open_ids = std::collections::VecDeque::new();
    let mut out = messages.to_vec();
    for (at, message) in out.iter_mut().enumerate() {
        let calls = message.get("tool_calls").and_then(Value::as_array).cloned();
        let calls: Vec<Value> = calls
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(idx, mut call)| {
                let id = format!("call_{at}_{idx}");
                let arguments = &mut call["function"]["arguments"];
                if !arguments.is_string() {
                    *arguments = json!(arguments.to_string());
                }
                call["id"] = json!(id);
                open_ids.push_back(id);
                call
            })
            .collect();
        if let Some(message) = message.as_object_mut().filter(|_| !calls.is_empty()) {
            message.insert("tool_calls".to_owned(), json!(calls));
        }
        if message["role"] == "tool" {
            message["tool_call_id"] = json!(open_ids.pop_front());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_package::EMBEDDED_BATTERY;
    use std::collections::BTreeSet;

    fn shape(seed: u64) -> Shape {
        Shape {
            model: "embedded".to_owned(),
            max_tokens: 9,
            temperature: 0.0,
            seed,
        }
    }

    fn requests(workload: Workload, seed: u64) -> Requests {
        Requests::of_battery(EMBEDDED_BATTERY, workload, shape(seed)).expect("a battery")
    }

    #[test]
    fn each_workload_asks_for_its_kind() {
        let rows = [
            (Workload::ToolCall, 100, ["tool_choice", "tools"]),
            (Workload::Chat, 50, ["messages", "chat_template_kwargs"]),
            (Workload::Json, 50, ["response_format", "messages"]),
        ];
        for (workload, num_min, fields) in rows {
            let requests = requests(workload, 1);
            let num = requests.num_different().expect("a battery ends");
            assert!(num >= num_min, "{workload:?}: {num}");
            for idx in 0..num as u64 {
                let body = requests.body(idx, None);
                assert_eq!(body["stream_options"]["include_usage"], true);
                assert_eq!(body["max_tokens"], 9);
                assert!(fields.iter().all(|field| !body[*field].is_null()), "{body}");
                let ignores = body["ignore_eos"].is_boolean();
                assert!(!ignores, "a grammar must end: {body}");
                for message in body["messages"].as_array().expect("messages") {
                    let calls = message["tool_calls"].as_array();
                    for call in calls.into_iter().flatten() {
                        assert!(
                            call["id"].is_string() && call["function"]["arguments"].is_string()
                        );
                    }
                    let answers = message["role"] == "tool";
                    assert_eq!(answers, message["tool_call_id"].is_string(), "{message}");
                }
            }
        }
    }

    #[test]
    fn values_of_a_schema_end() {
        let mut schema = json!({"type": "object", "properties": {
            "a": {"type": "array", "items": {"type": "string"}},
            "b": {"type": "string", "enum": ["x"]},
            "c": {"type": "integer"},
        }});
        bound(&mut schema);
        let expected = json!({"type": "object", "additionalProperties": false, "properties": {
            "a": {"type": "array", "maxItems": 4, "items": {"type": "string", "maxLength": 32}},
            "b": {"type": "string", "enum": ["x"]},
            "c": {"type": "integer"},
        }});
        assert_eq!(schema, expected);
    }

    #[test]
    fn mixed_takes_turns() {
        let requests = requests(Workload::Mixed, 1);
        for idx in 0..30 {
            let body = requests.body(idx, None);
            let kind = (
                !body["tool_choice"].is_null(),
                !body["response_format"].is_null(),
            );
            let expected = [(true, false), (false, false), (false, true)];
            assert_eq!(kind, expected[idx as usize % 3], "{body}");
        }
    }

    #[test]
    fn a_seed_decides_the_order_and_nothing_else_does() {
        let bodies = |seed| {
            let requests = requests(Workload::ToolCall, seed);
            let num = requests.num_different().expect("a battery ends") as u64;
            let texts = (0..num).map(|idx| requests.body(idx, None)["messages"].to_string());
            texts.collect::<Vec<String>>()
        };
        let (first, other) = (bodies(1), bodies(2));
        assert_eq!(first, bodies(1));
        assert_ne!(first, other);
        let set = |texts: &[String]| texts.iter().cloned().collect::<BTreeSet<String>>();
        assert_eq!(set(&first), set(&other));
    }

    #[test]
    fn words_are_counted_and_repeat() {
        let made_up = Requests::of_words(12, shape(3));
        let text = |idx| {
            let body = made_up.body(idx, Some("salt"));
            assert_eq!(
                (&body["ignore_eos"], &body["cache_salt"]),
                (&json!(true), &json!("salt"))
            );
            body["messages"][0]["content"]
                .as_str()
                .expect("text")
                .to_owned()
        };
        assert_eq!(text(5).split(' ').count(), 12);
        assert_eq!(text(5), text(5));
        assert_ne!(text(5), text(6));
        assert_eq!(made_up.num_different(), None);
    }

    #[test]
    fn a_broken_battery_is_named() {
        let error = |text| {
            let made = Requests::of_battery(text, Workload::Chat, shape(0));
            made.err().expect("no battery")
        };
        assert!(error("{}\n{").starts_with("line 2: "));
        assert_eq!(error("{}"), "nothing of the kind chat");
    }
}
