"""Fully convolutional networks: classification networks that score every pixel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeInt

from segkit._common import FloatArray
from segkit.baselines.options import Preprocessing, Rates, Whole
from segkit.baselines.training import NetSegmenter, check_image_channels, load_encoder, normalise
from segkit.features.weights import load_weights
from segkit.images import UNLABELLED

if TYPE_CHECKING:
    import torch
    from torch import nn

    from segkit.baselines.networks import SkipFCN


class FCN(NetSegmenter):
    """Fully convolutional network of Long, Shelhamer and Darrell.

    Parameters
    ----------
    backbone : {"vgg16", "vgg19", "squeezenet1_0", "resnet50"}, default="vgg16"
        torchvision network that encodes the image. "resnet50" is torchvision's `fcn_resnet50`,
        with dilated convolutions instead of skips.
    output_stride : {8, 16, 32}, default=8
        Stride of the finest pooling with scores of its own: FCN-8s, FCN-16s or FCN-32s. Not for "resnet50".
    weights : None, "imagenet", str or Path, default=None
        Initial weights of the encoder, a source of `segkit.features.weights.load_weights`; None is from scratch.
        Layers that the file lacks start from scratch. VGG's fully connected layers become fc6 and fc7 if the file
        has them and `n_hidden` is 4096, as in VGG.
    preprocessing : {"torchvision", "caffe"}, default="torchvision"
        Preprocessing of the weights' training: (RGB - mean) / std on [0, 1], or RGB * 255 - mean.
    n_hidden : int, default=4096
        Number of channels of fc6 and fc7. Not for "resnet50".
    max_steps : int, default=2000
        Largest number of training steps.
    batch_size : int, default=4
        Number of crops per step.
    learning_rate : float or sequence of float, default=1e-4
        Learning rate of Adam. Of several, the one with the highest mean IoU on held-out pixels is taken.
    crop : int, default=256
        Side of the random training crops in pixels, a multiple of 32, at least 64.
        Smaller images are mirrored, and the mirrored pixels are not trained on.
    eval_every : int, default=25
        Number of steps between validations.
    patience : int, default=10
        Training stops after this many validations in a row without a better mean IoU.
    retrain : bool, default=False
        Whether to train anew on all pixels, for the number of steps of the best validation; otherwise the weights of that
        validation are taken, which never saw the held-out pixels.
    augment : bool, default=True
        Whether crops are varied by `segkit.networks.crops.augmenter`; it needs albumentations.
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

    Notes
    -----
    fc6 is a padded 7 x 7 convolution, fc7 and the score layers are 1 x 1; score layers start at zero.
    Scores are enlarged bilinearly and added to the scores of the next finer map; the sum is enlarged to the image.
    From scratch, without normalisation layers, such a network learns slowly at a rate of 1e-4.

    References
    ----------
    J. Long, E. Shelhamer, T. Darrell, Fully convolutional networks for semantic segmentation,
    CVPR 2015, and IEEE TPAMI 39(4), 2017, arXiv:1605.06211.

    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in
    the feature space, section 8 (the FCN compared with, Adam at 1e-4, batches of 4).

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.baselines import FCN
    >>> image = np.linspace(0, 1, 48 * 64, dtype="float32").reshape(48, 64)
    >>> fcn = FCN("squeezenet1_0", n_hidden=8, crop=64, max_steps=1, augment=False)
    >>> fcn.fit([image], [image > 0.5]).predict_proba(image).shape
    (48, 64, 2)
    """

    def __init__(
        self,
        backbone: Literal["vgg16", "vgg19", "squeezenet1_0", "resnet50"] = "vgg16",
        *,
        output_stride: Literal[8, 16, 32] = 8,
        weights: str | Path | None = None,
        preprocessing: Preprocessing = "torchvision",
        n_hidden: Annotated[int, Field(gt=0, le=65_536)] = 4096,
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
        self.backbone = backbone
        self.output_stride = output_stride
        self.weights = weights
        self.preprocessing = preprocessing
        self.n_hidden = n_hidden

    @property
    def _stride(self) -> int:
        return 32

    def check_options(self) -> None:
        """Refuse options as every network does, and those that another one leaves without effect."""
        super().check_options()
        if self.backbone == "resnet50":
            self._refuse_idle("output_stride", 8, under="backbone")
            self._refuse_idle("n_hidden", 4096, under="backbone")
        if self.weights is None:
            self._refuse_idle("preprocessing", "torchvision", under="weights")

    def _build_network(self, n_image_channels: int, n_classes: int) -> nn.Module:
        from segkit.baselines.networks import ResNetFCN, build_skip_fcn

        if self.weights is not None:
            check_image_channels(n_image_channels)
            # Grey images become three equal channels, see `normalise`.
            n_image_channels = 3
        if self.backbone == "resnet50":
            resnet = ResNetFCN(n_image_channels, n_classes)
            if self.weights is not None:
                load_encoder(
                    resnet.fcn.backbone, "", load_weights(self.backbone, self.weights), self.backbone
                )
            return resnet
        network = build_skip_fcn(
            self.backbone,
            n_image_channels,
            n_classes,
            n_hidden=self.n_hidden,
            output_stride=self.output_stride,
        )
        if self.weights is not None:
            state = load_weights(self.backbone, self.weights)
            load_encoder(network.features, "features.", state, self.backbone)
            _load_classifier(network, state)
        return network

    def _normalise(self, images: FloatArray) -> FloatArray:
        if self.weights is None:
            return super()._normalise(images)
        return normalise(images, self.preprocessing)


def _load_classifier(network: SkipFCN, state: dict[str, torch.Tensor]) -> None:
    """Load VGG's fully connected layers as convolutions, if the widths agree."""
    for layer, name in ((network.fc6, "classifier.0"), (network.fc7, "classifier.3")):
        weight, bias = state.get(f"{name}.weight"), state.get(f"{name}.bias")
        if weight is not None and bias is not None and weight.numel() == layer.weight.numel():
            layer.load_state_dict({"weight": weight.reshape(layer.weight.shape), "bias": bias})
