"""State of the training of a network, and the file that keeps it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segkit._files import saving
from segkit.errors import ConfigError, OutputError

if TYPE_CHECKING:
    import torch
    from torch import nn


class _Validated:
    """What a history of validations tells."""

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
        self._saved = None if self._path is None or not self._path.exists() else self._read(self._path)
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

    def _read(self, path: Path) -> dict[str, Any]:
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
