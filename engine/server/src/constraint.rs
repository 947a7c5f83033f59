//! From what a request says about calls and about the form of its answer to one constraint of the grammar
//! engine. Both APIs, plain completions and the command line pass here and nowhere else.
//!
//! It must never drop a demand: what can't be held is refused, by the field that asked for it.

use crate::http::error::ApiError;
use crate::model::ModelContract;
use crate::state::ToolGrammar;
use lockstep_grammar::{
    Answer, Constraint, ConstraintError, Reasoning, Strictness, Subject, Tool, ToolChoice,
};
use serde_json::{Value, json};

/// A tool that a request declares.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredTool {
    /// In the shape that templates read. `strict` is no part of it: it is said to the server, not to the
    /// model.
    pub(crate) listed: Value,
    /// Whether its schema must hold, if the request says.
    pub(crate) strict: Option<bool>,
    /// The field of its schema, with its parents.
    pub(crate) schema_field: String,
    /// The field `strict`, with its parents.
    pub(crate) strict_field: String,
}

impl DeclaredTool {
    pub(crate) fn name(&self) -> &str {
        self.listed["function"]["name"].as_str().unwrap_or_default()
    }

    /// The JSON schema of its arguments.
    pub(crate) fn parameters(&self) -> Option<&Value> {
        let parameters = self.listed["function"].get("parameters");
        parameters.filter(|schema| !schema.is_null())
    }
}

/// What a request says about calls.
#[derive(Clone, Debug)]
pub(crate) struct AskedCalls {
    pub(crate) choice: ToolChoice,
    /// The tools that may be called, by name, where that isn't all of them.
    pub(crate) allowed: Option<Vec<String>>,
    /// The field that asked for at most one call.
    pub(crate) single: Option<String>,
}

impl AskedCalls {
    /// What holds where a request says nothing.
    pub(crate) fn auto() -> AskedCalls {
        AskedCalls {
            choice: ToolChoice::Auto,
            allowed: None,
            single: None,
        }
    }
}

/// What a request says about the answer itself.
#[derive(Clone, Debug)]
pub(crate) struct AskedAnswer {
    pub(crate) answer: Answer,
    /// The field that says so, with its parents.
    pub(crate) field: String,
}

/// All that a constraint is made of.
pub(crate) struct Asked<'a> {
    pub(crate) tools: &'a [DeclaredTool],
    pub(crate) calls: &'a AskedCalls,
    pub(crate) answer: Option<&'a AskedAnswer>,
    pub(crate) ignore_eos: bool,
}

/// What the server holds by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) tool_grammar: ToolGrammar,
    /// Whether calls of this model can be held to a grammar at all.
    pub(crate) holds_calls: bool,
}

/// A constraint, and the fields behind its parts.
#[derive(Clone, Debug)]
pub(crate) struct AskedConstraint {
    pub(crate) constraint: Constraint,
    /// The field that asked for it first.
    demanded_by: String,
    /// The field of each tool's schema.
    schema_fields: Vec<String>,
    answer_field: Option<String>,
}

/// Where an answer of this model starts, to the grammar and to the parser alike.
pub(crate) fn reasoning(contract: &ModelContract, starts_in_reasoning: bool) -> Reasoning {
    match (contract.reasoning_close, starts_in_reasoning) {
        (None, _) => Reasoning::Off,
        (Some(_), true) => Reasoning::Open,
        (Some(_), false) => Reasoning::Closed,
    }
}

/// The constraint that a request asks for; None if its answer may be anything.
///
/// # Errors
/// If it asks for an answer that does not end, and for one of a certain form.
pub(crate) fn constraint(
    contract: &ModelContract,
    rules: Rules,
    reasoning: Reasoning,
    asked: &Asked<'_>,
) -> Result<Option<AskedConstraint>, ApiError> {
    let forbidden = asked.calls.choice == ToolChoice::Forbidden;
    // Without a grammar, a call that is written nevertheless is text.
    let forbids = forbidden && rules.holds_calls && !asked.ignore_eos;
    let demanded_by = match demand(rules, asked) {
        Some(field) => field,
        None if forbids && !asked.tools.is_empty() => "tool_choice".to_string(),
        None => return Ok(None),
    };
    if asked.ignore_eos {
        let message = format!("ignore_eos is true, expected false together with {demanded_by}");
        return Err(ApiError::field("invalid_value", "ignore_eos", message));
    }
    let allowed = |tool: &&DeclaredTool| {
        let names = asked.calls.allowed.as_ref();
        names.is_none_or(|names| names.iter().any(|name| name == tool.name()))
    };
    let tools: Vec<&DeclaredTool> = match forbidden && !forbids {
        true => Vec::new(),
        false => asked.tools.iter().filter(allowed).collect(),
    };
    let held = |tool: &&DeclaredTool| Tool {
        name: tool.name().to_string(),
        parameters: tool.parameters().cloned(),
        strictness: match tool.strict {
            Some(false) => Strictness::Shape,
            Some(true) | None => Strictness::Schema,
        },
    };
    Ok(Some(AskedConstraint {
        constraint: Constraint {
            format: contract.tag_format,
            reasoning,
            tools: tools.iter().map(held).collect(),
            choice: asked.calls.choice.clone(),
            parallel: asked.calls.single.is_none(),
            answer: asked
                .answer
                .map_or(Answer::Free, |asked| asked.answer.clone()),
        },
        demanded_by,
        schema_fields: tools.iter().map(|tool| tool.schema_field.clone()).collect(),
        answer_field: asked.answer.map(|asked| asked.field.clone()),
    }))
}

/// The first field that can't be served without a grammar.
fn demand(rules: Rules, asked: &Asked<'_>) -> Option<String> {
    let answer = asked.answer.map(|answer| answer.field.clone());
    if asked.tools.is_empty() || asked.calls.choice == ToolChoice::Forbidden {
        return answer;
    }
    let strict = asked.tools.iter().find(|tool| tool.strict == Some(true));
    let chosen = asked.calls.choice != ToolChoice::Auto || asked.calls.allowed.is_some();
    let always = rules.tool_grammar == ToolGrammar::Always;
    chosen
        .then(|| "tool_choice".to_string())
        .or_else(|| asked.calls.single.clone())
        .or_else(|| strict.map(|tool| tool.strict_field.clone()))
        .or(answer)
        .or_else(|| always.then(|| "tools".to_string()))
}

impl AskedConstraint {
    /// Whether calls can't be malformed under it.
    pub(crate) fn holds_calls(&self) -> bool {
        !self.constraint.tools.is_empty() && self.constraint.choice != ToolChoice::Forbidden
    }

    /// The kinds of what it holds, as metrics name them.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let calls = match (&self.constraint.choice, self.constraint.tools.is_empty()) {
            (_, true) => None,
            (ToolChoice::Forbidden, false) => Some("no_calls"),
            (_, false) => Some("calls"),
        };
        let answer = match &self.constraint.answer {
            Answer::Free => None,
            Answer::JsonObject => Some("json_object"),
            Answer::JsonSchema(_) => Some("json_schema"),
            Answer::Regex(_) => Some("regex"),
            Answer::Choice(_) => Some("choice"),
            Answer::Lark(_) => Some("lark"),
        };
        calls.into_iter().chain(answer)
    }

    /// The field that asked for it first.
    pub(crate) fn demanded_by(&self) -> &str {
        &self.demanded_by
    }

    /// A constraint that can't be held, as the client's fields have it.
    pub(crate) fn refusal(&self, error: &ConstraintError) -> ApiError {
        let field = match &error.subject {
            Subject::Tool(idx) => self.schema_fields.get(*idx),
            Subject::Answer => self.answer_field.as_ref(),
            Subject::ToolChoice | Subject::Model => None,
        };
        let field = field.unwrap_or(&self.demanded_by);
        let param = format!("{field}{}", error.path.as_deref().unwrap_or_default());
        let message = format!("{field} can't be held: {}", error.message);
        ApiError::field(error.kind, param, message)
    }
}

/// The error that a name is none of the declared tools.
pub(crate) fn unknown_tool(field: &str, name: &str, tools: &[DeclaredTool]) -> ApiError {
    if tools.is_empty() {
        let message = format!("tools is missing, expected the tool that {field} names, {name:?}");
        return ApiError::field("missing_field", "tools", message);
    }
    let names: Vec<&str> = tools.iter().map(DeclaredTool::name).collect();
    let expected = format!("one of the declared tools: {}", names.join(", "));
    ApiError::value(field, &json!(name), &expected)
}
