//! Tests of fetching, against a stand-in for a hub on the loopback interface.
use super::*;
use crate::{NoProgress, Package};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one model. It answers until the test's process ends.
struct Hub {
    endpoint: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn start(files: BTreeMap<String, Vec<u8>>) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that hangs up is its own affair.
                let _ = answer(stream, &files, &seen);
            }
        });
        Hub { endpoint, requests }
    }

    fn requests(&self) -> usize {
        self.requests.lock().expect("no test panics with it").len()
    }
}

/// One request, one answer, as a hub does: ranges, the commit, and an entity tag.
fn answer(
    mut stream: TcpStream,
    files: &BTreeMap<String, Vec<u8>>,
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or("").to_string();
    let mut range = (0, usize::MAX);
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(bytes) = line
            .to_ascii_lowercase()
            .trim()
            .strip_prefix("range: bytes=")
        {
            let (first, last) = bytes.split_once('-').unwrap_or(("0", ""));
            range = (
                first.parse().unwrap_or(0),
                last.parse().unwrap_or(usize::MAX),
            );
        }
    }
    seen.lock()
        .expect("no test panics with it")
        .push(path.clone());
    if path == "/api/models/org/tiny/revision/main" {
        let siblings: Vec<_> = files
            .keys()
            .map(|name| serde_json::json!({ "rfilename": name }))
            .collect();
        let body = serde_json::json!({"sha": COMMIT, "siblings": siblings}).to_string();
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
    }
    let name = path
        .strip_prefix(&format!("/org/tiny/resolve/{COMMIT}/"))
        .unwrap_or("");
    let Some(content) = files.get(name) else {
        let head = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return stream.write_all(head.as_bytes());
    };
    let end = content.len().min(range.1.saturating_add(1));
    let part = &content[range.0.min(end)..end];
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\ncontent-length: {}\r\nx-repo-commit: {COMMIT}\r\n\
         etag: \"{name}-tag\"\r\ncontent-range: bytes {}-{}/{}\r\nconnection: close\r\n\r\n",
        part.len(),
        range.0,
        end.saturating_sub(1),
        content.len()
    )?;
    stream.write_all(part)
}

/// The embedded model, and files that serving doesn't need.
fn files() -> BTreeMap<String, Vec<u8>> {
    let names = [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ];
    let mut files: BTreeMap<String, Vec<u8>> = names
        .iter()
        .map(|name| {
            (
                (*name).to_string(),
                crate::embedded::file(name).unwrap_or(&[]).to_vec(),
            )
        })
        .collect();
    for other in [
        "README.md",
        "pytorch_model.bin",
        "onnx/model.onnx",
        "tiny.Q4_0.gguf",
        "../evil.json",
    ] {
        files.insert(other.to_string(), b"no".to_vec());
    }
    files
}

#[test]
fn a_model_is_fetched_once_and_opens() {
    let cache = tempfile::tempdir().expect("a folder");
    let hub = Hub::start(files());
    let get = |endpoint: &str| fetch("org/tiny", "main", cache.path(), endpoint, &NoProgress);
    let folder = get(&hub.endpoint).expect("the hub has it");
    let package = Package::open(&folder, &NoProgress).expect("it is sound");
    assert_eq!(package.name, "org/tiny");
    let embedded = Package::embedded().expect("it is part of the program");
    assert_eq!(package.config, embedded.config);
    for name in ["README.md", "pytorch_model.bin", "tiny.Q4_0.gguf"] {
        assert!(!folder.join(name).exists(), "{name} was fetched in vain");
    }
    assert!(!cache.path().join("evil.json").exists());

    let before = hub.requests();
    assert_eq!(get(&hub.endpoint).as_ref(), Ok(&folder));
    assert_eq!(
        hub.requests(),
        before + 1,
        "only the list of files may be asked for again"
    );

    // Nobody listens there any more: the cache will do.
    let gone = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("loopback");
    assert_eq!(get(&format!("http://{gone}")).as_ref(), Ok(&folder));
}

#[test]
fn what_is_missing_is_named() {
    let cache = tempfile::tempdir().expect("a folder");
    let get = |name: &str, revision: &str, endpoint: &str| {
        fetch(name, revision, cache.path(), endpoint, &NoProgress)
            .expect_err("wrong")
            .to_string()
    };
    let gone = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("loopback");
    let gone = format!("http://{gone}");
    let message = get("org/tiny", "main", &gone);
    assert!(
        message.starts_with("org/tiny: can't be fetched from http://127.0.0.1:"),
        "{message}"
    );
    let hub = Hub::start(files());
    let message = get("org/other", "main", &hub.endpoint);
    assert!(message.contains("404"), "{message}");
    for name in [
        "tiny",
        "a/b/c",
        "../x",
        "org/",
        "org/..",
        "org/a b",
        "http://x/y",
    ] {
        let message = get(name, "main", &gone);
        assert!(message.contains("expected organisation/name"), "{message}");
    }
    assert!(get("org/tiny", "../main", &gone).contains("expected a branch, tag or commit"));
    let mut files = files();
    files.remove("model.safetensors");
    let hub = Hub::start(files);
    let message = get("org/tiny", "main", &hub.endpoint);
    assert!(
        message.contains("expected config.json and .safetensors weights"),
        "{message}"
    );
}

#[test]
fn shards_are_chosen_over_what_lies_beside() {
    let siblings = [
        "config.json",
        "model.safetensors.index.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors",
        "consolidated.safetensors",
        "mtp.safetensors",
        "original/model.safetensors",
    ];
    assert_eq!(
        wanted(&siblings),
        [
            "config.json",
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "mtp.safetensors"
        ]
    );
}
