//! OpenAI's API: wire types, read and written by hand.
//! Nothing here may know how tokens are drawn.

pub(crate) mod chat_messages;
pub(crate) mod chat_request;
pub(crate) mod chat_response;
pub(crate) mod chat_stream;
pub(crate) mod completions;
pub(crate) mod completions_response;
pub(crate) mod logprobs;
pub(crate) mod models;
pub(crate) mod tokens;
