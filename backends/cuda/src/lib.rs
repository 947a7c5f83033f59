//! The CUDA backend: the same bits as the CPU reference, on a GPU.
//!
//! The host side is in `src/`, one launch wrapper per kernel in `src/ops/`, the kernels in `kernels/*.cu`, one file
//! per operation of NUMERICS.md. The driver and the compiler are looked for at run time, so that one binary builds
//! and runs where neither exists. `emulate/` stands in for both: it compiles the same kernels for the host, and
//! tests run this crate on it unchanged.

mod backend;
mod bench;
mod device;
mod draft;
mod draw;
mod error;
#[doc(hidden)]
pub mod kernel;
mod layers;
#[doc(hidden)]
pub mod memory;
mod model;
mod ops;
mod program;
mod queue;
mod step;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod weights;

pub use backend::{CudaBackend, CudaForward, CudaOptions, CudaSampled};
pub use bench::{DeviceBench, MatrixShape, MeasuredCopy, MeasuredProduct, SumOrder, matrices};
pub use device::Device;
pub use error::{CudaError, DeviceError};
pub use memory::Region;
pub use weights::WeightRule;
