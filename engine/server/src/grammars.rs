//! The model's grammar compiler: made once when the server starts, used beside the async runtime, and
//! measured. A model that no grammar can be made for is served all the same; what needs one is refused.
//!
//! It must never change what a matcher holds.

use crate::constraint::{AskedConstraint, Rules};
use crate::http::error::ApiError;
use crate::metrics::Metrics;
use crate::model::{ChatModel, ModelContract};
use crate::net::{Semaphore, off_the_runtime};
use crate::state::ToolGrammar;
use crate::time::Clock;
use lockstep_grammar::{
    Answer, Boundary, Compiler, Constraint, ConstraintError, GrammarLimits, GrammarVocabulary,
    Reasoning, Strictness, Tool, ToolChoice, VocabularyParts,
};
use lockstep_step::TokenId;
use std::sync::Arc;

/// Grammars that are compiled at once; further ones wait in the order in which they came.
const COMPILES_MAX: usize = 4;

/// What makes matchers for one model.
pub(crate) struct Grammars {
    /// Or why there can't be one.
    compiler: Result<Arc<Compiler>, String>,
    holds_calls: bool,
    permits: Arc<Semaphore>,
    clock: Clock,
}

impl Grammars {
    pub(crate) fn new(model: &Arc<dyn ChatModel>, contract: &ModelContract) -> Grammars {
        let compiler = compiler(model, contract).inspect_err(|error| {
            tracing::warn!("nothing can be held to a grammar: {error}");
        });
        let holds_calls = compiler
            .as_ref()
            .is_ok_and(|compiler| holds_calls(compiler, contract));
        Grammars {
            compiler,
            holds_calls,
            permits: Arc::new(Semaphore::new(COMPILES_MAX)),
            clock: Clock::start(),
        }
    }

    pub(crate) fn rules(&self, tool_grammar: ToolGrammar) -> Rules {
        Rules {
            tool_grammar,
            holds_calls: self.holds_calls,
        }
    }

    fn compiler(&self, asked: &AskedConstraint) -> Result<&Arc<Compiler>, ApiError> {
        self.compiler.as_ref().map_err(|error| {
            let message = format!("this model's vocabulary can't be prepared for it: {error}");
            ApiError::unsupported(asked.demanded_by(), &message)
        })
    }

    /// A matcher at the start of an answer; None if nothing has to be held.
    ///
    /// # Errors
    /// If the constraint can't be held.
    pub(crate) async fn matcher(
        &self,
        asked: &AskedConstraint,
        metrics: &Metrics,
    ) -> Result<Option<Boundary>, ApiError> {
        let compiler = self.compiler(asked)?.clone();
        let constraint = asked.constraint.clone();
        // Held until it is compiled, even if the client has gone by then. The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await;
        let begun = self.clock.now();
        let made = off_the_runtime(move || {
            let made = compiler.matcher(&constraint);
            drop(permit);
            (made, compiler.cache_stats())
        });
        let (made, stats) = made.await.map_err(|error| {
            tracing::error!("a grammar could not be compiled: {error}");
            ApiError::new(500, "grammar_failed", "the grammar could not be compiled")
        })?;
        let seconds = self.clock.now().since(begun) as f64 / 1e6;
        metrics.grammar(seconds, &stats);
        let made = made.map_err(|error| asked.refusal(&error))?;
        for kind in asked.kinds() {
            let labels = format!("kind=\"{kind}\"");
            metrics.count("lockstep_constrained_requests_total", &labels, 1);
        }
        Ok(made)
    }

    /// The same, at once, and without being counted.
    pub(crate) fn matcher_now(
        &self,
        asked: &AskedConstraint,
    ) -> Result<Option<Boundary>, ApiError> {
        let made = self.compiler(asked)?.matcher(&asked.constraint);
        made.map_err(|error| asked.refusal(&error))
    }

    /// The same of a constraint that nobody asked for by a field.
    pub(crate) fn matcher_of(&self, constraint: &Constraint) -> Result<Option<Boundary>, String> {
        let compiler = self.compiler.as_ref().map_err(Clone::clone)?;
        let made = compiler.matcher(constraint);
        made.map_err(|error| error.to_string())
    }

    /// The grammars behind a constraint, as text.
    pub(crate) fn explain(&self, asked: &AskedConstraint) -> Result<Vec<String>, ApiError> {
        let texts = self.compiler(asked)?.explain(&asked.constraint);
        texts.map_err(|error| asked.refusal(&error))
    }
}

fn compiler(model: &Arc<dyn ChatModel>, contract: &ModelContract) -> Result<Arc<Compiler>, String> {
    let ids = || (0..contract.vocab_size).map(TokenId);
    let tokenizer = model.clone();
    let vocabulary = GrammarVocabulary::new(VocabularyParts {
        token_bytes: ids().map(|id| model.token_bytes(id).to_vec()).collect(),
        special: ids().map(|id| model.is_special(id)).collect(),
        end_tokens: contract.end_tokens.clone(),
        // Text that can't be tokenised is offered as no draft.
        tokenize: Arc::new(move |text| tokenizer.encode_text(text, false).unwrap_or_default()),
    })?;
    let compiler = Compiler::new(Arc::new(vocabulary), GrammarLimits::default());
    Ok(Arc::new(compiler))
}

/// Whether calls as this model writes them can be held at all.
fn holds_calls(compiler: &Compiler, contract: &ModelContract) -> bool {
    let trial = |choice| -> Result<Option<Boundary>, ConstraintError> {
        compiler.matcher(&Constraint {
            format: contract.tag_format,
            reasoning: Reasoning::Off,
            tools: vec![Tool {
                name: "trial".to_string(),
                parameters: None,
                strictness: Strictness::Schema,
            }],
            choice,
            parallel: true,
            answer: Answer::Free,
        })
    };
    trial(ToolChoice::Forbidden).is_ok()
}
