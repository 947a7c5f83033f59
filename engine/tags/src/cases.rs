//! Runs recorded outputs through the parser in every cut and compares with what is expected.
//! The rules of comparing stand here once, for the tests and for `lockstep parse`. It must never
//! count a case as passed that it did not run.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::event::{Delivery, Ended, TagErrorKind, TagEvent};
use crate::format::TagFormat;
use crate::json::{self, Value};
use crate::parser::{ParserOptions, TagParser, starts_in_reasoning};
use crate::schema::ToolSet;

/// One recorded output and what it must be read as.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique within its file.
    pub id: String,
    /// Name of the tag format; it need not be one that can be parsed.
    pub format: String,
    /// The end of the rendered prompt.
    pub prompt_tail: String,
    /// The offered tools.
    pub tools: Arc<ToolSet>,
    /// The whole output.
    pub text: String,
    /// One way to cut it, where the case gives one.
    pub chunks: Option<Vec<String>>,
    /// How the output ended.
    pub ended: Ended,
    /// What it must be read as.
    pub expect: Reading,
}

/// What an output was read as, or must be.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Trimmed reasoning, `None` if empty.
    pub reasoning: Option<String>,
    /// Trimmed content, `None` if empty.
    pub content: Option<String>,
    /// Name and arguments of each complete call, in order.
    pub tool_calls: Vec<(String, Value)>,
    /// `stop`, `length`, `tool_calls` or `error`.
    pub finish: String,
    /// Name of the error.
    pub error: Option<String>,
}

impl Reading {
    /// Whether both say the same, by the comparing rules of case files.
    pub fn same(&self, other: &Reading) -> bool {
        self.reasoning == other.reasoning
            && self.content == other.content
            && self.finish == other.finish
            && self.error == other.error
            && self.tool_calls.len() == other.tool_calls.len()
            && self.calls_begin(other)
    }

    /// Whether the calls of this reading are the first calls of the other one.
    fn calls_begin(&self, other: &Reading) -> bool {
        self.tool_calls.len() <= other.tool_calls.len()
            && self
                .tool_calls
                .iter()
                .zip(&other.tool_calls)
                .all(|((a, x), (b, y))| a == b && x.same(y))
    }
}

impl fmt::Display for Reading {
    /// One line per field, so that two readings can be compared line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &Option<String>| match text {
            Some(text) => Value::String(text.clone()).to_string(),
            None => "null".to_owned(),
        };
        writeln!(f, "reasoning: {}", quoted(&self.reasoning))?;
        writeln!(f, "content:   {}", quoted(&self.content))?;
        for (name, arguments) in &self.tool_calls {
            writeln!(f, "call:      {name} {arguments}")?;
        }
        write!(f, "finish:    {}", self.finish)?;
        match &self.error {
            Some(error) => write!(f, "\nerror:     {error}"),
            None => Ok(()),
        }
    }
}

/// How a case's text was handed to the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In one piece.
    Whole,
    /// In two pieces, the second starting at this byte.
    TwoPieces(usize),
    /// Character by character.
    Characters,
    /// As the case's own chunks.
    Chunks,
    /// Only this many bytes, ended by the token limit.
    Prefix(usize),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Whole => write!(f, "in one piece"),
            Cut::TwoPieces(at) => write!(f, "cut in two at byte {at}"),
            Cut::Characters => write!(f, "one character at a time"),
            Cut::Chunks => write!(f, "in the given chunks"),
            Cut::Prefix(len) => write!(f, "first {len} bytes, ended by length"),
        }
    }
}

/// A cut of a case that was not read as expected.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// How the text was handed over.
    pub cut: Cut,
    /// How calls were delivered.
    pub delivery: Delivery,
    /// What was expected, one field per line.
    pub expected: String,
    /// What was read, one field per line.
    pub got: String,
}

impl Case {
    /// Runs the case in all its cuts under both deliveries. Gives the first mismatch of each
    /// kind of cut and delivery; an empty list is a pass.
    pub fn run(&self, format: TagFormat) -> Vec<Mismatch> {
        [Delivery::Whole, Delivery::Eager]
            .into_iter()
            .flat_map(|delivery| self.run_delivery(format, delivery))
            .collect()
    }

    fn run_delivery(&self, format: TagFormat, delivery: Delivery) -> Vec<Mismatch> {
        let text = self.text.as_str();
        let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let check = |cut: Cut, pieces: &[&str]| {
            let got = self.read(format, delivery, pieces, self.ended);
            (!got.same(&self.expect)).then(|| self.mismatch(cut, delivery, &got))
        };
        let characters: Vec<&str> = text
            .char_indices()
            .map(|(at, c)| &text[at..at + c.len_utf8()])
            .collect();
        let mut found = Vec::new();
        found.extend(check(Cut::Whole, &[text]));
        found.extend(
            borders
                .iter()
                .find_map(|&at| check(Cut::TwoPieces(at), &[&text[..at], &text[at..]])),
        );
        found.extend(check(Cut::Characters, &characters));
        if let Some(chunks) = &self.chunks {
            let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
            found.extend(check(Cut::Chunks, &chunks));
        }
        found.extend(borders.iter().chain([&text.len()]).find_map(|&len| {
            let got = self.read(format, delivery, &[&text[..len]], Ended::Length);
            let spoilt = got.error.is_some() && self.expect.error.is_none();
            (spoilt || !got.calls_begin(&self.expect)).then(|| Mismatch {
                expected: format!("no error, and the first calls of\n{}", self.expect),
                ..self.mismatch(Cut::Prefix(len), delivery, &got)
            })
        }));
        found
    }

    fn mismatch(&self, cut: Cut, delivery: Delivery, got: &Reading) -> Mismatch {
        Mismatch {
            cut,
            delivery,
            expected: self.expect.to_string(),
            got: got.to_string(),
        }
    }

    /// Reads the pieces as the case says, from its prompt and with its tools.
    pub fn read(
        &self,
        format: TagFormat,
        delivery: Delivery,
        pieces: &[&str],
        ended: Ended,
    ) -> Reading {
        let mut parser = TagParser::new(ParserOptions {
            format,
            starts_in_reasoning: starts_in_reasoning(&self.prompt_tail),
            reasoning: true,
            delivery,
            tools: self.tools.clone(),
        });
        let mut events = Vec::new();
        let pushed = pieces
            .iter()
            .try_for_each(|piece| parser.push(piece, &mut events));
        let error = match pushed {
            Ok(()) => parser.finish(ended, &mut events).err(),
            Err(error) => Some(error),
        };
        fold(&events, ended, error.map(|error| error.kind))
    }
}

/// Joins events to a reading: text per channel trimmed, complete calls only.
pub fn fold(events: &[TagEvent], ended: Ended, error: Option<TagErrorKind>) -> Reading {
    let (mut reasoning, mut content) = (String::new(), String::new());
    let mut calls = Vec::new();
    let mut open: Option<(String, String)> = None;
    for event in events {
        match event {
            TagEvent::Reasoning(text) => reasoning.push_str(text),
            TagEvent::Content(text) => content.push_str(text),
            TagEvent::CallBegin { name, .. } => open = Some((name.clone(), String::new())),
            TagEvent::CallArguments { fragment, .. } => {
                if let Some((_, arguments)) = &mut open {
                    arguments.push_str(fragment);
                }
            }
            TagEvent::CallEnd { .. } => calls.extend(open.take().map(|(name, arguments)| {
                // Fragments that are no JSON show up as a string, which no object equals.
                let value = json::parse(&arguments, json::DEPTH_MAX + 1);
                (name, value.unwrap_or(Value::String(arguments)))
            })),
        }
    }
    let finish = match (error, ended) {
        (Some(_), _) => "error",
        (None, Ended::Length) => "length",
        (None, Ended::Eos) if calls.is_empty() => "stop",
        (None, Ended::Eos) => "tool_calls",
    };
    Reading {
        reasoning: trimmed(&reasoning),
        content: trimmed(&content),
        tool_calls: calls,
        finish: finish.into(),
        error: error.map(|kind| kind.as_str().into()),
    }
}

fn trimmed(text: &str) -> Option<String> {
    Some(json::trim_blanks(text))
        .filter(|text| !text.is_empty())
        .map(String::from)
}

/// A line of a case file that is no case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// Line in the file, from 1.
    pub line: usize,
    /// Path of the field, empty for the line itself.
    pub field: String,
    /// What is wrong, what was expected.
    pub problem: String,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "line {}: {}", self.line, self.problem),
            field => write!(f, "line {}: field `{field}`: {}", self.line, self.problem),
        }
    }
}

impl core::error::Error for CaseError {}

/// Reads a case file: one JSON object per line, empty lines allowed, each id once.
pub fn parse_cases(text: &str) -> Result<Vec<Case>, CaseError> {
    let mut ids = BTreeSet::new();
    let mut cases = Vec::new();
    for (i, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let found = parse_case(line).and_then(|case| match ids.insert(case.id.clone()) {
            true => Ok(case),
            false => Err(Bad::new("id", format!("`{}` is used twice", case.id))),
        });
        match found {
            Ok(case) => cases.push(case),
            Err(Bad { field, problem }) => {
                return Err(CaseError {
                    line: i + 1,
                    field,
                    problem,
                });
            }
        }
    }
    Ok(cases)
}

/// A field that is not what it should be.
struct Bad {
    field: String,
    problem: String,
}

impl Bad {
    fn new(field: &str, problem: String) -> Bad {
        Bad {
            field: field.into(),
            problem,
        }
    }
}

fn parse_case(line: &str) -> Result<Case, Bad> {
    let value = json::parse(line, json::DEPTH_MAX)
        .map_err(|error| Bad::new("", format!("not JSON, {error}")))?;
    if !matches!(value, Value::Object(_)) {
        return Err(Bad::new("", "not a JSON object".into()));
    }
    let root = Field {
        path: String::new(),
        value: Some(&value),
    };
    let ended = match root.get("ended").text()? {
        "eos" => Ended::Eos,
        "length" => Ended::Length,
        other => {
            return Err(Bad::new(
                "ended",
                format!("`{other}`, expected `eos` or `length`"),
            ));
        }
    };
    let text = root.get("text").text()?;
    let chunks = match root.get("chunks").optional() {
        None => None,
        Some(field) => {
            let items = field.items()?;
            let chunks = items.iter().map(|chunk| Ok(chunk.text()?.to_owned()));
            let chunks = chunks.collect::<Result<Vec<String>, Bad>>()?;
            if chunks.concat() != text {
                return Err(Bad::new("chunks", "do not join to `text`".into()));
            }
            Some(chunks)
        }
    };
    Ok(Case {
        id: root.get("id").text()?.into(),
        format: root.get("format").text()?.into(),
        prompt_tail: root.get("prompt_tail").text()?.into(),
        tools: parse_tools(&root.get("tools"))?,
        text: text.into(),
        chunks,
        ended,
        expect: parse_expect(&root.get("expect"))?,
    })
}

fn parse_tools(field: &Field<'_>) -> Result<Arc<ToolSet>, Bad> {
    let mut tools = Vec::new();
    for tool in field.items()? {
        let function = tool.get("function");
        let parameters = function.get("parameters").optional().and_then(|p| p.value);
        tools.push((
            function.get("name").text()?.to_owned(),
            parameters.map(Value::to_string),
        ));
    }
    let set = ToolSet::new(
        tools
            .iter()
            .map(|(name, schema)| (name.clone(), schema.as_deref())),
    );
    set.map(Arc::new)
        .map_err(|error| Bad::new(&field.path, error.to_string()))
}

fn parse_expect(field: &Field<'_>) -> Result<Reading, Bad> {
    let text_or_null = |name: &str| match field.get(name).optional() {
        Some(field) => field.text().map(trimmed),
        None => Ok(None),
    };
    let mut tool_calls = Vec::new();
    for call in field.get("tool_calls").items()? {
        let arguments = call.get("arguments");
        match arguments.value {
            Some(value @ Value::Object(_)) => {
                tool_calls.push((call.get("name").text()?.to_owned(), value.clone()));
            }
            _ => return Err(arguments.bad("an object")),
        }
    }
    let finish = field.get("finish");
    if !matches!(finish.text()?, "stop" | "length" | "tool_calls" | "error") {
        return Err(finish.bad("`stop`, `length`, `tool_calls` or `error`"));
    }
    let error = field
        .get("error")
        .optional()
        .map(|error| error.text().map(String::from));
    Ok(Reading {
        reasoning: text_or_null("reasoning")?,
        content: text_or_null("content")?,
        tool_calls,
        finish: finish.text()?.into(),
        error: error.transpose()?,
    })
}

/// A field of a case with the path that leads to it.
struct Field<'a> {
    path: String,
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    fn get(&self, name: &str) -> Field<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Field {
            path: format!("{}{dot}{name}", self.path),
            value: self.value.and_then(|value| value.get(name)),
        }
    }

    /// `None` if the field is missing or null.
    fn optional(self) -> Option<Field<'a>> {
        self.value
            .is_some_and(|value| *value != Value::Null)
            .then_some(self)
    }

    fn text(&self) -> Result<&'a str, Bad> {
        self.value
            .and_then(Value::as_str)
            .ok_or_else(|| self.bad("a string"))
    }

    fn items(&self) -> Result<Vec<Field<'a>>, Bad> {
        let Some(Value::Array(items)) = self.value else {
            return Err(self.bad("an array"));
        };
        let field = |(i, value)| Field {
            path: format!("{}[{i}]", self.path),
            value: Some(value),
        };
        Ok(items.iter().enumerate().map(field).collect())
    }

    fn bad(&self, expected: &str) -> Bad {
        match self.value {
            None => Bad::new(&self.path, format!("missing, expected {expected}")),
            Some(value) => {
                let shown: String = value.to_string().chars().take(60).collect();
                Bad::new(&self.path, format!("{shown}, expected {expected}"))
            }
        }
    }
}
