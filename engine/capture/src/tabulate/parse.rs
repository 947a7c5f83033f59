//! Text to expressions:
//!
//! ```text
//! expression  all ("or" all)*
//! all         one ("and" one)*
//! one         "not" one | "(" expression ")" | flag | operand comparison operand
//! comparison  "=" | "!=" | "<" | "<=" | ">" | ">="
//! operand     whole number | fact | name of a finish or an error | "true" | "false"
//! ```
//!
//! It must never guess: what does not fit is refused with its column and what was expected.

use super::expression::{Comparison, Expression, Number};
use super::facts::{Fact, Kind};
use std::fmt;

/// How deep parentheses and `not` may be nested.
const DEPTH_MAX: usize = 64;

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// The character at which it is wrong, counted from 1; one past the last if it ends too early.
    pub column: usize,
    /// What would have been right there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExpressionError {
            column,
            expected,
            found,
        } = self;
        write!(f, "column {column}: expected {expected}, found {found}")
    }
}

impl std::error::Error for ExpressionError {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Number(i64),
    Comparison(Comparison),
    Open,
    Close,
}

struct Parser<'a> {
    text: &'a str,
    /// With the column at which each begins, and its text.
    tokens: Vec<(usize, Token, String)>,
    at: usize,
    depth: usize,
}

/// Reads an expression.
///
/// # Errors
/// At the first thing that does not fit.
pub(super) fn expression(text: &str) -> Result<Expression, ExpressionError> {
    let mut parser = Parser {
        text,
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let expression = parser.any()?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.error("`and`, `or` or the end")),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token, String)>, ExpressionError> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = characters.get(at) {
        if first.is_whitespace() {
            at += 1;
            continue;
        }
        let is_word = |own: &char| own.is_ascii_alphanumeric() || *own == '_';
        let is_sign = |own: &char| matches!(own, '=' | '!' | '<' | '>');
        let rest = &characters[at + 1..];
        let len = 1 + match first {
            '(' | ')' => 0,
            _ if is_sign(&first) => rest.iter().take_while(|own| is_sign(own)).count(),
            _ => rest.iter().take_while(|own| is_word(own)).count(),
        };
        let word: String = characters[at..at + len].iter().collect();
        let error = |expected: &str| ExpressionError {
            column: at + 1,
            expected: expected.to_string(),
            found: format!("`{word}`"),
        };
        let token = match word.as_str() {
            "(" => Token::Open,
            ")" => Token::Close,
            "=" => Token::Comparison(Comparison::Equal),
            "!=" => Token::Comparison(Comparison::NotEqual),
            "<" => Token::Comparison(Comparison::Less),
            "<=" => Token::Comparison(Comparison::LessOrEqual),
            ">" => Token::Comparison(Comparison::Greater),
            ">=" => Token::Comparison(Comparison::GreaterOrEqual),
            _ if is_sign(&first) => return Err(error("one of = != < <= > >=")),
            _ if first.is_ascii_digit() || first == '-' => {
                let number = word.parse().map_err(|_| error("a whole number"))?;
                Token::Number(number)
            }
            _ if is_word(&first) => Token::Word(word.clone()),
            _ => return Err(error("a fact, a number, a comparison or a parenthesis")),
        };
        tokens.push((at + 1, token, word));
        at += len;
    }
    Ok(tokens)
}

/// What stands on a side of a comparison, or alone.
enum Operand {
    Number(Number),
    Flag(Fact),
    Name(Fact),
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|own| &own.1)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(own)) if own == word)
    }

    fn error(&self, expected: impl Into<String>) -> ExpressionError {
        let (column, found) = match self.tokens.get(self.at) {
            Some((column, _, word)) => (*column, format!("`{word}`")),
            None => (self.text.chars().count() + 1, "the end".to_string()),
        };
        ExpressionError {
            column,
            expected: expected.into(),
            found,
        }
    }

    fn any(&mut self) -> Result<Expression, ExpressionError> {
        let mut all = vec![self.all()?];
        while self.is_word("or") {
            self.at += 1;
            all.push(self.all()?);
        }
        Ok(match all.len() {
            1 => all.remove(0),
            _ => Expression::Any(all),
        })
    }

    fn all(&mut self) -> Result<Expression, ExpressionError> {
        let mut all = vec![self.one()?];
        while self.is_word("and") {
            self.at += 1;
            all.push(self.one()?);
        }
        Ok(match all.len() {
            1 => all.remove(0),
            _ => Expression::All(all),
        })
    }

    fn one(&mut self) -> Result<Expression, ExpressionError> {
        let is_not = self.is_word("not");
        if !is_not && self.peek() != Some(&Token::Open) {
            return self.comparison();
        }
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!(
                "at most {DEPTH_MAX} levels of `not` and parentheses"
            )));
        }
        self.at += 1;
        self.depth += 1;
        let inner = match is_not {
            true => Expression::Not(Box::new(self.one()?)),
            false => {
                let inner = self.any()?;
                if self.peek() != Some(&Token::Close) {
                    return Err(self.error("`and`, `or` or `)`"));
                }
                self.at += 1;
                inner
            }
        };
        self.depth -= 1;
        Ok(inner)
    }

    fn comparison(&mut self) -> Result<Expression, ExpressionError> {
        let left = self.operand("a fact, a number, `not` or `(`")?;
        let comparison = match self.peek() {
            Some(&Token::Comparison(comparison)) => comparison,
            _ => {
                return match left {
                    Operand::Flag(fact) => Ok(Expression::Flag(fact)),
                    Operand::Number(_) => Err(self.error("one of = != < <= > >= after a number")),
                    Operand::Name(fact) => Err(self.error(format!("= or != after {fact}"))),
                };
            }
        };
        let fact = match left {
            Operand::Number(left) => {
                self.at += 1;
                let wanted = "a whole number, or a fact that is one";
                let start = self.at;
                let Operand::Number(right) = self.operand(wanted)? else {
                    self.at = start;
                    return Err(self.error(wanted));
                };
                return Ok(Expression::Compare(left, comparison, right));
            }
            Operand::Flag(fact) | Operand::Name(fact) => fact,
        };
        let is_equal = match comparison {
            Comparison::Equal => true,
            Comparison::NotEqual => false,
            _ => return Err(self.error(format!("= or != after {fact}, which is no number"))),
        };
        self.at += 1;
        let found = self.named(fact, matches!(left, Operand::Flag(_)))?;
        Ok(match is_equal {
            true => found,
            false => Expression::Not(Box::new(found)),
        })
    }

    /// What a flag or a fact with names is compared with.
    fn named(&mut self, fact: Fact, is_flag: bool) -> Result<Expression, ExpressionError> {
        let names = match is_flag {
            true => vec!["true", "false"],
            false => fact.names(),
        };
        let name = match self.peek() {
            Some(Token::Word(word)) if names.contains(&word.as_str()) => word.clone(),
            _ => return Err(self.error(format!("one of {}", names.join(", ")))),
        };
        self.at += 1;
        Ok(match (is_flag, name.as_str()) {
            (true, "true") => Expression::Flag(fact),
            (true, _) => Expression::Not(Box::new(Expression::Flag(fact))),
            (false, _) => Expression::IsNamed(fact, name),
        })
    }

    fn operand(&mut self, expected: &str) -> Result<Operand, ExpressionError> {
        let operand = match self.peek() {
            Some(Token::Number(number)) => Operand::Number(Number::Written(*number)),
            Some(Token::Word(word)) if !["and", "or", "not"].contains(&word.as_str()) => {
                let Some((fact, kind)) = Fact::named(word) else {
                    let names = Fact::ALL.map(|own| own.1).join(", ");
                    return Err(self.error(format!("a number or one of the facts {names}")));
                };
                match kind {
                    Kind::Number => Operand::Number(Number::Of(fact)),
                    Kind::Flag => Operand::Flag(fact),
                    Kind::Name => Operand::Name(fact),
                }
            }
            _ => return Err(self.error(expected)),
        };
        self.at += 1;
        Ok(operand)
    }
}
