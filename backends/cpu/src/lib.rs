//! The CPU backend: the bit-exact reference of the engine, and its production path on CPUs.
//!
//! Every operation has one scalar definition and kernels for wider registers that give the same bits. This
//! crate sees plans, ids and tensors; it must never learn of requests, scheduling or clocks.

mod backend;
mod batch;
mod cache;
pub mod check;
mod disjoint;
mod draft;
pub mod isa;
mod kernels;
mod layers;
pub mod linear;
mod load;
mod model;
pub mod pool;
pub mod reference;
mod watch;

pub use backend::{CpuBackend, CpuForward, CpuOptions, MemoryUse};
pub use isa::Isa;
#[doc(hidden)]
pub use kernels::agreement as kernel_agreement;
pub use linear::{Linear, WeightRule};
pub use lockstep_package::LoadError;
pub use model::Probe;
pub use pool::Pool;

#[cfg(test)]
mod tests;
