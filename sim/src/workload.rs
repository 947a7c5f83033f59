//! What the clients of a run do: requests of both APIs with whatever the run's features bring, and what is no
//! request at all. It must never know what the server will answer.

use crate::extremes;
use crate::model::{BROKEN_WORD, CALLS, NUM_SCRIPTS, POISON, REFUSED_WORD, STRUCTURED, trigger};
use crate::options::{Feature, Options};
use crate::rng::Rng;
use serde_json::{Value, json};

pub use lockstep_server::said::Route;

/// How an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// To its end.
    Whole,
    /// The client goes away after so many milliseconds.
    Leave(u64),
    /// It reads nothing for so many milliseconds after the first piece, and then to the end.
    Stall(u64),
}

/// A request, and how its client behaves.
#[derive(Clone, Debug)]
pub struct Wish {
    /// What it is called in logs and in `x-request-id`.
    pub id: String,
    /// Where it goes.
    pub route: Route,
    /// What is sent.
    pub body: Value,
    /// How the answer is read.
    pub manner: Manner,
    /// Milliseconds that the client waits before it asks.
    pub wait_ms: u64,
}

impl Wish {
    /// Whether the answer comes as a stream.
    pub fn is_stream(&self) -> bool {
        self.body["stream"] == true
    }
}

/// One thing that a client does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Asks, and waits for the answer.
    Ask(Wish),
    /// Asks two things at once, over one connection.
    AskBoth(Wish, Wish),
    /// Sends these bytes, and looks whether the server still stands.
    Send(Vec<u8>),
}

/// What each client of a run does, in its order.
pub fn script(options: &Options) -> Vec<Vec<Act>> {
    let mut rng = Rng::new(options.seed, "workload");
    let clients = 0..options.num_clients;
    clients
        .map(|client| {
            let mut acts = Vec::new();
            for number in 0..options.requests_per_client {
                let id = format!("c{client}r{number}");
                acts.push(act(options, &mut rng, id));
            }
            acts
        })
        .collect()
}

/// What the ids of two equal requests at the very end begin with.
pub const AGAIN: &str = "again";

/// What is asked once all faults are over: everybody must get an answer. The last two are the same, and the second must
/// find what the first computed.
pub fn epilogue(options: &Options) -> Vec<Wish> {
    let mut rng = Rng::new(options.seed, "epilogue");
    let wishes = (0..3).map(|number| Wish {
        manner: Manner::Whole,
        ..wish(options, &mut rng, format!("end{number}"))
    });
    let mut wishes: Vec<Wish> = wishes.collect();
    let length = rng.within(100, 700) as usize;
    let story: String = "A boat came in with the tide. "
        .repeat(30)
        .chars()
        .take(length)
        .collect();
    for number in 0..2 {
        let messages = json!([{"role": "user", "content": story}]);
        wishes.push(Wish {
            id: format!("{AGAIN}{number}"),
            route: Route::Chat,
            body: json!({"messages": messages, "max_tokens": 3, "temperature": 0, "seed": 1}),
            manner: Manner::Whole,
            wait_ms: 10,
        });
    }
    wishes
}

fn act(options: &Options, rng: &mut Rng, id: String) -> Act {
    if options.has(Feature::Garbage) && rng.percent(20) {
        return Act::Send(garbage(rng));
    }
    let first = wish(options, rng, id.clone());
    if options.has(Feature::Pipelining) && rng.percent(40) {
        let whole = |wish| Wish {
            manner: Manner::Whole,
            ..wish
        };
        let second = wish(options, rng, format!("{id}b"));
        return Act::AskBoth(whole(first), whole(second));
    }
    Act::Ask(first)
}

/// A request that the run's features allow.
fn wish(options: &Options, rng: &mut Rng, id: String) -> Wish {
    let route = match rng.below(10) {
        0..4 if options.has(Feature::Messages) => Route::Messages,
        4..6 if options.has(Feature::Completions) => Route::Completions,
        _ => Route::Chat,
    };
    let mut body = match route {
        Route::Chat => chat(options, rng),
        Route::Completions => completion(options, rng),
        Route::Messages => messages(options, rng),
    };
    common(options, rng, route, &mut body);
    let (route, mut body) = extremes::instead(options, &id).unwrap_or((route, body));
    extremes::stretch(options, &id, &mut body);
    let step_ms = (options.step_us / 1000).max(1);
    let manner = match rng.below(10) {
        0..4 if options.has(Feature::Cancels) => Manner::Leave(rng.within(0, 40 * step_ms)),
        4..7 if options.has(Feature::Stalls) => Manner::Stall(rng.within(50, 5_000)),
        _ => Manner::Whole,
    };
    Wish {
        id,
        route,
        body,
        manner,
        wait_ms: match options.has(Feature::Burst) {
            true => 0,
            false => rng.within(0, 30 * step_ms),
        },
    }
}

/// What every route has.
fn common(options: &Options, rng: &mut Rng, route: Route, body: &mut Value) {
    let max_tokens = match () {
        // The embedded model computes for real.
        () if options.has(Feature::Embedded) => rng.within(1, 16),
        // Long enough to need more blocks than it began with.
        () if options.has(Feature::FewBlocks) => rng.within(1, 140),
        () => rng.within(1, 48),
    };
    let stream = rng.percent(60);
    let is_greedy = !options.has(Feature::Sampling) || rng.percent(25);
    body["model"] = json!("sim");
    body["max_tokens"] = json!(max_tokens);
    body["stream"] = json!(stream);
    match is_greedy {
        true => body["temperature"] = json!(0),
        false => sampling(rng, route, body),
    }
    body["seed"] = json!(rng.below(1000));
    stops(options, rng, route, body);
    if options.has(Feature::Salts) && rng.percent(60) {
        body["cache_salt"] = json!(rng.pick(&["red", "blue"]));
    }
    let holds = [
        "tools",
        "response_format",
        "structured_outputs",
        "guided_json",
    ];
    let is_held = holds.iter().any(|field| body.get(*field).is_some());
    // Where blocks are few, long answers take them from each other.
    let goes_on = if options.has(Feature::FewBlocks) && !is_held {
        60
    } else {
        15
    };
    if rng.percent(goes_on) {
        body["ignore_eos"] = json!(true);
    }
    if rng.percent(20) {
        body["speculate"] = json!(rng.pick(&[
            "off",
            "forced:3",
            "suffix:5",
            "ngram:2",
            "forced,suffix,ngram"
        ]));
    }
    if route != Route::Messages {
        of_openai(options, rng, route, body);
    }
}

/// Strings that end an answer.
fn stops(options: &Options, rng: &mut Rng, route: Route, body: &mut Value) {
    if options.has(Feature::Stops) && rng.percent(50) {
        let stops = [
            " END",
            "e",
            "city",
            "\n\n",
            "日本",
            "STOP",
            "nd th",
            "\"",
            "a b c d a",
        ];
        let count = rng.within(1, 2);
        let list: Vec<&str> = (0..count).map(|_| rng.pick(&stops)).collect();
        let field = if route == Route::Messages {
            "stop_sequences"
        } else {
            "stop"
        };
        body[field] = json!(list);
    }
}

/// What only OpenAI's routes have.
fn of_openai(options: &Options, rng: &mut Rng, route: Route, body: &mut Value) {
    if options.has(Feature::Choices) && rng.percent(50) {
        body["n"] = json!(rng.within(2, 3));
    }
    if options.has(Feature::Logprobs) && rng.percent(50) {
        match route {
            Route::Chat => {
                body["logprobs"] = json!(true);
                body["top_logprobs"] = json!(rng.within(0, 4));
            }
            _ => body["logprobs"] = json!(rng.within(0, 4)),
        }
    }
    if body["stream"] == true && rng.percent(60) {
        body["stream_options"] = json!({"include_usage": true});
    }
}

fn sampling(rng: &mut Rng, route: Route, body: &mut Value) {
    let is_openai = route != Route::Messages;
    body["temperature"] = json!(rng.pick(&[0.3, 0.7, 1.0]));
    if rng.percent(40) {
        body["top_p"] = json!(rng.pick(&[0.1, 0.5, 0.9]));
    }
    if rng.percent(40) {
        body["top_k"] = json!(rng.pick(&[1, 2, 5, 40]));
    }
    if rng.percent(20) {
        body["min_p"] = json!(0.05);
    }
    if rng.percent(30) {
        body["repetition_penalty"] = json!(rng.pick(&[1.1, 1.5]));
    }
    if is_openai && rng.percent(40) {
        body["frequency_penalty"] = json!(rng.pick(&[0.5, 1.5]));
        body["presence_penalty"] = json!(rng.pick(&[0.0, 1.0]));
    }
    if is_openai && rng.percent(20) {
        body["logit_bias"] = json!({"101": 3, "116": rng.pick(&[-100, 5]), "32": 2});
    }
}

fn chat(options: &Options, rng: &mut Rng) -> Value {
    let thinks = options.has(Feature::Reasoning) && rng.percent(60);
    let mut messages = Vec::new();
    if rng.percent(60) {
        messages.push(json!({"role": "system", "content": system(rng)}));
    }
    messages.extend(history(rng));
    let has_tools = options.has(Feature::Tools) && rng.percent(60);
    let is_structured = !has_tools && options.has(Feature::Structured) && rng.percent(60);
    let fitting = match (has_tools, is_structured) {
        (true, _) => CALLS,
        (_, true) => STRUCTURED,
        _ => &[],
    };
    let question = question(options, rng, thinks, fitting);
    messages.push(json!({"role": "user", "content": question}));
    let mut body = json!({
        "messages": messages,
        "chat_template_kwargs": {"enable_thinking": thinks},
    });
    if thinks && rng.percent(40) {
        body["reasoning"] = json!({"max_tokens": rng.within(0, 12)});
    }
    if has_tools {
        let strict = rng.percent(40);
        let tools = tools(rng).into_iter().map(|(name, schema)| {
            let mut function = json!({"name": name, "parameters": schema});
            if strict {
                function["strict"] = json!(true);
            }
            json!({"type": "function", "function": function})
        });
        body["tools"] = tools.collect();
        match rng.below(8) {
            0 => body["tool_choice"] = json!("required"),
            1 => body["tool_choice"] = json!({"type": "function", "function": {"name": "weather"}}),
            2 => body["tool_choice"] = json!("none"),
            3 => body["parallel_tool_calls"] = json!(false),
            _ => {}
        }
    }
    if is_structured {
        structured(rng, &mut body);
    }
    body
}

fn structured(rng: &mut Rng, body: &mut Value) {
    // The same constraint with other numbers is another one.
    let most = rng.pick(&[2, 12]);
    match rng.below(8) {
        0 => body["response_format"] = json!({"type": "json_object"}),
        1 => {
            let mut schema = weather();
            schema["properties"]["city"]["maxLength"] = json!(most);
            body["response_format"] = json!({
                "type": "json_schema",
                "json_schema": {"name": "place", "schema": schema},
            });
        }
        2 => body["structured_outputs"] = json!({"choice": ["Lima", "Paris", "Lima is the city"]}),
        3 | 4 => {
            let regex = format!("(the|a|Lima)( city)* is [0-9]{{1,{most}}}");
            body["structured_outputs"] = json!({"regex": regex});
        }
        5 => {
            body["guided_json"] =
                json!({"type": "array", "items": {"type": "boolean"}, "maxItems": most});
        }
        // A grammar that is none.
        6 => body["structured_outputs"] = json!({"grammar": "start: (\"a\""}),
        // Where tools are known the text of the tag that opens a call can't be written: there nothing is allowed.
        _ => {
            body["structured_outputs"] = json!({"regex": "the <tool_call> city"});
            let function = json!({"name": "weather", "parameters": weather()});
            body["tools"] = json!([{"type": "function", "function": function}]);
        }
    }
}

fn messages(options: &Options, rng: &mut Rng) -> Value {
    let thinks = options.has(Feature::Reasoning) && rng.percent(60);
    let mut messages = history(rng);
    let has_tools = options.has(Feature::Tools) && rng.percent(60);
    let fitting = if has_tools { CALLS } else { &[] };
    let question = question(options, rng, thinks, fitting);
    messages.push(json!({"role": "user", "content": question}));
    let mut body = json!({"messages": messages});
    if rng.percent(60) {
        body["system"] = json!(system(rng));
    }
    body["thinking"] = match thinks {
        true => json!({"type": "enabled", "budget_tokens": 1}),
        false => json!({"type": "disabled"}),
    };
    if has_tools {
        let tools = tools(rng).into_iter();
        let tools = tools.map(|(name, schema)| json!({"name": name, "input_schema": schema}));
        body["tools"] = tools.collect();
        match rng.below(6) {
            0 => body["tool_choice"] = json!({"type": "any"}),
            1 => body["tool_choice"] = json!({"type": "tool", "name": "weather"}),
            2 => body["tool_choice"] = json!({"type": "none"}),
            3 => {
                body["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true});
            }
            _ => {}
        }
    }
    body
}

fn completion(options: &Options, rng: &mut Rng) -> Value {
    let mut prompt = String::new();
    if rng.percent(60) {
        prompt += &system(rng);
    }
    prompt += &question(options, rng, false, &[]);
    let mut body = json!({"prompt": prompt});
    if rng.percent(15) {
        body["prompt"] = json!([prompt, "Lima is"]);
    }
    if rng.percent(20) {
        body["echo"] = json!(true);
    }
    body
}

/// A beginning that several requests of a run have in common.
fn system(rng: &mut Rng) -> String {
    let story = "The city is Lima and the weather is the same in the city and the harbour. ";
    let length = rng.pick(&[40, 130, 200, 256, 300, 500]);
    story.repeat(8).chars().take(length).collect()
}

/// Turns before the question.
fn history(rng: &mut Rng) -> Vec<Value> {
    if rng.percent(70) {
        return Vec::new();
    }
    vec![
        json!({"role": "user", "content": words(rng, 6)}),
        json!({"role": "assistant", "content": words(rng, 4)}),
    ]
}

fn question(options: &Options, rng: &mut Rng, thinks: bool, fitting: &[usize]) -> String {
    let count = rng.within(0, 14);
    let mut text = words(rng, count);
    if rng.percent(70) {
        let sign = if thinks { '$' } else { '#' };
        let any = rng.below(NUM_SCRIPTS as u64) as usize;
        let idx = match fitting.is_empty() || rng.percent(30) {
            true => any,
            false => rng.pick(fitting),
        };
        text += &trigger(sign, idx);
    }
    if options.has(Feature::NotANumber) && rng.percent(15) {
        text.push(POISON);
    }
    if options.has(Feature::TemplateError) && rng.percent(15) {
        text += rng.pick(&[REFUSED_WORD, BROKEN_WORD]);
    }
    text
}

fn words(rng: &mut Rng, count: u64) -> String {
    let all = [
        "the",
        "city",
        "of",
        "Lima",
        "is",
        "old",
        "日本",
        "and",
        "é",
        "12",
        "{\"a\": 1}",
        "</think>",
        "rain",
    ];
    let picked: Vec<&str> = (0..count).map(|_| rng.pick(&all)).collect();
    picked.join(" ")
}

fn weather() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["c", "f"]},
        },
        "required": ["city"],
        "additionalProperties": false,
    })
}

fn tools(rng: &mut Rng) -> Vec<(&'static str, Value)> {
    let add = json!({
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    match rng.below(3) {
        0 => vec![("weather", weather())],
        _ => vec![("weather", weather()), ("add", add)],
    }
}

fn garbage(rng: &mut Rng) -> Vec<u8> {
    let post = |path: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: sim\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let path = rng
        .pick(&[Route::Chat, Route::Completions, Route::Messages])
        .path();
    let text = match rng.below(9) {
        0 => "GET / HTT".to_owned(),
        1 => "\u{0}\u{1}\u{2}nothing of this is HTTP\r\n\r\n".to_owned(),
        2 => post(path, "{\"messages\": [}"),
        3 => post(path, &"[".repeat(300)),
        4 => post(
            path,
            "{\"messages\": \"no\", \"prompt\": {}, \"max_tokens\": -1}",
        ),
        5 => post("/v1/nowhere", "{}"),
        6 => format!("POST {path} HTTP/1.1\r\nhost: sim\r\ncontent-length: 99999999999\r\n\r\n"),
        7 => post(
            path,
            "{\"model\": \"another\", \"messages\": [], \"prompt\": \"\"}",
        ),
        _ => format!("DELETE {path} HTTP/1.1\r\nhost: sim\r\n\r\n"),
    };
    text.into_bytes()
}
