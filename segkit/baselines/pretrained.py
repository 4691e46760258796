"""Pre-trained encoders of the baselines' networks: input channels, normalisation and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from segkit._common import FloatArray
from segkit.errors import InputError, WeightsError
from segkit.features.convnet import PREPROCESSING

if TYPE_CHECKING:
    import torch
    from torch import nn


def check_image_channels(n_image_channels: int) -> None:
    """Refuse images that are neither grey nor of three channels, those of pre-trained weights."""
    if n_image_channels not in (1, 3):
        raise InputError(
            f"images with {n_image_channels} channels for pre-trained weights of three: "
            f"give RGB or grey images, or train from scratch (weights=None)"
        )


def normalise(images: FloatArray, preprocessing: str) -> FloatArray:
    """Normalise images (..., C) in [0, 1] as in the training of the weights; a grey channel becomes three."""
    mean, std = (np.array(values, dtype=np.float32) for values in PREPROCESSING[preprocessing])
    return (images - mean) / std


def load_encoder(encoder: nn.Module, prefix: str, state: dict[str, torch.Tensor], network: str) -> None:
    """Load the encoder's layers that a state dictionary by torchvision's names holds."""
    expected = encoder.state_dict()
    known = {key: state[prefix + key] for key in expected if prefix + key in state}
    for key, tensor in known.items():
        if tensor.shape != expected[key].shape:
            raise WeightsError(
                f"weights of {prefix + key} have shape {tuple(tensor.shape)}, {network} needs "
                f"{tuple(expected[key].shape)}: give that network's weights"
            )
    if not known:
        raise WeightsError(
            f"weights hold {', '.join(list(state)[:3]) or 'nothing'}, ...: none fits {network}, which has "
            f"{prefix}{next(iter(expected))}, ...; give that network's weights, by torchvision's names"
        )
    # Not strict: a file may hold only the first layers.
    encoder.load_state_dict(known, strict=False)
