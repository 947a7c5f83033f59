//! The CUDA backend: the same bits as the CPU reference, on a GPU.
//!
//! The host side is in `src/`, one launch wrapper per kernel in `src/ops/`, the kernels in `kernels/*.cu`, one file
//! per operation of NUMERICS.md. The driver and the compiler are looked for at run time, so that one binary builds
//! and runs where neither exists. `emulate/` stands in for both: it compiles the same kernels for the host, and
//! tests run this crate on it unchanged.

mod device;
mod error;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod ops;
#[doc(hidden)]
pub mod program;
#[doc(hidden)]
pub mod queue;
#[cfg(test)]
mod testing;

pub use device::Device;
pub use error::DeviceError;
