//! A client: speaks HTTP over the simulated network as its script says, tries again as real ones do, and writes
//! down what it got, byte for byte. It must never know how the server works inside.

use crate::pipeline;
use crate::workload::{Act, Manner, Wish};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use lockstep_server::Server;
use lockstep_server::said::Answer;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The server's address.
pub const ADDRESS: &str = "10.0.0.1:8000";

/// Tries of one request before a client gives up.
const TRIES_MAX: u32 = 12;

/// How long a client waits for a whole answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// What came of one try.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A response began.
    Response {
        /// Its status.
        status: u16,
        /// When to come back, in seconds.
        retry_after: Option<u64>,
        /// What came of its body.
        body: Vec<u8>,
        /// How the body ended.
        end: BodyEnd,
    },
    /// Nobody listened.
    NoConnection,
    /// The connection ended, or the client's patience, before a response began.
    NoResponse(String),
    /// The client left before a response began.
    Left,
}

/// How a body ended.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyEnd {
    /// It was whole.
    Complete,
    /// The client left.
    Left,
    /// It broke off.
    Broken(String),
}

/// One try of a request.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request; its id has the number of the try in it.
    pub wish: Wish,
    /// When it was sent, on the simulated clock.
    pub sent: Duration,
    /// When it was over.
    pub over: Duration,
    /// What came of it.
    pub outcome: Outcome,
}

impl Exchange {
    /// The body of a response that came whole and is no error.
    pub fn whole(&self) -> Option<&[u8]> {
        match &self.outcome {
            Outcome::Response {
                status: 200,
                body,
                end: BodyEnd::Complete,
                ..
            } => Some(body),
            _ => None,
        }
    }

    /// What it told, where it came whole, is no error and can be read.
    pub fn told(&self) -> Option<Answer> {
        let (wish, body) = (&self.wish, self.whole()?);
        let told = match wish.is_stream() {
            true => Answer::stream(wish.route, body),
            false => Answer::whole(wish.route, 200, body),
        };
        told.ok()
    }
}

/// What all clients of a run write into.
#[derive(Clone)]
pub struct Desk {
    begin: Instant,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    /// What went wrong where a server must answer whatever comes.
    complaints: Arc<Mutex<Vec<String>>>,
    /// The server that runs, for clients in the same process.
    server: Arc<Mutex<Option<Server>>>,
}

impl Default for Desk {
    fn default() -> Desk {
        Desk {
            begin: tokio::time::Instant::now(),
            exchanges: Arc::default(),
            complaints: Arc::default(),
            server: Arc::default(),
        }
    }
}

impl Desk {
    /// The simulated time since the run began.
    pub fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// All tries so far, in the order in which they were over.
    pub fn exchanges(&self) -> Vec<Exchange> {
        lock(&self.exchanges).clone()
    }

    /// What a server did not answer and should have.
    pub fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
    }

    /// Says which server runs.
    pub fn set_server(&self, server: Option<Server>) {
        *lock(&self.server) = server;
    }

    /// Whether a server runs.
    pub fn is_up(&self) -> bool {
        lock(&self.server).is_some()
    }

    fn server(&self) -> Option<Server> {
        lock(&self.server).clone()
    }

    fn note(&self, wish: &Wish, sent: Duration, outcome: Outcome) -> Outcome {
        let exchange = Exchange {
            wish: wish.clone(),
            sent,
            over: self.now(),
            outcome: outcome.clone(),
        };
        lock(&self.exchanges).push(exchange);
        outcome
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Does what a script says, one after another.
pub async fn play(desk: Desk, acts: Vec<Act>) {
    for act in acts {
        match act {
            Act::Ask(wish) => drop(ask(&desk, wish).await),
            Act::AskBoth(first, second) => ask_both(&desk, first, second).await,
            Act::Send(bytes) => send_raw(&desk, &bytes).await,
        }
    }
}

/// Asks until an answer came or there were enough tries. Some with the answer, if one came whole.
pub async fn ask(desk: &Desk, wish: Wish) -> Option<Outcome> {
    sleep(Duration::from_millis(wish.wait_ms)).await;
    let mut pause = Duration::from_millis(100);
    for number in 0..TRIES_MAX {
        let this = Wish {
            id: format!("{}t{number}", wish.id),
            ..wish.clone()
        };
        let sent = desk.now();
        let outcome = one_try(desk, &this).await;
        let outcome = desk.note(&this, sent, outcome);
        match &outcome {
            Outcome::Left
            | Outcome::Response {
                end: BodyEnd::Left, ..
            } => return None,
            Outcome::Response {
                status: 429 | 503,
                retry_after,
                ..
            } => pause = Duration::from_secs(retry_after.unwrap_or(1)),
            Outcome::Response {
                end: BodyEnd::Complete,
                ..
            } => return Some(outcome),
            _ => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
    None
}

async fn one_try(desk: &Desk, wish: &Wish) -> Outcome {
    let Some(mut sender) = connect(desk, wish).await else {
        return Outcome::NoConnection;
    };
    let whole = exchange(&mut sender, wish);
    match timeout(PATIENCE, whole).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::NoResponse("the client's patience ended".to_owned()),
    }
}

async fn exchange(sender: &mut SendRequest<Full<Bytes>>, wish: &Wish) -> Outcome {
    let leave = match wish.manner {
        Manner::Leave(ms) => Duration::from_millis(ms),
        _ => PATIENCE * 2,
    };
    let begun = tokio::time::Instant::now();
    let response = match timeout(leave, sender.send_request(request(wish))).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Outcome::NoResponse(error.to_string()),
        Err(_) => return Outcome::Left,
    };
    let left = leave.saturating_sub(begun.elapsed());
    read(response, wish, left).await
}

async fn read(response: Response<Incoming>, wish: &Wish, leave: Duration) -> Outcome {
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let deadline = tokio::time::Instant::now() + leave;
    let (mut incoming, mut body) = (response.into_body(), Vec::new());
    let mut stall = match wish.manner {
        Manner::Stall(ms) => Some(Duration::from_millis(ms)),
        _ => None,
    };
    let end = loop {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        match timeout(left, incoming.frame()).await {
            Err(_) => break BodyEnd::Left,
            Ok(None) => break BodyEnd::Complete,
            Ok(Some(Err(error))) => break BodyEnd::Broken(error.to_string()),
            Ok(Some(Ok(frame))) => body.extend(frame.data_ref().into_iter().flatten()),
        }
        if let Some(stall) = stall.take() {
            sleep(stall).await;
        }
    };
    Outcome::Response {
        status,
        retry_after,
        body,
        end,
    }
}

/// Two requests over one connection, the second before the first was answered.
async fn ask_both(desk: &Desk, first: Wish, second: Wish) {
    sleep(Duration::from_millis(first.wait_ms)).await;
    let sent = desk.now();
    let bytes = [
        pipeline::request(&first, false),
        pipeline::request(&second, true),
    ]
    .concat();
    let all = async {
        let address: SocketAddr = ADDRESS.parse().ok()?;
        let mut socket = TcpStream::connect(address).await.ok()?;
        socket.write_all(&bytes).await.ok()?;
        socket.flush().await.ok()?;
        let mut all = Vec::new();
        // Whatever came before an error came.
        let _ = timeout(PATIENCE, socket.read_to_end(&mut all)).await;
        Some(all)
    };
    let Some(all) = all.await else {
        desk.note(&first, sent, Outcome::NoConnection);
        return;
    };
    let (outcome, rest) = pipeline::response(&all);
    desk.note(&first, sent, outcome);
    desk.note(&second, sent, pipeline::response(rest).0);
}

/// Sends bytes that are no good, and looks whether the server still answers.
async fn send_raw(desk: &Desk, bytes: &[u8]) {
    let address: SocketAddr = ADDRESS.parse().expect("an address");
    let Ok(mut socket) = TcpStream::connect(address).await else {
        return;
    };
    let sent = async {
        socket.write_all(bytes).await?;
        socket.flush().await?;
        let mut answer = vec![0; 64];
        let length = timeout(Duration::from_secs(40), socket.read(&mut answer)).await;
        answer.truncate(length.map_or(Ok(0), |read| read)?);
        std::io::Result::Ok(answer)
    };
    // A broken connection is as good an answer as any; a success is not.
    if let Ok(answer) = sent.await
        && answer.starts_with(b"HTTP/1.1 200")
    {
        let sent = String::from_utf8_lossy(bytes).into_owned();
        lock(&desk.complaints).push(format!("{sent:?} was answered with success"));
    }
}

/// `GET` of a path; None if there was no whole answer.
pub async fn get(path: &str) -> Option<(u16, String)> {
    let address: SocketAddr = ADDRESS.parse().ok()?;
    let got = async {
        let socket = TcpStream::connect(address).await.ok()?;
        let mut sender = handshake(socket).await?;
        let request = Request::get(path).header("host", "sim");
        let request = request.body(Full::default()).ok()?;
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes();
        Some((status, String::from_utf8_lossy(&body).into_owned()))
    };
    timeout(Duration::from_secs(20), got).await.ok()?
}

fn request(wish: &Wish) -> Request<Full<Bytes>> {
    let request = Request::post(wish.route.path())
        .header("host", "sim")
        .header("content-type", "application/json")
        .header("x-request-id", &wish.id);
    let body = Full::new(Bytes::from(wish.body.to_string()));
    request.body(body).expect("a request of plain text")
}

async fn connect(desk: &Desk, wish: &Wish) -> Option<SendRequest<Full<Bytes>>> {
    // The simulated network never holds a writer back. A pipe does, so those who don't read have one.
    if let Manner::Stall(_) = wish.manner {
        let server = desk.server()?;
        let (near, far) = tokio::io::duplex(512);
        tokio::spawn(lockstep_server::serve_connection(far, server));
        return handshake(near).await;
    }
    let address: SocketAddr = ADDRESS.parse().ok()?;
    handshake(TcpStream::connect(address).await.ok()?).await
}

/// Speaks HTTP over a transport.
pub async fn handshake<T>(transport: T) -> Option<SendRequest<Full<Bytes>>>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder.max_buf_size(8192);
    let (sender, connection) = builder.handshake(TokioIo::new(transport)).await.ok()?;
    tokio::spawn(async move {
        // Whoever waits for an answer sees the error.
        let _ = connection.await;
    });
    Some(sender)
}

/// One request over one connection, to the end.
pub async fn over<T>(transport: T, wish: &Wish) -> Outcome
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    match handshake(transport).await {
        Some(mut sender) => exchange(&mut sender, wish).await,
        None => Outcome::NoConnection,
    }
}
