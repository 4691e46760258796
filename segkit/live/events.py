"""Events that a live session sends to its listeners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segkit.errors import SegkitError
from segkit.live.drawing import Patch

Task = Literal["features", "learning", "painting", "idle", "needs labels", "paused"]
Shown = Literal["kernel machine", "network", "model"]


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of a box of an image have changed: its corner and new values, and the `Drawing.version` with the change."""

    key: str
    patch: Patch
    version: int


@dataclass(frozen=True)
class Saved:
    """Labels of an image are on disk, as of this `Drawing.version`."""

    key: str
    version: int


@dataclass(frozen=True, eq=False)
class Prediction:
    """Prediction in a part of an image.

    Parameters
    ----------
    key : str
        Key of the image.
    generation : int
        Rises with every change of the model; a later one replaces all earlier ones.
    stride : int
        Side in pixels of the square that a cell stands for; blocks of stride 1 are final.
    corner : tuple of int
        Row and column of the first pixel of the first cell.
    values : ndarray of shape (h, w), uint8
        Mask value of the predicted class of each cell.
    probabilities : ndarray of shape (n_classes, h, w), uint8
        Probability of each class that the model knows, 0 to 255.
    uncertainty : ndarray of shape (h, w), uint8
        255 where the two most probable classes are equally so, 0 where there is no doubt.
    classes : tuple of int
        Mask values of the classes that the model knows, in the order of `probabilities`.
    """

    key: str
    generation: int
    stride: int
    corner: tuple[int, int]
    values: NDArray[np.uint8]
    probabilities: NDArray[np.uint8]
    uncertainty: NDArray[np.uint8]
    classes: tuple[int, ...]


@dataclass(frozen=True)
class Status:
    """What the session is busy with: a task, the image it is about, the share done (0 to 1), and the same in words."""

    task: Task
    key: str | None
    done: float
    text: str


@dataclass(frozen=True, eq=False)
class Objects:
    """Objects of a predicted image, and the generation of the prediction.

    Labels are (H, W) int32: 0 for the background, objects 1 to `count`. `rule` says in words how they were found, and
    `checked` are the numbers of those that were corrected or accepted by hand. `depth`, in radii, is that of the pass where
    two objects part; None where every region counts as one. `interval` holds the true count of 80 of 100 images; None if no
    model knows it.
    """

    key: str
    generation: int
    labels: NDArray[np.int32]
    count: int
    rule: str
    checked: tuple[int, ...] = ()
    depth: float | None = None
    interval: tuple[int, int] | None = None


@dataclass(frozen=True)
class Checked:
    """Object IoU to be expected of the prediction of an image, and the generation of the prediction.

    It is that of the image's probabilities, but not above the one of held-out images. None, for unknown, if no images were
    held out, or no object is predicted.
    """

    key: str
    generation: int
    object_iou: float | None


@dataclass(frozen=True)
class ExpectedPoint:
    """Scores to be expected on other images, from the labelled pixels of images that were held out.

    Pixels that were labelled because the prediction was wrong are harder than others, so the scores tend to be too low.

    Parameters
    ----------
    n_strokes : int
        Strokes drawn so far.
    n_images : int
        Annotated images.
    object_iou : float
        Mean over held-out images of the IoU, or of its mean over all classes but the first.
    low, high : float or None
        95 % interval of `object_iou`; None with fewer than three images.
    mean_iou : float
        Mean over held-out images of the mean IoU over all classes.
    """

    n_strokes: int
    n_images: int
    object_iou: float
    low: float | None
    high: float | None
    mean_iou: float


@dataclass(frozen=True)
class Expected:
    """Expected accuracy as annotation goes on: a point for each number of strokes at which it was computed."""

    points: tuple[ExpectedPoint, ...]


@dataclass(frozen=True)
class Advised:
    """Where annotation would teach most; the answer of `LiveSession.suggest`.

    Parameters
    ----------
    key : str
        Image that is shown.
    boxes : tuple of (int, int, int, int)
        Regions of it: first row, first column, last row, last column, the last ones out; best first.
    ranking : tuple of str
        Keys of other images without labels, best first.
    n_unseen : int
        Images without labels whose features are not known yet; they are not ranked.
    """

    key: str
    boxes: tuple[tuple[int, int, int, int], ...]
    ranking: tuple[str, ...]
    n_unseen: int


@dataclass(frozen=True)
class Network:
    """The network of a session, and whose predictions are shown.

    Parameters
    ----------
    state : {"none", "training", "current", "earlier"}
        Whether there is a network, trained on the labels as they are or on earlier ones, or one is being trained.
    shown : {"kernel machine", "network", "model"}
        Whose predictions are shown: those of the kernel machine, which follows the strokes, of the network, which is shown
        as long as labels stay as it knows them, or of the model that the session was opened with.
    text : str
        The state in words.
    done : float
        Share of the training that is done.
    seconds_left : float or None
        Time that the training still takes; None if it is not known.
    object_iou : float or None
        Object IoU of the network on images that were held out; None if it is not shown, or if none were.
    """

    state: Literal["none", "training", "current", "earlier"]
    shown: Shown
    text: str
    done: float = 0.0
    seconds_left: float | None = None
    object_iou: float | None = None


@dataclass(frozen=True)
class Run:
    """The segmentation of a folder.

    Parameters
    ----------
    state : {"none", "training", "segmenting", "done"}
        Whether there are results, or what goes on: the model is trained on all labels, then it segments the images.
    text : str
        The state in words.
    output : str
        Folder of the results; empty without any.
    done : float
        Share that is done of what goes on.
    seconds_left : float or None
        Time that it still takes; None if it is not known.
    notes : tuple of str
        What is to be known of the results: images that failed, or are unlike the training images.
    is_own : bool
        Whether the images are those of the project.
    """

    state: Literal["none", "training", "segmenting", "done"]
    text: str
    output: str = ""
    done: float = 0.0
    seconds_left: float | None = None
    notes: tuple[str, ...] = ()
    is_own: bool = True


@dataclass(frozen=True)
class Failed:
    """Something went wrong, nothing is lost; the message says in one line what was given, what is needed, and the cure."""

    message: str


def explain(error: BaseException) -> str:
    """Put what went wrong in one line, without a traceback."""
    if isinstance(error, SegkitError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory: close other programs, or work with smaller images"
    text = " ".join(str(error).split())
    if isinstance(error, OSError):
        return f"{error.filename or 'file'}: {error.strerror or text}: check the disk, its permissions and free space"
    return (
        f"unexpected error ({type(error).__name__}: {text}): please report it; labels drawn so far are kept"
    )


Event = Labels | Saved | Prediction | Status | Checked | Objects | Expected | Network | Run | Failed
