//! Documents that must move together with code. A pin is a line `<!-- pin PATH DIGEST -->` in a document:
//! the file can't change without someone opening the page that describes it. `just bless` renews the
//! pins, after the page was read. It must never renew one on its own.

use super::{read, report, root, sources};
use lockstep_step::PlanRule;
use sha2::{Digest, Sha256};
use std::{collections::BTreeSet, env, fs};

/// Files that must be pinned, and where.
const PINNED: &[(&str, &str)] = &[
    ("docs/ARCHITECTURE.md", "engine/step/src/plan.rs"),
    ("docs/ARCHITECTURE.md", "engine/step/src/output.rs"),
    ("docs/NUMERICS.md", "backends/cpu/src/reference.rs"),
    ("docs/PROTOCOL.md", "engine/server/src/automaton.rs"),
];

fn digest_of(path: &str) -> String {
    let digest = Sha256::digest(read(path).as_bytes());
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn pinned_files_match_their_page() {
    let bless = env::var_os("BLESS").is_some();
    let mut complaints = Vec::new();
    for (document, path) in PINNED {
        let wanted = format!("<!-- pin {path} {} -->", digest_of(path));
        let text = read(document);
        let start = format!("<!-- pin {path} ");
        let Some(found) = text.lines().find(|line| line.starts_with(&start)) else {
            complaints.push(format!("{document} has no line {start}… -->"));
            continue;
        };
        if found == wanted {
            continue;
        }
        if bless {
            let renewed = text.replace(found, &wanted);
            // In one move: other tests read the page at the same time.
            let (page, new) = (
                root().join(document),
                root().join(format!("{document}.new")),
            );
            fs::write(&new, renewed).expect("the folder can be written");
            fs::rename(&new, &page).expect("the page can be replaced");
        } else {
            complaints.push(format!(
                "{path} changed: read what {document} says of it, then run `just bless`"
            ));
        }
    }
    report(&complaints);
}

#[test]
fn plan_rules_are_documented() {
    let text = read("docs/ARCHITECTURE.md");
    let documented: BTreeSet<&str> = text
        .lines()
        .skip_while(|line| *line != "## Rules of a plan")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let rules: BTreeSet<&str> = PlanRule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(
        documented, rules,
        "rules of ARCHITECTURE.md (left) and PlanRule (right)"
    );
}

#[test]
fn each_invariant_names_a_test_that_exists() {
    let text = read("docs/ARCHITECTURE.md");
    let sources = sources();
    let mut complaints = Vec::new();
    let mut num_invariants = 0;
    for line in text.lines().filter(|line| line.starts_with("| I")) {
        num_invariants += 1;
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let wanted = format!("I{num_invariants}");
        if cells[0] != wanted {
            complaints.push(format!("{} stands where {wanted} was expected", cells[0]));
        }
        let names: Vec<&str> = cells[cells.len() - 1]
            .split('`')
            .skip(1)
            .step_by(2)
            .collect();
        if names.is_empty() {
            complaints.push(format!("{wanted} names no test"));
        }
        for name in names {
            let function = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
            if !sources.iter().any(|source| source.text.contains(&function)) {
                complaints.push(format!("{wanted} names {name}, which is no test"));
            }
        }
    }
    assert!(num_invariants >= 5, "{num_invariants} invariants");
    report(&complaints);
}

#[test]
fn architecture_fits_in_one_sitting() {
    let num_lines = read("docs/ARCHITECTURE.md").lines().count();
    assert!(
        num_lines <= 400,
        "docs/ARCHITECTURE.md has {num_lines} lines, at most 400"
    );
}

#[test]
fn each_metric_has_its_line() {
    let source = read("engine/server/src/metrics/families.rs");
    let families = source
        .split("const FAMILIES")
        .nth(1)
        .expect("the list of families");
    let families = families.split("];").next().expect("its end");
    let is_name = |text: &&str| text.starts_with("vllm:") || text.starts_with("lockstep_");
    let written: BTreeSet<&str> = families.split('"').filter(is_name).collect();
    let page = read("docs/user/metrics.md");
    let documented: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert!(written.len() > 10, "{written:?}");
    // A name in the help of another family is not a family.
    let families: BTreeSet<&str> = written
        .into_iter()
        .filter(|name| !name.contains(['.', ' ']))
        .collect();
    assert_eq!(
        families, documented,
        "families.rs (left) and docs/user/metrics.md (right)"
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut num_links = 0;
    let mut complaints = Vec::new();
    let docs = [
        "ARCHITECTURE",
        "NUMERICS",
        "PROTOCOL",
        "GLOSSARY",
        "STYLE",
        "MODELS",
        "battery",
        "bisect",
    ];
    let mut pages: Vec<String> = docs.iter().map(|name| format!("docs/{name}.md")).collect();
    let user = [
        "install", "serve", "models", "parse", "metrics", "errors", "bench",
    ];
    pages.extend(user.iter().map(|name| format!("docs/user/{name}.md")));
    let others = [
        "README.md",
        "docs/dependencies.md",
        "docs/packages.md",
        "docs/pins.md",
    ];
    pages.extend(others.map(str::to_owned));
    for page in pages {
        let text = read(&page);
        let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
        for part in text.split("](").skip(1) {
            let target = part.split([')', '#']).next().unwrap_or("");
            if target.is_empty() || target.contains("://") {
                continue;
            }
            num_links += 1;
            if !root().join(folder).join(target).exists() {
                complaints.push(format!("{page}: {target} does not exist"));
            }
        }
    }
    report(&complaints);
    assert!(num_links > 10, "only {num_links} links between documents");
}

#[test]
fn documented_recipes_exist() {
    let justfile = read("justfile");
    let recipes: BTreeSet<&str> = justfile
        .lines()
        .filter(|line| !line.starts_with([' ', '\t', '#', '@', '[']) && line.contains(':'))
        .filter_map(|line| line.split([' ', ':']).next())
        .collect();
    assert!(recipes.len() >= 8, "{recipes:?}");
    let mut complaints = Vec::new();
    for page in [
        "README.md",
        "docs/ARCHITECTURE.md",
        "docs/STYLE.md",
        "docs/user/models.md",
    ] {
        let text = read(page);
        for part in text.split("`just ").skip(1) {
            let name = part.split([' ', '`']).next().unwrap_or("");
            if !recipes.contains(name) {
                complaints.push(format!("{page}: `just {name}` is no recipe"));
            }
        }
    }
    report(&complaints);
}
