"""Training of the baselines' networks: validation, early stopping, choice of the learning rate, training on all pixels."""

from __future__ import annotations

import json
import pickle
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from segkit._common import FloatArray, Progress
from segkit._common.files import saving
from segkit.baselines.augment import CropSampler
from segkit.baselines.options import Rates, Whole, check_options
from segkit.errors import ConfigError, InputError, OutputError, WeightsError
from segkit.evaluation.metrics import score_masks
from segkit.features.convnet import PREPROCESSING
from segkit.images import UNLABELLED
from segkit.images.sampling import BLOCKS, block_folds
from segkit.segmentation.base import BaseSegmenter, IdArray
from segkit.segmentation.model_file import digest_arrays

if TYPE_CHECKING:
    import torch
    from torch import nn

# With this many images or more, one in this many is held out; with fewer, blocks of each image are.
_HELD_OUT_SHARE = 5


class _Validated:
    """Conclusions from a history of validations."""

    history: list[dict[str, Any]]

    @property
    def best_validation(self) -> dict[str, Any]:
        """The validation with the highest IoU, the first one if several are equal."""
        return max(self.history, key=lambda validation: validation["validation_iou"])

    @property
    def n_stale(self) -> int:
        """Number of validations since the best."""
        return len(self.history) - 1 - self.history.index(self.best_validation) if self.history else 0


@dataclass
class TrainingState(_Validated):
    """State of a run."""

    network: nn.Module
    optimiser: torch.optim.Optimizer
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def n_steps(self) -> int:
        """Number of steps up to the last entry of the history."""
        return int(self.history[-1]["step"]) if self.history else 0

    def record(self, step: int, loss: float, validation_iou: float) -> None:
        """Add a validation, and keep the weights if it is better than all before."""
        self.history.append({"step": step, "loss": loss, "validation_iou": validation_iou})
        if self.n_stale == 0:
            self.best = {
                name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()
            }


@dataclass
class FinishedRun(_Validated):
    """A run with held-out pixels that ended."""

    learning_rate: float
    history: list[dict[str, Any]]
    weights: dict[str, torch.Tensor]


class Checkpoint:
    """The finished runs of a training and the state of the present one, in a file if one is given."""

    def __init__(self, path: str | Path | None, digest: str) -> None:
        self._path = None if path is None else Path(path)
        self._digest = digest
        self._saved = (
            None if self._path is None or not self._path.exists() else self._read_checkpoint(self._path)
        )
        self.finished = [FinishedRun(**run) for run in (self._saved or {}).get("finished", ())]

    @property
    def best_run(self) -> FinishedRun:
        """The finished run with the best validation, the first one if several are equal."""
        return max(self.finished, key=lambda run: run.best_validation["validation_iou"])

    def finish(self, state: TrainingState, learning_rate: float) -> None:
        """Add the run of a state to the finished ones."""
        self.finished.append(FinishedRun(learning_rate, state.history, state.best))
        for run in self.finished:
            if run is not self.best_run:
                run.weights = {}

    def restore(self, state: TrainingState) -> None:
        """Restore a new run from what the file holds of it, once."""
        if self._saved is None:
            return
        state.network.load_state_dict(self._saved["network"])
        state.optimiser.load_state_dict(self._saved["optimiser"])
        state.best, state.history = self._saved["best"], self._saved["history"]
        self._saved = None

    def save(self, state: TrainingState) -> None:
        """Write the file; the old one stays until the new one is complete."""
        import torch

        if self._path is None:
            return
        content = {
            "digest": self._digest,
            "finished": [vars(run) for run in self.finished],
            "network": state.network.state_dict(),
            "optimiser": state.optimiser.state_dict(),
            "best": state.best,
            "history": state.history,
        }
        try:
            with saving(self._path) as temporary:
                torch.save(content, temporary)
        except RuntimeError as error:  # what torch makes of a failed write
            reason = str(error).splitlines()[0]
            raise OutputError(
                f"checkpoint {self._path} cannot be written ({reason}): choose a writable folder with room"
            ) from error

    def _read_checkpoint(self, path: Path) -> dict[str, Any]:
        import torch

        try:
            # weights_only: a file that would execute code is refused.
            content = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ConfigError(
                f"checkpoint {path} cannot be read: delete it to train from the start, or give another path"
            ) from error
        if not isinstance(content, dict) or content.get("digest") != self._digest:
            raise ConfigError(
                f"checkpoint {path} comes from other images, masks or options: "
                f"give another path, or delete it to train from the start"
            )
        return content


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
        device = _find_device(self.device)
        self.device_ = str(device)
        digest = self._digest(images, ids)
        checkpoint = Checkpoint(self.checkpoint, digest)
        learnt, held_out = _hold_out(ids, self.classes_.size, random_state=self.random_state)
        sampler = self._sampler(images, learnt)
        for rate in self._rates[len(checkpoint.finished) :]:
            state = self._start(rate, device, checkpoint)
            # A checkpoint may come from a run that had already stopped early.
            if state.n_stale < self.patience:
                self._train(state, sampler, _labelled(images, held_out), checkpoint, progress)
            checkpoint.finish(state, rate)
        self._take(checkpoint.best_run)
        if self.retrain:
            state = self._start(self.learning_rate_, device, checkpoint)
            self._train_on_all(state, self._sampler(images, ids), checkpoint, progress)
        else:
            self.network_.load_state_dict(checkpoint.best_run.weights)
        self.network_.eval()

    def _sampler(self, images: list[FloatArray], ids: list[IdArray]) -> CropSampler:
        return CropSampler(*_labelled(images, ids), crop=self.crop, augment=self.augment)

    def _start(self, rate: float, device: torch.device, checkpoint: Checkpoint) -> TrainingState:
        """Make a network and its optimiser, or continue with those of the checkpoint."""
        import torch

        with _seeded(self.random_state, device):
            network = self._build_network(self.n_image_channels_, self.classes_.size)
        self.network_ = network.to(device)
        self.n_parameters_ = sum(parameter.numel() for parameter in network.parameters())
        state = TrainingState(self.network_, torch.optim.Adam(network.parameters(), lr=rate))
        checkpoint.restore(state)
        return state

    def _train(
        self,
        state: TrainingState,
        sampler: CropSampler,
        validation: tuple[list[FloatArray], list[IdArray]],
        checkpoint: Checkpoint,
        progress: Progress,
    ) -> None:
        """Continue training from the state until validation or `max_steps` ends it."""
        losses: list[float] = []
        for step in progress(range(state.n_steps, self.max_steps), "Training"):
            losses.append(self._step(state.optimiser, sampler, step))
            if (step + 1) % self.eval_every and step + 1 < self.max_steps:
                continue
            state.record(step + 1, float(np.mean(losses)), self._validation_iou(*validation))
            losses = []
            checkpoint.save(state)
            if state.n_stale >= self.patience:
                break

    def _train_on_all(
        self, state: TrainingState, sampler: CropSampler, checkpoint: Checkpoint, progress: Progress
    ) -> None:
        """Continue training from the state up to the step of the best validation."""
        for step in progress(range(state.n_steps, self.best_step_), "Training on all pixels"):
            loss = self._step(state.optimiser, sampler, step)
            if (step + 1) % self.eval_every == 0 or step + 1 == self.best_step_:
                state.history.append({"step": step + 1, "loss": loss})
                checkpoint.save(state)

    def _step(self, optimiser: torch.optim.Optimizer, sampler: CropSampler, step: int) -> float:
        """Take one step of Adam on the cross-entropy of a batch; returns the loss."""
        import torch
        from torch.nn.functional import cross_entropy

        # One seed for each step, so that a resumed run draws the same crops.
        rng = np.random.default_rng([self.random_state, step])
        images, ids = sampler.draw(self.batch_size, rng)
        target = torch.from_numpy(ids).long().to(self.device_)
        with _seeded(int(rng.integers(2**32)), target.device):
            scores = self.network_.train()(self._to_tensor(images))
        # torch's mean is NaN for a batch without labelled pixels.
        n_labelled = max(1, int(np.count_nonzero(ids != UNLABELLED)))
        loss = cross_entropy(scores, target, ignore_index=UNLABELLED, reduction="sum") / n_labelled
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.item()

    def _validation_iou(self, images: Sequence[FloatArray], ids: Sequence[IdArray]) -> float:
        self.network_.eval()
        guesses = [self._labels(self._scores(image)) for image in images]
        return score_masks(ids, guesses, self.classes_.size).mean

    def _take(self, run: FinishedRun) -> None:
        """Note the run with the best validation."""
        self.learning_rate_ = run.learning_rate
        self.history_ = run.history
        self.n_steps_ = run.history[-1]["step"]
        self.best_step_ = run.best_validation["step"]
        self.best_validation_iou_ = run.best_validation["validation_iou"]
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


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's random numbers inside the context, and restore its generators afterwards."""
    import torch

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # torch.manual_seed would also seed GPUs whose generators are not restored.
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


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
