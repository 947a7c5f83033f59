//! Qwen3.5, dense: gated delta net layers with a layer of gated attention in between, and norms around zero.
//! The norm inside a delta net is the exception: its weight is used as it is stored.

use super::{Layer, Mixer, layer_around};
use crate::layers::{Attention, AttentionStyle, DeltaNet};
use crate::load::{LoadError, Loader, NormKind};
use lockstep_package::LayerType;

/// How its norms are stored.
pub(super) const NORM: NormKind = NormKind::ZeroCentred;

const STYLE: AttentionStyle = AttentionStyle {
    head_norms: Some(NORM),
    gated: true,
    num_skipped: 0,
};

pub(super) fn layers(loader: &Loader<'_>) -> Result<Vec<Layer>, LoadError> {
    let config = loader.config();
    let (mut num_attention, mut num_delta) = (0, 0);
    let mut layers = Vec::with_capacity(config.num_layers);
    for (layer, layer_type) in config.layer_types.iter().enumerate() {
        let at = loader.layer_at(layer);
        let mixer = match (layer_type, config.linear) {
            (LayerType::LinearAttention, Some(dims)) => {
                num_delta += 1;
                Mixer::DeltaNet(DeltaNet::load(loader, &at, num_delta - 1, dims)?)
            }
            _ => {
                num_attention += 1;
                Mixer::Attention(Attention::load(loader, &at, num_attention - 1, STYLE)?)
            }
        };
        layers.push(layer_around(loader, &at, NORM, mixer)?);
    }
    Ok(layers)
}
