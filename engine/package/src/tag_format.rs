//! How a model writes its tool calls, told by its chat template and its tokens.
//!
//! It must never guess by a model's name: what the template writes is what the model has learnt.

/// How a model writes its tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagFormat {
    /// `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`, tags being tokens.
    Glm,
    /// `<tool_call><function=name><parameter=k>v</parameter></function></tool_call>`.
    QwenXml,
    /// A JSON object with `name` and `arguments` between `<tool_call>` tags.
    HermesJson,
    /// DeepSeek's section of calls, with the arguments in a Markdown fence.
    DeepseekV3,
    /// DeepSeek's section of calls, with bare arguments.
    #[serde(rename = "deepseek_v31")]
    DeepseekV31,
    /// Invocations in `｜DSML｜` tags.
    DeepseekDsml,
    /// Kimi's section of calls, whose ids carry the names.
    KimiK2,
    /// `<invoke name="…">` in a `<minimax:tool_call>` block.
    MinimaxM2,
    /// Messages with channels and recipients.
    Harmony,
}

impl TagFormat {
    /// All formats.
    pub const ALL: [TagFormat; 9] = [
        TagFormat::Glm,
        TagFormat::QwenXml,
        TagFormat::HermesJson,
        TagFormat::DeepseekV3,
        TagFormat::DeepseekV31,
        TagFormat::DeepseekDsml,
        TagFormat::KimiK2,
        TagFormat::MinimaxM2,
        TagFormat::Harmony,
    ];

    /// The name in flags and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            TagFormat::Glm => "glm",
            TagFormat::QwenXml => "qwen_xml",
            TagFormat::HermesJson => "hermes_json",
            TagFormat::DeepseekV3 => "deepseek_v3",
            TagFormat::DeepseekV31 => "deepseek_v31",
            TagFormat::DeepseekDsml => "deepseek_dsml",
            TagFormat::KimiK2 => "kimi_k2",
            TagFormat::MinimaxM2 => "minimax_m2",
            TagFormat::Harmony => "harmony",
        }
    }

    /// What a template writes tells the format. Where there is no template, or one that writes no
    /// call, tokens that only one format has do; `has_token` says whether the tokenizer added one.
    pub(crate) fn detect(
        template: Option<&str>,
        has_token: impl Fn(&str) -> bool,
    ) -> Option<TagFormat> {
        // Quotes may be escaped in a string of the template.
        let template = template.unwrap_or_default().replace('\\', "");
        let writes = |text: &str| template.contains(text);
        Some(if writes("<|channel|>") {
            TagFormat::Harmony
        } else if writes("｜DSML｜") {
            TagFormat::DeepseekDsml
        } else if writes("<｜tool▁calls▁begin｜>") {
            match writes("```json") {
                true => TagFormat::DeepseekV3,
                false => TagFormat::DeepseekV31,
            }
        } else if writes("<|tool_calls_section_begin|>") {
            TagFormat::KimiK2
        } else if writes("<minimax:tool_call>") {
            TagFormat::MinimaxM2
        } else if writes("<function=") {
            TagFormat::QwenXml
        } else if writes("<arg_key>") {
            TagFormat::Glm
        } else if writes("<tool_call>") && writes("\"name\": ") {
            TagFormat::HermesJson
        } else if has_token("<arg_key>") {
            TagFormat::Glm
        } else if has_token("｜DSML｜") {
            TagFormat::DeepseekDsml
        } else {
            return None;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_tell_the_format() {
        let no_token = |_: &str| false;
        for (template, format) in [
            ("{{ '<|channel|>analysis<|message|>' }}", TagFormat::Harmony),
            (
                "{{ '<｜DSML｜invoke name=\"' + name }} <｜tool▁calls▁begin｜>",
                TagFormat::DeepseekDsml,
            ),
            (
                r"{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>' + '\n```json\n'}}",
                TagFormat::DeepseekV3,
            ),
            (
                "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>'}}",
                TagFormat::DeepseekV31,
            ),
            ("<|tool_calls_section_begin|>", TagFormat::KimiK2),
            (
                "{%- set begin = '<minimax:tool_call>' %}<invoke name=\"",
                TagFormat::MinimaxM2,
            ),
            (
                "{{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }} \"name\": ",
                TagFormat::QwenXml,
            ),
            (
                "{{ '<tool_call>' + name }}<arg_key>{{ k }}</arg_key>",
                TagFormat::Glm,
            ),
            (
                r#"{{- '<tool_call>\n{"name": "' }}{{ tool_call.name }}"#,
                TagFormat::HermesJson,
            ),
            (
                r#"{{- "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args>}" }}"#,
                TagFormat::HermesJson,
            ),
        ] {
            let found = TagFormat::detect(Some(template), no_token);
            assert_eq!(found, Some(format), "{template}");
        }
        for template in [
            None,
            Some("{{ message.content }}"),
            Some("<tool_call>"),
            Some("\"name\": "),
        ] {
            assert_eq!(TagFormat::detect(template, no_token), None, "{template:?}");
        }
    }

    #[test]
    fn tokens_tell_it_where_no_template_does() {
        let only = |known: &'static str| move |token: &str| token == known;
        assert_eq!(
            TagFormat::detect(None, only("<arg_key>")),
            Some(TagFormat::Glm)
        );
        let dsml = TagFormat::detect(Some("x"), only("｜DSML｜"));
        assert_eq!(dsml, Some(TagFormat::DeepseekDsml));
        // Many tokenizers have it, for one format or another.
        assert_eq!(TagFormat::detect(None, only("<tool_call>")), None);
        let template = Some("<function=");
        let found = TagFormat::detect(template, only("<arg_key>"));
        assert_eq!(found, Some(TagFormat::QwenXml));
    }

    #[test]
    fn names_are_those_of_the_report() {
        for format in TagFormat::ALL {
            let json = serde_json::to_value(format).expect("plain");
            assert_eq!(json, format.as_str());
        }
    }
}
