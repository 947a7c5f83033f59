//! `--model org/name`: fetched from a stand-in for a hub on loopback, once, and used from the cache when the
//! hub is gone.

use super::{json, root, run, stderr};
use serde_json::json;
use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

const COMMIT: &str = "89abcdef0123456789abcdef0123456789abcdef";

/// Serves the embedded model's folder as `org/tiny`; counts requests.
fn start_hub() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let endpoint = format!("http://{}", listener.local_addr().expect("bound"));
    let count = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&count);
    thread::spawn(move || {
        let folder = root().join("engine/package/embedded/hf");
        for stream in listener.incoming().flatten() {
            shared.fetch_add(1, Ordering::SeqCst);
            // A client that hangs up is its own affair.
            let _ = answer(stream, &folder);
        }
    });
    (endpoint, count)
}

fn answer(mut stream: TcpStream, folder: &Path) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or("").to_owned();
    let (mut start, mut end) = (0, usize::MAX);
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if let Some((from, to)) = line
            .strip_prefix("range: bytes=")
            .and_then(|range| range.split_once('-'))
        {
            (start, end) = (
                from.parse().unwrap_or(0),
                to.trim().parse().unwrap_or(usize::MAX),
            );
        }
        if line.is_empty() {
            break;
        }
    }
    if path == "/api/models/org/tiny/revision/main" {
        let names = fs::read_dir(folder)?
            .flatten()
            .map(|entry| entry.file_name());
        let siblings: Vec<_> = names
            .map(|name| json!({"rfilename": name.to_string_lossy()}))
            .collect();
        let body = json!({"sha": COMMIT, "siblings": siblings}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", body.len());
        return write!(stream, "{head}connection: close\r\n\r\n{body}");
    }
    let name = path
        .strip_prefix(&format!("/org/tiny/resolve/{COMMIT}/"))
        .unwrap_or("..");
    let Ok(content) = fs::read(folder.join(name)) else {
        return write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        );
    };
    let end = content.len().min(end.saturating_add(1));
    let part = &content[start.min(end)..end];
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\ncontent-length: {}\r\nx-repo-commit: {COMMIT}\r\n\
         etag: \"{name}\"\r\ncontent-range: bytes {start}-{}/{}\r\nconnection: close\r\n\r\n",
        part.len(),
        end.saturating_sub(1),
        content.len(),
    )?;
    stream.write_all(part)
}

#[test]
fn a_model_is_fetched_by_name_and_kept() {
    let (endpoint, count) = start_hub();
    let cache = tempfile::tempdir().expect("a folder");
    let cache = cache.path().to_str().expect("UTF-8");
    let ask = |endpoint: &str| {
        let fixed = [
            "generate",
            "--chat",
            "Hello.",
            "--json",
            "--temperature",
            "0",
        ];
        let limits = [
            "--max-tokens",
            "5",
            "--cache-dir",
            cache,
            "--hub-endpoint",
            endpoint,
        ];
        json(&[&fixed[..], &limits, &["--model", "org/tiny"]].concat())
    };
    let first = ask(&endpoint);
    assert!(count.load(Ordering::SeqCst) > 1, "it was fetched");
    assert_eq!(first["model"], "org/tiny");
    // Nothing listens on port 1 of loopback.
    let later = ask("http://127.0.0.1:1");
    assert_eq!(first["token_ids"], later["token_ids"]);
}

#[test]
fn a_hub_that_is_not_there_is_named() {
    let cache = tempfile::tempdir().expect("a folder");
    let cache = cache.path().to_str().expect("UTF-8");
    let place = ["--cache-dir", cache, "--hub-endpoint", "http://127.0.0.1:1"];
    let output = run(&[&["generate", "x", "--model", "org/absent"][..], &place].concat());
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains("127.0.0.1:1") && text.contains("org/absent"),
        "{text}"
    );
}
