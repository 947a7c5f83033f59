//! The one integration binary: every end-to-end test is a module of it.
