//! The bytes of a capture: a magic, the number of the format, and then framed records, each with a checksum. A file
//! that was cut short is readable to its last whole record, and a damaged one to the damage; both are said.
//!
//! ```text
//! file    "LOCKSTEPCAPTURE\0" | format: u16 | frame...                  numbers are little-endian
//! frame   length of the payload: u32 | kind: u8 | crc32 of kind and payload: u32 | payload
//! ```
//!
//! It must never guess: what follows a damaged frame is not read.

use crate::checksum::crc32;
use crate::record::{FORMAT, Header, Record};
use std::fmt;
use std::io::{self, Write};

/// How a capture begins.
pub const MAGIC: &[u8; 16] = b"LOCKSTEPCAPTURE\0";

/// The largest payload that is believed: a longer one is damage.
const PAYLOAD_BYTES_MAX: u32 = 1 << 28;

const HEADER_KIND: u8 = 0;
const RECORD_KIND: u8 = 1;

/// Bytes before a payload.
const FRAME_BYTES: usize = 9;

/// Writes magic and header.
///
/// # Errors
/// As the writer.
pub fn write_header(out: &mut impl Write, header: &Header) -> io::Result<()> {
    out.write_all(MAGIC)?;
    out.write_all(&FORMAT.to_le_bytes())?;
    out.write_all(&frame(HEADER_KIND, header))
}

/// A record with its frame.
pub fn framed(record: &Record) -> Vec<u8> {
    frame(RECORD_KIND, record)
}

fn frame(kind: u8, payload: &impl serde::Serialize) -> Vec<u8> {
    let frame = vec![0; FRAME_BYTES];
    // It can only run out of memory: every type of a record can be encoded.
    let mut bytes = postcard::to_extend(payload, frame).unwrap_or_default();
    let len = (bytes.len() - FRAME_BYTES) as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4] = kind;
    let checksum = crc32(&[&[kind], &bytes[FRAME_BYTES..]]);
    bytes[5..FRAME_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Why a file is no capture at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// It does not begin as one.
    NoCapture,
    /// Its format is of a later program.
    Newer {
        /// The number of its format.
        format: u16,
    },
    /// It is damaged before its first record.
    Header(Damage),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::NoCapture => write!(f, "byte 0: it does not begin with LOCKSTEPCAPTURE"),
            FormatError::Newer { format } => write!(
                f,
                "byte 16: it is of format {format}, and this program reads up to {FORMAT}"
            ),
            FormatError::Header(damage) => write!(f, "the header can't be read: {damage}"),
        }
    }
}

impl std::error::Error for FormatError {}

/// Where a file can't be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The byte at which the broken frame begins.
    pub offset: usize,
    /// Records before it.
    pub num_records: usize,
    /// What is wrong.
    pub what: String,
    /// Whether the file just ends here, as after a crash.
    pub is_cut: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "byte {}, after {} records: {}",
            self.offset, self.num_records, self.what
        )
    }
}

/// What could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// What holds for all of it.
    pub header: Header,
    /// In order.
    pub records: Vec<Record>,
    /// Where it can't be read on, if it does not end with a whole record.
    pub damage: Option<Damage>,
}

/// Reads a capture as far as it can be read.
///
/// # Errors
/// If it is none, or of a later format, or has no header.
pub fn read(bytes: &[u8]) -> Result<Contents, FormatError> {
    if bytes.len() < MAGIC.len() + 2 || &bytes[..MAGIC.len()] != MAGIC {
        return Err(FormatError::NoCapture);
    }
    let start = MAGIC.len() + 2;
    let format = u16::from_le_bytes([bytes[start - 2], bytes[start - 1]]);
    if format == 0 || format > FORMAT {
        return Err(FormatError::Newer { format });
    }
    let mut frames = Frames {
        bytes,
        at: start,
        num_records: 0,
    };
    let header = match frames.next(HEADER_KIND) {
        Ok(Some(header)) => header,
        Ok(None) => {
            return Err(FormatError::Header(frames.damage("the file ends", true)));
        }
        Err(damage) => return Err(FormatError::Header(damage)),
    };
    let mut records = Vec::new();
    let damage = loop {
        frames.num_records = records.len();
        match frames.next(RECORD_KIND) {
            Ok(Some(record)) => records.push(record),
            Ok(None) => break None,
            Err(damage) => break Some(damage),
        }
    };
    Ok(Contents {
        header,
        records,
        damage,
    })
}

struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    num_records: usize,
}

impl Frames<'_> {
    fn damage(&self, what: impl Into<String>, is_cut: bool) -> Damage {
        Damage {
            offset: self.at,
            num_records: self.num_records,
            what: what.into(),
            is_cut,
        }
    }

    /// The next frame; None at the end of the file.
    fn next<T: serde::de::DeserializeOwned>(&mut self, kind: u8) -> Result<Option<T>, Damage> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let Some((head, body)) = rest.split_at_checked(FRAME_BYTES) else {
            let what = format!("{} bytes of a frame's {FRAME_BYTES}", rest.len());
            return Err(self.damage(what, true));
        };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        if len > PAYLOAD_BYTES_MAX {
            let what = format!("a frame of {len} bytes, expected at most {PAYLOAD_BYTES_MAX}");
            return Err(self.damage(what, false));
        }
        let Some(payload) = body.get(..len as usize) else {
            let what = format!("{} bytes of a payload's {len}", body.len());
            return Err(self.damage(what, true));
        };
        let told = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
        let found = crc32(&[&[head[4]], payload]);
        if told != found {
            let what = format!("the checksum is {told:08x}, and that of the bytes {found:08x}");
            return Err(self.damage(what, false));
        }
        if head[4] != kind {
            let what = format!("a frame of kind {}, expected {kind}", head[4]);
            return Err(self.damage(what, false));
        }
        let (value, left) = postcard::take_from_bytes(payload)
            .map_err(|error| self.damage(format!("the payload: {error}"), false))?;
        if !left.is_empty() {
            let what = format!("{} bytes too many in a payload of {len}", left.len());
            return Err(self.damage(what, false));
        }
        self.at += FRAME_BYTES + len as usize;
        Ok(Some(value))
    }
}
