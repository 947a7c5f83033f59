//! The whole server in a simulated world: network, clock and crashes come from a seed. Nothing in it decides what
//! the server does; it only gives it a life, and holds what comes out against what must be true.
#![cfg(madsim)]

pub mod planted;
pub mod verdict;
