//! The operations, a file each like the kernels in `kernels/`: what a kernel is given and how its threads are
//! arranged. Nothing here computes. `tests/` holds each equal to its scalar definition.
