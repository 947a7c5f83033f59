//! A run: one server and its clients on machines of a simulated network, what happens to them, and when. First all that
//! the options bring may happen; then faults stop, and everybody who asks must be answered.

use crate::client::{self, Desk, Exchange, Outcome};
use crate::life::{Book, Mishap, Watched, Witness};
use crate::model::{Fragile, ToyModel, embedded};
use crate::options::{Computes, Feature, Options};
use crate::rng::Rng;
use crate::workload::{self, Act, Wish};
use lockstep_core::Engine;
use lockstep_cpu::{CpuBackend, CpuOptions, WeightRule};
use lockstep_fingerprint::Drafting;
use lockstep_package::NoProgress;
use lockstep_server::{ChatModel, Server, ServerConfig, TcpListener};
use lockstep_step::{Backend, BackendLimits, ModelDrafter};
use madsim::net::NetSim;
use madsim::runtime::{Handle, NodeHandle, Runtime};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long the last answers may take once nothing goes wrong any more, on the simulated clock.
pub const CALM_MAX: Duration = Duration::from_secs(120);

/// How long all scripts may take while things go wrong.
const STORM_MAX: Duration = Duration::from_secs(3600);

/// All that is known of a run.
pub struct Run {
    /// What it was.
    pub options: Options,
    /// The model that was served.
    pub model: Arc<dyn ChatModel>,
    /// All tries of all clients.
    pub exchanges: Vec<Exchange>,
    /// Ids of the requests that were asked when all faults were over, without the number of the try.
    pub calm: Vec<String>,
    /// Whether every script and every last request ended in time.
    pub is_over: bool,
    /// Where the server answered what it should have refused.
    pub complaints: Vec<String>,
    /// The server's lives, one after another.
    pub lives: Vec<Book>,
    /// The metrics page at the end, once nothing ran any more.
    pub metrics: Option<String>,
}

/// Lives that go on being written while a world runs.
pub type Lives = Arc<Mutex<Vec<Book>>>;

/// Runs the world of these options to its end.
///
/// # Errors
/// If something in it panicked: what is known of it all the same, and the words.
pub fn run(options: &Options) -> Result<Run, (Box<Run>, String)> {
    let lives = Lives::default();
    let (own, own_lives) = (options.clone(), lives.clone());
    // Hash maps of the standard library are only the same again on a thread that has none yet.
    let thread = std::thread::spawn(move || {
        let mut runtime = Runtime::with_seed_and_config(own.seed, network(&own));
        runtime.set_time_limit(STORM_MAX * 4);
        runtime.block_on(world(own, own_lives))
    });
    let id = thread.thread().id();
    thread.join().map_err(|panic| {
        let run = Run {
            options: options.clone(),
            model: model(options),
            exchanges: Vec::new(),
            calm: Vec::new(),
            is_over: false,
            complaints: Vec::new(),
            lives: taken(&lives),
            metrics: None,
        };
        (Box::new(run), crate::run::panic_of(id, panic.as_ref()))
    })
}

fn taken(lives: &Lives) -> Vec<Book> {
    lives
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .clone()
}

fn network(options: &Options) -> madsim::Config {
    let mut config = madsim::Config::default();
    config.net.packet_loss_rate = options.loss_per_mille as f64 / 1000.0;
    let latest = Duration::from_millis(options.latency_ms_max);
    config.net.send_latency = Duration::from_micros(500)..latest;
    config
}

/// The model that these options serve.
pub fn model(options: &Options) -> Arc<dyn ChatModel> {
    Arc::new(Fragile(match options.computes() {
        Computes::Fingerprint => Arc::new(ToyModel::new(options.format)),
        Computes::Embedded => embedded(),
    }))
}

/// The server's settings.
pub fn server_config(options: &Options) -> ServerConfig {
    let mut config = ServerConfig::new("sim");
    config.delivery = options.delivery;
    config.tool_grammar = options.tool_grammar;
    config.step_pause = (options.step_us > 0).then(|| Duration::from_micros(options.step_us));
    config.keep_alive = Duration::from_secs(2);
    if options.has(Feature::Stalls) {
        config.limits.stream_buffer_bytes_max = 4 << 10;
    }
    config
}

/// A server whose backend is watched, and which has computed nothing.
pub fn server(options: &Options, book: &Book, mishaps: BTreeMap<u64, Mishap>) -> Server {
    match options.computes() {
        Computes::Fingerprint => {
            let drafting = |&(drafter, wrong_per_mille): &(ModelDrafter, u32)| Drafting {
                drafter,
                wrong_per_mille,
            };
            let drafters = options.drafters.iter().map(drafting).collect();
            let fixed = options.has(Feature::StaticBuffers);
            let hashes = ToyModel::new(options.format).hashes(options.limits, drafters, fixed);
            start(options, book, Watched::new(hashes, book.clone(), mishaps))
        }
        Computes::Embedded => {
            let backend = computer(options);
            start(options, book, Watched::new(backend, book.clone(), mishaps))
        }
    }
}

/// The embedded model on the CPU, in the caller's thread.
pub fn computer(options: &Options) -> CpuBackend {
    let has = |drafter| options.drafters.iter().any(|(own, _)| *own == drafter);
    let package = embedded();
    let cpu = CpuOptions {
        weights: WeightRule::Q8,
        num_threads: 1,
        isa: None,
        num_blocks: options.limits.num_blocks,
        num_rows: options.limits.num_rows,
        query_tokens_max: options.limits.query_tokens_max,
        seq_len_max: Some(options.limits.seq_len_max),
        mtp: has(ModelDrafter::Mtp),
        static_buffers: options.has(Feature::StaticBuffers),
    };
    let draft = has(ModelDrafter::DraftModel).then_some(&*package);
    CpuBackend::load_with_draft(&package, draft, &cpu, &NoProgress)
        .expect("the embedded model fits")
}

fn start<B>(options: &Options, book: &Book, backend: B) -> Server
where
    B: Backend + Send + 'static,
    B::Forward: Send,
{
    let model = model(options);
    let vocabulary = Arc::new(lockstep_server::vocabulary(model.as_ref()));
    let limits = backend.limits();
    let engine = Engine::new(options.engine, limits, vocabulary).expect("options are in range");
    let witness = Box::new(Witness::new(book.clone()));
    let config = server_config(options);
    Server::observed(config, model, engine, backend, witness).expect("no thread is needed")
}

/// The same options with nothing that may not matter: what a plain run has.
pub fn plain(options: &Options) -> Options {
    let mut plain = options.clone();
    let on = |feature: &Feature| {
        matches!(
            feature,
            Feature::Embedded | Feature::Rows | Feature::Eager | Feature::GrammarAlways
        )
    };
    plain.features.retain(on);
    plain.engine = lockstep_core::EngineConfig {
        speculation: lockstep_core::Speculation::OFF,
        prefix_cache: false,
        ..lockstep_core::EngineConfig::default()
    };
    plain.drafters.clear();
    plain.limits = BackendLimits {
        num_blocks: 4 * options
            .limits
            .seq_len_max
            .div_ceil(lockstep_step::BLOCK_LEN),
        num_rows: options.limits.num_rows.min(1) * 64,
        query_tokens_max: 2048,
        // As long as fits into the blocks of the run.
        seq_len_max: options
            .limits
            .seq_len_max
            .min(options.limits.num_blocks * lockstep_step::BLOCK_LEN),
        ..options.limits
    };
    plain.step_us = 0;
    plain
}

/// What the machines of a run share.
#[derive(Clone)]
struct Site {
    options: Options,
    desk: Desk,
    lives: Lives,
}

async fn world(options: Options, lives: Lives) -> Run {
    let handle = Handle::current();
    let site = Site {
        options: options.clone(),
        desk: Desk::default(),
        lives,
    };
    let server = server_machine(&handle, &site);
    let scripts = workload::script(&options);
    let clients: Vec<NodeHandle> = (0..scripts.len())
        .map(|idx| machine(&handle, idx))
        .collect();
    sleep(Duration::from_millis(20)).await;
    let operator = handle
        .create_node()
        .name("operator")
        .ip([10, 0, 2, 1].into())
        .build();
    let operating = operator.spawn(operate(site.desk.clone(), server.id()));
    let troubles = tokio::spawn(trouble(
        options.clone(),
        server.id(),
        clients.iter().map(NodeHandle::id).collect(),
    ));
    let mut playing = Vec::new();
    for (client, acts) in clients.iter().zip(scripts) {
        playing.push(client.spawn(play(site.desk.clone(), acts)));
    }
    let stormed = async {
        for one in playing {
            let _ = one.await;
        }
        let _ = troubles.await;
    };
    let mut is_over = timeout(STORM_MAX, stormed).await.is_ok();
    calm_down(&handle, &server, &clients);
    for life in taken(&site.lives) {
        life.open().is_calm = true;
    }
    let wishes = workload::epilogue(&options);
    let calm = wishes.iter().map(|wish| wish.id.clone()).collect();
    let asked = clients[0].spawn(epilogue(site.desk.clone(), wishes));
    is_over &= timeout(CALM_MAX, asked).await.is_ok();
    // What was aborted is given back with the step that was running.
    sleep(Duration::from_secs(2)).await;
    let page = clients[0].spawn(client::get("/metrics")).await;
    operating.abort();
    // Tasks that are never run again would be kept for good, and all that they hold.
    for machine in clients.iter().chain([&server, &operator]) {
        handle.kill(machine.id());
    }
    sleep(Duration::from_millis(10)).await;
    Run {
        model: model(&options),
        options,
        exchanges: site.desk.exchanges(),
        calm,
        is_over,
        complaints: site.desk.complaints(),
        lives: taken(&site.lives),
        metrics: page.ok().flatten().map(|(_, page)| page),
    }
}

async fn play(desk: Desk, acts: Vec<Act>) {
    client::play(desk, acts).await;
}

async fn epilogue(desk: Desk, wishes: Vec<Wish>) {
    for wish in wishes {
        let _: Option<Outcome> = client::ask(&desk, wish).await;
    }
}

fn machine(handle: &Handle, idx: usize) -> NodeHandle {
    let ip = [10, 0, 1, idx as u8 + 1].into();
    handle
        .create_node()
        .name(format!("client {idx}"))
        .ip(ip)
        .build()
}

/// The server's machine: it serves whenever it is up, and ends in order when it is told to.
fn server_machine(handle: &Handle, site: &Site) -> NodeHandle {
    let site = site.clone();
    let boot = move || serve(site.clone());
    handle
        .create_node()
        .name("server")
        .ip([10, 0, 0, 1].into())
        .init(boot)
        .build()
}

async fn serve(site: Site) {
    let book = Book::default();
    let mishaps = {
        let mut lives = site.lives.lock().expect("nobody panics with it");
        lives.push(book.clone());
        mishaps(&site.options, lives.len())
    };
    book.open().begin = Some((site.desk.now(), tokio::time::Instant::now()));
    let server = server(&site.options, &book, mishaps);
    let _up = Up::new(&site.desk, server.clone());
    let handle = server.handle();
    let address: std::net::SocketAddr = "0.0.0.0:8000".parse().expect("an address");
    let listener = TcpListener::bind(address).await.expect("the port is free");
    let serving = tokio::spawn(lockstep_server::serve(listener, server));
    let told = tokio::signal::ctrl_c();
    if told.await.is_ok() {
        book.open().told = true;
        handle.drain(Duration::from_secs(5)).await;
        let _ = serving.await;
    }
    book.open()
        .ended
        .get_or_insert_with(|| "the server ended in order".to_owned());
}

/// A server that is up, until its machine drops it.
struct Up(Desk);

impl Up {
    fn new(desk: &Desk, server: Server) -> Up {
        desk.set_server(Some(server));
        Up(desk.clone())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.0.set_server(None);
    }
}

/// What goes wrong inside the server, in one of its lives.
fn mishaps(options: &Options, life: usize) -> BTreeMap<u64, Mishap> {
    let mut rng = Rng::new(options.seed, &format!("mishaps {life}"));
    let mut mishaps = BTreeMap::new();
    if life > 1 {
        return mishaps;
    }
    if options.has(Feature::SlowStep) {
        for _ in 0..3 {
            let slow = Duration::from_millis(rng.within(100, 3_000));
            mishaps.insert(rng.within(1, 120), Mishap::Slow(slow));
        }
    }
    if options.has(Feature::ClockJump) {
        let jump = Duration::from_secs(rng.within(5, 40));
        mishaps.insert(rng.within(1, 120), Mishap::Slow(jump));
    }
    if options.has(Feature::StepError) {
        for _ in 0..2 {
            mishaps.insert(rng.within(1, 120), Mishap::StepError(rng.below(3) as u32));
            mishaps.insert(rng.within(1, 60), Mishap::LongStepError);
        }
    }
    if options.has(Feature::DeviceLost) {
        mishaps.insert(rng.within(5, 150), Mishap::DeviceLost);
    }
    mishaps
}

/// Looks after the server: where it has ended or is broken, it is started again.
async fn operate(desk: Desk, server: madsim::task::NodeId) {
    let handle = Handle::current();
    loop {
        sleep(Duration::from_millis(500)).await;
        let is_broken = matches!(client::get("/health").await, Some((503, _)));
        if is_broken || !desk.is_up() {
            handle.kill(server);
            sleep(Duration::from_millis(200)).await;
            handle.restart(server);
        }
    }
}

/// What happens to machines and to the network, one after another.
async fn trouble(
    options: Options,
    server: madsim::task::NodeId,
    clients: Vec<madsim::task::NodeId>,
) {
    let (handle, net) = (Handle::current(), NetSim::current());
    let mut rng = Rng::new(options.seed, "trouble");
    let unit = (options.step_us / 1000).max(1) * 40;
    for feature in [
        Feature::Partition,
        Feature::Freeze,
        Feature::Kill,
        Feature::Drain,
    ] {
        if !options.has(feature) {
            continue;
        }
        sleep(Duration::from_millis(rng.within(1, 4 * unit))).await;
        let client = rng.pick(&clients);
        let length = Duration::from_millis(rng.within(50, 4_000));
        match feature {
            Feature::Partition => {
                net.clog_link(client, server);
                if rng.percent(50) {
                    net.clog_link(server, client);
                }
                sleep(length).await;
                net.unclog_link(client, server);
                net.unclog_link(server, client);
            }
            Feature::Freeze => {
                let node = if rng.percent(50) { server } else { client };
                handle.pause(node);
                sleep(length).await;
                handle.resume(node);
            }
            Feature::Kill => handle.kill(server),
            _ => handle.send_ctrl_c(server),
        }
    }
}

fn calm_down(handle: &Handle, server: &NodeHandle, clients: &[NodeHandle]) {
    let net = NetSim::current();
    net.update_config(|config| {
        config.packet_loss_rate = 0.0;
        config.send_latency = Duration::from_millis(1)..Duration::from_millis(5);
    });
    for client in clients {
        net.unclog_link(client.id(), server.id());
        net.unclog_link(server.id(), client.id());
        handle.resume(client.id());
    }
    handle.resume(server.id());
}
