//! Follows Markdown code fences through the answer, by CommonMark's rules for top-level fences.
//! It must never judge a line by anything but its own characters and the fence that is open.

/// Where the current line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Only this many spaces so far, at most three.
    Indent(u8),
    /// Spaces, then this many of a fence character.
    Run(char, usize),
    /// An opening run and then an info string.
    Info(char, usize),
    /// A closing run and then blanks.
    Tail,
    /// A line that neither opens nor closes a fence.
    Other,
}

/// The fence state of a text that arrives in pieces, cut anywhere between characters.
///
/// A fence is a line of at least three backticks or tildes, indented by at most three spaces; it
/// ends at a line of the same character that is at least as long. Lists and quotes that would hold
/// a fence of their own are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Character and length of the opening run.
    open: Option<(char, usize)>,
    line: Line,
}

impl Fence {
    /// The state before the first character.
    pub fn new() -> Self {
        Fence {
            open: None,
            line: Line::Indent(0),
        }
    }

    /// Whether what follows right here is inside an open fence. A closing run counts as closed
    /// already, since compact templates put a call right behind the last line of the answer.
    pub fn is_open(&self) -> bool {
        self.open.is_some() && !self.line_closes()
    }

    fn line_closes(&self) -> bool {
        match (self.open, self.line) {
            (Some((open, open_len)), Line::Run(c, len)) => c == open && len >= open_len,
            (Some(_), Line::Tail) => true,
            _ => false,
        }
    }

    /// Takes more text of the answer.
    pub fn push(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if self.line == Line::Other {
                // The rest of such a line says nothing: go to its end at once.
                let Some(end) = rest.find(['\n', '\r']) else {
                    return;
                };
                rest = &rest[end + 1..];
                self.line = Line::Indent(0);
                continue;
            }
            rest = &rest[c.len_utf8()..];
            if matches!(c, '\n' | '\r') {
                self.end_line();
            } else {
                self.line = self.after(c);
            }
        }
    }

    fn end_line(&mut self) {
        if self.line_closes() {
            self.open = None;
        } else if let (None, Line::Run(c, len) | Line::Info(c, len)) = (self.open, self.line)
            && len >= 3
        {
            self.open = Some((c, len));
        }
        self.line = Line::Indent(0);
    }

    fn after(&self, c: char) -> Line {
        match self.line {
            Line::Indent(spaces) if c == ' ' && spaces < 3 => Line::Indent(spaces + 1),
            Line::Indent(_) if matches!(c, '`' | '~') => Line::Run(c, 1),
            Line::Run(run, len) if c == run => Line::Run(run, len + 1),
            Line::Run(run, len) if self.open.is_none() && len >= 3 => Line::Info(run, len),
            Line::Run(..) | Line::Tail if self.line_closes() && matches!(c, ' ' | '\t') => {
                Line::Tail
            }
            // An info string after backticks may not contain one: that is an inline code span.
            Line::Info(run, len) if run == '~' || c != '`' => Line::Info(run, len),
            _ => Line::Other,
        }
    }
}

impl Default for Fence {
    fn default() -> Self {
        Fence::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    fn open_after(text: &str) -> bool {
        let mut whole = Fence::new();
        whole.push(text);
        let mut single = Fence::new();
        for c in text.chars() {
            single.push(c.encode_utf8(&mut [0; 4]));
        }
        assert_eq!(whole.is_open(), single.is_open(), "{text:?}");
        whole.is_open()
    }

    #[test]
    fn opens_and_closes_as_commonmark_says() {
        for open in [
            "```\n",
            "a\n~~~\n",
            "   ```json\n",
            "````\n```\n",
            "```\n~~~\n",
            "```\n``` x\n",
            "```\n    ```\n",
            "~~~ a`b\n",
            "```\r\nx",
            "```\n``\n",
            "```\n\t```\n",
        ] {
            assert!(open_after(open), "{open:?}");
        }
        for closed in [
            "",
            "``\n",
            "```",
            "```json",
            "    ```\n",
            "x ```\n",
            "```\n```\n",
            "```\nx\n  ````  \n",
            "``` a`b\n",
            "```x```\n",
            "~~~\n~~~\t",
            "```\nx\n```",
            "\t```\n",
            "~~~\r\n~~~\r\n",
        ] {
            assert!(!open_after(closed), "{closed:?}");
        }
    }
}
