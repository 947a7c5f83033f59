//! The difference of two files, line by line, in the form that `patch` reads. It must never call two files
//! that differ the same.

use std::fmt::Write as _;

/// Lines around a change.
const CONTEXT: usize = 3;
/// Cells of the table that finds what two files share; beyond, all between their common ends is one change.
const CELLS_MAX: usize = 16 << 20;

/// What stands on a line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Keep,
    Remove,
    Add,
}

/// The difference from `old` to `new`, each with its name. Files that are no text get one line with their sizes.
pub fn diff((old_name, old): (&str, &[u8]), (new_name, new): (&str, &[u8])) -> String {
    let texts = (std::str::from_utf8(old), std::str::from_utf8(new));
    let (Ok(old_text), Ok(new_text)) = texts else {
        return format!(
            "no text: {old_name} has {} bytes, {new_name} has {}\n",
            old.len(),
            new.len()
        );
    };
    let (old, new): (Vec<&str>, Vec<&str>) = (
        old_text.split_inclusive('\n').collect(),
        new_text.split_inclusive('\n').collect(),
    );
    let mut out = format!("--- {old_name}\n+++ {new_name}\n");
    let edits = edits(&old, &new);
    let is_near = |idx: usize| {
        let from = idx.saturating_sub(CONTEXT);
        let to = (idx + CONTEXT + 1).min(edits.len());
        edits[from..to].iter().any(|edit| *edit != Edit::Keep)
    };
    let (mut idx, mut old_line, mut new_line) = (0, 0, 0);
    while idx < edits.len() {
        if !is_near(idx) {
            (idx, old_line, new_line) = (idx + 1, old_line + 1, new_line + 1);
            continue;
        }
        let end = (idx..edits.len()).find(|&idx| !is_near(idx));
        let hunk = &edits[idx..end.unwrap_or(edits.len())];
        write_hunk(
            &mut out,
            hunk,
            (&old[old_line..], old_line),
            (&new[new_line..], new_line),
        );
        old_line += hunk.iter().filter(|edit| **edit != Edit::Add).count();
        new_line += hunk.iter().filter(|edit| **edit != Edit::Remove).count();
        idx += hunk.len();
    }
    out
}

fn write_hunk(
    out: &mut String,
    hunk: &[Edit],
    (mut old, old_start): (&[&str], usize),
    (mut new, new_start): (&[&str], usize),
) {
    let of_old = hunk.iter().filter(|edit| **edit != Edit::Add).count();
    let of_new = hunk.iter().filter(|edit| **edit != Edit::Remove).count();
    // A side without lines is named by the line before it.
    let first = |start: usize, count: usize| start + usize::from(count > 0);
    let _ = writeln!(
        out,
        "@@ -{},{of_old} +{},{of_new} @@",
        first(old_start, of_old),
        first(new_start, of_new)
    );
    for edit in hunk {
        let (mark, line) = match edit {
            Edit::Keep => (' ', old[0]),
            Edit::Remove => ('-', old[0]),
            Edit::Add => ('+', new[0]),
        };
        old = if *edit == Edit::Add { old } else { &old[1..] };
        new = if *edit == Edit::Remove {
            new
        } else {
            &new[1..]
        };
        match line.strip_suffix('\n') {
            Some(line) => drop(writeln!(out, "{mark}{line}")),
            None => drop(writeln!(out, "{mark}{line}\n\\ No newline at end of file")),
        }
    }
}

/// What turns one list of lines into the other: what both share at their ends stays, and between them as much
/// as can.
fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let pairs = old.iter().zip(new);
    let head = pairs.take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[head..], &new[head..]);
    let pairs = old.iter().rev().zip(new.iter().rev());
    let tail = pairs.take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let mut edits = vec![Edit::Keep; head];
    match (old.len() + 1).checked_mul(new.len() + 1) {
        Some(cells) if cells <= CELLS_MAX => between(old, new, &mut edits),
        _ => {
            edits.extend(old.iter().map(|_| Edit::Remove));
            edits.extend(new.iter().map(|_| Edit::Add));
        }
    }
    edits.extend((0..tail).map(|_| Edit::Keep));
    edits
}

/// The longest common subsequence, from a table of the lengths of those of all ends.
fn between(old: &[&str], new: &[&str], edits: &mut Vec<Edit>) {
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.push(Edit::Keep);
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]
        {
            edits.push(Edit::Remove);
            i += 1;
        } else {
            edits.push(Edit::Add);
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(old: &str, new: &str) -> String {
        diff(("a", old.as_bytes()), ("b", new.as_bytes()))
    }

    #[test]
    fn changes_stand_between_what_stays() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let expected = "--- a\n+++ b\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+more\n 6\n 7\n 8\n";
        assert_eq!(of(old, &old.replace("5\n", "five\nmore\n")), expected);
        assert_eq!(of("", "x\n"), "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+x\n");
        let cut = "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-x\n+x\n\\ No newline at end of file\n";
        assert_eq!(of("x\n", "x"), cut);
        let binary = diff(("a", b"\xff"), ("b", b"ab"));
        assert_eq!(binary, "no text: a has 1 bytes, b has 2\n");
    }

    proptest! {
        #[test]
        fn a_difference_leads_from_one_file_to_the_other(
            old in prop::collection::vec("[abc]", 0..12),
            new in prop::collection::vec("[abc]", 0..12),
        ) {
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let (mut i, mut made) = (0, Vec::new());
            let mut added = new.iter();
            for edit in edits(&old, &new) {
                match edit {
                    Edit::Keep => {
                        made.push(old[i]);
                        prop_assert_eq!(added.next(), Some(&old[i]));
                        i += 1;
                    }
                    Edit::Remove => i += 1,
                    Edit::Add => made.push(added.next().expect("a line of the new file")),
                }
            }
            prop_assert_eq!(i, old.len());
            prop_assert_eq!(made, new);
        }
    }
}
