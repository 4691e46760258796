"""U-Net: an encoder and a decoder with the same levels, from scratch or on a pre-trained encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeInt

from segkit._common import FloatArray
from segkit.baselines.options import Preprocessing, Rates, Whole
from segkit.baselines.training import NetSegmenter, check_image_channels, load_encoder, normalise
from segkit.errors import ConfigError
from segkit.features.weights import load_weights
from segkit.images import UNLABELLED

if TYPE_CHECKING:
    from torch import nn


class UNet(NetSegmenter):
    """U-Net with padded convolutions and batch normalisation.

    Parameters
    ----------
    n_filters : int, default=32
        Number of filters of the finest level; it doubles at each coarser level. Not with an `encoder`.
    depth : int, default=4
        Number of poolings, each by two. An `encoder` has five.
    encoder : {None, "mobilenet_v2", "resnet18", "resnet34", "resnet50"}, default=None
        None is the U-Net of the paper. Otherwise the U-Net of segmentation_models_pytorch on this torchvision network; it
        needs that package.
    weights : None, "imagenet", str or Path, default=None
        Initial weights of the encoder, a source of `segkit.features.weights.load_weights`; None is from scratch. The
        statistics of its batch normalisations then stay those of the weights: batches are small.
    preprocessing : {"torchvision", "caffe"}, default="torchvision"
        Preprocessing of the weights' training, as for `FCN`.
    max_steps, batch_size, learning_rate : see `FCN`
        Course of the training.
    crop : int, default=256
        Side of the random training crops in pixels, a multiple of ``2**depth`` (of 32 with an `encoder`), at least twice
        that.
    eval_every, patience, retrain, augment, device, checkpoint : see `FCN`
        Course of the training.
    unlabelled, random_state : see `FCN`
        Mask value of pixels without annotation, and seed.

    Attributes
    ----------
    network_ : torch.nn.Module
        The network with the weights of the best validation, or those of `retrain`. Further attributes are those of `FCN`.

    References
    ----------
    P. Iakubovskii, Segmentation Models Pytorch, https://github.com/qubvel-org/segmentation_models.pytorch.

    O. Ronneberger, P. Fischer, T. Brox, U-Net: convolutional networks for biomedical image
    segmentation, MICCAI 2015, arXiv:1505.04597.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.baselines import UNet
    >>> mask = np.zeros((32, 32), dtype=int)
    >>> mask[8:24, 8:24] = 1
    >>> image = 0.3 + 0.4 * mask
    >>> unet = UNet(n_filters=4, depth=1, crop=16, max_steps=40, learning_rate=0.01, augment=False)
    >>> unet.fit([image], [mask]).score([image], [mask]) > 0.9
    True
    """

    def __init__(
        self,
        *,
        n_filters: Annotated[int, Field(gt=0, le=1024)] = 32,
        depth: Annotated[int, Field(gt=0, le=8)] = 4,
        encoder: Literal["mobilenet_v2", "resnet18", "resnet34", "resnet50"] | None = None,
        weights: str | Path | None = None,
        preprocessing: Preprocessing = "torchvision",
        max_steps: Whole = 2000,
        batch_size: Annotated[int, Field(gt=0, le=1024)] = 4,
        learning_rate: Rates = 1e-4,
        crop: Annotated[int, Field(gt=0, le=8192)] = 256,
        eval_every: Whole = 25,
        patience: Whole = 10,
        retrain: bool = False,
        augment: bool = True,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        unlabelled: int | None = UNLABELLED,
        random_state: NonNegativeInt = 0,
    ) -> None:
        super().__init__(
            max_steps=max_steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            crop=crop,
            eval_every=eval_every,
            patience=patience,
            retrain=retrain,
            augment=augment,
            device=device,
            checkpoint=checkpoint,
            unlabelled=unlabelled,
            random_state=random_state,
        )
        self.n_filters = n_filters
        self.depth = depth
        self.encoder = encoder
        self.weights = weights
        self.preprocessing = preprocessing

    @property
    def _stride(self) -> int:
        return int(2**self.depth) if self.encoder is None else 32

    def check_options(self) -> None:
        """Refuse options as every network does, and those that another one leaves without effect."""
        super().check_options()
        if self.encoder is None:
            self._refuse_idle("weights", None, under="encoder")
        else:
            self._refuse_idle("n_filters", 32, under="encoder")
            self._refuse_idle("depth", 4, under="encoder")
        if self.weights is None:
            self._refuse_idle("preprocessing", "torchvision", under="weights")

    def _build_network(self, n_image_channels: int, n_classes: int) -> nn.Module:
        from segkit.baselines.networks import EncoderUNet, UNetwork

        if self.encoder is None:
            return UNetwork(n_image_channels, n_classes, n_filters=self.n_filters, depth=self.depth)
        if self.weights is None:
            return EncoderUNet(
                _unet()(self.encoder, encoder_weights=None, in_channels=n_image_channels, classes=n_classes)
            )
        check_image_channels(n_image_channels)
        # Grey images become three equal channels, see `normalise`.
        network = _unet()(self.encoder, encoder_weights=None, in_channels=3, classes=n_classes)
        load_encoder(network.encoder, "", load_weights(self.encoder, self.weights), self.encoder)
        return EncoderUNet(network, keep_statistics=True)

    def _normalise(self, images: FloatArray) -> FloatArray:
        return super()._normalise(images) if self.weights is None else normalise(images, self.preprocessing)


def _unet() -> Any:
    """Return the U-Net of segmentation_models_pytorch."""
    try:
        from segmentation_models_pytorch import Unet
    except ImportError as error:
        raise ConfigError(
            "a U-Net with encoder needs segmentation-models-pytorch, which is not installed: "
            "pip install segkit-bio[baselines], or leave encoder out"
        ) from error
    return Unet
