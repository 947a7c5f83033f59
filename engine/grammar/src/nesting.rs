//! How deep the JSON of a call nests. Readers of calls stop at some depth, and a model in a loop would not:
//! from [`DEEP`] on, nothing more is opened where anything else can be written.

/// Well below the depth at which a call can't be read, by more than a schema without recursion can nest.
const DEEP: u16 = 88;

/// Brackets that are open, as far as text tells that may be JSON or not. It may count too many, never too
/// few inside JSON: a line feed ends what was taken for a string, since JSON has none inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nesting {
    depth: u16,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// The nesting after more text. A tag, whose text it is too, ends a value.
    pub(crate) fn advance(mut self, text: &[u8]) -> Nesting {
        if text.first() == Some(&b'<') && text.last() == Some(&b'>') {
            return Nesting::default();
        }
        for &byte in text {
            if self.in_string && byte != b'\n' {
                let ends = byte == b'"' && !self.escaped;
                self.escaped = byte == b'\\' && !self.escaped;
                self.in_string = !ends;
                continue;
            }
            self.escaped = false;
            self.in_string = byte == b'"';
            match byte {
                b'[' | b'{' => self.depth = self.depth.saturating_add(1),
                b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self
    }

    /// Whether nothing more should be opened.
    pub(crate) fn is_deep(self) -> bool {
        self.depth >= DEEP && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(text: &str) -> u16 {
        Nesting::default().advance(text.as_bytes()).depth
    }

    #[test]
    fn brackets_count_outside_strings() {
        assert_eq!(depth(r#"[{"a[\"{": [1"#), 3);
        assert_eq!(depth(r#"[{"a": "\\"}]["#), 1);
        assert_eq!(depth("a raw \" text\n[["), 2);
        let whole = Nesting::default().advance(b"[\"a\\\"[");
        let pieces = [&b"[\"a"[..], b"\\", b"\"["];
        let pieces = pieces
            .iter()
            .fold(Nesting::default(), |nesting, text| nesting.advance(text));
        assert_eq!(whole, pieces);
        assert!(!Nesting::default().advance(&[b'['; 87]).is_deep());
        assert!(Nesting::default().advance(&[b'['; 88]).is_deep());
    }
}
