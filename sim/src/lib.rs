//! The whole server in a simulated world: network, clock and crashes come from a seed. Nothing in it decides what
//! the server does; it only gives it a life, and holds what comes out against what must be true.
#![cfg(madsim)]

pub mod client;
pub mod coverage;
pub mod drafting;
pub mod extremes;
pub mod life;
pub mod model;
pub mod options;
pub mod oracles;
pub mod pipeline;
pub mod planted;
pub mod reference;
pub mod reflection;
pub mod rng;
pub mod run;
pub mod stages;
pub mod tamper;
pub mod trace;
pub mod verdict;
pub mod workload;
pub mod world;
