//! Tests of the whole crate: accuracy against float64, equality across widths, and properties.

mod accuracy;
mod properties;
mod widths;
