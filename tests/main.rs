//! The one integration binary: every end-to-end test is a module of it. Modules may use the built
//! program and every crate; no crate may use them. No test here may need a network, a download or a
//! GPU, and none may be decided by how fast the machine is.

mod calls;
mod e2e;
mod law;
mod tidy;
