//! A server as a client sees it: HTTP exchanges, streams of events, many clients at once, and a server in this
//! process for those who have no other. `bench serve` and `battery` share it. It must never send a request
//! again: what fails is counted as it failed.

pub mod endpoint;
pub mod events;
pub mod local;
pub mod pool;
pub mod target;
