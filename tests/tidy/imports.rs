//! Who may import whom: the table of `docs/ARCHITECTURE.md` against `cargo metadata`, both ways. It
//! must never read the manifests by itself: cargo's view is the one that decides what compiles.

use super::{read, report, root};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

struct Crate {
    folder: String,
    imports: BTreeSet<String>,
    published: BTreeSet<String>,
}

/// Each crate of the workspace, by its folder's name.
fn crates() -> BTreeMap<String, Crate> {
    let root = std::fs::canonicalize(root()).expect("the root");
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(&root)
        .output()
        .expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {stderr}");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let mut crates = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let manifest = package["manifest_path"]
            .as_str()
            .expect("a manifest")
            .replace('\\', "/");
        let folder = Path::new(&manifest).parent().expect("a folder");
        let folder = folder.strip_prefix(&root).expect("below the root");
        let folder = folder.to_string_lossy().into_owned();
        let own = folder.rsplit('/').next().unwrap_or("").to_owned();
        assert_eq!(
            name,
            format!("lockstep-{own}"),
            "{manifest}: package is named after its folder"
        );
        let mut entry = Crate {
            folder,
            imports: BTreeSet::new(),
            published: BTreeSet::new(),
        };
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let dependency_name = dependency["name"].as_str().expect("a name");
            let ours = dependency_name.strip_prefix("lockstep-");
            match ours {
                // Tests may look further than the crate itself; the compiler keeps them apart.
                Some(ours) if dependency["kind"].is_null() => {
                    entry.imports.insert(ours.to_owned());
                }
                Some(_) => {}
                None => {
                    entry.published.insert(dependency_name.to_owned());
                }
            }
        }
        crates.insert(own, entry);
    }
    assert!(
        crates.len() >= 9,
        "cargo metadata names only {} crates",
        crates.len()
    );
    crates
}

/// The rows of the first table after a heading, as cells without their back-quotes.
fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let text = read(document);
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().replace('`', "")).collect()
        })
        .collect();
    assert!(!rows.is_empty(), "{document}: no table under {heading:?}");
    rows
}

#[test]
fn import_table_is_what_cargo_sees() {
    let mut documented = BTreeMap::new();
    for row in table("docs/ARCHITECTURE.md", "## Who may import whom") {
        let imports: BTreeSet<String> = row[1]
            .split([',', ' '])
            .filter(|name| !name.is_empty() && *name != "nothing")
            .map(str::to_owned)
            .collect();
        documented.insert(row[0].clone(), imports);
    }
    let mut complaints = Vec::new();
    let crates = crates();
    for (name, entry) in &crates {
        match documented.get(name) {
            None => complaints.push(format!("{name} is missing in the table of ARCHITECTURE.md")),
            Some(imports) if *imports != entry.imports => complaints.push(format!(
                "{name} imports {:?}, the table of ARCHITECTURE.md says {imports:?}",
                entry.imports
            )),
            Some(_) => {}
        }
    }
    for name in documented.keys().filter(|name| !crates.contains_key(*name)) {
        complaints.push(format!(
            "the table of ARCHITECTURE.md names {name}, which is no crate"
        ));
    }
    report(&complaints);
}

#[test]
fn each_crate_has_its_section_and_each_section_its_crate() {
    let crates = crates();
    let text = read("docs/ARCHITECTURE.md");
    let sections: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("### `"))
        .filter_map(|line| line.strip_suffix('`'))
        .collect();
    let folders: BTreeSet<&str> = crates.values().map(|entry| entry.folder.as_str()).collect();
    assert_eq!(
        sections, folders,
        "sections of ARCHITECTURE.md (left) and crates (right)"
    );
}

#[test]
fn backends_never_see_the_core() {
    let crates = crates();
    let mut num_backends = 0;
    for (name, entry) in crates
        .iter()
        .filter(|(_, entry)| entry.folder.starts_with("backends/"))
    {
        num_backends += 1;
        assert!(!entry.imports.contains("core"), "{name} imports core");
    }
    assert!(num_backends >= 3, "{num_backends} backends");
}

#[test]
fn each_dependency_has_its_line() {
    let used: BTreeSet<String> = crates()
        .into_values()
        .flat_map(|entry| entry.published)
        .collect();
    let lines = table("docs/dependencies.md", "## Published crates");
    let documented: BTreeSet<String> = lines.into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(
        used, documented,
        "used crates (left) and docs/dependencies.md (right)"
    );
}
