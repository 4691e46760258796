"""Segmentation of all images of a project, or of another folder, in a process of its own."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from segkit._common import Progress
from segkit.errors import count
from segkit.live.background import BackgroundWork, Report
from segkit.live.corrections import Corrections
from segkit.live.events import Run
from segkit.segmentation.folders import segment_folder
from segkit.segmentation.outcome import SUMMARY
from segkit.segmentation.segmenter import Segmenter

_NONE = Run("none", "No results yet")
_STOPPED = Run("none", "Stopped before the end: segment all images again, it goes on where it was")


class FolderRunner(BackgroundWork):
    """Segments one folder at a time; `run` says how far it is.

    What is up to date stays: the same model makes only the images whose labels have changed anew.
    """

    def __init__(
        self, folder: Path | None, changed: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        super().__init__("the segmentation of a folder", changed, failed)
        self._last, self._output = _NONE, ""
        if folder is not None and (folder / SUMMARY).is_file():  # of an earlier session
            self._last = Run("done", "Results of an earlier session", str(folder))
        # of the model, before a folder is segmented
        self.training: Report | None = None
        self.cancelled = threading.Event()

    @property
    def run(self) -> Run:
        """What goes on, or what there is."""
        if self.training is not None:
            return Run("training", "Training the model on all labels", "", *self.training[1:])
        if (report := self.report) is not None:
            return Run("segmenting", "Segmenting the images", self._output, *report[1:])
        if self._last.state == "done" and not (Path(self._last.output) / SUMMARY).is_file():
            return _STOPPED
        return self._last

    def segment(
        self, segmenter: Segmenter, images: Path, output: Path, project: Path | None, *, is_own: bool
    ) -> None:
        """Begin; with the folder of a project, what was labelled and checked there takes the place of predictions.

        `is_own` says that the images are all of the project.
        """

        def prepare() -> None:
            self._output = str(output)

        def keep(run: Run) -> None:
            self._last = replace(run, is_own=is_own)

        self.start(partial(_segment, segmenter, images, output, project), prepare=prepare, done=keep)


def _segment(
    segmenter: Segmenter,
    images: Path,
    output: Path,
    project: Path | None,
    progress: Progress,
) -> Run:
    """Segment a folder, with objects if the model has a background, and say what came of it."""
    corrections = None if project is None else Corrections(project, segmenter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = segment_folder(
            segmenter,
            images,
            output,
            overlay=True,
            objects=True,
            resume=True,
            corrections=corrections,
            progress=progress,
        )
    notes = [str(one.message) for one in caught if one.category is UserWarning]
    notes += list(dict.fromkeys(row.reason for row in [*outcome.failed, *outcome.skipped]))
    told = f"{count(len(outcome.masks), 'file')} segmented"
    return Run("done", told, str(output), 1.0, notes=tuple(notes))
