"""Events of a session as messages to the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from segkit.annotate.messages import pack
from segkit.errors import OutputError, SegkitError

if TYPE_CHECKING:
    from segkit.live import Advised, Drawing, Objects, Prediction


def labels_frame(image: str, drawing: Drawing, box: tuple[int, int, int, int]) -> bytes:
    """Make the message about the labels within a box: first row and column, and those behind the last."""
    top, left, bottom, right = box
    values = drawing.labels[top:bottom, left:right]
    header = {
        "op": "labels",
        "image": image,
        "corner": [top, left],
        "shape": list(values.shape),
        "undo": bool(drawing.can_undo),
        "redo": bool(drawing.can_redo),
    }
    return pack(header, values.tobytes())


def prediction_frame(event: Prediction) -> bytes:
    """Make the message about a block of a prediction: mask values, uncertainty, then one plane for each class."""
    header = {
        "op": "prediction",
        "image": event.key,
        "generation": int(event.generation),
        "stride": int(event.stride),
        "corner": list(map(int, event.corner)),
        "shape": list(event.values.shape),
        "classes": list(map(int, event.classes)),
    }
    return pack(header, event.values.tobytes() + event.uncertainty.tobytes() + event.probabilities.tobytes())


def objects_frame(event: Objects) -> bytes:
    """Make the message about objects: how many, and their outlines, one bit a pixel."""
    header = {
        "op": "objects",
        "image": event.key,
        "generation": int(event.generation),
        "count": int(event.count),
    }
    return pack(header, np.packbits(outline(event.labels)).tobytes())


def advice_frame(image: str, advice: Advised) -> bytes:
    """Make the message about what to annotate next."""
    header = {"op": "advice", "image": image, "boxes": advice.boxes, "ranking": advice.ranking}
    return pack(plain(header))


def outline(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Find the pixels of objects that touch another object or the background."""
    rim = np.zeros(labels.shape, dtype=np.bool_)
    below, right = labels[1:] != labels[:-1], labels[:, 1:] != labels[:, :-1]
    rim[1:] |= below
    rim[:-1] |= below
    rim[:, 1:] |= right
    rim[:, :-1] |= right
    rim &= labels != 0
    return rim


def plain(value: Any) -> Any:
    """Turn records, tuples and NumPy's numbers into what JSON knows; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def one_line(error: Exception) -> str:
    """Put what went wrong in one line, without a traceback."""
    if isinstance(error, MemoryError):
        return "out of memory: close other programs, or annotate smaller images"
    text = " ".join(str(error).split())
    if isinstance(error, SegkitError):
        return text
    if isinstance(error, OSError) and not isinstance(error, OutputError):
        reason = error.strerror or text
        return f"{error.filename or 'file'}: {reason}: check the disk, its permissions and free space"
    return f"segkit failed ({type(error).__name__}: {text}): labels drawn so far are kept; please report this"
