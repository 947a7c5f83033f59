//! A file of tools that a model may call, as the OpenAI API writes them. It must never guess a name or a
//! schema that the file does not give.

use crate::exit::Failure;
use lockstep_tags::ToolSet;
use serde_json::Value;
use std::{fs, path::Path};

/// The tools of a file, as templates read them and as the parser of calls does.
///
/// # Errors
/// A file that can't be read, that is no JSON array of tools, or whose schemas can't be used.
pub fn read(path: &Path) -> Result<(Vec<Value>, ToolSet), Failure> {
    let next = "expected a JSON array of tools, as in the OpenAI API";
    let problem = |message: String| Failure::input(format!("{}: {message}", path.display()), next);
    let text = fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    let tools = parse_tools(&text).map_err(problem)?;
    let set = tool_set(&tools).map_err(problem)?;
    Ok((tools, set))
}

fn parse_tools(text: &str) -> Result<Vec<Value>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Value::Array(tools) = value else {
        return Err("the file holds no JSON array".to_owned());
    };
    for (idx, tool) in tools.iter().enumerate() {
        if tool["function"]["name"].as_str().is_none_or(str::is_empty) {
            return Err(format!("tool {idx} has no function.name"));
        }
    }
    Ok(tools)
}

fn tool_set(tools: &[Value]) -> Result<ToolSet, String> {
    let schemas: Vec<(String, Option<String>)> = tools
        .iter()
        .map(|tool| {
            let function = &tool["function"];
            let name = function["name"].as_str().unwrap_or_default().to_owned();
            (name, function.get("parameters").map(Value::to_string))
        })
        .collect();
    let borrowed = schemas
        .iter()
        .map(|(name, schema)| (name.clone(), schema.as_deref()));
    ToolSet::new(borrowed).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_checked() {
        assert!(parse_tools("{}").is_err());
        assert!(parse_tools("[{}]").is_err());
        assert!(parse_tools("[").is_err());
        let good = r#"[{"type":"function","function":{"name":"f"}}]"#;
        assert_eq!(parse_tools(good).map(|tools| tools.len()), Ok(1));
    }

    #[test]
    fn problems_name_the_file_and_the_place() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("tools.json");
        for (text, says) in [
            ("[{]", "key must be a string at line 1 column 3"),
            ("[7]", "tool 0 has no function.name"),
            (
                r#"[{"function":{"name":"f","parameters":7}}]"#,
                "tool `f`: parameters are no JSON object",
            ),
        ] {
            fs::write(&path, text).expect("written");
            let failure = read(&path).map(|(tools, _)| tools).expect_err(text);
            assert!(failure.what.contains("tools.json: "), "{failure:?}");
            assert!(failure.what.contains(says), "{failure:?}");
        }
        let failure = read(&dir.path().join("none")).map(|(tools, _)| tools);
        assert!(failure.is_err_and(|failure| failure.what.contains("none: No such file")));
    }
}
