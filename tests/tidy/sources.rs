//! What every source file must keep to. Lengths are ratchets: what is over a limit stands in a list
//! that may only shrink, and an entry that is no longer needed must go.

use super::{Source, report, sources};
use std::collections::BTreeMap;

/// Columns of a line of code, and of a line of prose in a comment.
const LINE_WIDTH_MAX: usize = 100;
const COMMENT_WIDTH_MAX: usize = 120;
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Files over the limit, with the length that they may not exceed.
const LONG_FILES: &[(&str, usize)] = &[];

/// Functions over the limit, with the length that they may not exceed.
const LONG_FUNCTIONS: &[(&str, usize)] = &[
    ("backends/cpu/src/layers/delta_net.rs::convolve", 88),
    ("engine/cli/src/inspect.rs::model", 74),
];

/// A word that must not appear, where it may appear all the same, and what to use instead.
struct Ban {
    words: &'static [&'static str],
    only_in: &'static [&'static str],
    /// Folders that the ban is about; empty means all of them.
    within: &'static [&'static str],
    /// Whether tests must keep to it as well.
    in_tests: bool,
    instead: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        words: &["collections::HashMap", "collections::HashSet", "hash_map::"],
        only_in: &[],
        within: &[],
        in_tests: true,
        instead: "a BTreeMap or BTreeSet: iteration order must be defined",
    },
    Ban {
        words: &["tokio::net", "tokio::time"],
        only_in: &[
            "engine/server/src/net.rs",
            "engine/server/src/time.rs",
            "sim/",
        ],
        within: &[],
        in_tests: false,
        instead: "server's net.rs and time.rs: all use of tokio's net and time sits there",
    },
    Ban {
        words: &[
            "axum::serve",
            "TokioTimer",
            "JoinSet",
            "LocalSet",
            "block_in_place",
        ],
        only_in: &[],
        within: &["engine/server"],
        in_tests: false,
        instead: "what also runs under simulation (docs/STYLE.md)",
    },
    Ban {
        words: &["Instant::now", "SystemTime::now"],
        only_in: &[
            "engine/server/src/time.rs",
            "engine/cli/src/",
            "backends/cpu/benches/",
            "fuzz/src/main.rs",
            "sim/src/",
        ],
        within: &[],
        in_tests: false,
        instead: "a time that is handed in",
    },
    Ban {
        words: &["thread_rng", "rand::random", "getrandom::"],
        only_in: &["engine/server/src/", "engine/cli/src/"],
        within: &[],
        in_tests: false,
        instead: "a seed that is handed in",
    },
    Ban {
        words: &["FIXME", "XXX", "todo!(", "unimplemented!("],
        only_in: &[],
        within: &[],
        in_tests: true,
        instead: "the work itself, or an issue",
    },
    Ban {
        words: &["#[ignore", "#[should_panic"],
        only_in: &[],
        within: &[],
        in_tests: true,
        instead: "an assertion of what happens today",
    },
    Ban {
        words: &[
            "mul_add", ".exp()", ".ln()", ".powf(", ".sin()", ".cos()", ".tanh()",
        ],
        only_in: &[
            "backends/numerics/",
            "backends/cpu/",
            "backends/fingerprint/",
            "fuzz/src/targets/sampler.rs",
        ],
        within: &[],
        in_tests: false,
        instead: "lockstep-numerics, the only home of float functions",
    },
    Ban {
        words: &["as f32", "as f64"],
        only_in: &[],
        within: &["engine/step", "engine/tags"],
        in_tests: false,
        instead: "integers: nothing here computes with floats",
    },
    Ban {
        words: &["unsafe "],
        only_in: &[
            "engine/cli/src/pipe.rs",
            "backends/cpu/",
            "backends/cuda/src/device.rs",
            "backends/cuda/src/memory.rs",
            "backends/cuda/src/program.rs",
            "backends/cuda/src/queue.rs",
            "backends/cuda/src/testing.rs",
            "backends/numerics/src/lanes",
            "engine/package/src/",
            "engine/cli/src/bench/",
        ],
        within: &[],
        in_tests: false,
        instead: "safe code: unsafe belongs in kernels, memory maps and bindings",
    },
];

fn is_listed(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// Tests of this folder quote the forbidden words.
fn is_tidy(source: &Source) -> bool {
    source.path.starts_with("tests/tidy")
}

#[test]
fn forbidden_words() {
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|source| !is_tidy(source)) {
        for ban in BANS {
            if !ban.within.is_empty() && !is_listed(&source.path, ban.within) {
                continue;
            }
            if is_listed(&source.path, ban.only_in) {
                continue;
            }
            let lines: Vec<(usize, &str)> = if ban.in_tests {
                source.lines().collect()
            } else {
                source.product_lines().collect()
            };
            for (number, line) in lines {
                let code = line.split("//").next().unwrap_or("");
                for word in ban.words.iter().filter(|word| code.contains(**word)) {
                    let path = &source.path;
                    complaints.push(format!("{path}:{number}: {word}; use {}", ban.instead));
                }
            }
        }
    }
    report(&complaints);
}

#[test]
fn every_ban_can_be_broken() {
    // A word that can't be found would forbid nothing.
    for ban in BANS {
        for word in ban.words {
            let line = format!("let x = {word}y;");
            assert!(
                line.split("//").next().unwrap_or("").contains(word),
                "{word}"
            );
        }
        for place in ban.only_in.iter().filter(|place| place.ends_with(".rs")) {
            let exists = sources().iter().any(|source| source.path == *place);
            assert!(exists, "{place} is an exception and no file");
        }
    }
}

#[test]
fn pure_crates_are_no_std() {
    let sources = sources();
    for name in ["step", "core", "tags"] {
        let path = format!("engine/{name}/src/lib.rs");
        let lib = sources.iter().find(|source| source.path == path);
        let lib = lib.unwrap_or_else(|| panic!("{path} is missing"));
        assert!(lib.text.contains("#![no_std]"), "{path} is not no_std");
        for source in sources
            .iter()
            .filter(|s| s.path.starts_with(&format!("engine/{name}/src/")))
        {
            let mut before = "";
            for (_, line) in source.product_lines() {
                let is_std = line.trim() == "extern crate std;";
                let fine = !is_std || before.trim() == "#[cfg(test)]";
                assert!(fine, "{}: std outside of tests", source.path);
                before = line;
            }
        }
    }
}

#[test]
fn selects_are_biased() {
    let mut num_selects = 0;
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|source| !is_tidy(source)) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (idx, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if code.contains("select! {") {
                num_selects += 1;
                if lines.get(idx + 1).map(|next| next.trim()) != Some("biased;") {
                    complaints.push(format!(
                        "{}:{}: select! without biased",
                        source.path,
                        idx + 1
                    ));
                }
            }
        }
    }
    report(&complaints);
    assert!(num_selects > 0, "no select! was found: the server has some");
}

#[test]
fn each_file_says_what_it_is() {
    let complaints: Vec<String> = sources()
        .iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| format!("{}: its first line is no //! comment", source.path))
        .collect();
    report(&complaints);
}

#[test]
fn each_file_is_a_module() {
    let sources = sources();
    let mut complaints = Vec::new();
    for source in &sources {
        let name = source
            .path
            .rsplit('/')
            .next()
            .unwrap_or("")
            .trim_end_matches(".rs");
        let is_root = matches!(name, "main" | "lib" | "build" | "mod");
        if is_root
            || source.path.contains("/benches/")
            || source.path.contains("/bin/")
            || source.path.contains("/examples/")
        {
            continue;
        }
        let package = source.path.split('/').take(2).collect::<Vec<_>>().join("/");
        let package = if package.starts_with("tests") {
            "tests".to_owned()
        } else {
            package
        };
        let known = sources.iter().any(|other| {
            other.path.starts_with(&package)
                && other.text.lines().any(|line| {
                    let elsewhere = format!("#[path = \"{name}.rs\"]");
                    line.trim_start_matches("pub ")
                        .trim_start_matches("pub(crate) ")
                        .trim_end_matches([';', ' ', '{'])
                        == format!("mod {name}")
                        || line.trim() == elsewhere
                })
        });
        if !known {
            complaints.push(format!("{}: no `mod {name}` names it", source.path));
        }
    }
    report(&complaints);
}

#[test]
fn no_vague_module_names() {
    let vague = [
        "utils", "util", "helpers", "helper", "common", "manager", "base", "misc",
    ];
    for source in sources() {
        let parts = source.path.trim_end_matches(".rs").split('/');
        let named = parts.into_iter().find(|part| vague.contains(part));
        assert!(named.is_none(), "{}: say what is in it", source.path);
    }
}

#[test]
fn lines_are_short() {
    let mut complaints = Vec::new();
    for source in sources() {
        for (number, line) in source.product_lines() {
            let width = line.chars().count();
            let is_comment = line.trim_start().starts_with("//");
            let max = if is_comment {
                COMMENT_WIDTH_MAX
            } else {
                LINE_WIDTH_MAX
            };
            if width > max {
                complaints.push(format!(
                    "{}:{number}: {width} columns, at most {max}",
                    source.path
                ));
            }
        }
        for (number, line) in source.lines() {
            if line.ends_with([' ', '\t']) && !line.contains('"') {
                complaints.push(format!("{}:{number}: space at the end", source.path));
            }
        }
    }
    report(&complaints);
}

#[test]
fn files_are_short() {
    let mut lengths = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        lengths.insert(source.path.clone(), source.product_lines().count());
    }
    ratchet(&lengths, FILE_LINES_MAX, LONG_FILES);
}

#[test]
fn functions_are_short() {
    let mut lengths = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let lines: Vec<&str> = source.product_lines().map(|(_, line)| line).collect();
        for (start, name) in function_starts(&lines) {
            let indent = lines[start].len() - lines[start].trim_start().len();
            let close = format!("{}}}", " ".repeat(indent));
            let end = (start..lines.len()).find(|idx| lines[*idx] == close);
            let body = end.map_or(1, |end| end - start + 1);
            let marked = (start.saturating_sub(12)..(start + 4).min(lines.len()))
                .any(|idx| lines[idx].trim_start().starts_with("// Long on purpose:"));
            if !marked {
                let key = format!("{}::{name}", source.path);
                let longest = lengths.entry(key).or_insert(0);
                *longest = body.max(*longest);
            }
        }
    }
    assert!(
        lengths.len() > 100,
        "only {} functions found",
        lengths.len()
    );
    ratchet(&lengths, FUNCTION_LINES_MAX, LONG_FUNCTIONS);
}

/// Lines on which a function with a body of its own begins, and its name.
fn function_starts(lines: &[&str]) -> Vec<(usize, String)> {
    let mut starts = Vec::new();
    for (idx, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some((before, after)) = code.split_once("fn ") else {
            continue;
        };
        let qualifiers = before.split_whitespace().all(|word| {
            word.starts_with("pub")
                || matches!(word, "const" | "unsafe" | "async" | "extern" | "\"C\"")
        });
        // A declaration in a trait has no body; its signature may take several lines.
        let signature_end = lines[idx..]
            .iter()
            .find(|line| line.ends_with(['{', ';', '}']));
        let one_line = signature_end.is_none_or(|line| !line.ends_with('{'));
        if qualifiers && !one_line && !code.starts_with("//") {
            let name: String = after
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            starts.push((idx, name));
        }
    }
    starts
}

fn ratchet(lengths: &BTreeMap<String, usize>, max: usize, exceptions: &[(&str, usize)]) {
    let exceptions: BTreeMap<&str, usize> = exceptions.iter().copied().collect();
    let mut complaints = Vec::new();
    for (name, &length) in lengths {
        let allowed = exceptions.get(name.as_str()).copied().unwrap_or(max);
        if length > allowed {
            complaints.push(format!("{name}: {length} lines, at most {allowed}"));
        }
    }
    for name in exceptions.keys() {
        let length = lengths.get(*name).copied().unwrap_or(0);
        if length <= max {
            complaints.push(format!("{name}: {length} lines; take it off the list"));
        }
    }
    report(&complaints);
}
