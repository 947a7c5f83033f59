//! Reads a list of pins. It must never fill in what the file leaves out, nor let a path lead outside of the
//! folders that it is about; each complaint names the line and the field.

use lockstep_package::FileHashes;
use std::path::{Component, Path};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One thing that is carried from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Our copy, from the folder of the list.
    pub path: String,
    /// Where it comes from, as people know it: an address, or a name.
    pub source: String,
    /// The branch, tag or commit that it was taken from.
    pub reference: String,
    /// Its path there.
    pub file: String,
    /// What it was when it was taken.
    pub hashes: FileHashes,
    /// Why it is here; for readers.
    pub note: Option<String>,
}

/// Fields of a pin, and whether each must be there.
const FIELDS: [(&str, bool); 7] = [
    ("path", true),
    ("source", true),
    ("ref", true),
    ("file", true),
    ("git_blob", true),
    ("sha256", true),
    ("note", false),
];

/// Reads the text of a list; `path` is for complaints.
///
/// # Errors
/// What is wrong, at which line, in which field. A list without a pin is one: there would be nothing to check.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Pin>, String> {
    let reader = Reader { path, text };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = reader.text.lines().nth(reader.line(at) - 1).unwrap_or("");
        let what = format!("{}: `{}`", error.message(), line.trim());
        reader.complain(at, &what)
    })?;
    let mut pins: Vec<Pin> = Vec::new();
    for (key, value) in table.get_ref() {
        if key.get_ref() != "pin" {
            let what = format!("unknown field {}, expected [[pin]] only", key.get_ref());
            return Err(reader.complain(key.span().start, &what));
        }
        let Some(items) = value.get_ref().as_array() else {
            let found = value.get_ref().type_str();
            let what = format!("pin is {found}, expected tables that begin with [[pin]]");
            return Err(reader.complain(value.span().start, &what));
        };
        for item in items.iter() {
            let pin = reader.pin(item)?;
            if pins.iter().any(|other| other.path == pin.path) {
                let what = format!("pin.path {:?} has a pin already", pin.path);
                return Err(reader.complain(item.span().start, &what));
            }
            pins.push(pin);
        }
    }
    match pins.is_empty() {
        true => Err(format!(
            "{}: there is no [[pin]], so there is nothing to check",
            path.display()
        )),
        false => Ok(pins),
    }
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn complain(&self, at: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path.display(), self.line(at))
    }

    fn pin(&self, item: &Spanned<DeValue<'_>>) -> Result<Pin, String> {
        let start = item.span().start;
        let Some(table) = item.get_ref().as_table() else {
            let what = format!("pin is {}, expected a table", item.get_ref().type_str());
            return Err(self.complain(start, &what));
        };
        for key in table.keys() {
            if !FIELDS.iter().any(|(name, _)| name == key.get_ref()) {
                let known = FIELDS.map(|(name, _)| name).join(", ");
                let what = format!("unknown field pin.{}, expected {known}", key.get_ref());
                return Err(self.complain(key.span().start, &what));
            }
        }
        for (name, _) in FIELDS.iter().filter(|(_, needed)| *needed) {
            if !table.keys().any(|key| key.get_ref() == name) {
                return Err(self.complain(start, &format!("pin.{name} is missing")));
            }
        }
        let text = |name: &str, expected: &str, is_fine: &dyn Fn(&str) -> bool| {
            self.field(table, name, expected, is_fine)
        };
        let inside = "a relative path without ..";
        let is_hex = |digits: usize| {
            move |text: &str| {
                let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                text.len() == digits && text.bytes().all(is_digit)
            }
        };
        Ok(Pin {
            path: text("path", inside, &is_inside)?,
            source: text("source", "an address or a name", &is_word)?,
            reference: text("ref", "a branch, tag or commit", &is_reference)?,
            file: text("file", inside, &is_inside)?,
            hashes: FileHashes {
                git_blob: text("git_blob", "40 digits of lowercase hex", &is_hex(40))?,
                sha256: text("sha256", "64 digits of lowercase hex", &is_hex(64))?,
            },
            note: match table.keys().any(|key| key.get_ref() == "note") {
                true => Some(text("note", "a text", &|_| true)?),
                false => None,
            },
        })
    }

    fn field(
        &self,
        table: &DeTable<'_>,
        name: &str,
        expected: &str,
        is_fine: &dyn Fn(&str) -> bool,
    ) -> Result<String, String> {
        let Some((_, value)) = table.iter().find(|(key, _)| key.get_ref() == name) else {
            return Err(format!("pin.{name} is missing"));
        };
        let start = value.span().start;
        let Some(text) = value.get_ref().as_str() else {
            let found = value.get_ref().type_str();
            let what = format!("pin.{name} is {found}, expected {expected} as a string");
            return Err(self.complain(start, &what));
        };
        match is_fine(text) {
            true => Ok(text.to_owned()),
            false => Err(self.complain(
                start,
                &format!("pin.{name} is {text:?}, expected {expected}"),
            )),
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// A path that stays inside of the folder that it is joined to.
fn is_inside(text: &str) -> bool {
    let is_plain = |part| matches!(part, Component::Normal(_));
    is_word(text) && !text.contains('\\') && Path::new(text).components().all(is_plain)
}

/// What git takes for the name of a branch, tag or commit, and for nothing else.
fn is_reference(text: &str) -> bool {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\@{}".contains(c);
    !text.is_empty()
        && !text.starts_with(['-', '/'])
        && !text.contains("..")
        && !text.contains(is_bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
# What we carry.
[[pin]]
path = "templates/hermes.jinja"
source = "https://example.org/models"
ref = "main"
file = "chat_template.jinja"
git_blob = "ce013625030ba8dba906f756967f9e9ca394464a"
sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
"#;

    fn error(text: &str) -> String {
        parse(Path::new("pins.toml"), text).expect_err("it is broken")
    }

    #[test]
    fn a_pin_is_what_the_file_says() {
        let pins = parse(Path::new("pins.toml"), GOOD).expect("it is fine");
        assert_eq!(pins.len(), 1);
        assert_eq!(pins[0].reference, "main");
        assert_eq!(pins[0].hashes.git_blob[..4], *"ce01");
        assert_eq!(pins[0].note, None);
    }

    #[test]
    fn complaints_name_line_and_field() {
        let cases = [
            (
                "ref = \"main\"",
                "ref = 5",
                "pins.toml:6: pin.ref is integer",
            ),
            (
                "ref = \"main\"",
                "ref = \"-x\"",
                "pins.toml:6: pin.ref is \"-x\"",
            ),
            ("ref = \"main\"", "", "pins.toml:3: pin.ref is missing"),
            (
                "ref = \"main\"",
                "rev = \"main\"",
                "pins.toml:6: unknown field pin.rev",
            ),
            ("ref = \"main\"", "ref = main", "pins.toml:6: "),
            ("ref = \"main\"", "ref = main", "`ref = main`"),
            ("\"ce", "\"CE", "pins.toml:8: pin.git_blob"),
            ("\"58", "\"5", "pins.toml:9: pin.sha256"),
            ("templates/", "../", "pins.toml:4: pin.path"),
            (
                "[[pin]]",
                "[pin]",
                "pin is table, expected tables that begin with [[pin]]",
            ),
            ("[[pin]]", "[[pins]]", "pins.toml:3: unknown field pins"),
        ];
        for (from, to, expected) in cases {
            let text = GOOD.replacen(from, to, 1);
            let found = error(&text);
            assert!(found.contains(expected), "{from} to {to}: {found}");
        }
        let twice = format!("{GOOD}{GOOD}");
        assert!(
            error(&twice).contains("has a pin already"),
            "{}",
            error(&twice)
        );
        assert!(error("# nothing\n").contains("nothing to check"));
    }
}
