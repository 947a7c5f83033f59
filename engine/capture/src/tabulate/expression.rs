//! Expressions over the facts of a part. They are typed when they are read, so that nothing can go wrong with one
//! later. An expression must never be judged before all that it asks for is known.

use super::facts::{Fact, Part, Value};
use super::parse::{self, ExpressionError};
use std::fmt;
use std::str::FromStr;

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A number, or a fact that is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Written(i64),
    Of(Fact),
}

/// What holds or doesn't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Flag(Fact),
    IsNamed(Fact, String),
    Compare(Number, Comparison, Number),
}

impl Expression {
    fn holds(&self, part: &Part<'_>) -> bool {
        match self {
            Expression::Any(all) => all.iter().any(|own| own.holds(part)),
            Expression::All(all) => all.iter().all(|own| own.holds(part)),
            Expression::Not(own) => !own.holds(part),
            Expression::Flag(fact) => part.value(*fact) == Ok(Value::Flag(true)),
            Expression::IsNamed(fact, name) => part.value(*fact) == Ok(Value::Name(name)),
            Expression::Compare(left, comparison, right) => {
                let (left, right) = (left.of(part), right.of(part));
                match comparison {
                    Comparison::Equal => left == right,
                    Comparison::NotEqual => left != right,
                    Comparison::Less => left < right,
                    Comparison::LessOrEqual => left <= right,
                    Comparison::Greater => left > right,
                    Comparison::GreaterOrEqual => left >= right,
                }
            }
        }
    }

    fn collect(&self, facts: &mut Vec<Fact>) {
        match self {
            Expression::Any(all) | Expression::All(all) => {
                all.iter().for_each(|own| own.collect(facts));
            }
            Expression::Not(own) => own.collect(facts),
            Expression::Flag(fact) | Expression::IsNamed(fact, _) => facts.push(*fact),
            Expression::Compare(left, _, right) => {
                for number in [left, right] {
                    if let Number::Of(fact) = number {
                        facts.push(*fact);
                    }
                }
            }
        }
    }
}

impl Number {
    /// What is not known was refused before.
    fn of(self, part: &Part<'_>) -> i64 {
        match self {
            Number::Written(number) => number,
            Number::Of(fact) => match part.value(fact) {
                Ok(Value::Number(number)) => number,
                _ => 0,
            },
        }
    }
}

/// An expression with the text that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicate {
    text: String,
    expression: Expression,
}

impl Predicate {
    /// The facts that it asks for.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        self.expression.collect(&mut facts);
        facts
    }

    /// Whether it holds of a part of which all these are known.
    pub(super) fn holds(&self, part: &Part<'_>) -> bool {
        self.expression.holds(part)
    }
}

impl FromStr for Predicate {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Predicate, ExpressionError> {
        Ok(Predicate {
            text: text.to_string(),
            expression: parse::expression(text)?,
        })
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
