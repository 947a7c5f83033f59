//! What the crate says to the outside, over a small vocabulary that can be enumerated.

mod boundary;
mod toy;
