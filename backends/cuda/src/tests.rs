//! Whole models on the device against the CPU.
