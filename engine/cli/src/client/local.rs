//! A server in this process, on a free port of the loopback, for measuring without another terminal. It
//! must never differ from what `lockstep serve` would start with the same flags.

use crate::{
    exit::Failure,
    flags::{EngineArgs, MachineArgs, ModelArgs},
    session::Served,
};
use lockstep_server::{Server, ServerConfig, ServerHandle};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::runtime::Runtime;

/// A running server; dropping it ends it.
pub struct Local {
    /// Where it listens.
    pub address: SocketAddr,
    /// What computes, in words.
    pub about: String,
    runtime: Option<Runtime>,
    handle: ServerHandle,
}

impl Local {
    /// Starts one.
    ///
    /// # Errors
    /// Flags or files that can't be used, or a system that gives no port or thread.
    pub fn start(
        model: &ModelArgs,
        machine: &MachineArgs,
        engine: &EngineArgs,
    ) -> Result<Local, Failure> {
        let Served {
            package,
            engine,
            backend,
            about,
            ..
        } = Served::open(model, machine, engine, |_| ())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(Failure::failed)?;
        let config = ServerConfig::new(package.name.clone());
        let started = runtime.block_on(async {
            let listener = lockstep_server::bind("127.0.0.1:0", false, false).await;
            let listener = listener.map_err(Failure::failed)?;
            let address = listener.local_addr().map_err(Failure::failed)?;
            let server = Server::new(config, Arc::new(package), engine, backend);
            let server = server.map_err(Failure::failed)?;
            let handle = server.handle();
            // A listener that fails ends every request, which is seen there.
            tokio::spawn(lockstep_server::serve(listener, server));
            Ok((address, handle))
        });
        let (address, handle) = started?;
        Ok(Local {
            address,
            about,
            runtime: Some(runtime),
            handle,
        })
    }

    /// Why its engine stopped, if it has.
    pub fn stopped(&self) -> Option<String> {
        self.handle.stopped()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Nobody waits for an answer any more.
            runtime.block_on(self.handle.drain(Duration::ZERO));
            runtime.shutdown_background();
        }
    }
}
