//! Requests read as the server reads them, without an engine that answers them: for commands that show
//! what a request allows, or that run an engine of their own.
//!
//! It must never read a request in a way of its own.

use crate::anthropic;
use crate::constraint::AskedConstraint;
use crate::http::error::ApiError;
use crate::job::Job;
use crate::model::ChatModel;
use crate::openai::{chat_request, completions};
use crate::state::{ServerConfig, Shared};
use lockstep_core::Request;
use lockstep_grammar::{Boundary, Constraint};
use lockstep_step::TokenId;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Reads requests to one model.
pub struct RequestReader {
    shared: Shared,
}

/// A request, understood.
pub struct ReadRequest {
    /// What the model would read first, one per prompt.
    pub prompts: Vec<Vec<TokenId>>,
    job: Job,
}

impl ReadRequest {
    /// Choices of all prompts together.
    pub fn num_choices(&self) -> usize {
        self.job.num_choices()
    }

    /// The kinds of what its answer is held to, as metrics name them.
    pub fn constraint_kinds(&self) -> Vec<&'static str> {
        let kinds = self.job.constraint.iter().flat_map(AskedConstraint::kinds);
        kinds.collect()
    }
}

/// Why a request is refused, as a client would read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The field at fault, with its parents.
    pub param: Option<String>,
    /// A stable name.
    pub code: &'static str,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for RequestError {}

impl From<ApiError> for RequestError {
    fn from(error: ApiError) -> RequestError {
        RequestError {
            param: error.param,
            code: error.code,
            message: error.message,
        }
    }
}

impl RequestReader {
    /// A reader for a model, with a server's settings.
    pub fn new(config: ServerConfig, model: Arc<dyn ChatModel>) -> RequestReader {
        RequestReader {
            shared: Shared::without_engine(config, model),
        }
    }

    /// Reads the body of a chat completion.
    ///
    /// # Errors
    /// As the server would refuse it.
    pub fn chat(&self, body: &Value) -> Result<ReadRequest, RequestError> {
        Ok(ReadRequest::new(
            chat_request::read(&self.shared, body)?.job,
        ))
    }

    /// Reads the body of a plain completion.
    ///
    /// # Errors
    /// As the server would refuse it.
    pub fn completion(&self, body: &Value) -> Result<ReadRequest, RequestError> {
        Ok(ReadRequest::new(completions::read(&self.shared, body)?.job))
    }

    /// Reads the body of an Anthropic message.
    ///
    /// # Errors
    /// As the server would refuse it.
    pub fn message(&self, body: &Value) -> Result<ReadRequest, RequestError> {
        Ok(ReadRequest::new(anthropic::request::job(
            &self.shared,
            body,
        )?))
    }

    /// What holds the answer from its first token; None if it may be anything.
    ///
    /// # Errors
    /// If the constraint can't be held.
    pub fn matcher(&self, request: &ReadRequest) -> Result<Option<Boundary>, RequestError> {
        match &request.job.constraint {
            Some(asked) => Ok(self.shared.grammars.matcher_now(asked)?),
            None => Ok(None),
        }
    }

    /// The same from the text of a constraint, as captures have it.
    ///
    /// # Errors
    /// If it is no constraint, or can't be held by this model.
    pub fn matcher_of(&self, source: &str) -> Result<Option<Boundary>, String> {
        let constraint = Constraint::from_source(source)?;
        self.shared.grammars.matcher_of(&constraint)
    }

    /// What the engine would be asked for the first choice, as often as is wanted.
    ///
    /// # Errors
    /// If the constraint can't be held.
    pub fn request(&self, request: &ReadRequest) -> Result<Request, RequestError> {
        self.choice(request, 0)
    }

    /// What the engine would be asked for one choice.
    ///
    /// # Errors
    /// If the constraint can't be held.
    pub fn choice(&self, request: &ReadRequest, choice: usize) -> Result<Request, RequestError> {
        let matcher = self.matcher(request)?;
        Ok(request.job.request(&self.shared, choice, matcher.as_ref()))
    }

    /// The grammars that hold the answer, as text.
    ///
    /// # Errors
    /// If the constraint can't be held.
    pub fn explain(&self, request: &ReadRequest) -> Result<Vec<String>, RequestError> {
        match &request.job.constraint {
            Some(asked) => Ok(self.shared.grammars.explain(asked)?),
            None => Ok(Vec::new()),
        }
    }
}

impl ReadRequest {
    fn new(job: Job) -> ReadRequest {
        ReadRequest {
            prompts: job.prompts.clone(),
            job,
        }
    }
}
