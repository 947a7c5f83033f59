//! No malformed call: whatever a model wants to say, under a grammar its calls parse and fit their schemas.
//! The embedded model at a temperature where it stumbles, and a model without any sense. It must never
//! count an output that called nothing as a call that was fine.

use lockstep_core::{
    Engine, EngineConfig, EventKind, Finish, Request, RequestError, Time, Vocabulary, run_step,
};
use lockstep_cpu::{CpuBackend, CpuOptions, WeightRule};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig};
use lockstep_grammar::{
    Answer, Compiler, Constraint, GrammarLimits, GrammarVocabulary, Reasoning, Strictness, Tool,
    ToolChoice, VocabularyParts,
};
use lockstep_package::{NoProgress, Package, Special};
use lockstep_step::{Backend, BackendLimits, Matcher, SamplingParams, SeqId, TokenId};
use lockstep_tags::json::{self, Value as Json};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet, starts_in_reasoning};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc, thread};

/// What became of some outputs.
#[derive(Debug, Default)]
struct Tally {
    /// Ended with an error of the parser.
    malformed: u32,
    /// Ended with another error.
    failed: Vec<String>,
    /// Whole calls.
    calls: u32,
    /// Whole calls whose arguments don't fit the schema.
    misfits: Vec<String>,
    /// Ended by the token limit.
    cut: u32,
}

/// A prompt with its tools.
struct Conversation {
    token_ids: Vec<TokenId>,
    in_reasoning: bool,
    tools: Vec<Value>,
}

struct Bench {
    package: Arc<Package>,
    compiler: Compiler,
    vocabulary: Arc<Vocabulary>,
}

impl Bench {
    fn new() -> Bench {
        let package = Arc::new(Package::embedded().expect("the embedded model"));
        let vocab_size = package.contract.vocab_size as u32;
        let own = package.clone();
        let parts = VocabularyParts {
            token_bytes: (0..vocab_size)
                .map(|id| package.tokenizer.decode_token(id).to_vec())
                .collect(),
            special: (0..vocab_size)
                .map(|id| package.tokenizer.is_special(id))
                .collect(),
            end_tokens: end_tokens(&package),
            tokenize: Arc::new(move |text: &str| {
                let ids = own.tokenizer.encode(text, Special::None);
                ids.map_or(Vec::new(), |ids| ids.into_iter().map(TokenId).collect())
            }),
        };
        let vocabulary = GrammarVocabulary::new(parts).expect("a vocabulary");
        let bytes = (0..vocab_size).map(|id| package.tokenizer.decode_token(id).into());
        let special = (0..vocab_size).map(|id| package.tokenizer.is_special(id));
        Bench {
            compiler: Compiler::new(Arc::new(vocabulary), GrammarLimits::default()),
            vocabulary: Arc::new(Vocabulary::new(bytes.collect(), special.collect())),
            package,
        }
    }

    /// The conversations of the battery that offer tools.
    fn conversations(&self) -> Vec<Conversation> {
        let text = include_str!("../engine/package/embedded/battery.jsonl");
        let rows = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let with_tools = rows.filter(|row| row["tools"].as_array().is_some_and(|t| !t.is_empty()));
        with_tools
            .map(|row| {
                let tools = row["tools"].as_array().expect("tools").clone();
                let messages = row["messages"].as_array().expect("messages");
                let mut kwargs = Map::new();
                for name in ["reasoning_effort", "enable_thinking"] {
                    kwargs.insert(name.to_string(), row[name].clone());
                }
                let encoded = self
                    .package
                    .encode_chat(messages, Some(&tools), &kwargs, true);
                let encoded = encoded.expect("a prompt");
                Conversation {
                    token_ids: encoded.token_ids.into_iter().map(TokenId).collect(),
                    in_reasoning: starts_in_reasoning(&encoded.text),
                    tools,
                }
            })
            .collect()
    }

    fn request(
        &self,
        conversation: &Conversation,
        format: TagFormat,
        choice: Option<ToolChoice>,
        (seed, max_tokens): (u64, u32),
    ) -> Request {
        let schema = |tool: &Value| tool["function"]["parameters"].clone();
        let name = |tool: &Value| {
            tool["function"]["name"]
                .as_str()
                .expect("a name")
                .to_string()
        };
        let texts: Vec<(String, String)> = conversation
            .tools
            .iter()
            .map(|tool| (name(tool), schema(tool).to_string()))
            .collect();
        let declared = texts
            .iter()
            .map(|(name, text)| (name.clone(), Some(text.as_str())));
        let constraint = choice.map(|choice| Constraint {
            format,
            reasoning: match conversation.in_reasoning {
                true => Reasoning::Open,
                false => Reasoning::Closed,
            },
            tools: conversation
                .tools
                .iter()
                .map(|tool| Tool {
                    name: name(tool),
                    parameters: Some(schema(tool)),
                    strictness: Strictness::Schema,
                })
                .collect(),
            choice,
            parallel: !seed.is_multiple_of(3),
            answer: Answer::Free,
        });
        let matcher = constraint.map(|constraint| {
            let made = self.compiler.matcher(&constraint).expect("a grammar");
            Box::new(made.expect("it holds something")) as Box<dyn Matcher>
        });
        Request {
            prompt: conversation.token_ids.clone(),
            sampling: SamplingParams {
                temperature: 1.5,
                seed,
                ..SamplingParams::greedy()
            },
            max_tokens,
            end_tokens: end_tokens(&self.package),
            stop_strings: Vec::new(),
            tags: ParserOptions {
                format,
                starts_in_reasoning: conversation.in_reasoning,
                reasoning: true,
                delivery: match seed % 2 {
                    0 => Delivery::Eager,
                    _ => Delivery::Whole,
                },
                tools: ToolSet::new(declared).expect("tools").into(),
            },
            matcher,
            reasoning: None,
            speculation: None,
            token_events: false,
            cache_salt: String::new(),
        }
    }

    /// Runs `num` outputs over the conversations in turn.
    fn tally<B: Backend>(
        &self,
        backend: &mut B,
        conversations: &[Conversation],
        format: TagFormat,
        (num, max_tokens): (u64, u32),
        choice: impl Fn(u64) -> Option<ToolChoice>,
    ) -> Tally {
        let config = EngineConfig {
            max_num_seqs: 48,
            max_waiting_requests: u32::MAX,
            max_waiting_tokens: u64::MAX,
            ..EngineConfig::default()
        };
        let limits = backend.limits();
        let engine = Engine::new(config, limits, self.vocabulary.clone());
        let mut engine = engine.expect("a configuration");
        let mut tally = Tally::default();
        let mut running: BTreeMap<SeqId, Running> = BTreeMap::new();
        for seed in 0..num {
            let conversation = &conversations[seed as usize % conversations.len()];
            let request = self.request(conversation, format, choice(seed), (seed, max_tokens));
            let seq = engine.submit(Time::default(), request).expect("it fits");
            let calls = Vec::new();
            running.insert(
                seq,
                Running {
                    conversation,
                    calls,
                },
            );
        }
        while run_step(&mut engine, backend, Time::default()).expect("no broken invariant") {
            for event in engine.poll_events() {
                tally.take(event.seq, event.kind, &mut running);
            }
        }
        assert!(running.is_empty(), "each output ends");
        tally
    }
}

struct Running<'a> {
    conversation: &'a Conversation,
    calls: Vec<(String, String, bool)>,
}

impl Tally {
    fn take(&mut self, seq: SeqId, kind: EventKind, running: &mut BTreeMap<SeqId, Running>) {
        let output = running.get_mut(&seq).expect("an output that runs");
        match kind {
            EventKind::CallBegin { name, .. } => output.calls.push((name, String::new(), false)),
            EventKind::CallArguments { fragment, .. } => {
                output
                    .calls
                    .last_mut()
                    .expect("a call")
                    .1
                    .push_str(&fragment);
            }
            EventKind::CallEnd { .. } => output.calls.last_mut().expect("a call").2 = true,
            EventKind::Finished(finished) => {
                let output = running.remove(&seq).expect("an output");
                match finished.finish {
                    Finish::Error(RequestError::Tag(_)) => self.malformed += 1,
                    Finish::Error(error) => self.failed.push(error.to_string()),
                    Finish::Length => self.cut += 1,
                    _ => {}
                }
                for (name, arguments, _) in output.calls.iter().filter(|call| call.2) {
                    self.calls += 1;
                    if let Err(error) = fits(name, arguments, &output.conversation.tools) {
                        self.misfits.push(format!("{name} {arguments}: {error}"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a call's arguments fit the schema of its tool, for the keywords that the battery uses.
fn fits(name: &str, arguments: &str, tools: &[Value]) -> Result<(), String> {
    let tool = tools.iter().find(|tool| tool["function"]["name"] == name);
    let tool = tool.ok_or("no such tool")?;
    let value = json::parse(arguments, json::DEPTH_MAX).map_err(|error| error.to_string())?;
    fits_schema(&value, &tool["function"]["parameters"])
}

const KEYWORDS: [&str; 6] = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "description",
];

fn fits_schema(value: &Json, schema: &Value) -> Result<(), String> {
    let mut keywords = schema.as_object().ok_or("no schema")?.keys();
    if let Some(other) = keywords.find(|keyword| !KEYWORDS.contains(&keyword.as_str())) {
        return Err(format!("this test knows no {other}"));
    }
    let is_type = match (schema["type"].as_str(), value) {
        (None, _)
        | (Some("string"), Json::String(_))
        | (Some("number"), Json::Number(_))
        | (Some("boolean"), Json::Bool(_))
        | (Some("array"), Json::Array(_))
        | (Some("object"), Json::Object(_)) => true,
        (Some("integer"), Json::Number(digits)) => {
            digits.parse::<f64>().unwrap_or(0.5).fract() == 0.0
        }
        _ => false,
    };
    if !is_type {
        return Err(format!("{value} is no {}", schema["type"]));
    }
    let text = value.to_string();
    let is_member = |member: &Value| serde_json::to_string(member).is_ok_and(|own| own == text);
    if let Some(members) = schema["enum"].as_array()
        && !members.iter().any(is_member)
    {
        return Err(format!("{value} is none of {members:?}"));
    }
    if let Json::Array(items) = value {
        items
            .iter()
            .try_for_each(|item| fits_schema(item, &schema["items"]))?;
    }
    if let Json::Object(members) = value {
        for required in schema["required"].as_array().into_iter().flatten() {
            if !members.iter().any(|(key, _)| required == key.as_str()) {
                return Err(format!("{required} is missing"));
            }
        }
        for (key, value) in members {
            // What a schema doesn't name, it leaves open.
            if let Some(property) = schema["properties"].get(key) {
                fits_schema(value, property)?;
            }
        }
    }
    Ok(())
}

fn end_tokens(package: &Package) -> Vec<TokenId> {
    package
        .contract
        .end_tokens
        .iter()
        .map(|id| TokenId(*id))
        .collect()
}

fn cpu(package: &Package) -> CpuBackend {
    let options = CpuOptions {
        weights: WeightRule::Q8,
        num_threads: thread::available_parallelism().map_or(1, |cores| cores.get()),
        num_blocks: 1024,
        num_rows: 1024,
        ..CpuOptions::default()
    };
    CpuBackend::load(package, &options, &NoProgress).expect("the model loads")
}

/// A model made of hashes: it wants to end now and then, and has no other wish.
fn senseless(package: &Package) -> Fingerprint {
    let limits = BackendLimits {
        vocab_size: package.contract.vocab_size as u32,
        num_blocks: 1024,
        num_rows: 0,
        seq_len_max: 2048,
        query_tokens_max: 512,
    };
    let mut config = FingerprintConfig::new(limits);
    // Without a push toward what ends a value and a call, few calls would be whole.
    let pushed = [
        "</think>",
        "</tool_call>",
        "</arg_value>",
        "<tool_call>",
        "\"",
        "}",
        "\n",
        "</",
        "parameter",
        ">",
    ];
    for tag in pushed {
        let id = package
            .tokenizer
            .encode(tag, Special::Parse)
            .expect("tokens");
        config.bias.extend(id.first().map(|id| (TokenId(*id), 7.0)));
    }
    config
        .bias
        .extend(end_tokens(package).into_iter().map(|token| (token, 6.0)));
    config.bias.sort_by_key(|(token, _)| *token);
    config.bias.dedup_by_key(|(token, _)| *token);
    Fingerprint::new(config)
}

/// Required, free to call, or one tool by its name.
fn in_turn(seed: u64) -> Option<ToolChoice> {
    Some(match seed % 2 {
        0 => ToolChoice::Required,
        _ => ToolChoice::Auto,
    })
}

#[test]
fn the_embedded_model_makes_no_malformed_call_under_a_grammar() {
    let bench = Bench::new();
    let conversations = bench.conversations();
    let mut backend = cpu(&bench.package);
    let tally = bench.tally(
        &mut backend,
        &conversations,
        TagFormat::Glm,
        (2_000, 120),
        in_turn,
    );
    println!("held: {tally:?}");
    assert_eq!(tally.malformed, 0, "{tally:?}");
    assert!(
        tally.failed.is_empty() && tally.misfits.is_empty(),
        "{tally:?}"
    );
    assert!(tally.calls > 1_500, "{tally:?}");

    let free = bench.tally(
        &mut backend,
        &conversations,
        TagFormat::Glm,
        (400, 120),
        |_| None,
    );
    println!("free: {free:?}");
    assert!(free.failed.is_empty(), "{free:?}");
    assert!(free.malformed > 20, "the test could not fail: {free:?}");
}

#[test]
fn a_senseless_model_makes_no_malformed_call_under_a_grammar() {
    let bench = Bench::new();
    let conversations = bench.conversations();
    for format in [TagFormat::Glm, TagFormat::QwenXml, TagFormat::HermesJson] {
        let mut backend = senseless(&bench.package);
        let tally = bench.tally(&mut backend, &conversations, format, (700, 300), in_turn);
        println!("{format} held: {tally:?}");
        assert_eq!(tally.malformed, 0, "{tally:?}");
        assert!(
            tally.failed.is_empty() && tally.misfits.is_empty(),
            "{tally:?}"
        );
        assert!(tally.calls > 60, "{tally:?}");

        let free = bench.tally(&mut backend, &conversations, format, (700, 300), |_| None);
        println!("{format} free: {free:?}");
        assert!(free.malformed > 5, "the test could not fail: {free:?}");
    }
}
