//! The server over pipes in memory, with the model made of hashes and the embedded model's
//! tokenizer and template. Nothing here may depend on how fast anything is.

mod broken_engine;
mod chat;
mod completions;
mod constraints;
mod errors;
mod harness;
mod load;
mod messages;
mod other_routes;
mod prefixes;
mod times;
