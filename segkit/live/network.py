"""Training of a network on the labels of a project, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from segkit._common import Progress
from segkit._common.files import remove_unfinished
from segkit.live.background import BackgroundWork
from segkit.segmentation.segmenter import Segmenter


class NetworkTrainer(BackgroundWork):
    """Trains one network at a time, and keeps the last one in a folder, named after the labels that it was trained on.

    A training that was cancelled or killed goes on when it is started again for the same labels.
    """

    def __init__(self, folder: Path, changed: Callable[[], None], failed: Callable[[str], None]) -> None:
        super().__init__("the training of a network", changed, failed)
        self._folder = folder
        self.trained = next((path.stem for path in sorted(folder.glob("*.segkit"))), None)  # the labels

    def path_of(self, labels: str) -> Path:
        """Name the file of the network that was trained on these labels."""
        return self._folder / f"{labels}.segkit"

    def train(self, labels: str, segmenter: Segmenter, **training_set: Any) -> None:
        """Begin to fit a segmenter, or go on; the arguments of `Segmenter.fit` are given by name."""
        path = self.path_of(labels)

        def prepare() -> None:
            self._folder.mkdir(parents=True, exist_ok=True)
            remove_unfinished(self._folder)
            _remove_others(path.with_suffix(".checkpoint"))

        def done(_: None) -> None:
            _remove_others(path)
            self.trained = labels

        self.start(partial(_train, segmenter, training_set, path), prepare=prepare, done=done)


def _train(segmenter: Segmenter, training_set: dict[str, Any], path: Path, progress: Progress) -> None:
    """Fit a segmenter and write it."""
    segmenter.fit(**training_set, progress=progress, checkpoint=path.with_suffix(".checkpoint"))
    segmenter.save(path)


def _remove_others(path: Path) -> None:
    """Remove files beside a file that are of its kind."""
    for other in path.parent.glob(f"*{path.suffix}"):
        if other != path:
            other.unlink(missing_ok=True)
