"""A filter bank that learns from masks: a small network, trained on the annotated images at several scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from segkit._common import FloatArray, Progress, entries_under, pass_on
from segkit._common.arrays import digest_arrays
from segkit._common.device import told_if_full, torch_device
from segkit._common.memory import bytes_left, require_bytes
from segkit.errors import ConfigError, InputError, count
from segkit.features.backbone import Backbone, usual_window
from segkit.features.base import LEAST_PARTS, Channel, FeatureMaps, FilterBank, TiledBank, as_image
from segkit.features.folds import GUARD, cells_of, count_classes, guarded, held_out_pixels
from segkit.features.networks import Pyramid, scales_of
from segkit.features.shrinking import LEAST_SIDE, shrink, shrink_ids, useful_scales
from segkit.features.tiles import Tile, cut
from segkit.features.weights import imagenet_address, load_pretrained, load_weights, origin_of, read_weights
from segkit.images.labels import UNLABELLED

if TYPE_CHECKING:
    import torch

    from segkit.networks.pyramid import PyramidNetwork
    from segkit.networks.training import Training, Weights

IdArray = NDArray[np.uint8]
Whole = Annotated[int, Field(gt=0, le=1_000_000)]
# Training, as chosen on development sets: sides of crops at the first scale, crops of a step, largest learning rates of
# the encoder and of the rest, weight decay, decay of the running mean of weights, share of the steps in which rates rise.
CROP, BATCH_SIZE, ENCODER_RATE, RATE, WEIGHT_DECAY, AVERAGE, RISE = 192, 4, 1e-4, 1e-3, 1e-3, 0.99, 0.1
# Weight of the loss of the depth in objects beside that of the classes, as chosen on the first split of usiigaci_phase.
_WEIGHT_OF_DEPTH = 2
# Sides of an image that has something to learn from.
LEAST_IMAGE = 32
# Logits beyond are clipped: they say nothing more.
MOST_LOGIT = 8
# Steps between two writings of a checkpoint, and steps that networks take without waiting for each other.
_SAVE_EVERY, _STEPS_AT_ONCE = 48, 4
# Bytes for each pixel of an image while a network runs at full scale: of MobileNetV2, least of an encoder of timm, and for
# each value of its maps. Up to 280, 580 (efficientnet_b6) and 12.5 (xception41) were measured on 0.3 megapixels.
_BYTES_OF_MOBILENET, _BYTES_OF_OTHERS, _BYTES_OF_VALUE = 300, 600, 13
# Bytes of a network in training for each byte of its weights (gradients, moments, running means), and of each pixel of a
# step for each byte that it has on the way to maps (what gradients need). As measured with MobileNetV2 and resnet18.
_TIMES_WEIGHTS, _TIMES_ON_THE_WAY = 6, 4
# Pixels around a pixel, at the scale of a network, that its logits depend on in fact.
_REACH = 128
# The symmetries of the square: whether rows and columns are swapped, then reversed.
_SYMMETRIES = [(swap, rows, cols) for swap in (False, True) for rows in (1, -1) for cols in (1, -1)]
# What is called before each pass of a network; see `interruptible`.
_before_pass: ContextVar[Callable[[], object]] = ContextVar("before_pass", default=lambda: None)


@contextmanager
def interruptible(check: Callable[[], object]) -> Iterator[None]:
    """Call a function before each pass of a network: an error that it raises ends the computation of maps."""
    token = _before_pass.set(check)
    try:
        yield
    finally:
        _before_pass.reset(token)


class _Member(NamedTuple):
    """A network of the ensemble: its scale, and the fold of the annotated images that it did not see, if any."""

    scale: Fraction
    fold: int
    sees_all: bool = False

    @property
    def name(self) -> str:
        return f"{float(self.scale):g}/{'all' if self.sees_all else self.fold}"


class TunedBank(TiledBank):
    """Logits of small networks that are trained on the annotated images.

    Parameters
    ----------
    network : str, default="mobilenet_v2"
        The encoder: torchvision's MobileNetV2, or a model of timm that gives maps of images of any size, on the grids of its
        strides ("resnet18", "convnext_tiny", ...).
    weights : str or Path, default="imagenet"
        Initial weights of the encoder: "imagenet" (downloaded once and checked), "random" (seeded; needs more steps), or the
        path of a file by the network's names.
    pyramid : sequence of float, default=(1.0, 0.5, 0.25)
        Scales of the image, 1, 1/2, 1/3, ..., each with networks of its own. Coarse ones are left out if the smallest
        training image has a side of fewer than 64 pixels there, or the annotated regions are less than 16 pixels wide.
    n_folds : int, default=3
        Folds of the annotated images, or of groups of them; a network at each scale is trained without each of them. Of two
        images each is a fold, and of a single one two sets of blocks are. An image that alone holds a class is in two folds,
        a half each. Where there are two folds a third network sees all.
    n_steps : int, default=1200
        Training steps for each fold, shared equally by its networks: fewer scales are trained for longer.
    symmetries : bool, default=True
        Whether logits are a mean over the eight symmetries of the square, each seen by one of the networks in turn. Without,
        each network sees the image once.
    random_state : int, default=0
        Seed of random weights, crops and dropout.

    Attributes
    ----------
    n_classes_ : int
        Number of classes.
    knows_depth_ : bool
        Whether the depth in objects was learnt, too: not without annotated objects, nor if a byte does not hold all pairs
        of class and part of an object.
    scales_ : list of Fraction
        Scales in use.

    Notes
    -----
    A network is a feature pyramid on the encoder, of half the image's resolution. It is trained on crops, varied by
    `segkit.networks.crops.augmenter`, by the cross-entropy and half of the soft Dice loss, with AdamW at a rate that
    rises and falls (one cycle); its weights are a running mean. Of two classes the channel of a scale is the logit of
    the second; of more, each class has a channel, less their mean. The depth in objects, 0 outside to 1 in their core,
    is learnt beside the classes, by the same loss twice, as if it were the probability of a class; the channel of a
    scale is its logit. If weights are given and images have one or three channels, the first four blocks of MobileNetV2,
    up to stride 4, are not trained.

    Maps of a new image are a mean over the folds. Those of a training image, which `cross_fitted` returns, come from the
    networks that did not see it, so that a classifier can be trained on them.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.features import TunedBank
    >>> mask = np.zeros((64, 64), dtype=np.uint8)
    >>> mask[16:48, 16:48] = 1
    >>> image = np.float32(0.3 + 0.4 * mask)
    >>> bank = TunedBank(weights="random", pyramid=(1.0,), n_steps=2).fit([image], [mask])  # doctest: +SKIP
    >>> bank.channels(1)  # doctest: +SKIP
    (Channel(name='logit/1@1', group='logits at 1'),)
    """

    def __init__(
        self,
        network: Annotated[str, Field(min_length=1, max_length=200)] = "mobilenet_v2",
        *,
        weights: str | Path = "imagenet",
        pyramid: Pyramid = (1.0, 0.5, 0.25),
        n_folds: Annotated[int, Field(ge=2, le=20)] = 3,
        n_steps: Whole = 1200,
        symmetries: bool = True,
        random_state: int = 0,
    ) -> None:
        self.network = network
        self.weights = weights
        self.pyramid = pyramid
        self.n_folds = n_folds
        self.n_steps = n_steps
        self.symmetries = symmetries
        self.random_state = random_state

    def check_training(self, images: Sequence[FloatArray]) -> None:
        """Refuse small images, and tell what training lacks; see `FilterBank.check_training`."""
        import torch

        from segkit.networks.crops import import_albumentations
        from segkit.networks.pyramid import build
        from segkit.networks.training import seeded

        self._check()
        for place, image in enumerate(images):
            height, width = image.shape[:2]
            if min(height, width) < LEAST_IMAGE:
                raise InputError(
                    f"image {place} has {height} x {width} pixels, networks need {LEAST_IMAGE} x {LEAST_IMAGE}: leave it "
                    "out, or take the default bank"
                )
        import_albumentations()
        initial = self._initial_weights()
        with seeded(0, torch.device("cpu")):
            build(self.network, initial, images[0].shape[2], 2)

    def fit(
        self,
        images: Sequence[ArrayLike],
        ids: Sequence[IdArray] | None = None,
        *,
        parts: Sequence[IdArray] | None = None,
        groups: NDArray[np.intp] | None = None,
        progress: Progress = pass_on,
        checkpoint: Path | None = None,
    ) -> Self:
        """Train the networks on images, their class ids and parts of objects; see `FilterBank.fit`."""
        from segkit.networks.training import Checkpoint, Trainings

        self._check()
        if ids is None:
            raise InputError(
                "TunedBank learns from masks: give the class ids of the images, fit(images, ids)"
            )
        arrays = [as_image(image) for image in images]
        self.n_classes_ = count_classes(ids)
        n_parts = _count_parts(parts or (), self.n_classes_)
        self.knows_depth_ = n_parts > 0
        targets = ids
        if parts is not None and n_parts:
            targets = [_pair(*both, n_parts) for both in zip(ids, parts, strict=True)]
        held_out = held_out_pixels(ids, self.n_folds, groups)
        self.scales_ = useful_scales(sorted(scales_of(self.pyramid), reverse=True), ids, self.n_classes_)
        networks = [
            _Member(scale, fold, sees_all=not np.any([mask.any() for mask in masks]))
            for scale in self.scales_
            for fold, masks in enumerate(held_out)
        ]
        initial = self._initial_weights()
        saved = Checkpoint(checkpoint, self._digest(arrays, targets, networks, held_out, initial))
        if not saved.finished:
            most_threads = self._most_threads(len(networks), arrays)
            trainings = Trainings(
                [*self._start_all(arrays, targets, n_parts, held_out, initial)], most_threads
            )
            saved.restore(trainings)
            n_steps = self._n_steps
            # progress counts portions of steps, in which networks do not wait for each other
            portions = range(trainings.n_steps, n_steps, _STEPS_AT_ONCE)
            for first in progress(portions, f"Training {len(networks)} networks"):
                trainings.step(min(_STEPS_AT_ONCE, n_steps - first))
                if first // _SAVE_EVERY < trainings.n_steps // _SAVE_EVERY and trainings.n_steps < n_steps:
                    saved.save(trainings)
            saved.finished = [  # as model files hold them
                {name: value.half() for name, value in weights.items()} for weights in trainings.weights
            ]
            saved.save()
        names = [member.name for member in networks]
        self._restore(self.scales_, dict(zip(names, saved.finished, strict=True)))
        self._cross_fitted = self._read_held_out(arrays, held_out)
        return self

    @property
    def is_cross_fitted(self) -> bool:
        """Whether maps of training images come from networks that did not see them: always."""
        return True

    def cross_fitted(self, index: int) -> FilterBank:
        """Return a bank of the maps of a training image, by networks that did not see it; see `FilterBank.cross_fitted`."""
        known = _KnownMaps(**self.get_params())
        known.scales_, known.n_classes_, known.knows_depth_ = self.scales_, self.n_classes_, self.knows_depth_
        known._known = self._cross_fitted[index]
        return known

    def forget(self) -> None:
        """Drop the maps of the training images."""
        del self._cross_fitted

    def quick(self) -> Self:
        """Return the bank with a single network at each scale and without symmetries."""
        if not hasattr(self, "_networks"):  # a model that kept none of their channels
            return self
        quick = copy(self)
        quick.symmetries = False
        # the last one of a scale saw all images, if any did
        last = {name.partition("/")[0]: name for name in self._networks}
        quick._networks = {name: self._networks[name] for name in last.values()}
        return quick

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:  # noqa: ARG002
        """List the channels by scale, fine to coarse."""
        n_classes = self._n_classes
        names = [f"logit/{label}" for label in ([1] if n_classes == 2 else range(n_classes))]
        groups = ["logits"] * len(names)
        if self._knows_depth:
            names, groups = [*names, "depth"], [*groups, "depth in objects"]
        return tuple(
            Channel(f"{name}@{float(scale):g}", f"{group} at {float(scale):g}")
            for scale in self._scales
            for name, group in zip(names, groups, strict=True)
        )

    def n_channels(self, n_image_channels: int = 3) -> int:  # noqa: ARG002
        """Count the channels."""
        return len(self._scales) * self._n_maps

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the stride in pixels of each channel's map."""
        return np.repeat([self._strides[0] / float(scale) for scale in self._scales], self._n_maps)

    def centred(self, n_image_channels: int = 3) -> NDArray[np.bool_]:
        """Tell that logits keep their level, which has a meaning."""
        return np.zeros(self.n_channels(n_image_channels), dtype=bool)

    @property
    def label(self) -> str:
        """Name of the network."""
        return f"{self.network}, tuned"

    @property
    def halo(self) -> int:
        """Pixels around a pixel that its logits depend on in fact; what lies beyond moves them by little."""
        return math.ceil(_REACH / min(self._scales))

    @property
    def alignment(self) -> int:
        """Stride of the coarsest maps, in pixels of the image."""
        return math.lcm(*(math.ceil(self._strides[1] / scale) for scale in self._scales))

    def bytes_per_pixel(self, n_image_channels: int = 3) -> float:
        """Count the maps, and those of a network on the way to them."""
        return self.bytes_of_maps(n_image_channels) + self._bytes_on_the_way * float(max(self._scales)) ** 2

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Compute the maps of a tile scale by scale; see `FilterBank.iter_maps`."""
        wanted = self._wanted(channels, image.shape[2])
        part = np.asarray(image[tile.seen])
        for place, scale in enumerate(self._scales):
            mine = wanted[wanted // self._n_maps == place]
            if mine.size:
                networks = [
                    network
                    for name, network in self._networks.items()
                    if name.startswith(f"{float(scale):g}/")
                ]
                yield self._as_maps(self._run(networks, part, scale), mine, place)

    @property
    def learns_weights(self) -> bool:
        """Whether the weights come from `fit`: always."""
        return True

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:  # noqa: ARG002
        """Collect the weights of all networks at the scales of these channels, in half precision."""
        scales = {f"{float(self._scales[channel // self._n_maps]):g}" for channel in channels}
        return {
            f"{member}/{name}": value.half().cpu().numpy()
            for member, network in getattr(self, "_networks", {}).items()
            if member.partition("/")[0] in scales
            for name, value in network.state_dict().items()
        }

    def describe_training(self) -> list[str]:
        """Count the networks, and name scales, steps and initial weights."""
        if not hasattr(self, "_networks"):
            return []
        scales = ", ".join(f"{float(scale):g}" for scale in self.scales_)
        begun = "random weights"
        for origin in self.weights_origin():
            begun = f"weights of {origin['source']} (licence {origin['licence'] or 'unknown'})"
        return [
            f"Networks: {len(self._networks)} of {self.network}, {len(self._networks) // len(self.scales_)} at each scale "
            f"({scales}), trained for {count(self.n_steps, 'step')} in each fold, shared by its scales, from {begun}."
            + (" Beside the classes they learnt the depth in objects." if self.knows_depth_ else "")
        ]

    def weights_origin(self) -> list[dict[str, str | None]]:
        """List the model, the source and the licence of the initial weights."""
        source = str(self.weights)
        if source == "random":
            return []
        if source == "imagenet":
            if self.network != "mobilenet_v2":
                return [origin_of(self.network)]
            return [
                {"model": self.network, "source": imagenet_address(self.network), "licence": "BSD-3-Clause"}
            ]
        return [{"model": self.network, "source": source, "licence": None}]

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Use these weights of networks instead of training."""
        import torch

        names = {"/".join(name.split("/")[:2]) for name in weights}
        try:
            given = {
                member: {
                    name: torch.from_numpy(np.array(value))
                    for name, value in entries_under(weights, f"{member}/").items()
                }
                for member in sorted(names, key=_in_training)
            }
            scales = {Fraction(member.partition("/")[0]).limit_denominator(1000) for member in names}
            self._restore(sorted(scales, reverse=True), given)
        except ConfigError:  # the network cannot be made here, whatever the weights
            raise
        except (KeyError, ValueError, ZeroDivisionError, RuntimeError) as error:
            raise InputError(
                f"its weights are not those of a network on {self.network}; copy it anew or train again"
            ) from error

    def _restore(self, scales: list[Fraction], states: Mapping[str, Weights]) -> None:
        """Make the networks from their weights, which tell the numbers of classes and channels."""
        import torch

        from segkit.networks.pyramid import levels_of, upscaling_of

        first = next(iter(states.values()))
        upscaling = upscaling_of(levels_of(self.network)[1])
        self.scales_, self.n_classes_ = scales, len(first["score.bias"]) // upscaling**2
        self.knows_depth_ = "score_depth.bias" in first
        self._networks = {}
        for member, state in states.items():
            with torch.device("meta"):  # no random numbers are drawn
                network = self._build(len(state["mean"]), None)
            network.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
            self._networks[member] = network.eval().requires_grad_(requires_grad=False)

    def _check(self) -> None:
        super()._check()
        if any(scale > 1 for scale in scales_of(self.pyramid)):
            raise ConfigError(
                f"pyramid {list(self.pyramid)}: networks are trained at scales 1, 1/2, 1/3 and so on"
            )

    @property
    def _scales(self) -> list[Fraction]:
        """Scales in use, or those that may be used before a fit."""
        return getattr(self, "scales_", None) or sorted(scales_of(self.pyramid), reverse=True)

    @property
    def _n_steps(self) -> int:
        """Training steps of each network."""
        return max(1, self.n_steps // len(self.scales_))

    @property
    def _bytes_on_the_way(self) -> float:
        """Bytes for each pixel at the scale of a network while it runs."""
        from segkit.networks.pyramid import levels_of

        if self.network == "mobilenet_v2":
            return _BYTES_OF_MOBILENET
        n_values = sum(number / stride**2 for number, stride in zip(*levels_of(self.network), strict=True))
        return max(_BYTES_OF_OTHERS, _BYTES_OF_VALUE * n_values)

    def _most_threads(self, n_networks: int, images: Sequence[FloatArray]) -> int:
        """Count the threads whose steps fit into memory beside the networks; refuse to train if none does."""
        import torch

        if torch_device().type != "cpu":  # what a card lacks it tells itself
            return n_networks
        with torch.device("meta"):
            weights = self._build(images[0].shape[2], None).state_dict().values()
        kept = n_networks * _TIMES_WEIGHTS * sum(value.nbytes for value in weights)
        of_thread = int(_TIMES_ON_THE_WAY * self._bytes_on_the_way * BATCH_SIZE * _crop(images) ** 2)
        require_bytes(
            kept + of_thread,
            what=f"training of {count(n_networks, 'network')}",
            cure="train fewer (a shorter bank.pyramid), or take the default bank",
        )
        return int(max(1, (bytes_left() - kept) // of_thread))

    @property
    def _n_maps(self) -> int:
        """Number of maps at a scale: one for two classes, and one for the depth."""
        return (1 if self._n_classes == 2 else self._n_classes) + self._knows_depth

    @property
    def _n_classes(self) -> int:
        """Number of classes; two before a fit."""
        return getattr(self, "n_classes_", 2)

    @property
    def _knows_depth(self) -> bool:
        return getattr(self, "knows_depth_", False)

    @property
    def _strides(self) -> tuple[int, int]:
        """Strides of the maps of a network, and of the coarsest ones within."""
        from segkit.networks.pyramid import levels_of

        strides = levels_of(self.network)[1]
        return strides[0], strides[-1]

    def _build(self, n_image_channels: int, initial: Weights | None) -> PyramidNetwork:
        """Build a network, with initial weights of its encoder or random ones."""
        from segkit.networks.pyramid import build

        return build(self.network, initial, n_image_channels, self._n_classes, depth=self._knows_depth)

    def _initial_weights(self) -> Weights | None:
        """Load the initial weights of the encoder; None are random."""
        source = str(self.weights)
        if source == "random":
            return None
        if self.network == "mobilenet_v2":
            return load_weights(self.network, source)
        state = load_pretrained(self.network) if source == "imagenet" else read_weights(Path(source))
        return Backbone(self.network, usual_window(self.network), state).state

    def _start_all(
        self,
        images: Sequence[FloatArray],
        targets: Sequence[IdArray],
        n_parts: int,
        held_out: Sequence[Sequence[NDArray[np.bool_]]],
        initial: Weights | None,
    ) -> Iterator[Training]:
        """Begin the training of the networks, by scale and fold; those of a scale share its images."""
        for scale in self.scales_:
            factor = scale.denominator
            shrunk = [shrink(image, factor) for image in images]
            for fold, masks in enumerate(held_out):
                learnt = [
                    np.where(guarded(out), np.uint8(UNLABELLED), mask)
                    for mask, out in zip(targets, masks, strict=True)
                ]
                labelled = [index for index, mask in enumerate(learnt) if (mask != UNLABELLED).any()]
                yield self._start(
                    [shrunk[index] for index in labelled],
                    [shrink_ids(learnt[index], factor) for index in labelled],
                    n_parts,
                    _Member(scale, fold),
                    initial,
                )

    def _start(
        self,
        images: Sequence[FloatArray],
        targets: Sequence[IdArray],
        n_parts: int,
        member: _Member,
        initial: Weights | None,
    ) -> Training:
        """Begin the training of a network on images at its scale."""
        import torch
        from torch.optim.lr_scheduler import OneCycleLR

        from segkit.networks.crops import CropSampler
        from segkit.networks.training import Training, seeded

        key = [self.random_state, member.scale.denominator, member.fold]
        seed = int(np.random.SeedSequence(key).generate_state(1)[0])
        device = torch_device()
        with seeded(seed, device):
            network = (
                self._build(images[0].shape[2], initial).to(device).to(memory_format=torch.channels_last)
            )
        sampler = CropSampler(images, targets, crop=_crop(images), augment=True)
        encoder = {id(weight) for weight in network.encoder.parameters()}
        rest = [weight for weight in network.parameters() if id(weight) not in encoder]
        optimiser = torch.optim.AdamW(
            [{"params": list(network.encoder.parameters())}, {"params": rest}], weight_decay=WEIGHT_DECAY
        )
        # torch divides by the steps of the rise less one, which is 0 for ten steps
        n_steps = 11 if self._n_steps == 10 else self._n_steps
        schedule = OneCycleLR(optimiser, [ENCODER_RATE, RATE], n_steps, pct_start=RISE, cycle_momentum=False)
        return Training(
            network,
            optimiser,
            sampler,
            partial(_loss, n_parts=n_parts),
            lambda batch: _as_batch(batch, device),
            batch_size=BATCH_SIZE,
            seed=seed,
            schedule=schedule,
            average=AVERAGE,
        )

    def _run(self, networks: Sequence[PyramidNetwork], image: FloatArray, scale: Fraction) -> FloatArray:
        """Compute the mean logits (n_maps, h, w) of an image (H, W, C) over networks and symmetries."""
        import torch

        small = shrink(image, scale.denominator)
        multiple = self._strides[1]
        padding = [(0, -side % multiple) for side in small.shape[:2]]
        shape = [math.ceil(side / self._strides[0]) for side in small.shape[:2]]
        padded = np.pad(small, (*padding, (0, 0)), mode="reflect")
        symmetries = _SYMMETRIES if self.symmetries else _SYMMETRIES[:1]
        total: Any = 0
        # each network sees some of the turned images: all pairs take longer and are no better
        n_passes = max(len(networks), len(symmetries))
        with torch.inference_mode(), told_if_full():
            for number in range(n_passes):
                network = networks[number % len(networks)]
                if network.mean.device.type != torch_device().type:  # moving takes as long as a small layer
                    network.to(torch_device())
                swaps, rows, cols = symmetries[number % len(symmetries)]
                moved = padded[::rows, ::cols]
                moved = moved.transpose(1, 0, 2) if swaps else moved
                found = self._forward(network, moved)
                found = found.transpose(0, 2, 1) if swaps else found
                total = total + found[:, ::rows, ::cols]
        scores = (total / n_passes)[:, : shape[0], : shape[1]]
        classes, depth = np.split(scores, [self._n_classes])
        classes = classes[1:] - classes[:1] if len(classes) == 2 else classes - classes.mean(axis=0)
        logits = np.concatenate([classes, depth])
        return np.asarray(np.clip(logits, -MOST_LOGIT, MOST_LOGIT), dtype=np.float32)

    def _forward(self, network: PyramidNetwork, image: FloatArray) -> FloatArray:
        """Compute the outputs (n_outputs, h, w) of a network, by tiles if the image is large."""
        stride, multiple = self._strides
        shape = [self._n_classes + self._knows_depth, *(side // stride for side in image.shape[:2])]
        outputs = np.empty(shape, dtype=np.float32)
        for tile in cut(image.shape, _REACH, multiple):
            _before_pass.get()()
            found = network(_as_batch(image[tile.seen][None], torch_device()))[0].cpu().numpy()
            core, inner = (
                tuple(slice(side.start // stride, side.stop // stride) for side in sides)
                for sides in (tile.core, tile.inner)
            )
            outputs[:, core[0], core[1]] = found[:, inner[0], inner[1]]
        return outputs

    def _as_maps(self, logits: FloatArray, channels: NDArray[np.intp], place: int) -> FeatureMaps:
        """Place the wanted logits of a scale on the pixels of the image."""
        stride = self._strides[0] / float(self._scales[place])
        return FeatureMaps(logits[channels - place * self._n_maps], channels, stride, (stride - 1) / 2)

    def _read_held_out(
        self, images: Sequence[FloatArray], held_out: Sequence[Sequence[NDArray[np.bool_]]]
    ) -> list[list[FeatureMaps]]:
        """Compute the maps of each training image, each cell by the network that did not see it."""
        found = []
        for index, image in enumerate(images):
            maps = []
            for place, scale in enumerate(self._scales):
                logits: Any = None
                for fold, masks in enumerate(held_out):
                    if masks[index].any():
                        run = self._run([self._networks[_Member(scale, fold).name]], image, scale)
                        cells = cells_of(masks[index], run.shape[1:], self._strides[0] / float(scale))
                        logits = run if logits is None else np.where(cells, run, logits)
                maps.append(self._as_maps(logits, np.arange(self._n_maps) + place * self._n_maps, place))
            found.append(maps)
        return found

    def _digest(
        self,
        images: Sequence[FloatArray],
        ids: Sequence[IdArray],
        members: Sequence[_Member],
        held_out: Sequence[Sequence[NDArray[np.bool_]]],
        initial: Weights | None,
    ) -> str:
        """Compute the sha256 of all that affects training; the place of the weights does not."""
        import torch

        with torch.device("meta"):
            state = self._build(images[0].shape[2], None).state_dict()
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        names = [member.name for member in members]
        constants = (
            _crop(images),
            GUARD,
            BATCH_SIZE,
            ENCODER_RATE,
            RATE,
            WEIGHT_DECAY,
            AVERAGE,
            RISE,
            _WEIGHT_OF_DEPTH,
        )
        options = repr([self.network, self._n_steps, self.random_state, names, shapes, constants])
        arrays: dict[str, NDArray[Any]] = {"options": np.frombuffer(options.encode(), dtype=np.uint8)}
        arrays |= {
            f"weights/{name}": value.detach().float().numpy()
            for name, value in (initial or {}).items()
            if isinstance(value, torch.Tensor)  # the network refuses others
        }
        for index, (image, mask) in enumerate(zip(images, ids, strict=True)):
            arrays |= {f"image{index}": image, f"mask{index}": mask}
            arrays |= {f"held_out{index}/{fold}": masks[index] for fold, masks in enumerate(held_out)}
        return digest_arrays(arrays)


class _KnownMaps(TunedBank):
    """The maps of one training image, whatever image is given."""

    def iter_maps(
        self, image: FloatArray, tile: Tile, channels: NDArray[np.intp] | None = None
    ) -> Iterator[FeatureMaps]:
        """Return the known maps, counted from the first row and column that a tile sees."""
        wanted = self._wanted(channels, image.shape[2])
        corner = [side.start for side in tile.seen]
        for stack in self._known:
            own = stack.subset(wanted)
            if own.indices.size:
                offset = tuple(np.broadcast_to(own.offset, 2) - corner)
                yield replace(own, offset=offset)


def _crop(images: Sequence[FloatArray]) -> int:
    """Side of the crops of images."""
    shortest: int = min(side for image in images for side in image.shape[:2])
    return min(CROP, max(LEAST_SIDE, shortest // 32 * 32))


def _in_training(member: str) -> tuple[float, bool, int, str]:
    """Place of a network by its name: by scale, fine to coarse, and fold, the network that sees all at the end."""
    scale, _, fold = member.partition("/")
    return -float(scale), fold == "all", len(fold), fold


def _loss(scores: torch.Tensor, targets: torch.Tensor, *, n_parts: int) -> torch.Tensor:
    """Compute the loss of the classes, and that of the depth in objects, whose parts are paired with them in the targets."""
    from segkit.networks.training import cross_entropy_and_dice, soft_cross_entropy_and_dice

    if not n_parts:
        return cross_entropy_and_dice(scores, targets)
    classes, parts = targets // (n_parts + 1), targets % (n_parts + 1)
    is_known = (targets != UNLABELLED) & (parts < n_parts)
    by_class = cross_entropy_and_dice(scores[:, :-1], classes.where(targets != UNLABELLED, UNLABELLED))
    depth = (parts / (n_parts - 1)).clamp(max=1)
    return by_class + _WEIGHT_OF_DEPTH * soft_cross_entropy_and_dice(scores[:, -1:], depth, is_known)


def _count_parts(parts: Sequence[IdArray], n_classes: int) -> int:
    """Count the parts of objects to learn; 0 if they tell no more than classes, or if a byte does not hold all pairs."""
    n_parts = 1 + max((int(mask[mask != UNLABELLED].max(initial=0)) for mask in parts), default=0)
    return n_parts if n_parts >= LEAST_PARTS and n_classes * (n_parts + 1) <= UNLABELLED else 0


def _pair(ids: IdArray, parts: IdArray, n_parts: int) -> IdArray:
    """Join class ids and parts of objects, of which some may be unknown, in one number, which crops are varied with."""
    return np.where(
        ids == UNLABELLED, ids, ids * np.uint8(n_parts + 1) + np.minimum(parts, np.uint8(n_parts))
    )


def _as_batch(images: FloatArray, device: torch.device) -> torch.Tensor:
    """Move images (n, H, W, C) to a device as (n, C, H, W), whose channels lie side by side in memory."""
    import torch

    batch = torch.from_numpy(np.ascontiguousarray(images)).to(device)
    return batch.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
