//! Tests of one-file packages: the same bits as the folder, the same bytes every time, and no damage that goes
//! unnoticed.
use super::*;
use crate::packed::{Packed, digest_at, digest_of};
use crate::{LoadError, NoProgress, Report, WeightReader};
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/models")
        .join(name)
}

fn open(path: &Path) -> Result<Package, PackageError> {
    Package::open(path, &NoProgress)
}

/// A package of a model, in a folder that goes with the value.
struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn of(package: &Package, options: &PackOptions) -> File {
        let file = File {
            folder: tempfile::tempdir().expect("a folder"),
        };
        let packed = package.pack(&file.path(), options, &NoProgress);
        packed.expect("it can be packed");
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("model.safetensors")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).expect("it was written")
    }

    fn write(&self, bytes: &[u8]) {
        std::fs::write(self.path(), bytes).expect("written");
    }

    fn open(&self) -> Result<Package, PackageError> {
        open(&self.path())
    }
}

fn models() -> Vec<Package> {
    let fixtures = ["llama", "llama3_rope", "qwen3", "qwen3_5"];
    let opened = fixtures.map(|name| open(&fixture(name)).expect("a fixture"));
    let embedded = Package::embedded().expect("it is part of the program");
    opened.into_iter().chain([embedded]).collect()
}

fn header_len(bytes: &[u8]) -> usize {
    let (len, _) = bytes.split_first_chunk::<8>().expect("eight bytes");
    8 + u64::from_le_bytes(*len) as usize
}

/// Everything that a backend reads for the q8 rule.
fn weights_as_read(package: &Package) -> Vec<(String, Vec<i8>, Vec<f32>)> {
    let with_mtp = package.has_mtp();
    let reader = WeightReader::new(package, with_mtp, &NoProgress).expect("it is whole");
    let blueprint = reader.blueprint().clone();
    let quantised: BTreeSet<&str> = blueprint.quantised(with_mtp).collect();
    let mut read = Vec::new();
    for name in &quantised {
        let rows = reader.matrix(&crate::blueprint::MatrixPart {
            names: vec![(*name).to_string()],
            row_parallel: false,
            always_f32: false,
        });
        let rows = rows.expect("it is there");
        let (mut q, mut scales) = (vec![0; rows.k()], vec![0.0; groups(rows.k())]);
        for row in 0..rows.n() {
            rows.read_q8(row, &mut q, &mut scales).expect("numbers");
            read.push((format!("{name} {row}"), q.clone(), scales.clone()));
        }
    }
    let required = package.required_tensors().into_iter();
    let stored = required.chain(package.mtp_tensors()).filter(|tensor| {
        !quantised.contains(tensor.name.as_str()) || tensor.name == blueprint.embedding
    });
    for tensor in stored {
        if let Ok(view) = package.tensor(&tensor.name) {
            assert_eq!(view.shape, tensor.shape);
            let values = view.to_f32().expect("numbers");
            read.push((tensor.name, Vec::new(), values));
        }
    }
    read
}

#[test]
fn a_backend_reads_the_same_bits_from_the_file_as_from_the_folder() {
    for package in models() {
        let file = File::of(&package, &PackOptions::default());
        let packed = file.open().expect("it opens");
        assert_eq!(packed.config, package.config);
        assert_eq!(packed.contract, package.contract);
        assert_eq!(packed.name, package.name);
        assert_eq!(packed.has_mtp(), package.has_mtp());
        let of = |package: &Package| package.template.as_ref().map(|t| t.source().to_string());
        assert_eq!(of(&packed), of(&package));
        assert_eq!(
            packed.tokenizer.vocab_size(),
            package.tokenizer.vocab_size()
        );
        let (expected, found) = (weights_as_read(&package), weights_as_read(&packed));
        assert!(expected.len() > 100, "{} rows", expected.len());
        assert!(expected == found, "{}: another bit", package.name);
        let (own, folder) = (Report::of(&packed), Report::of(&package));
        let (own, folder) = (own.expect("readable"), folder.expect("readable"));
        assert_eq!(own.parameters, folder.parameters);
        assert_eq!(own.mtp_parameters, folder.mtp_parameters);
        assert_eq!(own.problems, folder.problems);
    }
}

#[test]
fn floats_of_a_quantised_matrix_are_refused_by_name() {
    let package = open(&fixture("llama")).expect("a fixture");
    let file = File::of(&package, &PackOptions::default());
    let packed = file.open().expect("it opens");
    let reader = WeightReader::new(&packed, false, &NoProgress).expect("it is whole");
    let rows = reader
        .matrix(&reader.blueprint().layers[0].down)
        .expect("it is there");
    let error = rows
        .read(0, &mut vec![0.0; rows.k()])
        .expect_err("int8 only");
    let LoadError::Package(PackageError::Tensor {
        tensor, expected, ..
    }) = error
    else {
        panic!("{error}");
    };
    assert_eq!(tensor, "model.layers.0.mlp.down_proj.weight.q8");
    assert!(expected.contains("--weights q8"), "{expected}");
}

#[test]
fn packing_twice_gives_the_same_bytes() {
    for package in models() {
        let first = File::of(&package, &PackOptions::default()).bytes();
        assert_eq!(header_len(&first) % 8, 0);
        assert!(first == File::of(&package, &PackOptions::default()).bytes());
        let options = PackOptions {
            name: Some("another".to_string()),
            ..PackOptions::default()
        };
        let named = File::of(&package, &options);
        assert!(first != named.bytes());
        assert_eq!(named.open().expect("it opens").name, "another");
    }
}

/// What the packer writes, and the revision that writes it: who changes the one raises the other.
#[test]
fn other_bytes_have_another_revision() {
    let package = Package::embedded().expect("it is part of the program");
    let bytes = File::of(&package, &PackOptions::default()).bytes();
    let header = String::from_utf8(bytes[8..header_len(&bytes)].to_vec()).expect("JSON");
    // The program's version may change by itself, and the digest with it.
    let version = format!("\\\"version\\\":\\\"{}\\\"", Packer::this().version);
    assert!(header.contains(&version), "{header}");
    let digest = String::from_utf8_lossy(&bytes[digest_at(&bytes).expect("it has one")]);
    let without = header.replacen(&version, "", 1).replacen(&*digest, "", 1);
    let found = (Packer::this().revision, crate::provenance::sha256(without));
    expect_test::expect!["1 da26a117c25189b888cea11a63fccd253530508bb15ff9798e47b602d92e993d"]
        .assert_eq(&format!("{} {}", found.0, found.1));
}

#[test]
fn what_was_packed_is_said() {
    let folder = fixture("qwen3_5");
    let package = open(&folder).expect("a fixture");
    let file = File::of(&package, &PackOptions::default());
    let packed = file.open().expect("it opens");
    let about = packed.packed.clone().expect("it is a package");
    assert_eq!(about.packer, Packer::this());
    let names: Vec<(&str, bool)> = about
        .sources
        .iter()
        .map(|source| (source.name.as_str(), source.carried))
        .collect();
    let expected = [
        ("config.json", true),
        ("generation_config.json", true),
        ("model.safetensors", false),
    ];
    assert_eq!(names, expected, "no reference results and no notes");
    let weights = std::fs::read(folder.join("model.safetensors")).expect("readable");
    assert_eq!(about.sources[2].hashes, crate::FileHashes::of(&weights));
    let mut report = Report::of(&packed).expect("readable");
    report.verify(&packed, &NoProgress).expect("readable");
    report
        .verify_sources(&packed, Some(&folder), &NoProgress)
        .expect("readable");
    assert_eq!(
        (&report.problems[..], &report.unchecked[..]),
        (&[][..], &[][..])
    );
    let mut alone = Report::of(&packed).expect("readable");
    alone.verify(&packed, &NoProgress).expect("readable");
    alone
        .verify_sources(&packed, None, &NoProgress)
        .expect("readable");
    assert!(alone.problems.is_empty());
    assert_eq!(alone.unchecked.len(), 2, "{:?}", alone.unchecked);
    // Their generation settings are the same file.
    let other = fixture("llama");
    report = Report::of(&packed).expect("readable");
    report
        .verify_sources(&packed, Some(&other), &NoProgress)
        .expect("readable");
    assert_eq!(report.problems.len(), 2, "{:?}", report.problems);
}

/// Whether damage is an error with the file's name when it is opened, or a problem of `--verify`.
fn is_noticed(file: &File, what: &str) {
    let package = match file.open() {
        Err(error) => {
            let text = error.to_string();
            let names_it = text.contains("model.safetensors") || text.contains("tensor ");
            return assert!(names_it, "{what}: {text}");
        }
        Ok(package) => package,
    };
    let mut report = Report::of(&package).expect("readable");
    report.verify(&package, &NoProgress).expect("readable");
    assert!(!report.problems.is_empty(), "{what}: nothing noticed");
}

#[test]
fn no_flipped_byte_goes_unnoticed() {
    let package = open(&fixture("llama3_rope")).expect("a fixture");
    let file = File::of(&package, &PackOptions::default());
    let bytes = file.bytes();
    let header = header_len(&bytes);
    // All of the header's parts are met; and all tensors, the carried files at the end included.
    let in_header = (0..8).chain((8..header).step_by(61));
    let places: Vec<usize> = in_header
        .chain((header..bytes.len()).step_by(1999))
        .collect();
    assert!(places.len() > 200, "{} places", places.len());
    for at in places
        .into_iter()
        .chain([header - 1, header, bytes.len() - 1])
    {
        for bits in [0x01, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bits;
            file.write(&damaged);
            if at < header {
                let error = file.open().map(|package| package.name);
                let error = error
                    .expect_err("the header is held to its digest")
                    .to_string();
                assert!(error.contains("model.safetensors"), "byte {at}: {error}");
            }
            is_noticed(
                &file,
                &format!("byte {at} of {}, bits {bits:#x}", bytes.len()),
            );
        }
    }
    file.write(&bytes);
    assert!(file.open().is_ok(), "the undamaged file opens");
}

#[test]
fn no_missing_end_goes_unnoticed() {
    let package = open(&fixture("llama")).expect("a fixture");
    let file = File::of(&package, &PackOptions::default());
    let bytes = file.bytes();
    let header = header_len(&bytes);
    let lens = [
        0,
        1,
        7,
        8,
        9,
        100,
        header - 1,
        header,
        header + 1,
        bytes.len() - 1,
    ];
    for len in lens {
        file.write(&bytes[..len]);
        let error = file
            .open()
            .map(|package| package.name)
            .expect_err("cut off");
        assert!(
            error.to_string().contains("model.safetensors"),
            "{len}: {error}"
        );
    }
    let longer = [&bytes[..], &[0]].concat();
    file.write(&longer);
    assert!(file.open().is_err(), "a byte more");
}

/// The file with another header that has the right digest.
fn edited(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let end = header_len(bytes);
    let text = String::from_utf8(bytes[8..end].to_vec()).expect("JSON");
    assert!(text.contains(from), "{from} is not in {text}");
    let text = text.replacen(from, to, 1);
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.extend(text.as_bytes());
    let at = digest_at(&header).expect("it has one");
    let digest = digest_of(&header, at.clone());
    header[at].copy_from_slice(digest.as_bytes());
    [&header[..], &bytes[end..]].concat()
}

#[test]
fn lies_with_the_right_digest_are_told_by_field() {
    let package = open(&fixture("llama")).expect("a fixture");
    let file = File::of(&package, &PackOptions::default());
    let bytes = file.bytes();
    let cases = [
        (
            r#""lockstep.package":"1""#,
            r#""lockstep.package":"2""#,
            "lockstep.package is 2",
        ),
        (
            r#""lockstep.package":"1""#,
            r#""lockstep.passage":"1""#,
            "no package",
        ),
        (
            r#""lockstep.packer":"{"#,
            r#""lockstep.packer":"["#,
            "lockstep.packer",
        ),
        (r#"\"revision\""#, r#"\"revolution\""#, "lockstep.packer"),
        (
            r#"\"vocab_size\":256"#,
            r#"\"vocab_size\":255"#,
            "lockstep.contract.vocab_size is 255",
        ),
        (
            r#"\"end_tokens\":[2]"#,
            r#"\"end_tokens\":[9999]"#,
            "lockstep.contract.end_tokens is 9999",
        ),
        (
            r#"\"temperature\":1.0"#,
            r#"\"temperature\":-1"#,
            "temperature",
        ),
        (
            r#"\"name\":\"config.json\""#,
            r#"\"name\":\"../config.json\""#,
            "lockstep.sources",
        ),
        (
            r#"\"model.norm.weight\":"#,
            r#"\"model.nrom.weight\":"#,
            "no hash of model.norm.weight",
        ),
    ];
    for (from, to, expected) in cases {
        file.write(&edited(&bytes, from, to));
        let error = file.open().map(|package| package.name).expect_err(expected);
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.contains("model.safetensors"),
            "{text}"
        );
    }
    // A plain file of weights is no package, and says so.
    let weights = fixture("llama").join("model.safetensors");
    let error = open(&weights)
        .map(|package| package.name)
        .expect_err("no package");
    assert!(error.to_string().contains("no package"), "{error}");
}

#[test]
fn an_advisory_refuses_what_its_revision_wrote() {
    let package = open(&fixture("llama")).expect("a fixture");
    let file = File::of(&package, &PackOptions::default());
    let bytes = file.bytes();
    let revision = format!(r#"\"revision\":{}"#, Packer::this().revision);
    file.write(&edited(&bytes, &revision, r#"\"revision\":0"#));
    let mut packed = file.open().expect("it can be looked at");
    assert_eq!(packed.advisories().len(), 1);
    let error = packed.check_advisories().expect_err("refused").to_string();
    assert!(error.contains("the advisory drill"), "{error}");
    assert!(error.contains("re-pack from llama"), "{error}");
    let refused = WeightReader::new(&packed, false, &NoProgress).map(|_| ());
    assert!(refused.is_err_and(|refused| refused.to_string() == error));
    let report = Report::of(&packed).expect("readable");
    assert!(
        report.problems[0].contains("drill"),
        "{:?}",
        report.problems
    );
    packed.allow_advisories(&["other".to_string()]);
    assert!(packed.check_advisories().is_err() && packed.allowed_advisories.is_empty());
    packed.allow_advisories(&["other".to_string(), "drill".to_string()]);
    assert_eq!(
        packed.allowed_advisories,
        ["drill"],
        "what was overridden is kept"
    );
    assert!(WeightReader::new(&packed, false, &NoProgress).is_ok());
    let mut sound = package;
    sound.allow_advisories(&["drill".to_string()]);
    assert!(
        sound.allowed_advisories.is_empty(),
        "nothing was overridden"
    );
}

fn changed_to(changes: Value) -> Result<Contract, PackageError> {
    let package = open(&fixture("llama")).expect("a fixture");
    let Value::Object(changes) = changes else {
        panic!("{changes}");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.safetensors");
    let options = PackOptions {
        name: None,
        contract: Some((PathBuf::from("contract.json"), changes)),
    };
    let packed = package.pack(&path, &options, &NoProgress);
    assert_eq!(packed.is_ok(), path.exists(), "no file where it failed");
    packed?;
    Ok(open(&path).expect("it opens").contract)
}

#[test]
fn a_contract_may_be_changed_and_must_make_sense() {
    let contract = changed_to(json!({
        "end_tokens": [7, 2], "tag_format": "hermes_json",
        "sampling": {"temperature": 0.5}, "ranges": {"temperature": [0, 1.5], "top_k": [1, 0]},
        "refused_in_prompts": [9, 4], "refused_in_output": [9],
    }))
    .expect("it makes sense");
    assert_eq!(contract.end_tokens, [2, 7]);
    assert_eq!(contract.sampling.temperature, 0.5);
    assert_eq!(contract.ranges.temperature, Some((0.0, 1.5)));
    assert_eq!(contract.ranges.top_k, Some((1, 0)));
    assert_eq!(contract.refused_in_prompts, [4, 9]);
    let cases = [
        (
            json!({"vocab_size": 9}),
            "vocab_size is 9, expected one of end_tokens",
        ),
        (json!({"end_tokens": 2}), "contract is"),
        (
            json!({"refused_in_output": [256]}),
            "contract.refused_in_output is 256",
        ),
        (json!({"refused_in_output": [2]}), "expected no end token"),
        (
            json!({"ranges": {"temperature": [1, 0]}}),
            "contract.temperature is [1, 0]",
        ),
        (
            json!({"ranges": {"temperature": [0, 0.5]}}),
            "expected a default within 0 and 0.5",
        ),
        (json!({"ranges": {"heat": [0, 1]}}), "heat"),
        (json!({"tag_format": "xml"}), "xml"),
    ];
    for (changes, expected) in cases {
        let error = changed_to(changes).expect_err(expected).to_string();
        assert!(
            error.contains(expected) && error.contains("contract"),
            "{error}"
        );
    }
}

#[test]
fn a_package_is_not_packed_again() {
    let package = open(&fixture("llama")).expect("a fixture");
    let file = File::of(&package, &PackOptions::default());
    let again = file.open().expect("it opens");
    let path = file.folder.path().join("again.safetensors");
    let error = again
        .pack(&path, &PackOptions::default(), &NoProgress)
        .expect_err("refused");
    assert!(error.to_string().contains("a package already"), "{error}");
    assert!(
        again
            .packed
            .is_some_and(|packed: Packed| packed.tensors.len() > 10)
    );
}
