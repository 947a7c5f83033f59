//! Qwen3, dense: Llama with a norm over each head's queries and keys.

use super::{Layer, Mixer, layer_around};
use crate::layers::{Attention, AttentionStyle};
use crate::load::{LoadError, Loader, NormKind};

/// How its norms are stored.
pub(super) const NORM: NormKind = NormKind::Plain;

const STYLE: AttentionStyle = AttentionStyle {
    head_norms: Some(NORM),
    gated: false,
    num_skipped: 0,
};

pub(super) fn layers(loader: &Loader<'_>) -> Result<Vec<Layer>, LoadError> {
    (0..loader.config().num_layers)
        .map(|layer| {
            let at = loader.layer_at(layer);
            let mixer = Attention::load(loader, &at, layer, STYLE)?;
            layer_around(loader, &at, NORM, Mixer::Attention(mixer))
        })
        .collect()
}
