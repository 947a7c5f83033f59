//! Kernels against the reference.
