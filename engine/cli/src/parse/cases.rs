//! A file of recorded outputs, each read in every cut and compared with what it must be read as.
//! It must never end well without having run a case.

use super::{ParseArgs, Verdict};
use crate::exit::Failure;
use lockstep_tags::cases::{Case, Mismatch, parse_cases};
use lockstep_tags::{Delivery, TagFormat};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// One case that failed.
struct Failed {
    id: String,
    format: String,
    /// Empty if the format cannot be parsed.
    mismatches: Vec<Mismatch>,
}

/// What a run found.
struct Report {
    passed: usize,
    failures: Vec<Failed>,
}

/// Runs the cases of a file.
pub(super) fn run(path: &Path, args: &ParseArgs) -> Result<Verdict, Failure> {
    let selected = args.format.as_deref().map(super::format).transpose()?;
    let report = check(path, selected).map_err(|problem| {
        let next = "`lockstep parse --help` shows what a case is and which formats there are";
        Failure::input(problem, next)
    })?;
    Ok(Verdict {
        text: match args.json {
            true => report.to_json(),
            false => report.to_text(),
        },
        is_good: report.failures.is_empty(),
    })
}

fn check(path: &Path, selected: Option<TagFormat>) -> Result<Report, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read cases from {}: {error}", path.display()))?;
    let path = path.display();
    let cases = parse_cases(&text).map_err(|error| format!("{path}: {error}"))?;
    let total = cases.len();

    let mut report = Report {
        passed: 0,
        failures: Vec::new(),
    };
    let wanted = |case: &Case| selected.is_none_or(|format| format.as_str() == case.format);
    for case in cases.into_iter().filter(wanted) {
        let mismatches = case.format.parse().map(|format| case.run(format));
        if mismatches.as_ref().is_ok_and(Vec::is_empty) {
            report.passed += 1;
        } else {
            let mismatches = mismatches.unwrap_or_default();
            report.failures.push(Failed {
                id: case.id,
                format: case.format,
                mismatches,
            });
        }
    }
    if report.passed + report.failures.len() == 0 {
        let of_format = selected.map_or(String::new(), |format| format!(" of format `{format}`"));
        return Err(format!(
            "{path}: no cases{of_format} among {total}, nothing was checked"
        ));
    }
    Ok(report)
}

fn delivery_name(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Eager => "eager",
        Delivery::Whole => "whole",
    }
}

impl Report {
    fn to_text(&self) -> String {
        let mut text = String::new();
        let mut unsupported: BTreeMap<&str, usize> = BTreeMap::new();
        for failure in &self.failures {
            if failure.mismatches.is_empty() {
                *unsupported.entry(&failure.format).or_default() += 1;
            }
            for mismatch in &failure.mismatches {
                let Mismatch {
                    cut,
                    delivery,
                    expected,
                    got,
                } = mismatch;
                let (id, delivery) = (&failure.id, delivery_name(*delivery));
                let _ = writeln!(text, "FAILED {id}, {cut}, {delivery} delivery");
                text.push_str(&diff(expected, got));
                text.push('\n');
            }
        }
        for (format, count) in unsupported {
            let _ = writeln!(
                text,
                "FAILED {count} cases of format `{format}`: not supported"
            );
        }
        let _ = write!(
            text,
            "{} passed, {} failed",
            self.passed,
            self.failures.len()
        );
        text
    }

    fn to_json(&self) -> String {
        let failures: Vec<serde_json::Value> = self
            .failures
            .iter()
            .map(|failure| {
                let mismatches: Vec<serde_json::Value> = failure
                    .mismatches
                    .iter()
                    .map(|mismatch| {
                        serde_json::json!({
                            "cut": mismatch.cut.to_string(),
                            "delivery": delivery_name(mismatch.delivery),
                            "expected": mismatch.expected,
                            "got": mismatch.got,
                        })
                    })
                    .collect();
                serde_json::json!({
                    "id": failure.id,
                    "format": failure.format,
                    "supported": !failure.mismatches.is_empty(),
                    "mismatches": mismatches,
                })
            })
            .collect();
        serde_json::json!({
            "passed": self.passed,
            "failed": self.failures.len(),
            "failures": failures,
        })
        .to_string()
    }
}

/// Lines of both readings in order: `-` only expected, `+` only read, blank in both.
fn diff(expected: &str, got: &str) -> String {
    let got: Vec<&str> = got.lines().collect();
    let mut next = 0; // got[..next] is written
    let mut text = String::new();
    for line in expected.lines() {
        match got[next..].iter().position(|other| *other == line) {
            Some(skipped) => {
                for other in &got[next..next + skipped] {
                    let _ = writeln!(text, "  + {other}");
                }
                let _ = writeln!(text, "    {line}");
                next += skipped + 1;
            }
            None => {
                let _ = writeln!(text, "  - {line}");
            }
        }
    }
    for other in &got[next..] {
        let _ = writeln!(text, "  + {other}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn fixture() -> PathBuf {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        root.join("../../tests/fixtures/cases/tool_calls.jsonl")
    }

    fn problem(path: &Path, selected: Option<TagFormat>) -> String {
        match check(path, selected) {
            Ok(report) => panic!("ran: {}", report.to_text()),
            Err(problem) => problem,
        }
    }

    #[test]
    fn every_recorded_case_passes() {
        let report = check(&fixture(), None).unwrap();
        assert_eq!(report.to_text(), "108 passed, 0 failed");
        let report = check(&fixture(), Some(TagFormat::Glm)).unwrap();
        assert_eq!(report.to_text(), "35 passed, 0 failed");
        assert_eq!(
            report.to_json(),
            r#"{"passed":35,"failed":0,"failures":[]}"#
        );
    }

    #[test]
    fn formats_without_a_parser_fail_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cases.jsonl");
        let lines = std::fs::read_to_string(fixture()).unwrap();
        std::fs::write(
            &path,
            lines.replace("\"format\": \"glm\"", "\"format\": \"xml\""),
        )
        .unwrap();
        let text = check(&path, None).unwrap().to_text();
        assert!(
            text.contains("FAILED 35 cases of format `xml`: not supported"),
            "{text}"
        );
    }

    #[test]
    fn nothing_to_check_is_an_error() {
        let said = problem(&fixture(), Some(TagFormat::Plain));
        assert!(said.ends_with("no cases of format `none` among 108, nothing was checked"));
        let said = problem(Path::new("no/such/file"), None);
        assert!(
            said.starts_with("cannot read cases from no/such/file: "),
            "{said}"
        );
    }

    #[test]
    fn a_wrong_reading_is_shown_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cases.jsonl");
        let case = r#"{"id":"a","format":"glm","prompt_tail":"","tools":[],"text":"xy",
            "ended":"eos","expect":{"reasoning":null,"content":"x",
            "tool_calls":[],"finish":"stop"}}"#;
        std::fs::write(&path, case.replace('\n', "")).unwrap();
        let text = check(&path, None).unwrap().to_text();
        let first = "FAILED a, in one piece, whole delivery\n    reasoning: null\n\
                     \x20 - content:   \"x\"\n  + content:   \"xy\"\n    finish:    stop\n\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.ends_with("\n0 passed, 1 failed"), "{text}");

        std::fs::write(&path, "\n{\"id\": 1}").unwrap();
        let said = problem(&path, None);
        assert!(said.ends_with("cases.jsonl: line 2: field `ended`: missing, expected a string"));
    }
}
