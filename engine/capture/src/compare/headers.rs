//! What differs in what holds for all of a capture. It must never leave out a field.

use super::Setting;
use crate::record::Header;

/// How two headers differ, in their order.
pub(super) fn differing(a: &Header, b: &Header) -> Vec<Setting> {
    let (a, b) = (lines(a), lines(b));
    let mut names: Vec<&String> = a.iter().map(|own| &own.0).collect();
    names.extend(
        b.iter()
            .map(|own| &own.0)
            .filter(|own| !a.iter().any(|(name, _)| name == *own)),
    );
    let value = |lines: &[(String, String)], name: &str| {
        let found = lines.iter().find(|own| own.0 == name);
        found.map(|(_, value)| value.clone())
    };
    let all = names.into_iter().map(|name| Setting {
        name: name.clone(),
        of_a: value(&a, name),
        of_b: value(&b, name),
    });
    all.filter(|own| own.of_a != own.of_b).collect()
}

fn lines(header: &Header) -> Vec<(String, String)> {
    let limits = &header.limits;
    let mut lines = vec![
        ("build".to_string(), header.build.clone()),
        ("package".to_string(), header.package.name.clone()),
    ];
    for file in &header.package.files {
        let text = format!("{} bytes, sha256 {}", file.size, file.sha256);
        lines.push((format!("package file {}", file.name), text));
    }
    for (name, value) in &header.package.options {
        lines.push((format!("package option {name}"), value.clone()));
    }
    lines.push(("backend".to_string(), header.backend.clone()));
    for (name, value) in [
        ("vocab_size", limits.vocab_size),
        ("num_blocks", limits.num_blocks),
        ("num_rows", limits.num_rows),
        ("seq_len_max", limits.seq_len_max),
        ("query_tokens_max", limits.query_tokens_max),
    ] {
        lines.push((format!("backend limit {name}"), value.to_string()));
    }
    lines.extend(header.settings.iter().cloned());
    let redaction = format!("{:?}", header.redaction).to_lowercase();
    lines.push(("redaction".to_string(), redaction));
    lines
}
