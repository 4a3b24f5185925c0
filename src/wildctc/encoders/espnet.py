"""Load the weights of an encoder that was trained with ESPnet."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from wildctc.encoders.encoder import Encoder
from wildctc.encoders.settings import ConformerConfig, EBranchformerConfig
from wildctc.errors import WildCTCError

_INPUT_LAYERS = {"linear": 1, "conv2d2": 2, "conv2d": 4}

# ESPnet has many variants. These settings must have one of these values (None is ESPnet's default).
_REQUIRED: dict[str, tuple[Any, ...]] = {
    "rel_pos_type": (None, "latest"),
    "pos_enc_layer_type": (None, "rel_pos"),
    "selfattention_layer_type": (None, "rel_selfattn"),
    "attention_layer_type": (None, "rel_selfattn"),
    "normalize_before": (None, True),
    "concat_after": (None, False),
    "zero_triu": (None, False),
    "positionwise_layer_type": (None, "linear"),
    "activation_type": (None, "swish"),
    "ffn_activation_type": (None, "swish"),
    "use_cnn_module": (None, True),
    "use_linear_after_conv": (None, False),
    "gate_activation": (None, "identity"),
    "interctc_use_conditioning": (None, False),
}

_RENAMED = (
    (r"^embed\.conv\.", "subsampling.convs."),
    (r"^embed\.out\.(0\.)?", "subsampling.out."),
    (r"^embed\.([01])\.", r"subsampling.out.\1."),
    (r"^after_norm\.", "norm."),
    (r"^encoders\.", "blocks."),
    (r"\.norm_ff_macaron\.", ".macaron.0."),
    (r"\.feed_forward_macaron\.w_1\.", ".macaron.1."),
    (r"\.feed_forward_macaron\.w_2\.", ".macaron.4."),
    (r"\.norm_ff\.", ".feed_forward.0."),
    (r"\.feed_forward\.w_1\.", ".feed_forward.1."),
    (r"\.feed_forward\.w_2\.", ".feed_forward.4."),
    (r"\.norm_mha\.", ".attention_norm."),
    (r"\.(self_)?attn\.linear_pos\.", ".attention.position."),
    (r"\.(self_)?attn\.linear_out\.", ".attention.out."),
    (r"\.(self_)?attn\.pos_bias_u$", ".attention.content_bias"),
    (r"\.(self_)?attn\.pos_bias_v$", ".attention.position_bias"),
    (r"\.(self_)?attn\.linear_([qkv])\.", r".attention.\2."),
    (r"\.norm_conv\.", ".convolution_norm."),
    (r"\.conv_module\.pointwise_conv1\.", ".convolution.expand."),
    (r"\.conv_module\.depthwise_conv\.", ".convolution.depthwise."),
    (r"\.conv_module\.norm\.", ".convolution.norm."),
    (r"\.conv_module\.pointwise_conv2\.", ".convolution.out."),
    (r"\.norm_mlp\.", ".mlp_norm."),
    (r"\.cgmlp\.channel_proj1\.0\.", ".mlp.expand."),
    (r"\.cgmlp\.csgu\.norm\.", ".mlp.norm."),
    (r"\.cgmlp\.csgu\.conv\.", ".mlp.depthwise."),
    (r"\.cgmlp\.channel_proj2\.", ".mlp.out."),
    (r"\.depthwise_conv_fusion\.", ".merge_depthwise."),
    (r"\.merge_proj\.", ".merge."),
    (r"\.norm_final\.", ".norm."),
)


def from_espnet(
    config: Mapping[str, Any], state_dict: Mapping[str, Tensor], *, pad_like_espnet: bool = False
) -> Encoder:
    """Convert an encoder of ESPnet.

    Args:
        config: ESPnet's `encoder_conf`, to which `input_size`, the feature dimension, was added.
        state_dict: Weights by ESPnet's names: of the encoder alone, or of a whole model, whose encoder has the prefix
            "encoder.".
        pad_like_espnet: Whether to reproduce ESPnet's numbers for every row of a padded batch (see `Encoder`). Without
            it, short rows have the output that they would have alone, which is not so in ESPnet.

    Returns:
        The encoder, in evaluation mode.

    Raises:
        WildCTCError: A setting is not supported, or the weights do not fit the settings.

    >>> from_espnet({"input_size": 80, "input_layer": "conv2d6"}, {"encoders.0.attn.pos_bias_u": torch.zeros(4, 64)})
    Traceback (most recent call last):
    wildctc.errors.WildCTCError: ESPnet's input_layer 'conv2d6' is not supported; linear, conv2d2, conv2d are
    """
    state = {re.sub(r"^encoder\.", "", key): tensor for key, tensor in state_dict.items()}
    encoder = Encoder(_read_config(config, conformer=any(".conv_module." in key for key in state)), pad_like_espnet)
    ours = _fuse_qkv({_rename(key): tensor for key, tensor in state.items()})
    wanted = encoder.state_dict()
    missing = sorted(wanted.keys() - ours.keys())
    if missing:
        raise WildCTCError(f"ESPnet's state dict does not fit its configuration: nothing for {missing[0]}")
    for key, tensor in wanted.items():
        if ours[key].numel() != tensor.numel():
            raise WildCTCError(
                f"ESPnet's state dict does not fit its configuration: {key} is {tuple(ours[key].shape)}, "
                f"the configuration says {tuple(tensor.shape)}"
            )
    # ESPnet's pointwise convolutions (out, in, 1) are linear layers (out, in) here.
    encoder.load_state_dict({key: ours[key].reshape(tensor.shape) for key, tensor in wanted.items()})
    return encoder.eval()


def _read_config(config: Mapping[str, Any], *, conformer: bool) -> ConformerConfig | EBranchformerConfig:
    for name, allowed in _REQUIRED.items():
        if config.get(name) not in allowed:
            raise WildCTCError(f"ESPnet's {name} {config[name]!r} is not supported; {allowed[-1]!r} is")
    input_layer = config.get("input_layer", "conv2d")
    if input_layer not in _INPUT_LAYERS:
        supported = ", ".join(_INPUT_LAYERS)
        raise WildCTCError(f"ESPnet's input_layer {input_layer!r} is not supported; {supported} are")
    if "input_size" not in config:
        raise WildCTCError("ESPnet's configuration lacks input_size: add the feature dimension, for example 80")
    shared: dict[str, Any] = {
        "input_dim": config["input_size"],
        "d_model": config.get("output_size", 256),
        "heads": config.get("attention_heads", 4),
        "ff_dim": config.get("linear_units", 2048),
        "dropout": config.get("dropout_rate", 0.1),
        "attention_dropout": config.get("attention_dropout_rate", 0.0),
        "subsampling": _INPUT_LAYERS[input_layer],
    }
    if conformer:
        return ConformerConfig(
            **shared,
            blocks=config.get("num_blocks", 6),
            kernel=config.get("cnn_module_kernel", 31),
            macaron=config.get("macaron_style", False),
        )
    if not config.get("use_ffn", False):
        raise WildCTCError("ESPnet's use_ffn False is not supported; True is")
    return EBranchformerConfig(
        **shared,
        blocks=config.get("num_blocks", 12),
        kernel=config.get("cgmlp_conv_kernel", 31),
        macaron=config.get("macaron_ffn", False),
        cgmlp_dim=config.get("cgmlp_linear_units", 2048),
        merge_kernel=config.get("merge_conv_kernel", 3),
    )


def _rename(key: str) -> str:
    for pattern, ours in _RENAMED:
        key = re.sub(pattern, ours, key)
    return key


def _fuse_qkv(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join ESPnet's three projections of queries, keys and values to one."""
    for key in [key for key in state if ".attention.q." in key]:
        parts = [state.pop(key.replace(".attention.q.", f".attention.{part}.")) for part in "qkv"]
        state[key.replace(".attention.q.", ".attention.qkv.")] = torch.cat(parts)
    return state
