//! A running `lockstep serve`, ended with its value.

use super::{http, lockstep};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

pub struct Running {
    child: Child,
    pub address: SocketAddr,
    pub model: String,
}

impl Running {
    /// Starts a server on a free port and waits until it says where it listens.
    pub fn start(flags: &[&str]) -> Running {
        let args = [&["serve", "--port", "0"][..], flags].concat();
        let mut child = lockstep(&args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut errors = child.stderr.take().expect("a pipe");
        let found = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            rest.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')
                .next()?
                .parse()
                .ok()
        });
        let Some(address) = found else {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            panic!("{args:?} did not start: {text}");
        };
        // Pipes that nobody reads would block the server once they are full.
        thread::spawn(move || lines.map_while(Result::ok).count());
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let mut running = Running {
            child,
            address,
            model: String::new(),
        };
        let models = running.get("/v1/models").json();
        running.model = models["data"][0]["id"]
            .as_str()
            .expect("a model")
            .to_owned();
        running
    }

    pub fn get(&self, path: &str) -> http::Response {
        http::request(self.address, "GET", path, b"")
    }

    pub fn chat(&self, body: Value) -> http::Response {
        let mut body = body;
        body["model"] = Value::from(self.model.as_str());
        http::post(self.address, "/v1/chat/completions", &body)
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let own =
            |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
        let values: Vec<f64> = text
            .lines()
            .filter(own)
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        assert!(!values.is_empty(), "no metric {name} in {text}");
        values.iter().sum()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for the end; the bound ends a test that can't pass.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the server ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        status.expect("until saw it")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition. The bound ends a test that can't pass; it decides nothing.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
