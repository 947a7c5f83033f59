//! Whole models on the device against the CPU: every step of an engine goes to both, and what they answer is
//! compared with `==`, digests of logits included.

mod device;
mod law;
mod twin;
