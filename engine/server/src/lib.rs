//! The server: HTTP requests in, the engine's events out as responses and streams, by OpenAI's and
//! Anthropic's published APIs.
//!
//! One loop (`driver`) runs the engine and takes one closed enum of inputs; all else are readers of
//! its events. The crate contains no model knowledge, and only `net` and `time` name the async
//! runtime, so that all of it also runs in a simulation.

mod answer;
mod anthropic;
pub mod automaton;
mod captures;
mod constraint;
mod driver;
mod generation;
mod grammars;
mod http;
mod job;
mod judge;
mod mask_workers;
mod metrics;
mod model;
mod net;
mod observer;
mod openai;
mod reader;
pub mod said;
mod sampling;
mod sse;
mod state;
mod structured;
mod time;

pub use captures::{Archive, Captures};
pub use judge::judge_response;
pub use model::{
    ChatModel, ChatPrompt, ModelContract, ModelError, SamplingDefaults, SamplingRanges, tag_format,
    vocabulary,
};
pub use net::{BindError, TcpListener, bind, serve, serve_connection};
pub use observer::Observer;
pub use reader::{ReadRequest, RequestError, RequestReader};
#[doc(hidden)]
pub use sse::words as stream_words;
pub use state::{
    DeliveryPolicy, Limits, SamplingPolicy, Server, ServerConfig, ServerHandle, ToolGrammar,
};
