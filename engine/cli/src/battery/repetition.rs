//! Answers that go round in circles. It must never take a table's rule or a short chorus for one.

/// The same line, so often without another between, is a circle.
const LINES_MIN: usize = 5;
/// An end that is the same piece over and over: pieces, and characters of all of them.
const PIECES_MIN: usize = 5;
const TAIL_CHARS_MIN: usize = 80;
/// Pieces without a letter or a digit, such as rules and blanks, must go on for longer.
const BARE_TAIL_CHARS_MIN: usize = 400;
/// The longest piece that is looked for, in characters.
const PIECE_CHARS_MAX: usize = 200;
/// How much of the end is looked at, in characters.
const END_CHARS_MAX: usize = 4000;

/// What repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// A line, so many times in a row.
    Line(String, usize),
    /// The end: a piece, so many times.
    Tail(String, usize),
}

/// What of a text repeats.
pub fn find(text: &str) -> Option<Repetition> {
    line(text).or_else(|| tail(text))
}

fn line(text: &str) -> Option<Repetition> {
    let (mut last, mut num) = ("", 0);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    for line in lines {
        num = if line == last { num + 1 } else { 1 };
        last = line;
        if num >= LINES_MIN && line.chars().any(char::is_alphanumeric) {
            let total = text.lines().filter(|other| other.trim() == line).count();
            return Some(Repetition::Line(shortened(line), total));
        }
    }
    None
}

fn tail(text: &str) -> Option<Repetition> {
    let mut end: Vec<char> = text.chars().rev().take(END_CHARS_MAX).collect();
    end.reverse();
    for period in 1..=PIECE_CHARS_MAX.min(end.len() / PIECES_MIN) {
        // How far back each character is the one a period before it.
        let same = (period..end.len())
            .rev()
            .take_while(|at| end[*at] == end[at - period]);
        let length = same.count() + period;
        let piece: String = end[end.len() - period..].iter().collect();
        let least = match piece.chars().any(char::is_alphanumeric) {
            true => TAIL_CHARS_MIN,
            false => BARE_TAIL_CHARS_MIN,
        };
        if length >= least && length >= period * PIECES_MIN {
            return Some(Repetition::Tail(shortened(&piece), length / period));
        }
    }
    None
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_and_what_is_none() {
        let lines = |num: usize| "one\nmore\n".to_owned() + &"again\n\n".repeat(num) + "end";
        let found = Repetition::Line("again".to_owned(), 5);
        assert_eq!(find(&lines(5)), Some(found));
        assert_eq!(find(&lines(4)), None);
        let words = |num: usize| "Well, ".to_owned() + &"the cat and ".repeat(num);
        assert!(matches!(find(&words(7)), Some(Repetition::Tail(_, 7))));
        assert_eq!(find(&words(4)), None);
        // An unfinished piece at the end is part of the circle.
        assert!(matches!(
            find(&(words(8) + "the ca")),
            Some(Repetition::Tail(_, 8))
        ));
        assert_eq!(find(&(words(8) + "sat.")), None);
        for text in [
            "",
            "a",
            "ha ha ha ha ha ha!",
            "| a | b |\n|---|---|\n| 1 | 2 |",
            &"-".repeat(120),
            "1\n1\n1\n1\n2\n",
        ] {
            assert_eq!(find(text), None, "{text:?}");
        }
        assert!(matches!(
            find(&"\n".repeat(500)),
            Some(Repetition::Tail(_, 500))
        ));
        assert!(matches!(
            find(&"=".repeat(5000)),
            Some(Repetition::Tail(_, 4000))
        ));
    }
}
