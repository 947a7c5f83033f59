//! A battery as people write it: requests by name, in TOML. It must never pass over a field that it doesn't
//! know, nor send a request that it could not read.

use super::{body, conformance};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fmt, str::FromStr};

/// Tokens of an answer at most where a request says nothing.
const MAX_TOKENS: u64 = 1024;
/// Answers of each request where nothing is said.
const REPEATS: u64 = 10;

/// Which API a request goes to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    /// OpenAI's `/chat/completions`.
    #[value(name = "openai")]
    OpenAi,
    /// Anthropic's `/messages`.
    Anthropic,
}

impl Route {
    /// As it is written in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Route::OpenAi => "openai",
            Route::Anthropic => "anthropic",
        }
    }
}

/// Which seed a request is sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedPolicy {
    /// Another for each exchange: the first seed, and so on upwards.
    Each,
    /// None.
    None,
    /// Always this one.
    Fixed(u64),
}

impl FromStr for SeedPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<SeedPolicy, String> {
        match text {
            "each" => Ok(SeedPolicy::Each),
            "none" => Ok(SeedPolicy::None),
            other => Err(format!(
                "seed is {other:?}, expected \"each\", \"none\" or a number"
            )),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum SeedText {
    Number(u64),
    Word(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Copy + Ord> OneOrMany<T> {
    /// Each once, in order.
    fn set(&self) -> BTreeSet<T> {
        match self {
            OneOrMany::One(one) => BTreeSet::from([*one]),
            OneOrMany::Many(many) => many.iter().copied().collect(),
        }
    }
}

/// What can be said of all requests, and of one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    seed: Option<SeedText>,
    routes: Option<OneOrMany<Route>>,
    stream: Option<OneOrMany<bool>>,
    extra: Option<Map<String, Value>>,
    extra_openai: Option<Map<String, Value>>,
    extra_anthropic: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    messages: Vec<Value>,
    #[serde(default)]
    tools: Vec<Value>,
    tool_choice: Option<Value>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    seed: Option<SeedText>,
    routes: Option<OneOrMany<Route>>,
    stream: Option<OneOrMany<bool>>,
    extra: Option<Map<String, Value>>,
    extra_openai: Option<Map<String, Value>>,
    extra_anthropic: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    repeats: Option<u64>,
    #[serde(default)]
    defaults: Options,
    #[serde(default)]
    request: Vec<Written>,
}

/// A tool that is offered.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does, if that is said.
    pub description: Option<String>,
    /// The schema of its arguments.
    pub schema: Value,
}

/// A request that is sent many times.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its name.
    pub name: String,
    /// Messages in OpenAI's form.
    pub messages: Vec<Value>,
    /// Tools that are offered.
    pub tools: Vec<Tool>,
    /// In OpenAI's form.
    pub tool_choice: Option<Value>,
    /// Tokens of an answer at most.
    pub max_tokens: u64,
    /// The server's own where it is left out.
    pub temperature: Option<f64>,
    /// Which seeds it is sent with.
    pub seed: SeedPolicy,
    /// Where it is sent, and whether as a stream.
    pub cells: Vec<(Route, bool)>,
    /// More fields of a body: for both APIs, and for each.
    extra: [Map<String, Value>; 3],
}

impl Request {
    /// More fields of its body.
    pub fn extra(&self, route: Route) -> impl Iterator<Item = (&String, &Value)> {
        let own = match route {
            Route::OpenAi => &self.extra[1],
            Route::Anthropic => &self.extra[2],
        };
        self.extra[0].iter().chain(own)
    }

    /// Whether an answer without a call is none.
    pub fn must_call(&self) -> bool {
        match &self.tool_choice {
            Some(Value::String(word)) => word == "required",
            Some(choice) => choice["type"] == "function",
            None => false,
        }
    }

    /// The seed of a repeat on one of its ways. No two have the same: where a seed gives the same answer by
    /// every way, they would be one answer, counted often.
    pub fn seed(&self, first: u64, repeat: u64, cell: (Route, bool)) -> Option<u64> {
        let num = self.cells.len() as u64;
        let at = self.cells.iter().position(|known| *known == cell);
        let after = repeat
            .wrapping_mul(num)
            .wrapping_add(at.unwrap_or(0) as u64);
        match self.seed {
            SeedPolicy::Each => Some(first.wrapping_add(after)),
            SeedPolicy::None => None,
            SeedPolicy::Fixed(seed) => Some(seed),
        }
    }

    /// Whether its repeats may well differ: then it says something if they don't.
    pub fn may_differ(&self) -> bool {
        !matches!(self.seed, SeedPolicy::Fixed(_)) && self.temperature != Some(0.0)
    }
}

/// A battery that was read.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Answers of each request.
    pub repeats: u64,
    /// Requests, in the order of the file.
    pub requests: Vec<Request>,
    /// What of the tools' schemas can't be judged, in words.
    pub unjudged: Vec<String>,
}

/// What the command line says instead of the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Answers of each request.
    pub repeats: Option<u64>,
    /// Where requests go.
    pub routes: Vec<Route>,
    /// Whether answers are streamed.
    pub stream: Option<bool>,
}

impl Plan {
    /// Reads a battery.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(text: &str, overrides: &Overrides) -> Result<Plan, String> {
        let file: File =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if file.request.is_empty() {
            return Err("it has no [[request]]".to_owned());
        }
        let mut names = BTreeSet::new();
        let mut plan = Plan {
            repeats: overrides.repeats.or(file.repeats).unwrap_or(REPEATS),
            requests: Vec::new(),
            unjudged: Vec::new(),
        };
        if !(1..=1_000_000).contains(&plan.repeats) {
            return Err(format!(
                "repeats is {}, expected 1 to 1000000",
                plan.repeats
            ));
        }
        for written in file.request {
            let name = written.name.clone();
            let wrong = |what: String| format!("request {name:?}: {what}");
            if !names.insert(name.clone()) {
                return Err(wrong("two requests have this name".to_owned()));
            }
            let request = request(written, &file.defaults, overrides).map_err(wrong)?;
            for tool in &request.tools {
                let open = conformance::unjudged(&tool.schema);
                let tell = |keyword: String| format!("{name}: {}: {keyword}", tool.name);
                plan.unjudged.extend(open.into_iter().map(tell));
            }
            plan.requests.push(request);
        }
        Ok(plan)
    }

    /// What a results file is held against: everything that is sent, but for the seed.
    pub fn settings(&self) -> Value {
        let requests = self.requests.iter().map(|request| {
            let cells = request.cells.iter().map(|(route, stream)| {
                let mut body = body::body(request, "", *route, *stream, None);
                body.as_object_mut().map(|body| body.remove("model"));
                json!({"route": route.name(), "stream": stream, "body": body})
            });
            let seed = match request.seed {
                SeedPolicy::Each => json!("each"),
                SeedPolicy::None => json!("none"),
                SeedPolicy::Fixed(seed) => json!(seed),
            };
            json!({
                "name": request.name,
                "seed": seed,
                "may_differ": request.may_differ(),
                "sent": cells.collect::<Vec<Value>>(),
            })
        });
        json!({"repeats": self.repeats, "requests": requests.collect::<Vec<Value>>()})
    }
}

fn request(written: Written, defaults: &Options, overrides: &Overrides) -> Result<Request, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if written.name.is_empty() || !written.name.chars().all(plain) {
        return Err("a name has letters, digits, dots, dashes and underscores".to_owned());
    }
    let routes = match (
        &overrides.routes[..],
        written.routes.or(defaults.routes.clone()),
    ) {
        ([], None) => BTreeSet::from([Route::OpenAi]),
        ([], Some(routes)) => routes.set(),
        (routes, _) => routes.iter().copied().collect(),
    };
    let streams = match (overrides.stream, written.stream.or(defaults.stream.clone())) {
        (Some(stream), _) => BTreeSet::from([stream]),
        (None, Some(streams)) => streams.set(),
        (None, None) => BTreeSet::from([false]),
    };
    if routes.is_empty() || streams.is_empty() {
        return Err("routes and stream must name one at least".to_owned());
    }
    let seed = match written.seed.or(defaults.seed.clone()) {
        None => SeedPolicy::Each,
        Some(SeedText::Number(seed)) => SeedPolicy::Fixed(seed),
        Some(SeedText::Word(word)) => word.parse()?,
    };
    let temperature = written.temperature.or(defaults.temperature);
    if temperature.is_some_and(|temperature| !(0.0..=100.0).contains(&temperature)) {
        return Err(format!("temperature is {temperature:?}, expected 0 to 100"));
    }
    let both = |general: &Option<Map<String, Value>>, own: Option<Map<String, Value>>| {
        let mut fields = general.clone().unwrap_or_default();
        fields.extend(own.unwrap_or_default());
        fields
    };
    let request = Request {
        name: written.name,
        tools: written.tools.iter().map(tool).collect::<Result<_, _>>()?,
        messages: written.messages,
        tool_choice: written.tool_choice,
        max_tokens: written
            .max_tokens
            .or(defaults.max_tokens)
            .unwrap_or(MAX_TOKENS),
        temperature,
        seed,
        cells: routes
            .iter()
            .flat_map(|route| streams.iter().map(|stream| (*route, *stream)))
            .collect(),
        extra: [
            both(&defaults.extra, written.extra),
            both(&defaults.extra_openai, written.extra_openai),
            both(&defaults.extra_anthropic, written.extra_anthropic),
        ],
    };
    body::check(&request)?;
    Ok(request)
}

/// A tool as OpenAI writes it, or without the wrapping.
fn tool(written: &Value) -> Result<Tool, String> {
    let function = written.get("function").unwrap_or(written);
    let name = function["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| format!("a tool has no name: {}", Shortened(written)))?;
    let schema = function.get("parameters").cloned();
    let schema = schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    conformance::check_schema(&schema)
        .map_err(|error| format!("tool {name}: parameters{error}"))?;
    Ok(Tool {
        name: name.to_owned(),
        description: function["description"].as_str().map(str::to_owned),
        schema,
    })
}

/// JSON, cut where it gets long.
pub struct Shortened<'a>(pub &'a Value);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(&text.chars().take(120).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"
repeats = 3
[defaults]
max_tokens = 64
temperature = 1.0
routes = ["anthropic", "openai"]
stream = [true, false]
extra = { top_p = 0.5 }
[[request]]
name = "alarm"
messages = [{ role = "user", content = "set it" }]
tools = [{ name = "set", parameters = { type = "object", format = "x" } }]
tool_choice = "required"
extra_openai = { reasoning_effort = "high" }
[[request]]
name = "talk"
messages = [{ role = "user", content = "hi" }]
temperature = 0.0
seed = 7
routes = "openai"
stream = false
"#;

    #[test]
    fn a_battery_is_read() {
        let plan = Plan::read(FULL, &Overrides::default()).expect("a battery");
        assert_eq!((plan.repeats, plan.requests.len()), (3, 2));
        let (alarm, talk) = (&plan.requests[0], &plan.requests[1]);
        assert_eq!(alarm.cells.len(), 4);
        assert!(alarm.must_call() && alarm.may_differ());
        assert_eq!(
            (alarm.seed(5, 2, alarm.cells[1]), alarm.max_tokens),
            (Some(14), 64)
        );
        let fields = |route| {
            alarm
                .extra(route)
                .map(|(key, _)| key.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(fields(Route::OpenAi), ["top_p", "reasoning_effort"]);
        assert_eq!(fields(Route::Anthropic), ["top_p"]);
        assert_eq!(talk.cells, [(Route::OpenAi, false)]);
        assert!(!talk.must_call() && !talk.may_differ());
        assert_eq!(talk.seed(5, 2, talk.cells[0]), Some(7));
        assert_eq!(plan.unjudged, ["alarm: set: format"]);
        let overrides = Overrides {
            repeats: Some(9),
            routes: vec![Route::Anthropic],
            stream: Some(true),
        };
        let plan = Plan::read(FULL, &overrides).expect("a battery");
        assert_eq!(plan.repeats, 9);
        assert!(
            plan.requests
                .iter()
                .all(|r| r.cells == [(Route::Anthropic, true)])
        );
    }

    #[test]
    fn what_is_no_battery_is_refused_by_name() {
        let one = "[[request]]\nname = \"a\"\nmessages = [{role = \"user\", content = \"x\"}]\n";
        let rows = [
            ("", "no [[request]]"),
            ("a = ", "line 1"),
            ("[[request]]\nname = \"a\"\n", "messages"),
            (&format!("{one}{one}"), "two requests have this name"),
            (&format!("{one}temprature = 1.0\n"), "temprature"),
            (&format!("{one}seed = \"some\"\n"), "\"some\""),
            (&format!("{one}temperature = -1.0\n"), "temperature is"),
            (&format!("{one}routes = \"google\"\n"), "routes"),
            (&format!("{one}routes = []\n"), "one at least"),
            (&format!("{one}tools = [{{x = 1}}]\n"), "has no name"),
            (&format!("repeats = 0\n{one}"), "repeats is 0"),
            (&one.replace("\"a\"", "\"a b\""), "a name has"),
            (&one.replace("user", "robot"), "robot"),
            (
                &one.replace("[{role = \"user\", content = \"x\"}]", "[]"),
                "messages",
            ),
            (
                &format!("{one}tools = [{{name = \"t\", parameters = {{type = \"thing\"}}}}]\n"),
                "thing",
            ),
        ];
        for (text, part) in rows {
            let error = Plan::read(text, &Overrides::default()).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
