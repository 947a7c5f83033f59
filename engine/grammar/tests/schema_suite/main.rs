//! The gate in front of `llguidance`, against tables, against a plain validator on random schemas, and against the
//! JSON Schema Test Suite. What the compiled grammar takes must always be valid.

mod hostile;
mod numbers;
mod patterns;
mod random;
mod recogniser;
mod suite;
mod table;
mod tools;
mod validator;
