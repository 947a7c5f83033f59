//! Stop strings. No prefix of one is ever visible unless it certainly can't become a match; how the text
//! was cut into pieces must never show.

use alloc::{string::String, vec, vec::Vec};

/// Searches for several strings at once.
///
/// The match that is complete first wins; of two that are complete at the same byte, the longer one.
///
/// ```text
/// text so far   ......... visible ......... | held: the longest end of the text that begins a stop string
/// ```
#[derive(Clone, Debug)]
pub(crate) struct StopSearch {
    patterns: Vec<Pattern>,
    held: String,
}

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    /// `borders[n]`: length of the longest proper prefix of the first `n + 1` bytes that also ends them.
    borders: Vec<usize>,
    /// How many bytes of the pattern the text ends in.
    num_matched: usize,
}

impl Pattern {
    fn new(text: String) -> Pattern {
        let bytes = text.as_bytes();
        let mut borders = vec![0; bytes.len()];
        let mut len = 0;
        for idx in 1..bytes.len() {
            while len > 0 && bytes[len] != bytes[idx] {
                len = borders[len - 1];
            }
            if bytes[len] == bytes[idx] {
                len += 1;
            }
            borders[idx] = len;
        }
        Pattern {
            text,
            borders,
            num_matched: 0,
        }
    }

    /// Takes a byte. True if the pattern is complete: then the search is over, and it takes no more.
    fn push(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.num_matched > 0 && bytes[self.num_matched] != byte {
            self.num_matched = self.borders[self.num_matched - 1];
        }
        if bytes[self.num_matched] == byte {
            self.num_matched += 1;
        }
        self.num_matched == bytes.len()
    }
}

impl StopSearch {
    /// A search for these strings, none of them empty.
    pub(crate) fn new(stop_strings: Vec<String>) -> StopSearch {
        assert!(stop_strings.iter().all(|text| !text.is_empty()));
        StopSearch {
            patterns: stop_strings.into_iter().map(Pattern::new).collect(),
            held: String::new(),
        }
    }

    /// Whether there is nothing to search for: then all text is visible as it comes.
    pub(crate) fn is_idle(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Takes text and appends what is certainly visible. If a stop string is complete, returns it; the
    /// text before it has been appended, and the search must not go on.
    pub(crate) fn push(&mut self, text: &str, visible: &mut String) -> Option<String> {
        let num_held_before = self.held.len();
        self.held.push_str(text);
        for idx in 0..text.len() {
            let byte = text.as_bytes()[idx];
            let mut complete: Option<usize> = None;
            for pattern_idx in 0..self.patterns.len() {
                let len = self.patterns[pattern_idx].text.len();
                let longer = complete.is_none_or(|best| len > self.patterns[best].text.len());
                if self.patterns[pattern_idx].push(byte) && longer {
                    complete = Some(pattern_idx);
                }
            }
            if let Some(pattern_idx) = complete {
                let stop = self.patterns[pattern_idx].text.clone();
                let start = num_held_before + idx + 1 - stop.len();
                visible.push_str(&self.held[..start]);
                self.held.clear();
                return Some(stop);
            }
        }
        let keep = self.patterns.iter().map(|pattern| pattern.num_matched);
        let num_visible = self.held.len() - keep.max().unwrap_or(0);
        visible.extend(self.held.drain(..num_visible));
        None
    }

    /// What was held back can no longer become a match: it is visible, and the search starts anew.
    pub(crate) fn flush(&mut self, visible: &mut String) {
        for pattern in &mut self.patterns {
            pattern.num_matched = 0;
        }
        visible.push_str(&self.held);
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let mut search = StopSearch::new(stops.iter().map(|&stop| stop.into()).collect());
        let mut seen = vec![];
        for piece in pieces {
            let mut visible = String::new();
            let stop = search.push(piece, &mut visible);
            seen.push(visible);
            if stop.is_some() {
                return (seen, stop);
            }
        }
        let mut visible = String::new();
        search.flush(&mut visible);
        seen.push(visible);
        (seen, None)
    }

    #[track_caller]
    fn check(stops: &[&str], pieces: &[&str], seen: &[&str], stop: Option<&str>) {
        let (got, found) = search(stops, pieces);
        assert_eq!(got, seen);
        assert_eq!(found.as_deref(), stop);
    }

    #[test]
    fn prefixes_are_held_and_released() {
        check(&["END"], &["a E", "N", "x"], &["a ", "", "ENx", ""], None);
        check(
            &["END"],
            &["a E", "N", "D after"],
            &["a ", "", ""],
            Some("END"),
        );
        check(&["END"], &["a E", "N"], &["a ", "", "EN"], None);
        check(&["aab"], &["aaa", "b"], &["a", ""], Some("aab"));
        check(&["é!"], &["xé", "é", "!"], &["x", "é", ""], Some("é!"));
        check(&[], &["abc"], &["abc", ""], None);
    }

    #[test]
    fn the_match_that_is_complete_first_wins_then_the_longer_one() {
        check(&["abcd", "bc"], &["xabcd"], &["xa"], Some("bc"));
        check(&["bc", "abc"], &["xab", "c"], &["x", ""], Some("abc"));
        check(&["abc", "bc"], &["xab", "c"], &["x", ""], Some("abc"));
    }

    /// The definition, without any automaton.
    fn by_definition(stops: &[String], text: &str) -> (String, Option<String>) {
        for end in 1..=text.len() {
            let complete = stops
                .iter()
                .filter(|stop| text.as_bytes()[..end].ends_with(stop.as_bytes()));
            if let Some(stop) = complete.max_by_key(|stop| stop.len()) {
                return (text[..end - stop.len()].into(), Some(stop.clone()));
            }
        }
        (text.into(), None)
    }

    proptest! {
        #[test]
        fn any_cut_gives_what_the_definition_gives(
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
            pieces in prop::collection::vec("[abé]{0,3}", 0..10),
        ) {
            let (stop_refs, piece_refs): (Vec<&str>, Vec<&str>) = (
                stops.iter().map(String::as_str).collect(),
                pieces.iter().map(String::as_str).collect(),
            );
            let (seen, stop) = search(&stop_refs, &piece_refs);
            prop_assert_eq!((seen.concat(), stop), by_definition(&stops, &pieces.concat()));
        }
    }
}
