//! The tiny model that is part of the program, so that it serves with nothing downloaded.
//!
//! Its files are a Hugging Face folder like any other and go through the same checks; only the
//! reading differs.

use crate::error::PackageError;
use crate::provenance::Source;
use crate::weights::Weights;

/// What the embedded package is called.
pub const EMBEDDED_NAME: &str = "embedded";

/// Conversations that the embedded model was judged by, a JSON object a line: messages, tools, and the
/// answer that is expected.
pub const EMBEDDED_BATTERY: &str = include_str!("../embedded/battery.jsonl");

/// Bytes that begin at a multiple of 64, so that weights can be read in place as any element type.
#[repr(C, align(64))]
struct Aligned<B: ?Sized>(B);

static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../embedded/hf/model.safetensors"));
static MTP: &Aligned<[u8]> = &Aligned(*include_bytes!("../embedded/hf/mtp.safetensors"));

static FILES: &[(&str, &[u8])] = &[
    (
        "chat_template.jinja",
        include_bytes!("../embedded/hf/chat_template.jinja"),
    ),
    ("config.json", include_bytes!("../embedded/hf/config.json")),
    (
        "generation_config.json",
        include_bytes!("../embedded/hf/generation_config.json"),
    ),
    ("model.safetensors", &MODEL.0),
    ("mtp.safetensors", &MTP.0),
    (
        "tokenizer.json",
        include_bytes!("../embedded/hf/tokenizer.json"),
    ),
    (
        "tokenizer_config.json",
        include_bytes!("../embedded/hf/tokenizer_config.json"),
    ),
];

pub(crate) fn source() -> Source {
    Source::Embedded(FILES)
}

#[cfg(test)]
pub(crate) fn file(name: &str) -> Option<&'static [u8]> {
    let found = FILES.iter().find(|(found, _)| *found == name);
    found.map(|(_, bytes)| *bytes)
}

pub(crate) fn weights() -> Result<Weights, PackageError> {
    let files: Vec<(&str, &'static [u8])> = FILES
        .iter()
        .filter(|(name, _)| name.ends_with(".safetensors"))
        .copied()
        .collect();
    Weights::from_static(&files)
}
