//! Outputs that a model could have written, each with what it is held to.

use lockstep_grammar::{Answer, Constraint, Reasoning, Strictness, Tool, ToolChoice};
use lockstep_tags::TagFormat;
use serde_json::{Value, json};

/// An output and its constraint.
pub struct Output {
    /// Shown in the table.
    pub name: &'static str,
    /// What the output is held to.
    pub constraint: Constraint,
    /// The output's text, tags spelled out.
    pub text: String,
}

/// All outputs.
pub fn all() -> Vec<Output> {
    let tools = || vec![book(), search()];
    let calls = |format, choice| Constraint {
        format,
        reasoning: Reasoning::Off,
        tools: tools(),
        choice,
        parallel: true,
        answer: Answer::Free,
    };
    let answer = |answer| Constraint {
        answer,
        tools: Vec::new(),
        ..calls(TagFormat::Plain, ToolChoice::Auto)
    };
    let output = |name, constraint, text: &str| Output {
        name,
        constraint,
        text: text.to_string(),
    };
    vec![
        output(
            "glm required",
            calls(TagFormat::Glm, ToolChoice::Required),
            GLM,
        ),
        output(
            "glm auto, with text",
            calls(TagFormat::Glm, ToolChoice::Auto),
            &format!("{PROSE}{GLM}"),
        ),
        output(
            "qwen_xml required",
            calls(TagFormat::QwenXml, ToolChoice::Required),
            QWEN,
        ),
        output(
            "hermes_json required",
            calls(TagFormat::HermesJson, ToolChoice::Required),
            HERMES,
        ),
        output(
            "json_schema",
            answer(Answer::JsonSchema(invoice())),
            INVOICE,
        ),
        output("json_object", answer(Answer::JsonObject), INVOICE),
        output(
            "regex",
            answer(Answer::Regex(
                r"[A-Z]{3}-\d{4}(, [A-Z]{3}-\d{4})*".to_string(),
            )),
            "ABC-1234, XYZ-0001, QRS-9876, LMN-5555",
        ),
    ]
}

fn tool(name: &str, parameters: Value) -> Tool {
    Tool {
        name: name.to_string(),
        parameters: Some(parameters),
        strictness: Strictness::Schema,
    }
}

fn book() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "restaurant": {"type": "string"},
            "seats": {"type": "integer", "minimum": 1, "maximum": 20},
            "time": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"},
            "area": {"type": "string", "enum": ["inside", "terrace", "garden"]},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["restaurant", "seats", "time"],
        "additionalProperties": false,
    });
    tool("book_table", schema)
}

fn search() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
        "additionalProperties": false,
    });
    tool("search_places", schema)
}

fn invoice() -> Value {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": 20},
            "total": {"type": "number"},
            "paid": {"type": "boolean"},
            "items": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "count": {"type": "integer", "minimum": 0},
                        "price": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    },
                    "required": ["name", "count", "price"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["id", "total", "paid", "items"],
        "additionalProperties": false,
    })
}

const PROSE: &str = "\
    Of course! I looked at the places that you named, and the one by the river \
    still has a free table tonight.\n\nI'll book it for you now.\n";

const GLM: &str = "\
    <tool_call>book_table\
    <arg_key>restaurant</arg_key><arg_value>The Green Garden by the river</arg_value>\
    <arg_key>seats</arg_key><arg_value>4</arg_value>\
    <arg_key>time</arg_key><arg_value>19:30</arg_value>\
    <arg_key>area</arg_key><arg_value>terrace</arg_value>\
    <arg_key>notes</arg_key>\
    <arg_value>[\"two children\", \"one is allergic to nuts\"]</arg_value></tool_call>";

const QWEN: &str = "\
    <tool_call>\n<function=book_table>\n\
    <parameter=restaurant>\nThe Green Garden by the river\n</parameter>\n\
    <parameter=seats>\n4\n</parameter>\n\
    <parameter=time>\n19:30\n</parameter>\n\
    <parameter=area>\nterrace\n</parameter>\n\
    <parameter=notes>\n[\"two children\", \"one is allergic to nuts\"]\n</parameter>\n\
    </function>\n</tool_call>";

const HERMES: &str = "\
    <tool_call>\n{\"name\": \"book_table\", \"arguments\": {\"restaurant\": \"The Green \
    Garden by the river\", \"seats\": 4, \"time\": \"19:30\", \"area\": \"terrace\", \
    \"notes\": [\"two children\", \"one is allergic to nuts\"]}}\n</tool_call>";

const INVOICE: &str = "\
    {\"id\": \"2031-A-77\", \"total\": 158.4, \"paid\": false, \"items\": [{\"name\": \"oak \
    shelf, 120 cm\", \"count\": 2, \"price\": 59.9}, {\"name\": \"brackets\", \"count\": 8, \
    \"price\": 4.825}, {\"name\": \"delivery\", \"count\": 1, \"price\": null}]}";
