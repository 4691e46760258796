"""U-Net: an encoder and a decoder with the same levels, from scratch or on a pre-trained encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segkit._common import FloatArray, is_whole
from segkit.baselines.pretrained import check_image_channels, load_encoder, normalise
from segkit.baselines.training import NetSegmenter
from segkit.errors import ConfigError
from segkit.features.convnet import PREPROCESSING
from segkit.features.weights import load_weights
from segkit.images import UNLABELLED

if TYPE_CHECKING:
    from torch import nn

_ENCODERS = ("mobilenet_v2", "resnet18", "resnet34", "resnet50")


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
    max_steps : int, default=2000
        Largest number of training steps.
    batch_size : int, default=4
        Number of crops per step.
    learning_rate : float or sequence of float, default=1e-4
        Learning rate of Adam. Of several, the one with the highest mean IoU on held-out pixels is taken.
    crop : int, default=256
        Side of the random training crops in pixels, a multiple of ``2**depth`` (of 32 with an `encoder`), at least twice
        that.
        Smaller images are mirrored, and the mirrored pixels are not trained on.
    eval_every : int, default=25
        Number of steps between validations.
    patience : int, default=10
        Training stops after this many validations in a row without a better mean IoU.
    retrain : bool, default=False
        Whether to train anew on all pixels, for the number of steps of the best validation; otherwise the weights of that
        validation are taken, which never saw the held-out pixels.
    augment : bool, default=True
        Whether crops are varied by `segkit.baselines.augment.augmenter`; it needs albumentations.
    device : str, default="auto"
        Device of torch: "cpu", "cuda", "cuda:1", ... "auto" is a GPU if available, else the CPU.
    checkpoint : str or Path, optional
        File for the state of training at each validation. If it exists and comes from the same
        images and options, `fit` continues from it.
    unlabelled : int or None, default=255
        Mask value of pixels without annotation. Masks with only the values 0 and 255 are
        binary, and 255 is the foreground.
    random_state : int, default=0
        Seed of initial weights, validation split, crops and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Mask values of the classes, in the order of class ids.
    label_map_ : LabelMap
        Names and mask values of the classes, and the value of unlabelled pixels.
    n_image_channels_ : int
        Number of channels of the training images.
    network_ : torch.nn.Module
        The network with the weights of the best validation, or those of `retrain`.
    learning_rate_ : float
        The learning rate taken.
    n_parameters_ : int
        Number of trained weights.
    n_steps_, best_step_ : int
        Number of training steps with that rate and held-out pixels, in all and up to the best validation.
    best_validation_iou_ : float
        Mean IoU (eq. 8.1) of the best validation.
    stopped_early_ : bool
        True if training ended because validation no longer improved, False if `max_steps` ended it.
    history_ : list of dict
        ``step``, ``loss`` (mean since the validation before) and ``validation_iou`` of each validation.
    device_ : str
        Device of the network.

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
        n_filters: int = 32,
        depth: int = 4,
        encoder: str | None = None,
        weights: str | Path | None = None,
        preprocessing: str = "torchvision",
        max_steps: int = 2000,
        batch_size: int = 4,
        learning_rate: float | Sequence[float] = 1e-4,
        crop: int = 256,
        eval_every: int = 25,
        patience: int = 10,
        retrain: bool = False,
        augment: bool = True,
        device: str = "auto",
        checkpoint: str | Path | None = None,
        unlabelled: int | None = UNLABELLED,
        random_state: int = 0,
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

    def _check_options(self) -> None:
        for name in ("n_filters", "depth"):
            if not is_whole(getattr(self, name)):
                raise ConfigError(f"{name}={getattr(self, name)!r}: give a whole number of at least 1")
        for name, choices in (("encoder", (None, *_ENCODERS)), ("preprocessing", tuple(PREPROCESSING))):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}: choose one of {', '.join(map(str, choices))}"
                )
        if self.encoder is None:
            self._refuse_idle("weights", None, under="encoder")
        else:
            self._refuse_idle("n_filters", 32, under="encoder")
            self._refuse_idle("depth", 4, under="encoder")
        if self.weights is None:
            self._refuse_idle("preprocessing", "torchvision", under="weights")
        super()._check_options()

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
