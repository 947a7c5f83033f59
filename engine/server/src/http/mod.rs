//! HTTP as all routes share it: reading bodies, keys, routing, errors.
//! Nothing here may know what a field of a request means.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod router;
