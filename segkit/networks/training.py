"""Training of networks: steps, losses, checkpoints, device and seeds.

A step depends on its number and the seed only: on a processor, a training that goes on from a checkpoint ends with the
weights of one without interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from queue import PriorityQueue
from threading import Event
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from threadpoolctl import threadpool_limits

from segkit._common import FloatArray
from segkit._common.device import told_if_full
from segkit._common.files import saving
from segkit._common.threads import in_threads
from segkit.errors import ConfigError, OutputError
from segkit.images import UNLABELLED
from segkit.networks.crops import CropSampler

if TYPE_CHECKING:
    import torch
    from torch import nn

Weights = dict[str, "torch.Tensor"]
Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


class Training:
    """A network in training.

    Parameters
    ----------
    network : torch.nn.Module
        From images (n, C, H, W) to scores (n, n_classes, H', W').
    optimiser : torch.optim.Optimizer
        Of its weights.
    sampler : CropSampler
        Crops and their class ids.
    loss : callable
        Of scores (n, n_classes, h, w) and class ids (n, h, w).
    prepare : callable
        From images (n, H, W, C) to the network's input, on its device.
    batch_size, seed : int
        Crops in a step; seed of crops and dropout. A network draws from its attribute `rng`, which each step sets, or from
        the generators of torch: then `seeded` is for the caller.
    schedule : torch.optim.lr_scheduler.LRScheduler, optional
        Of the optimiser, which takes a step with it.
    average : float, default=0
        Decay of the running mean of the weights, `averaged`; 0 keeps none.
    """

    def __init__(
        self,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        sampler: CropSampler,
        loss: Loss,
        prepare: Callable[[FloatArray], torch.Tensor],
        *,
        batch_size: int,
        seed: int,
        schedule: Any = None,
        average: float = 0.0,
    ) -> None:
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

        self.network: Any = network
        self.optimiser, self.schedule = optimiser, schedule
        self._sampler, self._loss, self._prepare = sampler, loss, prepare
        self._batch_size, self._seed = batch_size, seed
        self.n_steps = 0
        self.notes: dict[str, Any] = {}  # what a caller keeps beside the weights
        self._averaged = (
            AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(average))  # type: ignore[no-untyped-call]
            if average
            else None
        )

    def step(self) -> float:
        """Take a step on a batch; returns the loss."""
        import torch

        # one seed for each step, so that a resumed training draws the same crops
        rng = np.random.default_rng([self._seed, self.n_steps])
        images, ids = self._sampler.draw(self._batch_size, rng)
        self.network.rng = rng
        with told_if_full():
            batch = self._prepare(images)
            loss = self._loss(self.network.train()(batch), torch.from_numpy(ids).long().to(batch.device))
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
        if self.schedule is not None:
            self.schedule.step()
        if self._averaged is not None:
            self._averaged.update_parameters(self.network)
        self.n_steps += 1
        return loss.item()

    @property
    def weights(self) -> Weights:
        """The weights of the network, or their running mean, on the processor."""
        network = self.network if self._averaged is None else self._averaged.module
        return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        """Return all that later steps depend on."""
        parts = {"network": self.network, "optimiser": self.optimiser, "schedule": self.schedule}
        parts["averaged"] = self._averaged
        state = {name: part.state_dict() for name, part in parts.items() if part is not None}
        if self.schedule is not None:
            # old versions of torch add a function, which no file may hold; the rest is as the schedule was made
            numbers = {name: value for name, value in state["schedule"].items() if isinstance(value, int)}
            state["schedule"] = numbers
        return state | {"n_steps": self.n_steps, "notes": self.notes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        parts = {"network": self.network, "optimiser": self.optimiser, "schedule": self.schedule}
        for name, part in (parts | {"averaged": self._averaged}).items():
            if part is not None:
                part.load_state_dict(state[name])
        self.n_steps, self.notes = state["n_steps"], state["notes"]


class Trainings:
    """Trainings of several networks side by side, each step on one thread: they end alike on any number of threads."""

    def __init__(self, trainings: Sequence[Training], most_threads: float = inf) -> None:
        self._trainings, self._most_threads = list(trainings), most_threads

    @property
    def n_steps(self) -> int:
        """Number of steps taken."""
        return self._trainings[0].n_steps

    def step(self, n_steps: int = 1) -> None:
        """Take steps in each training; a free thread takes the one with the fewest, so that threads seldom wait."""
        ends = [training.n_steps + n_steps for training in self._trainings]
        waiting: PriorityQueue[tuple[int, int]] = PriorityQueue()
        for place, training in enumerate(self._trainings):
            waiting.put((training.n_steps, place))
        failed = Event()

        def step_one(_: int) -> None:
            place = waiting.get()[1]
            training = self._trainings[place]
            try:
                if not failed.is_set():
                    training.step()
            except BaseException:
                failed.set()
                raise
            finally:  # after an error too, so that no thread waits for ever
                if training.n_steps < ends[place]:
                    waiting.put((training.n_steps, place))

        with threadpool_limits(1, "openmp"):  # also where the only thread is the caller's
            for _ in in_threads(step_one, range(n_steps * len(ends)), self._most_threads):
                pass

    @property
    def weights(self) -> list[Weights]:
        """The weights of each."""
        return [training.weights for training in self._trainings]

    def state_dict(self) -> list[dict[str, Any]]:
        """Return all that later steps depend on."""
        return [training.state_dict() for training in self._trainings]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Go on from a state."""
        for training, own in zip(self._trainings, state, strict=True):
            training.load_state_dict(own)


class Checkpoint:
    """What was trained, and the state of the present training, in a file if one is given.

    Parameters
    ----------
    path : str, Path or None
        The file. If it exists and has the same digest, its content is taken over.
    digest : str
        Digest of all that affects training.

    Attributes
    ----------
    finished : list
        What was trained, of tensors, numbers and texts. What is added is written by the next `save`.

    Raises
    ------
    ConfigError
        If the file cannot be read, or has another digest.
    """

    def __init__(self, path: str | Path | None, digest: str) -> None:
        self._path, self._digest = None if path is None else Path(path), digest
        exists = self._path is not None and self._path.exists()
        saved = self._read(self._path) if self._path is not None and exists else {}
        self.finished: list[Any] = saved.get("finished", [])
        self._state: Any = saved.get("training")

    def restore(self, training: Training | Trainings) -> None:
        """Let a new training go on from what the file holds of it, once."""
        if self._state is not None:
            training.load_state_dict(self._state)
            self._state = None

    def save(self, training: Training | Trainings | None = None) -> None:
        """Write the file; the old one stays until the new one is complete."""
        import torch

        if self._path is None:
            return
        state = None if training is None else training.state_dict()
        try:
            with saving(self._path) as temporary:
                torch.save({"digest": self._digest, "finished": self.finished, "training": state}, temporary)
        except RuntimeError as error:  # what torch makes of a failed write
            reason = str(error).splitlines()[0]
            raise OutputError(
                f"checkpoint {self._path} cannot be written ({reason}): choose a writable folder with room"
            ) from error

    def _read(self, path: Path) -> dict[str, Any]:
        import torch

        try:
            with ZipFile(path) as file:
                if file.testzip() is not None:  # torch does not look whether a byte has changed
                    raise BadZipFile
            # weights_only: a file that would execute code is refused.
            content = torch.load(path, map_location="cpu", weights_only=True)
        except MemoryError:
            raise
        except Exception as error:  # odd bytes make torch's reader fail in many ways
            raise ConfigError(
                f"checkpoint {path} cannot be read: delete it to train from the start, or give another path"
            ) from error
        if not isinstance(content, dict) or content.get("digest") != self._digest:
            raise ConfigError(
                f"checkpoint {path} comes from other images, masks or options, or another segkit: "
                f"repeat that training, or delete the file to train from the start"
            )
        return content


def cross_entropy(scores: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Compute the mean cross-entropy over labelled pixels; 0 for a batch without any, where torch's mean is NaN."""
    from torch.nn import functional

    scores = enlarge(scores, ids.shape[1:])
    n_labelled = (ids != UNLABELLED).sum().clamp(min=1)
    return functional.cross_entropy(scores, ids, ignore_index=UNLABELLED, reduction="sum") / n_labelled


def cross_entropy_and_dice(scores: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Add to the cross-entropy half of one minus the mean soft Dice coefficient of the classes."""
    from torch.nn import functional

    scores = enlarge(scores, ids.shape[1:])
    labelled = (ids != UNLABELLED)[:, None]
    probability = scores.softmax(dim=1) * labelled
    truth = functional.one_hot(ids * labelled[:, 0], scores.shape[1]).permute(0, 3, 1, 2) * labelled
    shared, sizes = ((part).sum(dim=(0, 2, 3)) for part in (probability * truth, probability + truth))
    return cross_entropy(scores, ids) + 0.5 * (1 - ((2 * shared + 1) / (sizes + 1)).mean())


def soft_cross_entropy_and_dice(
    logits: torch.Tensor, share: torch.Tensor, labelled: torch.Tensor
) -> torch.Tensor:
    """Compute the same loss of one logit (n, 1, h, w) for a share in [0, 1] of each labelled pixel, (n, H, W) both."""
    from torch.nn import functional

    logits = enlarge(logits, share.shape[1:])[:, 0]
    entropy = functional.binary_cross_entropy_with_logits(logits, share, labelled.to(logits), reduction="sum")
    probability, truth = logits.sigmoid() * labelled, share * labelled
    dice = (2 * (probability * truth).sum() + 1) / ((probability + truth).sum() + 1)
    return entropy / labelled.sum().clamp(min=1) + 0.5 * (1 - dice)


def enlarge(scores: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Interpolate scores to pixels."""
    from torch.nn import functional

    if tuple(scores.shape[2:]) == tuple(shape):
        return scores
    return functional.interpolate(scores, size=tuple(shape), mode="bilinear", align_corners=False)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's random numbers inside the context, and restore its generators afterwards."""
    import torch

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # torch.manual_seed would also seed GPUs whose generators are not restored.
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
