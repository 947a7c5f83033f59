//! Sends requests and times their answers: closed, each client sending the next request when its last was
//! answered, or open, requests arriving whatever becomes of the earlier ones. It must never send a request
//! again, nor begin to time one later than it was due.

use super::stream::{Answer, ChatStream};
use crate::client::{
    endpoint::{Endpoint, Fault},
    events::Events,
    pool,
};
use serde_json::Value;
use std::{
    io::BufReader,
    thread,
    time::{Duration, Instant},
};

/// Connections of an open loop that are open at once. A request that is due beyond them waits, and its
/// time runs.
pub const OPEN_MAX: u64 = 512;

/// When requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// By so many clients, each sending one request after the other.
    Closed(u64),
    /// At these times, in seconds after the start.
    Open(Vec<f64>),
}

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which one it was.
    pub idx: u64,
    /// When it was due, in seconds after the start.
    pub start: f64,
    /// Seconds by which it was sent too late, for want of a free client.
    pub late: f64,
    /// Its answer.
    pub result: Result<Answer, Fault>,
}

/// A load that was run to its end.
pub struct Run {
    /// By index.
    pub outcomes: Vec<Outcome>,
    /// From the start to the last answer's end, in seconds.
    pub seconds: f64,
}

/// Sends `num` requests and waits for all answers. `body` says what the i-th is, `on_done` hears of each.
///
/// # Errors
/// If the system has no thread to give.
pub fn run(
    endpoint: &Endpoint,
    (pace, num): (&Pace, u64),
    body: &(dyn Fn(u64) -> Value + Sync),
    on_done: &mut dyn FnMut(),
) -> std::io::Result<Run> {
    let num_clients = match pace {
        Pace::Closed(concurrency) => *concurrency,
        Pace::Open(_) => OPEN_MAX,
    };
    let start = Instant::now();
    let mut outcomes = Vec::new();
    pool::run(
        (num_clients, num),
        &|idx| one(endpoint, pace, idx, body(idx), start),
        &mut |outcome: Outcome| {
            outcomes.push(outcome);
            on_done();
            true
        },
    )?;
    let seconds = start.elapsed().as_secs_f64();
    outcomes.sort_by_key(|outcome| outcome.idx);
    Ok(Run { outcomes, seconds })
}

fn one(endpoint: &Endpoint, pace: &Pace, idx: u64, body: Value, start: Instant) -> Outcome {
    let bytes = body.to_string();
    let due = match pace {
        Pace::Closed(_) => Instant::now(),
        Pace::Open(times) => {
            let after = times.get(idx as usize).copied().unwrap_or(0.0);
            start + Duration::from_secs_f64(after)
        }
    };
    thread::sleep(due.saturating_duration_since(Instant::now()));
    let late = due.elapsed();
    Outcome {
        idx,
        start: due.saturating_duration_since(start).as_secs_f64(),
        late: late.as_secs_f64(),
        result: ask(endpoint, bytes.as_bytes(), due),
    }
}

/// Sends a request and reads its stream. Time runs from `due`.
fn ask(endpoint: &Endpoint, body: &[u8], due: Instant) -> Result<Answer, Fault> {
    let response = endpoint.post("/chat/completions", body)?;
    if response.status != 200 {
        let status = response.status;
        return Err(match response.whole() {
            Err(fault) => fault,
            Ok(_) => Fault::new(status, "no message"),
        });
    }
    let mut events = Events::new(BufReader::new(response.body));
    let mut stream = ChatStream::default();
    while let Some(data) = events.next_event()? {
        stream.event(&data, due.elapsed().as_secs_f64())?;
    }
    stream.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::TcpListener,
        sync::Mutex,
    };

    const ANSWER: &str = "HTTP/1.1 200 OK\r\n\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1}}\n\n\
        data: [DONE]\n\n";
    const REFUSAL: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";

    /// Answers connections one after the other, every third with a refusal; returns the bodies.
    fn serve(listener: &TcpListener, num: usize) -> Vec<String> {
        let mut bodies = Vec::new();
        for idx in 0..num {
            let (mut socket, _) = listener.accept().expect("a client");
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            while !bytes.ends_with(b"}") {
                let read = socket.read(&mut buffer).expect("a request");
                bytes.extend_from_slice(&buffer[..read]);
            }
            let text = String::from_utf8(bytes).expect("UTF-8");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            assert!(
                head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
                "{head}"
            );
            assert!(head.contains("\r\nauthorization: Bearer k\r\n"), "{head}");
            bodies.push(body.to_owned());
            let answer = if idx % 3 == 2 { REFUSAL } else { ANSWER };
            socket.write_all(answer.as_bytes()).expect("a client");
        }
        bodies
    }

    #[test]
    fn each_request_is_sent_once_in_both_loops() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let endpoint = Endpoint::new(&url, Some("k"), Duration::from_secs(60)).expect("an address");
        for pace in [Pace::Closed(4), Pace::Open(vec![0.0; 9])] {
            let asked = Mutex::new(0);
            let body = |idx: u64| {
                *asked.lock().expect("no panic") += 1;
                serde_json::json!({"idx": idx})
            };
            let mut num_done = 0;
            let (ran, bodies) = thread::scope(|scope| {
                let server = scope.spawn(|| serve(&listener, 9));
                let ran = run(&endpoint, (&pace, 9), &body, &mut || num_done += 1);
                (ran.expect("threads"), server.join().expect("a server"))
            });
            assert_eq!((num_done, *asked.lock().expect("no panic")), (9, 9));
            let idxs: Vec<u64> = ran.outcomes.iter().map(|outcome| outcome.idx).collect();
            assert_eq!(idxs, (0..9).collect::<Vec<u64>>());
            let mut sent: Vec<String> = bodies;
            sent.sort();
            let expected: Vec<String> = (0..9).map(|idx| format!("{{\"idx\":{idx}}}")).collect();
            assert_eq!(sent, expected);
            let faults = ran.outcomes.iter().filter_map(|o| o.result.clone().err());
            let codes: Vec<String> = faults.map(|fault| fault.code).collect();
            assert_eq!(codes, ["429"; 3]);
            for outcome in ran.outcomes.iter().filter(|outcome| outcome.result.is_ok()) {
                let answer = outcome.result.as_ref().expect("filtered");
                assert!(answer.end > 0.0 && outcome.start + answer.end <= ran.seconds);
            }
        }
    }

    #[test]
    fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        drop(listener);
        let endpoint = Endpoint::new(&url, None, Duration::from_secs(60)).expect("an address");
        let ran = run(
            &endpoint,
            (&Pace::Closed(1), 1),
            &|_| Value::Null,
            &mut || {},
        );
        let ran = ran.expect("a thread");
        let fault = ran.outcomes[0].result.clone().expect_err("nobody listens");
        assert_eq!(fault.code, "connect");
    }
}
