//! Captures on disk, within a bound: segments that are written one after another by a thread of their own, the oldest
//! of which is removed where all together would be too much. Each is a capture that can be read by itself.
//!
//! It must never make the loop of the engine wait, nor end it: what can't be written is counted, and said in the file.

use crate::extract::of_request;
use crate::format::{Contents, FormatError, framed, read, write_header};
use crate::record::{Header, Record};
use crate::recorder::{About, Sink};
use lockstep_step::SeqId;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How a ring is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Its folder; it is made where it isn't there.
    pub folder: PathBuf,
    /// Bytes of all segments together; at least a few megabytes.
    pub bytes_max: u64,
    /// Bytes that may wait to be written; beyond, records are lost.
    pub waiting_bytes_max: usize,
}

/// How many segments a full ring has.
const NUM_SEGMENTS: u64 = 16;

/// What segments are called, with their number.
const SUFFIX: &str = ".capture";

/// Why a ring has no such capture.
#[derive(Debug)]
pub enum RingError {
    /// No request of this id was recorded.
    Unknown,
    /// Its beginning was removed: the ring is too small for how long ago it was.
    Gone,
    /// The disk.
    Io(PathBuf, io::Error),
    /// A segment can't be read.
    Format(PathBuf, FormatError),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::Unknown => write!(f, "no request of this id was recorded"),
            RingError::Gone => write!(f, "its beginning is no longer in the ring"),
            RingError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            RingError::Format(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for RingError {}

/// How long records wait for company before they are written: a crash loses no more than this.
const GATHER: Duration = Duration::from_millis(20);

/// What waits to be written.
#[derive(Default)]
struct Queue {
    frames: Vec<(Vec<u8>, Subject)>,
    bytes: usize,
    /// Batches taken, and batches written.
    num_taken: u64,
    num_written: u64,
    /// Somebody waits for what is there.
    is_urgent: bool,
    is_closed: bool,
}

/// What the index needs to know of a record.
enum Subject {
    Request(String, SeqId),
    End(SeqId),
    Response(String),
    Other,
}

/// Where a request's records are.
#[derive(Clone, Debug)]
struct Entry {
    first_segment: u64,
    last_segment: u64,
}

#[derive(Default)]
struct Index {
    requests: BTreeMap<String, Entry>,
    /// Of sequences that still go on.
    names: BTreeMap<SeqId, String>,
    /// The segments that are there.
    segments: VecDeque<(u64, u64)>,
}

struct Shared {
    options: RingOptions,
    header: Header,
    index: Mutex<Index>,
    queue: Mutex<Queue>,
    /// The queue has something, or is wanted empty; and the other way: a batch was written.
    filled: Condvar,
    written: Condvar,
    num_lost: AtomicU64,
    num_failed: AtomicU64,
}

/// A ring that is being written.
pub struct Ring {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Ring {
    /// Begins a ring in a folder without segments.
    ///
    /// # Errors
    /// If the folder can't be made, has segments already, or the first can't be written.
    pub fn begin(options: RingOptions, header: Header) -> io::Result<Ring> {
        fs::create_dir_all(&options.folder)?;
        if !segments(&options.folder)?.is_empty() {
            let what = format!("{} has captures already", options.folder.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let shared = Arc::new(Shared {
            options,
            header,
            index: Mutex::new(Index::default()),
            queue: Mutex::new(Queue::default()),
            filled: Condvar::new(),
            written: Condvar::new(),
            num_lost: AtomicU64::new(0),
            num_failed: AtomicU64::new(0),
        });
        let writer = Writer::begin(shared.clone())?;
        let thread = std::thread::Builder::new().name("lockstep-captures".to_string());
        let thread = thread.spawn(move || writer.run())?;
        Ok(Ring {
            shared,
            writer: Mutex::new(Some(thread)),
        })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.shared.options.folder
    }

    /// Records that were lost since they came too fast, and records that the disk did not take.
    pub fn losses(&self) -> (u64, u64) {
        let failed = self.shared.num_failed.load(Ordering::Relaxed);
        (self.shared.num_lost.load(Ordering::Relaxed), failed)
    }

    /// Waits until all records so far are on disk.
    pub fn flush(&self) {
        let mut queue = self.shared.queue();
        let wanted = queue.num_taken + u64::from(!queue.frames.is_empty());
        queue.is_urgent = true;
        self.shared.filled.notify_one();
        while queue.num_written < wanted && !queue.is_closed {
            queue = self
                .shared
                .written
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The capture of one request, as the bytes of a file of its own.
    ///
    /// # Errors
    /// If it isn't there, or can't be read.
    pub fn of_request(&self, request_id: &str) -> Result<Vec<u8>, RingError> {
        self.flush();
        let entry = {
            let index = self.shared.lock();
            let entry = index.requests.get(request_id).cloned();
            let entry = entry.ok_or(RingError::Unknown)?;
            let first = index.segments.front().map_or(0, |segment| segment.0);
            if entry.first_segment < first {
                return Err(RingError::Gone);
            }
            entry
        };
        let header = Header {
            is_whole: false,
            ..self.shared.header.clone()
        };
        let mut bytes = Vec::new();
        let io = |error| RingError::Io(self.folder().to_path_buf(), error);
        write_header(&mut bytes, &header).map_err(io)?;
        let mut filter = of_request(request_id);
        for number in entry.first_segment..=entry.last_segment {
            let path = segment(self.folder(), number);
            let records = read_segment(&path)?.records;
            let own = records.into_iter().filter_map(|own| filter.filter(own));
            own.for_each(|record| bytes.extend(framed(&record)));
        }
        Ok(bytes)
    }
}

impl Sink for Ring {
    fn take(&self, frame: Vec<u8>, about: About<'_>) {
        let subject = match about {
            About::Request(id, seq) => Subject::Request(id.to_string(), seq),
            About::Seq { seq, is_end: true } => Subject::End(seq),
            About::Response(id) => Subject::Response(id.to_string()),
            About::Step(_) | About::Seq { .. } | About::Loop => Subject::Other,
        };
        let mut queue = self.shared.queue();
        if queue.bytes + frame.len() > self.shared.options.waiting_bytes_max {
            self.shared.num_lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes += frame.len();
        queue.frames.push((frame, subject));
        // The writer gathers what comes after the first.
        if queue.frames.len() == 1 {
            self.shared.filled.notify_one();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.filled.notify_one();
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = writer.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a batch; None once the ring is closed and everything was taken.
    fn batch(&self) -> Option<Vec<(Vec<u8>, Subject)>> {
        let mut queue = self.queue();
        while queue.frames.is_empty() && !queue.is_closed {
            queue.is_urgent = false;
            queue = self
                .filled
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if !queue.is_urgent && !queue.is_closed {
            let gathered = self
                .filled
                .wait_timeout_while(queue, GATHER, |queue| !queue.is_urgent && !queue.is_closed);
            queue = gathered.unwrap_or_else(PoisonError::into_inner).0;
        }
        if queue.frames.is_empty() {
            return None;
        }
        queue.bytes = 0;
        queue.num_taken += 1;
        Some(std::mem::take(&mut queue.frames))
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes segments, on a thread of its own.
struct Writer {
    shared: Arc<Shared>,
    out: BufWriter<File>,
    number: u64,
    bytes: u64,
    /// Lost records that the file already tells of.
    told_lost: u64,
}

impl Writer {
    fn begin(shared: Arc<Shared>) -> io::Result<Writer> {
        let out = open(&shared, 0)?;
        shared.lock().segments.push_back((0, 0));
        Ok(Writer {
            shared,
            out,
            number: 0,
            bytes: 0,
            told_lost: 0,
        })
    }

    fn run(mut self) {
        while let Some(batch) = self.shared.batch() {
            for (frame, subject) in batch {
                self.take(&frame, subject);
            }
            self.flush();
            self.shared.queue().num_written += 1;
            self.shared.written.notify_all();
        }
    }

    fn take(&mut self, frame: &[u8], subject: Subject) {
        let lost = self.shared.num_lost.load(Ordering::Relaxed);
        if lost > self.told_lost {
            let told = framed(&Record::Lost(lost - self.told_lost));
            self.told_lost = lost;
            self.write(&told);
        }
        self.note(subject);
        self.write(frame);
        if self.bytes >= (self.shared.options.bytes_max / NUM_SEGMENTS).max(1) {
            self.turn();
        }
    }

    fn note(&mut self, subject: Subject) {
        let number = self.number;
        let mut index = self.shared.lock();
        let id = match subject {
            Subject::Other => return,
            Subject::Request(id, seq) => {
                index.names.insert(seq, id.clone());
                index.requests.entry(id).or_insert(Entry {
                    first_segment: number,
                    last_segment: number,
                });
                return;
            }
            Subject::End(seq) => match index.names.remove(&seq) {
                Some(id) => id,
                None => return,
            },
            Subject::Response(id) => id,
        };
        if let Some(entry) = index.requests.get_mut(&id) {
            entry.last_segment = number;
        }
    }

    fn write(&mut self, frame: &[u8]) {
        match self.out.write_all(frame) {
            Ok(()) => self.bytes += frame.len() as u64,
            Err(_) => drop(self.shared.num_failed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn flush(&mut self) {
        if self.out.flush().is_err() {
            self.shared.num_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Begins the next segment, and removes the oldest ones.
    fn turn(&mut self) {
        self.flush();
        let next = self.number + 1;
        let Ok(out) = open(&self.shared, next) else {
            // The disk is full, perhaps: this segment grows, and the next record tries again.
            self.shared.num_failed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.out = out;
        let mut index = self.shared.lock();
        if let Some(last) = index.segments.back_mut() {
            last.1 = self.bytes;
        }
        index.segments.push_back((next, 0));
        // Whatever still goes on has records in the new one.
        let Index {
            requests, names, ..
        } = &mut *index;
        for id in names.values() {
            if let Some(entry) = requests.get_mut(id) {
                entry.last_segment = next;
            }
        }
        (self.number, self.bytes) = (next, 0);
        let total = |index: &Index| index.segments.iter().map(|own| own.1).sum::<u64>();
        while index.segments.len() > 1 && total(&index) > self.shared.options.bytes_max {
            let Some((oldest, _)) = index.segments.pop_front() else {
                break;
            };
            let _ = fs::remove_file(segment(&self.shared.options.folder, oldest));
        }
        let first = index.segments.front().map_or(0, |own| own.0);
        index
            .requests
            .retain(|_, entry| entry.last_segment >= first);
        let Index {
            requests, names, ..
        } = &mut *index;
        names.retain(|_, id| requests.contains_key(id));
    }
}

fn open(shared: &Shared, number: u64) -> io::Result<BufWriter<File>> {
    let path = segment(&shared.options.folder, number);
    let mut out = BufWriter::with_capacity(1 << 18, File::create_new(path)?);
    let header = Header {
        is_whole: number == 0 && shared.header.is_whole,
        ..shared.header.clone()
    };
    write_header(&mut out, &header)?;
    Ok(out)
}

fn segment(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}{SUFFIX}"))
}

/// The segments of a folder, in order.
fn segments(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy());
        if name.is_some_and(|name| name.ends_with(SUFFIX)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_segment(path: &Path) -> Result<Contents, RingError> {
    let bytes = fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => RingError::Gone,
        _ => RingError::Io(path.to_path_buf(), error),
    })?;
    read(&bytes).map_err(|error| RingError::Format(path.to_path_buf(), error))
}

/// All segments of a folder as one capture. Where one is damaged, nothing after it is read.
///
/// # Errors
/// If it has no segment, or one can't be read at all.
pub fn read_folder(folder: &Path) -> Result<Contents, RingError> {
    let io = |error| RingError::Io(folder.to_path_buf(), error);
    let mut all: Option<Contents> = None;
    for path in segments(folder).map_err(io)? {
        let next = read_segment(&path)?;
        match &mut all {
            None => all = Some(next),
            Some(all) if all.damage.is_none() => {
                all.records.extend(next.records);
                all.damage = next.damage;
            }
            Some(_) => break,
        }
    }
    all.ok_or(RingError::Unknown)
}
