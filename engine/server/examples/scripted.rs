//! A server without a model: it says what it is told to, at an address, for trying out clients.
//! It must never be taken for a served model.
//!
//! `cargo run -p lockstep-server --example scripted -- 127.0.0.1:8000 'hm</think>Yes.<|user|>'`

use lockstep_core::{Engine, EngineConfig};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig, Script};
use lockstep_package::Package;
use lockstep_server::{ChatModel, Server, ServerConfig, bind, serve, vocabulary};
use lockstep_step::BackendLimits;
use std::error::Error;
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8000".to_string());
    let model = Arc::new(Package::embedded()?);
    let limits = BackendLimits {
        vocab_size: ChatModel::contract(model.as_ref()).vocab_size,
        num_blocks: 256,
        num_rows: 64,
        seq_len_max: 2048,
        query_tokens_max: 512,
    };
    let mut backend = FingerprintConfig::new(limits);
    for output in args {
        // `when=>output` is said after prompts that contain `when`.
        let (when, output) = output.split_once("=>").unwrap_or(("", &output));
        let encode = |text: &str| ChatModel::encode_text(model.as_ref(), text, true);
        let script = Script {
            when: encode(when).unwrap_or_default(),
            output: encode(output).unwrap_or_default(),
        };
        backend.scripts.push(script);
    }
    let words = Arc::new(vocabulary(model.as_ref()));
    let engine = Engine::new(EngineConfig::default(), limits, words).map_err(|e| e.to_string())?;
    let mut config = ServerConfig::new("scripted");
    config.step_pause = Some(std::time::Duration::from_millis(5));
    let server = Server::new(config, model, engine, Fingerprint::new(backend))?;
    let listener = bind(&address, false, false).await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, server).await?;
    Ok(())
}
