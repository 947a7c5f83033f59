//! The CPU backend: the bit-exact reference of the engine, and its production path on CPUs.
pub mod isa;
pub mod linear;
pub mod pool;
pub use isa::Isa;
pub use linear::{Linear, WeightRule};
pub use pool::Pool;
