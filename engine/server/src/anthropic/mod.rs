//! Anthropic's API: wire types, read and written by hand.
//! Nothing here may know how tokens are drawn.

pub(crate) mod messages;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod stream;
