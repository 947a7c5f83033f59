//! What the crate says to the outside, over a small vocabulary that can be enumerated.

mod agreement;
mod bench;
mod boundary;
mod formats;
mod hostile;
mod nesting;
mod outline;
mod processes;
mod reference;
mod shapes;
mod toy;
mod twins;
mod walker;
mod witness;
