"""A live session: strokes in, label maps out, without a window or a server."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from segkit._common import FloatArray, Progress
from segkit._common.files import write_text
from segkit._common.threads import single_threaded_blas
from segkit.config.schema import Config, ObjectsConfig
from segkit.errors import ConfigError, InputError, OutputError, SegkitError, count
from segkit.features import FilterBank
from segkit.features.tuned import interruptible
from segkit.images import UNLABELLED, LabelMap
from segkit.images.alike import check_kinds, common_channels, fits, kind_of, with_channels
from segkit.images.outputs import find_within, is_same
from segkit.live.advice import LabelledPixels, glimpse, suggest_images, suggest_regions
from segkit.live.arrays import ArrayProject
from segkit.live.background import Report, Reporter
from segkit.live.cache import FeatureCache
from segkit.live.canvas import Canvas, OpenedModel
from segkit.live.classes import LabelClass
from segkit.live.doubts import Doubt
from segkit.live.drawing import Patch
from segkit.live.events import (
    Advised,
    Checked,
    Event,
    Expected,
    ExpectedPoint,
    Failed,
    Labels,
    Network,
    Objects,
    Run,
    Shown,
    Status,
    Task,
    explain,
)
from segkit.live.export import HandOver, hand_over, training_options
from segkit.live.features import Box, ImageFeatures
from segkit.live.folder import FolderRunner
from segkit.live.learner import Labelled, Learner, LiveModel, digest_labels
from segkit.live.network import NetworkTrainer
from segkit.live.objects import BusyError, ObjectEditor, PredictedObjects
from segkit.live.project import Project
from segkit.live.saving import Saver
from segkit.objects.annotated import AnnotatedRegions, splitter_of
from segkit.segmentation.object_model import ObjectModel
from segkit.segmentation.segmenter import Segmenter, default_bank, load
from segkit.segmentation.summary import HeldOutScores

_logger = logging.getLogger(__name__)
Listener = Callable[[Event], None]
Source = Literal["strokes", "model"]

# Seconds without a change before the model is evaluated, and before features of further images are computed.
QUIET_TO_EVALUATE = 0.8
QUIET_TO_LOOK_AHEAD = 1.5
# Images whose features stay at hand.
IMAGES_AT_HAND = 8
# The model that has segmented a folder: an export in between does not change it.
_RUN_MODEL = "results.segkit"
_PROGRESS, _NETWORK, _RESULTS = "progress.json", "network", "results"
_CLOSED = "the session is closed: open a new one"


class _InterruptedError(Exception):
    """A prediction is not wanted any more."""


class LiveSession:
    """Strokes in, label maps out: features once, a refit after each stroke, the visible part first.

    Parameters
    ----------
    project : Project or ArrayProject
        Images, label images and classes, on disk or in memory.
    config : Config, optional
        Options of training, as for ``segkit train``; of several banks the first is used while drawing.
    cache : FeatureCache, optional
        Where feature maps are kept.
    model : Segmenter, optional
        A trained model whose predictions are shown until `use` asks for those of the strokes. Its classes must have the
        names of the project's.
    network : Config, optional
        Options whose first bank `train_network` trains, ``configs/tuned.yaml`` by default; all else is as in `config`.

    Attributes
    ----------
    live : bool
        Whether the model is refitted after each stroke.
    objects : ObjectEditor
        Objects of the images, and corrections by hand.

    Raises
    ------
    ConfigError
        If the bank learns its filters from images.
    InputError
        If the classes of the model are not those of the project.

    Notes
    -----
    All heavy work is done by one thread, in pieces of a fraction of a second: a stroke waits for one piece at most.
    Listeners are called from that thread and from the thread that saves; they must return at once.

    Live fits draw 3,000 labelled pixels, the same ones again as far as they are labelled, and up to 300 random features.
    Kept channels, scales and kernels change only when labels have grown, or shrunk, by half, or classes or images are
    added; else the SVM starts from its last planes. The penalty is the usual one for the number of images. Threshold,
    probabilities and the expected accuracy come from held-out images (blocks, of a single one) once drawing has paused for
    a moment. `export` trains as ``segkit train`` does, on the same labels.

    The kernel machine answers at once, a network knows more. `train_network` trains one on the labels as they are, in a
    process of its own, while drawing goes on. Once it is trained, its predictions take the place of the kernel machine's,
    until a label changes; undo brings them back. `export` then writes the network. It is kept in the folder of the project,
    so that a session that is opened again with the same labels has it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from segkit.images import write_image
    >>> from segkit.live import FeatureCache, LiveSession, Project
    >>> folder = tempfile.mkdtemp()
    >>> image = np.zeros((32, 32))
    >>> image[:, 16:] = 0.8
    >>> write_image(f"{folder}/images/a.png", image)
    >>> with Project(f"{folder}/images", f"{folder}/out") as project:
    ...     with LiveSession(project, cache=FeatureCache(f"{folder}/cache")) as session:
    ...         session.open("a")
    ...         _ = session.paint("a", (2, 2), np.ones((28, 4), dtype=bool), 0)
    ...         _ = session.paint("a", (2, 26), np.ones((28, 4), dtype=bool), 1)
    ...         mask, probabilities = session.predict("a")
    >>> bool(mask[:, 2].max() < mask[:, 30].min()), probabilities.shape
    (True, (32, 32, 2))
    """

    def __init__(
        self,
        project: Project | ArrayProject,
        *,
        config: Config | None = None,
        cache: FeatureCache | None = None,
        model: Segmenter | None = None,
        network: Config | None = None,
    ) -> None:
        self.project = project
        self._config = Config() if config is None else config
        self._segmenter = self._config.build()
        self._bank = _bank_to_draw_with(self._segmenter)
        self._cache = FeatureCache() if cache is None else cache
        self._opened = None if model is None else OpenedModel(model, project.classes)
        self._source: Source = "strokes" if model is None else "model"
        tuned = (network or Config.load(Path("tuned"))).bank
        self._network_config = self._config.model_copy(
            update={"bank": tuned[0] if isinstance(tuned, tuple) else tuned}
        )
        self._folder = None if project.output is not None else tempfile.TemporaryDirectory(prefix="segkit-")
        folder = Path(self._folder.name) if self._folder is not None else project.output
        assert folder is not None
        self._trainer = NetworkTrainer(
            folder / _NETWORK, self._network_changed, lambda told: self._emit(Failed(told))
        )
        self._folders = FolderRunner(
            self.results,
            self._tell_run,
            lambda told: self._emit(Failed(told)),
        )
        # of the labels as they are, None if it is to be found out; that of the network read last
        self._digest: str | None = None
        self._read: tuple[str, OpenedModel] | None = None
        self._network: OpenedModel | None = None  # of the labels as they are
        self._told_network: Network | None = None
        self._telling = threading.Lock()  # what is told last is true
        self.objects = ObjectEditor(project, self._objects_of, self._labels_changed)
        self._live = True
        self._listeners: list[Listener] = []
        self._features: OrderedDict[str, ImageFeatures] = OrderedDict()
        self._glimpses: dict[str, FloatArray] = {}
        self._n_channels: int | None = None
        self._learner: Learner | None = None
        self._labelled: dict[str, Labelled] = {}
        self._regions: dict[str, AnnotatedRegions] = {}  # of the same labels
        self._stale = set(project.annotated())
        self._model: LiveModel | None = None
        self._generation = 0
        self._needs_fit = bool(self._stale)
        self._held_out_object_iou: float | None = None
        self._evaluate_at: float | None = None
        # the first image is probably the first to be shown
        self._look_ahead_at: float | None = time.monotonic()
        self._shown: str | None = None
        self._box: Box | None = None
        self._canvas: Canvas | None = None
        self._broken: set[str] = set()
        self._ahead: set[str] = set()
        self._told: Status | None = None
        self._strokes: set[object] = set()
        self._n_strokes, self._points = self._read_progress()
        self._closing = False
        # whether something came in since the last step began
        self._woken = False
        self._stepped_at = time.monotonic()
        self._calls: deque[tuple[Callable[[], HandOver], Future[HandOver]]] = deque()
        # held while heavy work is done: results belong to one state of the labels
        self._work = threading.RLock()
        self._is_exporting = False
        self._news = threading.Condition()
        self._is_idle = threading.Event()
        self._saver = Saver(project, self._emit, self._saved)
        self._thread = threading.Thread(target=self._run, name="segkit-live", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Save what is not saved, and stop; a training of a network ends, and goes on when it is asked for again.

        Labels that were deleted meanwhile are written again. An OutputError says where those are that cannot be saved.
        """
        with self._news:
            self._closing = True
            self._news.notify_all()
        # before the thread ends, which may take minutes: whoever ends the program may not wait
        fault = self._saver.close()
        self._trainer.cancel()
        self.cancel_run()
        self._thread.join()
        for _, answer in self._calls:  # nobody is left to answer
            answer.set_exception(InputError(_CLOSED))
        self._calls.clear()
        self._is_idle.set()  # nobody is to wait for what will not come
        if self._folder is not None:
            self._folder.cleanup()
        if fault is not None:
            raise fault

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event from now on; gives a function that ends it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return unsubscribe

    @property
    def live(self) -> bool:
        """Whether the model is refitted after each stroke."""
        return self._live

    @live.setter
    def live(self, value: bool) -> None:
        self._live = bool(value)
        self._wake()

    @property
    def source(self) -> Source:
        """Whether predictions of the strokes are shown, or those of the opened model."""
        return self._source

    @property
    def has_model(self) -> bool:
        """Whether a trained model was opened."""
        return self._opened is not None

    @property
    def network(self) -> Network:
        """The network, and whose predictions are shown."""
        shown: Shown = (
            "model" if self._source == "model" else "kernel machine" if self._network is None else "network"
        )
        known = self._network
        object_iou = None if known is None else _object_iou(known.held_out)
        if (report := self._trainer.report) is not None:
            return Network("training", shown, *report, object_iou=object_iou)
        if self._trainer.trained is None:
            return Network("none", shown, "No network yet")
        if self._trainer.trained == self._digest:
            return Network("current", shown, "Network of the labels as they are", object_iou=object_iou)
        return Network("earlier", shown, "Network of earlier labels: train it again")

    @property
    def points(self) -> tuple[ExpectedPoint, ...]:
        """Expected accuracy as annotation went on, of earlier sessions too."""
        return tuple(self._points)

    def open(self, key: str) -> None:
        """Show an image, or show it once more: its features are computed, then it is painted.

        An InputError says that the image is gone, damaged, or another one than when it was labelled.
        """
        self._look_again(key)
        labels = self.project.labels(key).labels
        with self._news:
            if key in self._broken:
                self._broken.discard(key)
                self._needs_fit = True
            if key != self._shown:
                self._shown, self._canvas = key, None
                self._box = (0, 0, *labels.shape)
            elif self._canvas is not None:
                self._canvas = self._canvas.again()
        self._wake()

    def look(self, key: str, box: Box) -> None:
        """Note which part of the shown image is visible: first row, first column, last row, last column, last ones out."""
        with self._news:
            if key == self._shown:
                self._box = box
        self._wake()

    def paint(
        self, key: str, corner: tuple[int, int], mask: ArrayLike, value: int, *, stroke: object | None = None
    ) -> Patch:
        """Label pixels; see `Project.paint`. The label image is saved, and the model refitted, in the background."""
        patch = self.project.paint(key, corner, mask, value, stroke=stroke)
        if stroke is None or (key, stroke) not in self._strokes:
            self._n_strokes += 1
            if stroke is not None:
                self._strokes.add((key, stroke))
        self._labels_changed(key, patch)
        return patch

    def undo(self, key: str) -> Patch | None:
        """Take the last step back; None if there is none."""
        return self._step_of(key, self.project.labels(key).undo())

    def redo(self, key: str) -> Patch | None:
        """Do the last step that was undone again; None if there is none."""
        return self._step_of(key, self.project.labels(key).redo())

    def accept(self, key: str) -> Patch:
        """Take the prediction as labels of all pixels that have none: "looks right". Without one: an InputError."""
        values, _ = self.predict(key)
        patch = self.project.accept(key, values)
        self._labels_changed(key, patch)
        return patch

    def set_classes(self, classes: list[LabelClass]) -> None:
        """Rename, recolour or add classes; see `Project.set_classes`. Those of an opened model stay."""
        if self._opened is not None and (gone := self._opened.values - {one.value for one in classes}):
            names = [one.name for one in self.project.classes if one.value in gone]
            raise InputError(f"class {', '.join(names)} is one of the opened model: keep it")
        self.project.set_classes(classes)
        self._put_network_aside()
        self._wake()

    @property
    def object_settings(self) -> dict[str, Any]:
        """What `set_objects` has set: depth, smallest, fill_holes."""
        return self._config.objects.model_dump(exclude={"least_probability"})

    def set_objects(
        self, *, depth: float | None = None, smallest: float | None = None, fill_holes: bool | None = None
    ) -> None:
        """Change by hand how objects are told apart, in all images and in what `export` writes.

        The arguments are those of `segkit.objects.split.Splitter.changed`, `depth` in place of `split`. None is as the
        labels teach it. A negative number, or one that is not finite, raises an InputError.
        """
        given = {"depth": depth, "smallest": smallest, "fill_holes": fill_holes}
        try:
            before = self._config.objects.least_probability
            changed = ObjectsConfig.model_validate(given | {"least_probability": before}, strict=True)
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
            needed = "yes or no" if name == "fill_holes" else "a number from 0"
            raise InputError(f"{name} of objects {given[name]!r}: give {needed}, or none") from error
        with self._news:  # not while heavy work is done: an export takes minutes
            self._config = self._config.model_copy(update={"objects": changed})
            if self._canvas is not None:
                self._canvas = self._canvas.again()
        self._write_progress()
        self._wake()

    def set_axes(self, axes: str) -> None:
        """Name the axes of files that do not name them, and read all images anew; see `Project.set_axes`."""
        if not isinstance(self.project, Project):
            raise InputError("images in memory have no files: give arrays (H, W) or (H, W, C)")
        with self._work:
            self.project.set_axes(axes)
            for held in (self._features, self._glimpses, self._labelled, self._regions):
                held.clear()
            self._ahead.clear()
            self._broken.clear()
            self._n_channels = self._learner = self._model = None
            self._put_network_aside()
            with self._news:
                self._stale = set(self.project.annotated())
                self._needs_fit = bool(self._stale)
                self._shown = self._canvas = None
                self._generation += 1
        self._wake()

    def use(self, source: Source) -> None:
        """Show predictions of the strokes, or of the opened model; without one it raises an InputError."""
        if source == "model" and self._opened is None:
            raise InputError("no trained model was opened: start with one, --model FILE.segkit")
        with self._news:
            if source != self._source:
                self._source, self._canvas = source, None
                self._generation += 1
        self._tell_network()
        self._wake()

    def train_network(self) -> None:
        """Train a network on all labels, in a process of its own; `Network` events say how far it is.

        What was trained before the session ended, or before `cancel_network`, is not trained again if labels are the same.
        With labels of fewer than two classes, while a network is trained, and if there is one of these labels already, it
        raises an InputError. What is missing for the training is told by a `Failed` event.
        """
        drawn = {key: self.project.labels(key).snapshot_of_objects() for key in self.project.annotated()}
        masks = {key: labels for key, (labels, _, _) in drawn.items()}
        if len({value for mask in masks.values() for value in np.unique(mask)} - {UNLABELLED}) < 2:
            raise InputError("too little is labelled yet: draw strokes of two classes or more, then train")
        digest = self._digest_of(
            {key: digest_labels(labels, numbers) for key, (labels, numbers, _) in drawn.items()}
        )
        numbered = [numbers for _, numbers, _ in drawn.values()]
        if digest == self._trainer.trained:
            raise InputError("the network knows all labels: draw where it errs, then train it again")
        images = {key: self.project.image(key) for key in masks}  # refused if not the one that was labelled
        kinds = {key: kind_of(image) for key, image in images.items()}
        check_kinds(kinds)
        n_channels = common_channels(kinds)
        assert n_channels is not None  # or check_kinds would have raised
        options = self.project.training_options()
        with self._news:
            if self._closing:
                raise InputError(_CLOSED)
            self._trainer.train(
                digest,
                self._network_config.build(),
                images=[with_channels(image, n_channels) for image in images.values()],
                masks=list(masks.values()),
                instances=numbered if any(map(np.any, numbered)) else None,
                groups=[self.project.file_of(key) for key in masks],
                label_map=LabelMap(options["labels"], options["unlabelled"]),
            )
        self._tell_network()

    def cancel_network(self) -> None:
        """End the training of a network, if there is one."""
        self._trainer.cancel()

    @property
    def results(self) -> Path | None:
        """Folder that `segment_folder` writes to if no other is given; None if images are in memory."""
        return None if self.project.output is None else self.project.output / _RESULTS

    @property
    def run(self) -> Run:
        """The segmentation of a folder that goes on, or the last one."""
        return self._folders.run

    def segment_folder(
        self, images: str | Path | None = None, output: str | Path | None = None, *, retrain: bool = True
    ) -> None:
        """Segment all images of the project, or of another folder, and measure their objects.

        The model is trained first, as by `export`; then a process of its own works as ``segkit predict --objects
        --overlay`` does, and `Run` events say how far it is. An opened model that is shown is used as it is. What was
        labelled or checked in images of the project takes the place of what is predicted there.

        Parameters
        ----------
        images : str or Path, optional
            Folder of images, or one image; by default those of the project, which must have files.
        output : str or Path, optional
            Folder of the results, ``results`` in the folder of the project by default. What is up to date there stays.
        retrain : bool, default=True
            Train the model on all labels. If False, the model of the last run is used: only images whose labels have
            changed are made anew.

        Raises
        ------
        InputError
            As `export` does, and if a folder is being segmented already. What is wrong with the folders is told by a
            `Failed` event.
        """
        own = self.project.source if isinstance(self.project, Project) else None
        if (images is None and own is None) or self.results is None:
            raise InputError(
                "images in memory have no folder: give a folder of images, and set project.output to one for the model"
            )
        source = own if images is None else Path(images)
        assert source is not None
        if not source.exists():
            raise InputError("no such folder: give one on the machine where segkit runs", source=source)
        output = self.results if output is None else Path(output)
        self._refuse_labels(output)
        with self._news:
            if self._closing:
                raise InputError(_CLOSED)
            if self.run.state in ("training", "segmenting"):
                raise InputError("a folder is being segmented already: wait for its end, or cancel it")
            self._folders.training = Report()
            self._folders.cancelled.clear()
        place, root = source.resolve(), own and own.resolve()
        has_labels = root is not None and place.is_relative_to(root) and bool(self.project.annotated())
        project = self.project.output if has_labels else None
        try:
            self._tell_run()
            for key in self.project.unsaved():
                self.project.save(key)
            segmenter = self._segmenter_of_run(retrain=retrain)
            if not self._folders.cancelled.is_set():
                self._folders.segment(segmenter, source, output, project, is_own=place == root)
                if self._folders.cancelled.is_set():  # meanwhile
                    self._folders.cancel()
        except _InterruptedError:
            pass
        finally:
            self._folders.training = None
            self._tell_run()

    def _refuse_labels(self, output: Path) -> None:
        """Refuse to write results among the labels."""
        assert self.project.output is not None
        for own in (self.project.output / name for name in ("masks", "checked", _NETWORK)):
            if find_within([output], [own]):
                raise InputError(f"{own} holds what you drew and trained: give another folder of results")
        if is_same(output, self.project.output):
            raise InputError(
                f"{output} is the folder of the labels: give another one, such as {self.results}"
            )

    def _tell_run(self) -> None:
        with self._telling:
            self._emit(self.run)

    def cancel_run(self) -> None:
        """End the segmentation of a folder, if one goes on; what is written stays."""
        self._folders.cancelled.set()
        self._folders.cancel()

    def _segmenter_of_run(self, *, retrain: bool) -> Segmenter:
        """Return the model that segments folders."""
        assert self.project.output is not None
        if self._source == "model" and self._opened is not None:
            segmenter = self._opened.segmenter
        else:
            model = self.project.output / _RUN_MODEL
            if retrain:
                self.export(model=model, progress=Reporter(self._note_training))
            elif not model.is_file():
                raise InputError("no model has segmented this folder yet: segment all images first")
            segmenter = load(model)
        return segmenter.with_objects(**self._config.objects.changes)

    def _note_training(self, told: Report) -> None:
        if self._folders.cancelled.is_set():
            raise _InterruptedError
        self._folders.training = told
        self._tell_run()

    def predict(self, key: str) -> tuple[NDArray[np.uint8], FloatArray]:
        """Predict a whole image with the model as it is.

        Returns mask values (H, W) uint8, and probabilities (H, W, n_classes) float32 of the classes that the model
        knows. Without a model, trained by strokes of two classes or opened, it raises an InputError.
        """
        with self._work:
            return self._canvas_of(key).whole()

    def suggest(self, key: str) -> Advised:
        """Find where annotation would teach most: in an image, and which other image; see `segkit.live.advice`.

        Only images whose features are known are ranked; the others follow as they are read. Before the strokes train a
        model it raises an InputError.
        """
        with self._work:
            self._refit_if_due()
            if self._model is None or self._learner is None:
                raise InputError("nothing is learnt yet: draw strokes of two classes or more")
            while self._advance(key):
                pass
            Z, n_images = self._learner.standardised_sample(self._model)
            known = LabelledPixels(self._model.classifier.kernels_, Z, n_images=n_images)
            boxes = suggest_regions(
                self._model, known, self._features_of(key), self.project.labels(key).labels
            )
            labelled = set(self.project.annotated()) | {key}
            others = [entry.key for entry in self.project.images if entry.key not in labelled]
            seen = [other for other in others if other in self._glimpses]
            drawn = [self._glimpses[one] for one in sorted(labelled) if one in self._glimpses]
            order = suggest_images(self._model, [self._glimpses[other] for other in seen], drawn)
        return Advised(key, tuple(boxes), tuple(seen[place] for place in order), len(others) - len(seen))

    def check_labels(self) -> tuple[Doubt, ...]:
        """Find labels that are contradicted by a model which has not seen them, those that are most surely wrong first.

        Each image is held out in turn, or each block of a single one. Before the strokes train a model it raises an
        InputError.
        """
        with self._work:
            self._refit_if_due()
            if self._model is None or self._learner is None:
                raise InputError("nothing is learnt yet: draw strokes of two classes or more")
            labels = {key: self.project.labels(key).snapshot()[0] for key in self._annotated()}
            return self._learner.find_doubts(self._model, labels)

    def export(self, *, model: str | Path | None = None, progress: Progress | None = None) -> HandOver:
        """Train on all labels as ``segkit train`` does, write the model, and return the command that repeats it.

        Where a network is shown, its model is written instead, which is trained already.

        The model file is by default ``model.segkit`` in the folder of the project; a file elsewhere is replaced.
        `progress` is as for `Segmenter.fit`. With labels of fewer than two classes it raises an InputError; if a file of
        somebody else is in the place of one in the folder of the project, an OutputError.
        """
        for key in self.project.annotated():
            self.project.image(key)  # refused if it is not the one that was labelled
            self.project.labels(key)  # or if files do not fit it
            self.project.save(key)
        answer: Future[HandOver] = Future()
        with self._news:
            if self._closing:
                raise InputError(_CLOSED)
            self._calls.append((partial(self._hand_over, progress, model), answer))
            self._news.notify_all()
        return answer.result()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until labels are saved and the shown image is painted; False if it took longer than `timeout` seconds."""
        return self._is_idle.wait(timeout)

    # What follows runs in the threads of the session, or while no other work is done.

    def _canvas_of(self, key: str) -> Canvas:
        """Return the prediction of an image by the model as it is."""
        if key != self._shown:
            self._look_again(key)
        self._refit_if_due()
        canvas = self._canvas
        is_new = canvas is not None and (canvas.key, canvas.generation) == (key, self._generation)
        if canvas is None or not is_new or canvas.opened is not self._opened_model:
            canvas = self._new_canvas(key)
        if canvas is None:
            raise InputError("nothing is predicted yet: draw strokes of two classes or more")
        return canvas

    def _run(self) -> None:
        while not self._closing:
            # looking for the threads of linear algebra takes longer than many a step: once for all steps
            with single_threaded_blas():
                while self._step_or_fail():
                    pass
            self._answer_calls()
            self._rest()

    def _step_or_fail(self) -> bool:
        """Do a piece of work; False if there is none left for now, or something else comes first."""
        if self._closing or self._calls:
            return False
        try:
            with self._work:
                return self._step()
        except Exception as error:  # the thread must not die without a word
            self._emit(Failed(explain(error)))
            return isinstance(error, SegkitError)

    def _answer_calls(self) -> None:
        """Do what waits to be done with all cores."""
        while self._calls:
            call, answer = self._calls.popleft()
            try:
                with self._work:
                    answer.set_result(call())
            except BaseException as error:  # told to the thread that asked
                answer.set_exception(error)

    def _hand_over(self, progress: Progress | None, model: str | Path | None) -> HandOver:
        """Train the kernel machine on all labels, or take the network if it is shown, and write the model."""
        self._is_exporting = True
        try:
            return self._write_model(progress, model)
        finally:
            self._is_exporting = False

    def _write_model(self, progress: Progress | None, model: str | Path | None) -> HandOver:
        while self._find_network():
            pass
        if self.network.shown == "network" and self._network is not None:
            config = self._network_config.model_copy(update={"objects": self._config.objects})
            written = hand_over(self.project, config, model=model, trained=self._network.segmenter)
            return written._replace(shown="network")
        return hand_over(self.project, self._config, progress, model=model)

    def _rest(self) -> None:
        with self._news:
            # what fell due after the last step began may not have been seen by it
            due = [
                at
                for at in (self._evaluate_at, self._look_ahead_at)
                if at is not None and at > self._stepped_at
            ]
            if self._woken or self._closing or self._calls:
                return
            if self._evaluate_at is None and self._saver.is_idle:
                self._is_idle.set()
            self._news.wait(max(0.0, min(due) - time.monotonic()) if due else None)

    def _wake(self) -> None:
        with self._news:
            self._woken = True
            if not self._closing:  # else nobody would end the wait
                self._is_idle.clear()
            self._look_ahead_at = time.monotonic() + QUIET_TO_LOOK_AHEAD
            self._news.notify_all()

    def _step(self) -> bool:
        """Do the most urgent piece of work; False if there was none."""
        self._woken, self._stepped_at = False, time.monotonic()
        shown = None if self._shown in self._broken else self._shown
        if (
            (shown is not None and self._advance(shown))
            or (self._live and self._needs_fit and self._refit())
            or self._find_network()
            or (shown is not None and self._paint(shown))
            or (self._canvas is not None and self._paint_by_network(self._canvas))
            or (self._is_due(self._evaluate_at) and self._evaluate())
            or (self._canvas is not None and self._finish(self._canvas))
        ):
            return True
        self._emit_idle()
        return self._is_due(self._look_ahead_at) and self._look_ahead()

    @staticmethod
    def _is_due(at: float | None) -> bool:
        return at is not None and time.monotonic() >= at

    @contextmanager
    def _leaving_out(self, key: str) -> Iterator[None]:
        """Leave an image out that cannot be read, until it is opened again."""
        try:
            yield
        except SegkitError:
            self._broken.add(key)
            raise

    def _advance(self, key: str) -> bool:
        """Compute a piece of an image's features; False if they are ready."""
        features = self._features_of(key)
        if features.is_ready:
            return False
        with self._leaving_out(key):
            done = features.advance()
        if done >= 1:
            self._glimpses[key] = glimpse(features)
        self._emit_status("features", key, done, f"Reading the features of {key}")
        return True

    def _features_of(self, key: str) -> ImageFeatures:
        if key in self._features:
            self._features.move_to_end(key)
            return self._features[key]
        with self._leaving_out(key):
            image = self.project.image(key)
            if self._n_channels is None:
                self._n_channels = image.shape[2]
            if not fits(kind_of(image), self._n_channels):
                raise InputError(
                    f"{key}: {count(image.shape[2], 'channel')}, expected {self._n_channels} as the first image: keep "
                    "images of one kind in a folder"
                )
            features = ImageFeatures(with_channels(image, self._n_channels), self._bank, self._cache)
        self._features[key] = features
        while len(self._features) > IMAGES_AT_HAND:
            oldest = next(other for other in self._features if other not in (key, self._shown))
            self._features.pop(oldest).store()
        return features

    def _look_again(self, key: str) -> None:
        """Read an image anew, and drop what was computed from another file of that name."""
        features, n_channels = self._features.get(key), self._n_channels
        if features is None or n_channels is None:  # it will be read
            return
        image = self.project.image(key)
        if fits(kind_of(image), n_channels) and features.is_of(with_channels(image, n_channels)):
            return
        with self._work:
            self._features.pop(key, None)
            self._glimpses.pop(key, None)
            self._ahead.discard(key)
            if self._learner is not None:
                self._learner.forget(key)
        with self._news:
            self._stale.add(key)
            self._needs_fit = True
            if key == self._shown:
                self._shown, self._canvas = None, None

    def _refit_if_due(self) -> None:
        while self._needs_fit and self._refit():
            pass

    def _refit(self) -> bool:
        """Refit, or do a piece of what it needs; False if nothing can be learnt yet."""
        self._read_labels()
        annotated = self._annotated()
        for key in annotated:
            if key not in self._glimpses and self._advance(key):
                return True
        with self._news:  # strokes that came in meanwhile are learnt next
            self._needs_fit = bool(self._stale - self._broken)
        if self._learner is None:
            if self._n_channels is None:
                return False
            strides = self._bank.strides(self._n_channels)
            self._learner = Learner(self._segmenter, strides, self._sample, self.project.file_of)
        self._emit_status("learning", self._shown, 0.0, "Learning from the strokes")
        self._model = model = self._learner.fit({key: self._labelled[key] for key in annotated})
        self._evaluate_at = None if model is None else time.monotonic() + QUIET_TO_EVALUATE
        with self._news:
            self._generation += 1
            if self._source == "strokes":
                self._canvas = None
        return True

    def _read_labels(self) -> None:
        """Read the labels that have changed."""
        for key in sorted(self._stale - self._broken):
            with self._leaving_out(key):
                drawing = self.project.labels(key)
            self._stale.discard(key)
            labels, numbers, _ = drawing.snapshot_of_objects()
            self._labelled[key] = Labelled.of(labels, numbers)
            self._regions.pop(key, None)

    def _annotated(self) -> list[str]:
        return [key for key, one in self._labelled.items() if one.counts and key not in self._broken]

    def _find_network(self) -> bool:
        """Show the network if it was trained on the labels as they are, else the kernel machine; False if that is so."""
        if self._digest is None:
            self._read_labels()
            with self._news:
                if self._stale - self._broken:  # strokes that came in meanwhile
                    return True
                self._digest = self._digest_of({key: self._labelled[key].digest for key in self._annotated()})
            self._tell_network()
        digest = self._digest
        if self._network is not None or digest is None or digest != self._trainer.trained:
            return False
        if self._read is None or self._read[0] != digest:
            try:
                trained = load(self._trainer.path_of(digest))
                self._read = digest, OpenedModel(trained, self.project.classes)
            except SegkitError as error:
                self._trainer.trained = None  # it can be trained again
                self._emit(Failed(explain(error)))
                self._tell_network()
                return True
        with self._news:
            if self._digest != digest:
                return True
            # what the kernel machine predicts stays until the network's prediction is there
            self._network = self._read[1]
        self._note_expected(self._read[1].held_out)
        self._tell_network()
        return True

    def _digest_of(self, labels: dict[str, str]) -> str:
        """Hash all that a network is trained on: digests of labels by image, and options."""
        options = training_options(self.project, self._network_config)
        options["data"].pop("instances", None)  # where they lie tells nothing: they are among the labels
        told = [options, sorted(labels.items())]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]

    def _put_network_aside(self) -> None:
        """Show the kernel machine, as labels have changed, until it is known whether the network was trained on these."""
        with self._news:
            self._digest = None
            if self._network is not None:
                self._network = None
                if self._source == "strokes":
                    self._canvas = None
                    self._generation += 1
        self._tell_network()

    def _network_changed(self) -> None:
        self._tell_network()
        self._wake()

    def _tell_network(self) -> None:
        with self._news:  # of two threads, the later one tells the later state
            network = self.network
            if network != self._told_network:
                self._told_network = network
                self._emit(network)

    def _sample(self, key: str, rows: NDArray[np.intp], cols: NDArray[np.intp]) -> FloatArray:
        while self._advance(key):  # from the cache, if more images are annotated than stay at hand
            pass
        return self._features_of(key).sample(rows, cols)

    def _new_canvas(self, key: str, *, at_once: bool = False) -> Canvas | None:
        """Begin to paint an image with the model at hand, or None without one.

        `at_once` the kernel machine begins where a network would take its time.
        """
        generation, opened = self._generation, self._opened_model
        if (
            at_once
            and opened is self._network
            and opened is not None
            and not opened.knows(key)
            and self._model
        ):
            opened = None
        if opened is not None:
            with self._leaving_out(key):
                return opened.paint(self.project.image(key), generation, key=key)
        if self._model is None:
            return None
        while self._advance(key):
            pass
        features = self._features_of(key)
        assert features.coarse is not None
        return Canvas(
            self._model, self._model.decide_coarse(features.coarse), generation, key=key, features=features
        )

    def _paint(self, key: str) -> bool:
        """Begin to paint an image, or paint a block of its visible part; False if it is all there."""
        canvas, source = self._canvas, self._source
        if canvas is not None and canvas.key == key:
            return self._paint_block(canvas, self._box or (0, 0, *canvas.shape))
        canvas = self._new_canvas(key, at_once=True)
        if canvas is not None:
            self._keep(canvas, source)
        return canvas is not None

    @property
    def _opened_model(self) -> OpenedModel | None:
        """The model that was opened or the network, if one of them is shown."""
        return self._opened if self._source == "model" else self._network

    def _paint_by_network(self, canvas: Canvas) -> bool:
        """Predict by the network what the kernel machine has painted; False if there is none, or it has done so."""
        network, key = self._network, canvas.key
        if network is None or self._opened_model is not network or canvas.is_final:
            return False

        def check() -> None:
            if self._closing or self._calls or self._opened_model is not network or self._shown != key:
                raise _InterruptedError

        self._emit_status("painting", key, 0.0, "Predicting by the network")
        with suppress(_InterruptedError), interruptible(check):
            check()
            canvas.is_final = True  # if it fails, the kernel machine's prediction stays
            with self._news:
                self._generation += 1
            try:
                painted = network.paint(self.project.image(key), self._generation, key=key)
            except _InterruptedError:
                canvas.is_final = False
                raise
            self._keep(painted, "strokes")
        return True

    def _keep(self, canvas: Canvas, source: Source) -> None:
        """Keep a new canvas, unless another image or other predictions were asked for while it was made."""
        with self._news:
            is_wanted = canvas.opened in (None, self._opened_model)
            if is_wanted and (canvas.key, source) == (self._shown, self._source):
                self._canvas = canvas

    def _finish(self, canvas: Canvas) -> bool:
        """Paint a block that is not visible, or find the objects; False if there is nothing to do."""
        if self._paint_block(canvas, (0, 0, *canvas.shape)):
            return True
        if not canvas.has_objects:
            canvas.has_objects = True
            self._check(canvas)
            self._find_objects(canvas)
            return True
        return False

    def _paint_block(self, canvas: Canvas, box: Box) -> bool:
        block = canvas.next_block(box)
        if block is None:
            return False
        self._emit_status("painting", canvas.key, canvas.done, "Painting")
        self._emit(block)
        return True

    def _check(self, canvas: Canvas) -> None:
        """Compute what object IoU the painted prediction is expected to have."""
        opened = canvas.opened
        held_out = self._held_out_object_iou if opened is None else _object_iou(opened.held_out)
        expected = None if held_out is None else canvas.expected_object_iou()
        known = None if held_out is None or expected is None else min(expected, held_out)
        self._emit(Checked(canvas.key, canvas.generation, known))

    def _find_objects(self, canvas: Canvas) -> None:
        if canvas.background != self.project.classes[0].value:
            return
        found = self.objects.correct(canvas.key, self._predict_objects(canvas))
        n_objects = int(found.labels.max(initial=0))
        told = found.rule, found.checked, found.depth, found.interval
        self._emit(Objects(canvas.key, canvas.generation, found.labels, n_objects, *told))

    def _predict_objects(self, canvas: Canvas) -> PredictedObjects:
        """Find the objects of a prediction."""
        values, probabilities = canvas.whole()
        foreground = 1 - probabilities[:, :, canvas.classes.index(canvas.background)]
        if canvas.opened is not None:
            image, changes = self.project.image(canvas.key), self._config.objects.changes
            found = canvas.opened.find_objects(image, canvas.key, changes)
        else:
            model = self._objects()
            ids = np.searchsorted(canvas.classes, values)
            found = model.splitter.split(ids, probability=foreground), model
        return PredictedObjects(values, *found, foreground)

    def _objects_of(self, key: str) -> PredictedObjects:
        """Find the objects of an image with the model as it is."""
        if self._is_exporting:
            raise BusyError(
                "the model is being exported, which may take minutes: correct objects when it is done"
            )
        with self._work:
            canvas = self._canvas_of(key)
            if canvas.background != self.project.classes[0].value:
                background = self.project.classes[0].name
                raise InputError(f"objects need a background: draw strokes of {background}, too")
            self._read_labels()
            return self._predict_objects(canvas)

    def _objects(self) -> ObjectModel:
        """Learn from the labels of all images how objects are told apart, as `export` does; never from a prediction."""
        id_of = np.full(UNLABELLED + 1, UNLABELLED, dtype=np.uint8)
        id_of[[one.value for one in self.project.classes]] = np.arange(len(self.project.classes))
        numbered = [
            self.project.labels(key).numbers
            for key in sorted(self._labelled)
            if self._labelled[key].has_objects
        ]
        if numbered:  # those that somebody has checked tell more than regions
            found = ObjectModel(replace(splitter_of(numbered), landscape="distance"), "instances")
            return found.by_hand(found.splitter.changed(**self._config.objects.changes))
        for key in self._labelled.keys() - self._regions.keys():
            self._regions[key] = AnnotatedRegions.of(id_of[self.project.labels(key).snapshot()[0]])
        found = ObjectModel.of_regions([self._regions[key] for key in sorted(self._labelled)])
        return found.by_hand(found.splitter.changed(**self._config.objects.changes))

    def _evaluate(self) -> bool:
        """Hold out images in turn: threshold, probabilities, and what accuracy is to be expected."""
        self._evaluate_at = None
        if self._learner is None or self._model is None:
            return True
        self._held_out_object_iou = None
        if (evaluated := self._learner.evaluate(self._model)) is None:
            return True
        model, scores = evaluated
        self._model = model
        self._held_out_object_iou = _object_iou(scores)
        with self._news:
            self._generation += 1
        canvas = self._canvas
        if canvas is not None and canvas.features is not None:
            self._keep(canvas.read_as(model, self._generation), "strokes")
        if self._network is None:
            self._note_expected(scores)
        return True

    def _note_expected(self, scores: HeldOutScores | None) -> None:
        """Add a point to the curve of expected accuracy, unless no other image was held out."""
        object_iou = _object_iou(scores)
        if scores is None or object_iou is None:
            return
        low, high = scores.object_iou_interval or (None, None)
        n_images = sum(bool(one.counts) for one in self._labelled.values())
        point = ExpectedPoint(self._n_strokes, n_images, object_iou, low, high, scores.mean_iou)
        self._points = [old for old in self._points if old.n_strokes < point.n_strokes] + [point]
        self._write_progress()
        self._emit(Expected(tuple(self._points)))

    def _look_ahead(self) -> bool:
        """Keep maps on disk, and compute features of the next images, a piece at a time."""
        for features in self._features.values():
            features.store()
        keys = [entry.key for entry in self.project.images]
        start = keys.index(self._shown) if self._shown in keys else 0
        for key in keys[start:] + keys[:start]:
            if key in self._ahead or key in self._broken:
                continue
            try:
                if self._advance(key):
                    return True
            except SegkitError as error:  # told when the image is opened
                self._broken.add(key)
                if key == self._shown:  # which it was meanwhile
                    self._emit(Failed(explain(error)))
            self._ahead.add(key)
        self._look_ahead_at = None
        return False

    def _emit_status(self, task: Task, key: str | None, done: float, text: str) -> None:
        status = Status(task, key, round(done, 2), text)
        if status != self._told:
            self._told = status
            self._emit(status)

    def _emit_idle(self) -> None:
        if not self._live:
            self._emit_status("paused", self._shown, 1.0, "Learning is paused")
        elif self._model is None and self._source == "strokes":
            self._emit_status("needs labels", self._shown, 0.0, "Draw strokes of two classes or more")
        else:
            self._emit_status("idle", self._shown, 1.0, "Up to date")

    def _labels_changed(self, key: str, patch: Patch) -> None:
        with self._news:
            self._stale.add(key)
            self._needs_fit = True
            self._saver.add(key)
            is_closed = self._closing
            if self._canvas is not None and self._canvas.key == key:
                self._canvas.has_objects = False  # labels win over what is predicted
        self._put_network_aside()
        if is_closed:  # nobody else will
            self.project.save(key)
        self._emit(Labels(key, patch, self.project.labels(key).version))
        self._wake()

    def _step_of(self, key: str, patch: Patch | None) -> Patch | None:
        if patch is not None:
            self._labels_changed(key, patch)
        return patch

    def _saved(self) -> None:
        with self._news:
            self._news.notify_all()

    def _emit(self, event: Event) -> None:
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:  # a listener must end neither the threads nor a stroke that is drawn already
                _logger.exception("a listener failed at %s", type(event).__name__)

    def _read_progress(self) -> tuple[int, list[ExpectedPoint]]:
        """Read curve and settings of objects of an earlier session; a damaged curve is begun anew."""
        if self.project.output is None:
            return 0, []
        try:
            stored = json.loads((self.project.output / _PROGRESS).read_text(encoding="utf-8"))
            if self._config.objects == ObjectsConfig():  # else the options of the start count
                settings = ObjectsConfig.model_validate(stored.get("objects", {}))
                self._config = self._config.model_copy(update={"objects": settings})
            return int(stored["n_strokes"]), [ExpectedPoint(**point) for point in stored["points"]]
        except (OSError, ValueError, KeyError, TypeError):
            return 0, []

    def _write_progress(self) -> None:
        if self.project.output is None:
            return
        points = [asdict(point) for point in self._points]
        stored = {"n_strokes": self._n_strokes, "points": points, "objects": self.object_settings}
        with suppress(OutputError):
            write_text(self.project.output / _PROGRESS, json.dumps(stored) + "\n")


def _bank_to_draw_with(segmenter: Segmenter) -> FilterBank:
    """Return the first bank; one that learns its filters from images would change as images are added."""
    bank = default_bank() if segmenter.bank is None else segmenter.bank
    bank = bank if isinstance(bank, FilterBank) else bank[0]
    if bank.learns_weights:
        raise ConfigError(
            f"bank {bank.label} learns its filters from images: choose one of fixed filters for live drawing"
        )
    return bank


def _object_iou(scores: HeldOutScores | None) -> float | None:
    """Return the object IoU of held-out images; blocks of one image say nothing about others."""
    return None if scores is None or scores.regions != "images" else scores.object_iou
