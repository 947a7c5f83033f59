//! The operations, a file each like the kernels in `kernels/`: what a kernel is given and how its threads are
//! arranged. Nothing here computes. `tests/` holds each equal to its scalar definition.

pub(crate) mod attention;
pub(crate) mod delta;
pub(crate) mod digest;
pub(crate) mod draw;
pub(crate) mod elementwise;
pub(crate) mod embed;
pub(crate) mod linear;
pub(crate) mod logprobs;
pub(crate) mod mtp;
pub(crate) mod norm;
pub(crate) mod place_kv;
pub(crate) mod quantize;
#[cfg(test)]
mod tests;

use crate::queue::Shape;

/// The widest head that kernels hold in shared memory.
pub(crate) const HEAD_DIM_MAX: usize = 256;

/// Blocks of so many threads in a row.
fn shape(grid: [usize; 3], threads: u32) -> Shape {
    Shape {
        grid: grid.map(|len| u32::try_from(len).expect("a grid that fits a launch")),
        block: [threads, 1, 1],
        shared: 0,
    }
}
