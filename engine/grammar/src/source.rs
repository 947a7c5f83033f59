//! Constraints as text and back: what is written down of a constraint where somebody else has to make the same
//! one. It must never leave anything of a constraint out.

use crate::constraint::{Answer, Constraint, Reasoning, Tool, ToolChoice};
use crate::schema::Strictness;
use lockstep_tags::TagFormat;
use serde_json::{Map, Value, json};

impl Constraint {
    /// The constraint as a line of JSON. Schemas keep the order of their members.
    pub fn to_source(&self) -> String {
        let tools = self.tools.iter().map(|tool| {
            json!({
                "name": tool.name,
                "parameters": tool.parameters,
                "strict": tool.strictness == Strictness::Schema,
            })
        });
        let choice = match &self.choice {
            ToolChoice::Forbidden => json!("none"),
            ToolChoice::Auto => json!("auto"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({"name": name}),
        };
        let answer = match &self.answer {
            Answer::Free => json!("free"),
            Answer::JsonObject => json!("json_object"),
            Answer::JsonSchema(schema) => json!({"json_schema": schema}),
            Answer::Regex(regex) => json!({"regex": regex}),
            Answer::Choice(texts) => json!({"choice": texts}),
            Answer::Lark(grammar) => json!({"lark": grammar}),
        };
        let reasoning = match self.reasoning {
            Reasoning::Off => "off",
            Reasoning::Open => "open",
            Reasoning::Closed => "closed",
        };
        json!({
            "format": self.format.as_str(),
            "reasoning": reasoning,
            "tools": tools.collect::<Vec<Value>>(),
            "tool_choice": choice,
            "parallel": self.parallel,
            "answer": answer,
        })
        .to_string()
    }

    /// The constraint that such a line describes.
    ///
    /// # Errors
    /// The member that is missing or not understood, with its value.
    pub fn from_source(source: &str) -> Result<Constraint, String> {
        let value: Value = serde_json::from_str(source)
            .map_err(|error| format!("the constraint is no JSON: {error}"))?;
        let members = value
            .as_object()
            .ok_or_else(|| format!("the constraint is {value}, expected an object"))?;
        let format = text(members, "format")?;
        let format = TagFormat::ALL
            .into_iter()
            .find(|known| known.as_str() == format)
            .ok_or_else(|| format!("format is {format:?}, expected a format of calls"))?;
        let reasoning = match text(members, "reasoning")? {
            "off" => Reasoning::Off,
            "open" => Reasoning::Open,
            "closed" => Reasoning::Closed,
            other => {
                return Err(format!(
                    "reasoning is {other:?}, expected off, open or closed"
                ));
            }
        };
        let tools = member(members, "tools")?
            .as_array()
            .ok_or("tools is no array")?;
        Ok(Constraint {
            format,
            reasoning,
            tools: tools.iter().map(tool).collect::<Result<_, _>>()?,
            choice: choice(member(members, "tool_choice")?)?,
            parallel: flag(members, "parallel")?,
            answer: answer(member(members, "answer")?)?,
        })
    }
}

fn tool(value: &Value) -> Result<Tool, String> {
    let members = value
        .as_object()
        .ok_or_else(|| format!("a tool is {value}, expected an object"))?;
    let parameters = member(members, "parameters")?;
    Ok(Tool {
        name: text(members, "name")?.to_string(),
        parameters: (!parameters.is_null()).then(|| parameters.clone()),
        strictness: match flag(members, "strict")? {
            true => Strictness::Schema,
            false => Strictness::Shape,
        },
    })
}

fn choice(value: &Value) -> Result<ToolChoice, String> {
    match value.as_str() {
        Some("none") => return Ok(ToolChoice::Forbidden),
        Some("auto") => return Ok(ToolChoice::Auto),
        Some("required") => return Ok(ToolChoice::Required),
        _ => {}
    }
    match value["name"].as_str() {
        Some(name) => Ok(ToolChoice::Named(name.to_string())),
        None => Err(format!(
            "tool_choice is {value}, expected none, auto, required or a name"
        )),
    }
}

fn answer(value: &Value) -> Result<Answer, String> {
    match value.as_str() {
        Some("free") => return Ok(Answer::Free),
        Some("json_object") => return Ok(Answer::JsonObject),
        _ => {}
    }
    let only = value.as_object().and_then(|members| members.iter().next());
    let wrong = || format!("answer is {value}, expected a kind of answer");
    let (kind, value) = only.ok_or_else(wrong)?;
    let own_text = || value.as_str().map(str::to_string).ok_or_else(wrong);
    match kind.as_str() {
        "json_schema" => Ok(Answer::JsonSchema(value.clone())),
        "regex" => own_text().map(Answer::Regex),
        "lark" => own_text().map(Answer::Lark),
        "choice" => {
            let texts = value.as_array().ok_or_else(wrong)?.iter();
            let texts = texts.map(|text| text.as_str().map(str::to_string).ok_or_else(wrong));
            texts.collect::<Result<_, _>>().map(Answer::Choice)
        }
        _ => Err(wrong()),
    }
}

fn member<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a Value, String> {
    members
        .get(name)
        .ok_or_else(|| format!("the constraint has no {name}"))
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    let value = member(members, name)?;
    value
        .as_str()
        .ok_or_else(|| format!("{name} is {value}, expected a string"))
}

fn flag(members: &Map<String, Value>, name: &str) -> Result<bool, String> {
    let value = member(members, name)?;
    value
        .as_bool()
        .ok_or_else(|| format!("{name} is {value}, expected true or false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Constraint> {
        let mut all = Vec::new();
        let answers = [
            Answer::Free,
            Answer::JsonObject,
            Answer::JsonSchema(json!({"type": "object", "properties": {"z": {}, "a": {}}})),
            Answer::Regex("a+\"b".to_string()),
            Answer::Choice(vec!["x".to_string(), String::new()]),
            Answer::Lark("start: /x/".to_string()),
        ];
        let choices = [
            ToolChoice::Forbidden,
            ToolChoice::Auto,
            ToolChoice::Required,
            ToolChoice::Named("f".to_string()),
        ];
        for (idx, answer) in answers.into_iter().enumerate() {
            for (nth, choice) in choices.iter().enumerate() {
                let schema = json!({"type": "object", "properties": {"b": {"type": "string"}}});
                all.push(Constraint {
                    format: TagFormat::ALL[(idx * 4 + nth) % TagFormat::ALL.len()],
                    reasoning: [Reasoning::Off, Reasoning::Open, Reasoning::Closed][nth % 3],
                    tools: vec![
                        Tool {
                            name: "f".to_string(),
                            parameters: Some(schema),
                            strictness: Strictness::Schema,
                        },
                        Tool {
                            name: "g\n".to_string(),
                            parameters: None,
                            strictness: Strictness::Shape,
                        },
                    ],
                    choice: choice.clone(),
                    parallel: idx % 2 == 0,
                    answer: answer.clone(),
                });
            }
        }
        all
    }

    #[test]
    fn every_constraint_comes_back() {
        let mut sources = std::collections::BTreeSet::new();
        for constraint in all() {
            let source = constraint.to_source();
            assert_eq!(Constraint::from_source(&source), Ok(constraint));
            assert!(sources.insert(source), "two constraints have one source");
        }
        assert_eq!(sources.len(), 24);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let whole: Value =
            serde_json::from_str(&all()[0].to_source()).expect("it was written as JSON");
        for name in whole.as_object().expect("an object").keys() {
            let mut less = whole.clone();
            less.as_object_mut().expect("an object").remove(name);
            let error = Constraint::from_source(&less.to_string()).expect_err("it is missing");
            assert!(error.contains(name.as_str()), "{name}: {error}");
            let mut wrong = whole.clone();
            wrong[name.as_str()] = json!(17);
            let error = Constraint::from_source(&wrong.to_string()).expect_err("it is wrong");
            assert!(error.contains(name.as_str()), "{name}: {error}");
        }
        for broken in ["", "[]", "{", "null"] {
            assert!(Constraint::from_source(broken).is_err(), "{broken:?}");
        }
    }
}
