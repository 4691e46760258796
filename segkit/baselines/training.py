"""Training of the baselines' networks: validation, early stopping, choice of the learning rate, training on all pixels."""

from __future__ import annotations

import json
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from segkit._common import FloatArray, Progress
from segkit._common.arrays import digest_arrays
from segkit.baselines.options import Rates, Whole, check_options
from segkit.errors import ConfigError, InputError, WeightsError
from segkit.evaluation.metrics import score_masks
from segkit.features.convnet import PREPROCESSING
from segkit.images import UNLABELLED
from segkit.images.sampling import BLOCKS, block_folds
from segkit.networks.crops import CropSampler, import_albumentations
from segkit.networks.training import Checkpoint, Training, cross_entropy, seeded
from segkit.segmentation.base import BaseSegmenter, IdArray

if TYPE_CHECKING:
    import torch
    from torch import nn

# With this many images or more, one in this many is held out; with fewer, blocks of each image are.
_HELD_OUT_SHARE = 5


class _Run:
    """Conclusions from the validations of a training."""

    def __init__(self, history: list[dict[str, Any]]) -> None:
        self.history = history

    @property
    def best(self) -> dict[str, Any]:
        """The validation with the highest IoU, the first one if several are equal."""
        return max(self.history, key=lambda validation: validation["validation_iou"])

    @property
    def n_stale(self) -> int:
        """Number of validations since the best."""
        return len(self.history) - 1 - self.history.index(self.best) if self.history else 0


class NetSegmenter(BaseSegmenter):
    """A network trained until the segmentation of held-out pixels no longer improves."""

    # A training step depends on its number and the seed only: on a CPU, a run that goes on from a checkpoint ends with the
    # weights of one without interruption.

    def __init__(
        self,
        *,
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
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.crop = crop
        self.eval_every = eval_every
        self.patience = patience
        self.retrain = retrain
        self.augment = augment
        self.device = device
        self.checkpoint = checkpoint
        self.unlabelled = unlabelled
        self.random_state = random_state

    @property
    @abstractmethod
    def _stride(self) -> int:
        """Number of pixels; the sides of the network's input must be multiples of it."""

    @abstractmethod
    def _build_network(self, n_image_channels: int, n_classes: int) -> nn.Module:
        """Build the network from normalised images (n, C, H, W) to scores (n, n_classes, H, W)."""

    def _normalise(self, images: FloatArray) -> FloatArray:
        """Normalise images (..., C) in [0, 1] for the network."""
        return images - np.float32(0.5)

    def check_options(self) -> None:
        """Refuse options out of their ranges, that do not fit each other, or are without effect."""
        check_options(self)
        if self.crop % self._stride or self.crop < 2 * self._stride:
            raise ConfigError(
                f"crop={self.crop}: give a multiple of {self._stride} of at least {2 * self._stride} pixels"
            )

    def _refuse_idle(self, name: str, default: Any, *, under: str) -> None:
        """Refuse an option that another one leaves without effect, unless it is the default."""
        given, cause = getattr(self, name), getattr(self, under)
        if given != default:
            raise ConfigError(
                f"{name}={given!r} does nothing under {under}={cause!r}: leave it out, or change {under}"
            )

    @property
    def _rates(self) -> list[Any]:
        """List the learning rates to choose from."""
        rate: Any = self.learning_rate
        return list(rate) if isinstance(rate, list | tuple) else [rate]

    def _fit(self, images: list[FloatArray], ids: list[IdArray], progress: Progress) -> None:
        self.check_options()
        if self.augment:
            import_albumentations()  # or it is told before weights are downloaded
        device = _find_device(self.device)
        self.device_ = str(device)
        checkpoint = Checkpoint(self.checkpoint, self._digest(images, ids))
        learnt, held_out = _hold_out(ids, self.classes_.size, random_state=self.random_state)
        for rate in self._rates[len(checkpoint.finished) :]:
            training = self._start(rate, images, learnt, device)
            training.notes = {"history": [], "best": {}}
            checkpoint.restore(training)
            # a checkpoint may come from a run that had already stopped early
            if _Run(training.notes["history"]).n_stale < self.patience:
                self._train(training, _labelled(images, held_out), checkpoint, progress)
            checkpoint.finished.append({"learning_rate": rate} | training.notes)
        best = max(checkpoint.finished, key=lambda run: _Run(run["history"]).best["validation_iou"])
        self._take(best["learning_rate"], _Run(best["history"]))
        if self.retrain:
            training = self._start(self.learning_rate_, images, ids, device)
            checkpoint.restore(training)
            self._train_on_all(training, checkpoint, progress)
        else:
            self.network_.load_state_dict(best["best"])
        self.network_.eval()

    def _start(
        self, rate: float, images: Sequence[FloatArray], ids: Sequence[IdArray], device: torch.device
    ) -> Training:
        """Begin the training of a new network."""
        import torch

        with seeded(self.random_state, device):
            network = self._build_network(self.n_image_channels_, self.classes_.size)
        self.network_ = network.to(device)
        self.n_parameters_ = sum(parameter.numel() for parameter in network.parameters())
        return Training(
            self.network_,
            torch.optim.Adam(network.parameters(), lr=rate),
            CropSampler(*_labelled(images, ids), crop=self.crop, augment=self.augment),
            cross_entropy,
            self._to_tensor,
            batch_size=self.batch_size,
            seed=self.random_state,
        )

    def _train(
        self,
        training: Training,
        validation: tuple[list[FloatArray], list[IdArray]],
        checkpoint: Checkpoint,
        progress: Progress,
    ) -> None:
        """Train until validation or `max_steps` ends it."""
        history, losses = training.notes["history"], []
        for _ in progress(range(training.n_steps, self.max_steps), "Training"):
            losses.append(self._step(training))
            if training.n_steps % self.eval_every and training.n_steps < self.max_steps:
                continue
            iou = self._validation_iou(*validation)
            history.append({"step": training.n_steps, "loss": float(np.mean(losses)), "validation_iou": iou})
            losses = []
            if _Run(history).n_stale == 0:
                training.notes["best"] = training.weights
            checkpoint.save(training)
            if _Run(history).n_stale >= self.patience:
                break

    def _train_on_all(self, training: Training, checkpoint: Checkpoint, progress: Progress) -> None:
        """Train up to the step of the best validation."""
        for _ in progress(range(training.n_steps, self.best_step_), "Training on all pixels"):
            self._step(training)
            if training.n_steps % self.eval_every == 0 or training.n_steps == self.best_step_:
                checkpoint.save(training)

    def _step(self, training: Training) -> float:
        """Take a step, whose dropout depends on its number and the seed only."""
        seed = np.random.SeedSequence([self.random_state, training.n_steps]).generate_state(1)[0]
        with seeded(int(seed), next(self.network_.parameters()).device):
            return training.step()

    def _validation_iou(self, images: Sequence[FloatArray], ids: Sequence[IdArray]) -> float:
        self.network_.eval()
        guesses = [self._labels(self._scores(image)) for image in images]
        return score_masks(ids, guesses, self.classes_.size).mean

    def _take(self, learning_rate: float, run: _Run) -> None:
        """Note the run with the best validation."""
        self.learning_rate_ = learning_rate
        self.history_ = run.history
        self.n_steps_ = run.history[-1]["step"]
        self.best_step_ = run.best["step"]
        self.best_validation_iou_ = run.best["validation_iou"]
        self.stopped_early_ = run.n_stale >= self.patience

    def _digest(self, images: Sequence[FloatArray], ids: Sequence[IdArray]) -> str:
        """Compute the sha256 of everything that affects training: options, images and masks."""
        # The place of the checkpoint and the device do not change the course of training.
        options = self.get_params() | {"checkpoint": None, "device": None}
        text = json.dumps([type(self).__name__, options], default=str, sort_keys=True)
        arrays: dict[str, NDArray[Any]] = {"options": np.frombuffer(text.encode(), dtype=np.uint8)}
        for index, (image, mask) in enumerate(zip(images, ids, strict=True)):
            arrays |= {f"image{index}": image, f"mask{index}": mask}
        return digest_arrays(arrays)

    def _to_tensor(self, images: FloatArray) -> torch.Tensor:
        """Convert images (n, H, W, C) to the network's input (n, C', H, W)."""
        import torch

        batch = torch.from_numpy(self._normalise(images)).to(self.device_)
        return batch.permute(0, 3, 1, 2).contiguous()

    def _scores(self, image: FloatArray) -> FloatArray:
        """Compute probabilities; far edges of the image are mirrored to a multiple of the network's stride."""
        import torch

        height, width = image.shape[:2]
        padding = ((0, -height % self._stride), (0, -width % self._stride), (0, 0))
        batch = self._to_tensor(np.pad(image, padding, mode="reflect")[None])
        with torch.inference_mode():
            probabilities = self.network_(batch)[0, :, :height, :width].softmax(dim=0)
        return np.ascontiguousarray(probabilities.permute(1, 2, 0).cpu().numpy())

    def _labels(self, scores: FloatArray) -> NDArray[np.intp]:
        return np.asarray(scores.argmax(axis=2))

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        return scores


def _hold_out(
    ids: Sequence[IdArray], n_classes: int, *, random_state: int = 0
) -> tuple[list[IdArray], list[IdArray]]:
    """Split annotations into a training part, which must keep all classes, and a validation part with the most classes."""
    splits = []
    for held in _candidates([mask.shape for mask in ids], np.random.default_rng(random_state)):
        pairs = list(zip(ids, held, strict=True))
        learnt = [np.where(out, np.uint8(UNLABELLED), mask) for mask, out in pairs]
        held_out = [np.where(out, mask, np.uint8(UNLABELLED)) for mask, out in pairs]
        if _count_classes(learnt) == n_classes:
            splits.append((learnt, held_out))
    best = max(splits, key=lambda split: _count_classes(split[1]), default=None)
    if best is None or _count_classes(best[1]) == 0:
        warnings.warn(
            "too few annotated regions to hold any out: the IoU of the training pixels themselves decides when "
            "training stops; annotate one more image",
            UserWarning,
            stacklevel=4,
        )
        return list(ids), list(ids)
    return best


def _candidates(
    shapes: Sequence[tuple[int, ...]], rng: np.random.Generator
) -> Iterator[list[NDArray[np.bool_]]]:
    """Yield ways to hold out whole images, or blocks of few images, as a mask of held-out pixels for each image."""
    if len(shapes) >= _HELD_OUT_SHARE:
        n_held = len(shapes) // _HELD_OUT_SHARE
        order = rng.permutation(len(shapes))
        for start in range(0, len(shapes) - n_held + 1, n_held):
            chosen = order[start : start + n_held]
            yield [np.full(shape, index in chosen) for index, shape in enumerate(shapes)]
    else:
        for fold in rng.permutation(BLOCKS):
            yield [_folds(shape) == fold for shape in shapes]


def _folds(shape: tuple[int, ...]) -> NDArray[np.intp]:
    row, col = np.indices(shape)
    return block_folds(row, col, shape)


def _count_classes(ids: Sequence[IdArray]) -> int:
    present = np.unique(np.concatenate([np.unique(mask) for mask in ids]))
    return int(np.count_nonzero(present != UNLABELLED))


def _labelled(images: Sequence[FloatArray], ids: Sequence[IdArray]) -> tuple[list[FloatArray], list[IdArray]]:
    """Select the images and masks with a labelled pixel."""
    kept = [index for index, mask in enumerate(ids) if (mask != UNLABELLED).any()]
    return [images[index] for index in kept], [ids[index] for index in kept]


def _find_device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ConfigError(f"device={name!r} is not available here: choose 'auto' or 'cpu'") from error
    return device


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
