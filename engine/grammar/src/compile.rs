//! From a constraint to a matcher: compiles grammars within limits that are counted in fuel, never in
//! seconds, and keeps them by content. A grammar that can't be walked at a bounded price is refused here,
//! before anything is drawn under it.

use crate::boundary::Boundary;
use crate::cache::{Cache, CacheStats};
use crate::constraint::{
    Answer, Constraint, ConstraintError, Reasoning, Subject, Tool, ToolChoice,
};
use crate::envelope::{CALL_RULE, DeclaredTool, Envelope, fixed_text_with};
use crate::lark::token;
use crate::plain::{PlainMatcher, plain_factory};
use crate::program::{AnswerRule, CallRule, Program};
use crate::session::CompiledGrammar;
use crate::spellings::Spellings;
use crate::vocabulary::GrammarVocabulary;
use crate::{SchemaLimits, ToolParameters};
use llguidance::ParserFactory;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use lockstep_step::{TokenId, planted};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, OnceLock};

/// How large a grammar may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrammarLimits {
    /// Of each schema.
    pub schema: SchemaLimits,
    /// Bytes of a regular expression, and of one alternative of a choice.
    pub regex_bytes_max: usize,
    /// Alternatives of a choice.
    pub choices_max: usize,
    /// Bytes of a Lark grammar.
    pub lark_bytes_max: usize,
    /// Rules and terminals of a Lark grammar, counted by the colons in its text. Each that stands in the one
    /// before it is a level of the compiler's recursion, and 600 levels nearly fill a thread's stack of 2 MiB.
    pub lark_rules_max: usize,
    /// Fuel to build the expressions of a grammar.
    pub compile_fuel: u64,
    /// Symbols of a grammar.
    pub symbols_max: usize,
    /// Fuel for one row while a grammar is tried out; a row that a request needs may take many times as much.
    pub probe_fuel: u64,
    /// Compiled grammars that are kept.
    pub cache_entries_max: usize,
}

impl Default for GrammarLimits {
    fn default() -> GrammarLimits {
        GrammarLimits {
            schema: SchemaLimits::default(),
            regex_bytes_max: 4 << 10,
            choices_max: 5_000,
            lark_bytes_max: 16 << 10,
            lark_rules_max: 256,
            compile_fuel: 1_000_000,
            symbols_max: 200_000,
            probe_fuel: 200_000,
            cache_entries_max: 256,
        }
    }
}

/// Compiles constraints for one model.
pub struct Compiler {
    vocabulary: Arc<GrammarVocabulary>,
    limits: GrammarLimits,
    cache: Mutex<Cache<[u8; 32], Arc<CompiledGrammar>>>,
    spellings: Mutex<Cache<FollowedTags, Arc<Spellings>>>,
    plain_factory: OnceLock<Result<ParserFactory, String>>,
}

/// Tags, the tokens that are no look-alikes, and whether a tag is fine after a line feed.
type FollowedTags = (Vec<&'static str>, Vec<TokenId>, bool);

/// Sets of tags that are followed; there are few.
const SPELLINGS_MAX: usize = 32;

impl Compiler {
    /// A compiler with nothing in its cache.
    pub fn new(vocabulary: Arc<GrammarVocabulary>, limits: GrammarLimits) -> Compiler {
        Compiler {
            vocabulary,
            limits,
            cache: Mutex::new(Cache::new(limits.cache_entries_max)),
            spellings: Mutex::new(Cache::new(SPELLINGS_MAX)),
            plain_factory: OnceLock::new(),
        }
    }

    /// The matcher that holds an output to a constraint, from its first token. None if the constraint holds
    /// anyway.
    ///
    /// # Errors
    /// If the constraint can't be held, or only at too high a price.
    pub fn matcher(&self, constraint: &Constraint) -> Result<Option<Boundary>, ConstraintError> {
        let program = self.program(constraint)?;
        if program.is_free() {
            return Ok(None);
        }
        Ok(Some(Boundary::new(Arc::new(program))))
    }

    /// The grammars behind a constraint, as text, for people who debug one.
    ///
    /// # Errors
    /// As [`Compiler::matcher`].
    pub fn explain(&self, constraint: &Constraint) -> Result<Vec<String>, ConstraintError> {
        let mut texts = Vec::new();
        if let Some((envelope, tools)) = self.callable(constraint)? {
            texts.push(call_text(&envelope, &tools)?);
        }
        texts.extend(self.answer_text(&constraint.answer)?);
        Ok(texts)
    }

    /// How the cache of compiled grammars does.
    pub fn cache_stats(&self) -> CacheStats {
        lock(&self.cache).stats()
    }

    /// The same constraint as one grammar, without a boundary and without anything prepared: what a benchmark
    /// compares with. None if no grammar is behind the constraint.
    ///
    /// # Errors
    /// As [`Compiler::matcher`].
    pub fn plain(&self, constraint: &Constraint) -> Result<Option<PlainMatcher>, ConstraintError> {
        let text = match self.callable(constraint)? {
            Some((envelope, tools)) => {
                let mut lark = envelope.call(&tools)?;
                lark.rule("FREE", "/(?s:.+)/");
                let open = token(envelope.open);
                let call = format!("{open} {CALL_RULE}");
                let start = match constraint.choice {
                    ToolChoice::Auto => format!("FREE? ({call} FREE?)*"),
                    _ => format!("({call} \"\\n\"?)+"),
                };
                lark.rule("start", &start);
                lark.into_text()
            }
            None => match self.answer_text(&constraint.answer)? {
                Some(text) => text,
                None => return Ok(None),
            },
        };
        let factory = self
            .plain_factory
            .get_or_init(|| plain_factory(&self.vocabulary));
        let plain = factory
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|factory| PlainMatcher::new(factory, text));
        plain.map(Some).map_err(|message| {
            ConstraintError::new(Subject::Answer, "unsupported_grammar", message)
        })
    }

    fn program(&self, constraint: &Constraint) -> Result<Program, ConstraintError> {
        let calls = match self.callable(constraint)? {
            Some((envelope, tools)) => {
                let text = call_text(&envelope, &tools)?;
                let subject = match &tools[..] {
                    [tool] => Subject::Tool(tool.index),
                    _ => Subject::ToolChoice,
                };
                let grammar = self.compiled(text, subject)?;
                Some(CallRule {
                    grammar,
                    reserved: self.spellings(envelope.reserved()),
                    close: envelope.close,
                    at_least_one: matches!(
                        constraint.choice,
                        ToolChoice::Required | ToolChoice::Named(_)
                    ),
                    at_most_one: !constraint.parallel,
                })
            }
            None => None,
        };
        let answer = match self.answer_text(&constraint.answer)? {
            Some(text) => AnswerRule::Grammar(self.compiled(text, Subject::Answer)?),
            None => AnswerRule::Free,
        };
        let opener = self.opener(constraint)?;
        let openers = opener.as_ref().map_or(&[][..], |opener| opener.openers());
        refuse_openers(&constraint.answer, openers)?;
        let think = |tag: &'static str| {
            self.vocabulary.tag(tag).ok_or_else(|| {
                let message = format!("the model's vocabulary has no token `{tag}`");
                ConstraintError::new(Subject::Model, "unsupported_model", message)
            })
        };
        let reasons = constraint.reasoning != Reasoning::Off;
        let followed = |also: Option<&'static str>| {
            let tags = openers.iter().copied().chain(also).collect::<Vec<_>>();
            self.spellings((tags, Vec::new(), false))
        };
        Ok(Program {
            source: constraint.to_source(),
            starts: constraint.reasoning,
            think_open: reasons.then(|| think("<think>")).transpose()?,
            think_close: reasons.then(|| think("</think>")).transpose()?,
            opener: opener.map(|opener| opener.open),
            at_start: followed(reasons.then_some("<think>")),
            in_reasoning: followed(reasons.then_some("</think>")),
            in_answer: followed(None),
            calls,
            answer,
            vocabulary: self.vocabulary.clone(),
        })
    }

    /// How a call would start, where tools are known to the conversation at all.
    fn opener(&self, constraint: &Constraint) -> Result<Option<Envelope>, ConstraintError> {
        if constraint.tools.is_empty() {
            return Ok(None);
        }
        Envelope::new(constraint.format, &self.vocabulary).map(Some)
    }

    /// The tools that may be called.
    fn callable(
        &self,
        constraint: &Constraint,
    ) -> Result<Option<(Envelope, Vec<DeclaredTool>)>, ConstraintError> {
        let Some(envelope) = self.opener(constraint)? else {
            if matches!(
                constraint.choice,
                ToolChoice::Required | ToolChoice::Named(_)
            ) {
                let message = "a call is required, but no tool is offered";
                return Err(ConstraintError::new(
                    Subject::ToolChoice,
                    "missing_tools",
                    message,
                ));
            }
            return Ok(None);
        };
        let chosen = |tool: &Tool| match &constraint.choice {
            ToolChoice::Forbidden => false,
            ToolChoice::Auto | ToolChoice::Required => true,
            ToolChoice::Named(name) => tool.name == *name,
        };
        let mut tools = Vec::new();
        for (index, tool) in constraint.tools.iter().enumerate() {
            if !chosen(tool) {
                continue;
            }
            let parameters = tool.parameters.as_ref();
            let read = ToolParameters::read(parameters, tool.strictness, &self.limits.schema);
            tools.push(DeclaredTool {
                index,
                name: tool.name.clone(),
                parameters: read
                    .map_err(|error| ConstraintError::schema(Subject::Tool(index), error))?,
            });
        }
        match (&constraint.choice, tools.is_empty()) {
            (ToolChoice::Forbidden, _) => Ok(None),
            (ToolChoice::Named(name), true) => {
                let names: Vec<&str> = constraint.tools.iter().map(|t| t.name.as_str()).collect();
                let message = format!(
                    "{name:?} is not offered, expected one of {}",
                    names.join(", ")
                );
                Err(ConstraintError::new(
                    Subject::ToolChoice,
                    "unknown_tool",
                    message,
                ))
            }
            _ => Ok(Some((envelope, tools))),
        }
    }

    /// The grammar of the answer itself, if it has one.
    fn answer_text(&self, answer: &Answer) -> Result<Option<String>, ConstraintError> {
        crate::answer::grammar(answer, &self.limits)
    }

    fn compiled(
        &self,
        text: String,
        subject: Subject,
    ) -> Result<Arc<CompiledGrammar>, ConstraintError> {
        // Planted: vllm-project/vllm#53366.
        let key: [u8; 32] = match planted!(GrammarKeyWithoutNumbers) {
            true => Sha256::digest(text.replace(|c: char| c.is_ascii_digit(), "")).into(),
            false => Sha256::digest(text.as_bytes()).into(),
        };
        if let Some(found) = lock(&self.cache).get(&key) {
            return Ok(found);
        }
        // Two requests may compile the same grammar at once: both get the same result.
        let compiled = self.compile(text, &subject)?;
        let compiled = Arc::new(compiled);
        lock(&self.cache).insert(key, compiled.clone());
        Ok(compiled)
    }

    fn compile(&self, text: String, subject: &Subject) -> Result<CompiledGrammar, ConstraintError> {
        let limits = ParserLimits {
            initial_lexer_fuel: self.limits.compile_fuel,
            max_grammar_size: self.limits.symbols_max,
            step_lexer_fuel: self.limits.probe_fuel,
            verbose_errors: false,
            ..self.vocabulary.limits()
        };
        CompiledGrammar::new(&self.vocabulary, TopLevelGrammar::from_lark(text), limits).map_err(
            |message| ConstraintError::new(subject.clone(), "unsupported_grammar", message),
        )
    }

    fn spellings(&self, key: FollowedTags) -> Arc<Spellings> {
        if let Some(found) = lock(&self.spellings).get(&key) {
            return found;
        }
        let (tags, structural, fine_after_line_feed) = &key;
        let made = Spellings::new(tags, structural, *fine_after_line_feed, &self.vocabulary);
        let made = Arc::new(made);
        lock(&self.spellings).insert(key, made.clone());
        made
    }
}

fn call_text(envelope: &Envelope, tools: &[DeclaredTool]) -> Result<String, ConstraintError> {
    let mut lark = envelope.call(tools)?;
    lark.rule("start", CALL_RULE);
    Ok(lark.into_text())
}

/// Refuses an answer that could only be written with the text of a tag that opens a call: where tools are known
/// that is kept from being spelled out.
fn refuse_openers(answer: &Answer, openers: &[&str]) -> Result<(), ConstraintError> {
    let has = |text: &&str| openers.iter().any(|tag| text.contains(tag));
    let found = match answer {
        Answer::JsonSchema(schema) => fixed_text_with(schema, openers).map(|(_, text)| text),
        Answer::Choice(choices) => choices.iter().map(String::as_str).find(has),
        Answer::Free | Answer::JsonObject | Answer::Regex(_) | Answer::Lark(_) => None,
    };
    let Some(text) = found else {
        return Ok(());
    };
    let message = format!(
        "{text:?} has one of {} in it, which would open a call, expected other texts or no tools",
        openers.join(", ")
    );
    Err(ConstraintError::new(
        Subject::Answer,
        "unsupported_schema",
        message,
    ))
}

/// A panic elsewhere leaves a cache as whole as it was: entries go in and out in one piece.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
