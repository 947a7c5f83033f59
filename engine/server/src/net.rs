//! The network: binding, accepting, and one HTTP/1.1 connection. With `time`, the only file that
//! names the async runtime; the rest of the crate takes tasks and channels from here.
//!
//! It must never know a route or a request.

use crate::state::Server;
use crate::time::{RtTimer, timeout};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tower::ServiceExt;

pub use tokio::net::TcpListener;
pub(crate) use tokio::select;
pub(crate) use tokio::sync::{Semaphore, mpsc, oneshot};
pub(crate) use tokio::task::yield_now;

/// How long a client may take for the head of a request.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a client may take to read the rest of its answer once the server is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The buffer between a response and the socket. It is small so that a slow reader is felt by the
/// request's own queue, where the limit is.
const CONNECTION_BUFFER_BYTES: usize = 16 << 10;

/// Why a server can't listen.
#[derive(Debug)]
pub enum BindError {
    /// The address is reachable from other machines, and no API key is set.
    OpenWithoutKey(SocketAddr),
    /// The address is not one.
    Address {
        /// As it was given.
        address: String,
        /// The system's own words.
        message: String,
    },
    /// The system refused.
    Io {
        /// The address.
        address: SocketAddr,
        /// The system's own words.
        message: String,
    },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::OpenWithoutKey(address) => write!(
                f,
                "{address} can be reached from other machines and no API key is set: set one, \
                 listen on 127.0.0.1, or allow an open server explicitly"
            ),
            BindError::Address { address, message } => {
                write!(
                    f,
                    "can't listen on {address:?}: {message}, expected host:port"
                )
            }
            BindError::Io { address, message } => write!(f, "can't listen on {address}: {message}"),
        }
    }
}

impl std::error::Error for BindError {}

/// Listens on `address` (`host:port`). An address that other machines can reach is refused unless
/// the server has an API key or `allow_open` is set.
///
/// # Errors
/// See [`BindError`].
pub async fn bind(
    address: &str,
    has_api_key: bool,
    allow_open: bool,
) -> Result<TcpListener, BindError> {
    let wrong = |message: String| BindError::Address {
        address: address.to_string(),
        message,
    };
    // A name is looked up by the standard library: at startup nothing else is waiting.
    let resolved = std::net::ToSocketAddrs::to_socket_addrs(address)
        .map_err(|error| wrong(error.to_string()))?
        .next()
        .ok_or_else(|| wrong("it has no address".to_string()))?;
    if !resolved.ip().is_loopback() && !has_api_key && !allow_open {
        return Err(BindError::OpenWithoutKey(resolved));
    }
    TcpListener::bind(resolved)
        .await
        .map_err(|error| BindError::Io {
            address: resolved,
            message: error.to_string(),
        })
}

/// Accepts connections until the server is closed, then waits until open ones have said what they
/// had to say. See [`ServerHandle::drain`](crate::ServerHandle::drain).
///
/// # Errors
/// If the listener itself fails.
pub async fn serve(listener: TcpListener, server: Server) -> std::io::Result<()> {
    let permits = Arc::new(Semaphore::new(server.limits().connections_max));
    let handle = server.handle();
    let closing = handle.closing();
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    loop {
        // Beyond the limit, clients wait in the system's own queue.
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return Ok(());
        };
        let socket = select! {
            biased;
            () = closing.closed() => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, _peer)) => socket,
                Err(error) if is_passing(&error) => {
                    tracing::warn!("accept: {error}");
                    crate::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        let _ = socket.set_nodelay(true);
        let (server, open) = (server.clone(), open.clone());
        tokio::spawn(async move {
            serve_connection(socket, server).await;
            drop((permit, open));
        });
    }
    drop((open, listener));
    // Nothing is ever sent: this ends when the last connection drops its end.
    let _ = all_closed.recv().await;
    Ok(())
}

/// Whether the server is closed, for all who wait for it. They hear of it in the order in which they began to wait:
/// a `watch` would wake them in an order that it draws by lot.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    is_closed: AtomicBool,
    told: Notify,
}

impl Closing {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    async fn closed(&self) {
        let mut told = pin!(self.told.notified());
        // Enlisted before it looks, so that nothing is missed between the two.
        told.as_mut().enable();
        if !self.is_closed.load(Ordering::SeqCst) {
            told.await;
        }
    }
}

/// Whether another accept may succeed: the peer gave up, or descriptors are short for the moment.
fn is_passing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    ) || matches!(error.raw_os_error(), Some(23 | 24))
}

/// Serves one connection over any transport: a socket, real or simulated, or a pipe in memory.
pub async fn serve_connection<T>(transport: T, server: Server)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handle = server.handle();
    let closing = handle.closing();
    let router = server.router();
    let service =
        hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            router.clone().oneshot(request.map(axum::body::Body::new))
        });
    let mut connection = pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(RtTimer)
            .header_read_timeout(HEADER_READ_TIMEOUT)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            .half_close(false)
            .serve_connection(TokioIo::new(transport), service)
    );
    let result = select! {
        biased;
        result = connection.as_mut() => result,
        () = closing.closed() => {
            connection.as_mut().graceful_shutdown();
            match timeout(CLOSE_TIMEOUT, connection).await {
                Ok(result) => result,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!("connection: {error}");
    }
}

/// Runs the engine's loop: on a thread and a runtime of its own, so that a step never holds up a
/// connection. In simulation, where threads can't be, it is a task like any other.
pub(crate) fn spawn_engine(run: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
    #[cfg(madsim)]
    {
        tokio::spawn(run);
        Ok(())
    }
    #[cfg(not(madsim))]
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("lockstep-engine".to_string());
        thread.spawn(move || runtime.block_on(run)).map(|_| ())
    }
}

/// Runs work that takes a while where it holds up no connection. In simulation, where threads can't be,
/// it is done at once.
///
/// # Errors
/// If it panicked, in words.
pub(crate) async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    #[cfg(madsim)]
    {
        Ok(work())
    }
    #[cfg(not(madsim))]
    {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| error.to_string())
    }
}
