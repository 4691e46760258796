"""Messages between page and server: framing, strict checks of all that the page sends, and what is told to the page.

A message is one binary frame: the length of the header (uint32, little-endian), the header (JSON, UTF-8), and bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from skimage.segmentation import find_boundaries

from segkit.errors import InputError
from segkit.live.classes import LabelClass

if TYPE_CHECKING:
    from segkit.live import Drawing, Objects, Prediction

# Largest message that the page may send, in bytes: a filled area of 11,000 x 11,000 pixels, one bit each.
LIMIT = 2**24
_HEADER_LIMIT = 2**16
_LENGTH = struct.Struct("<I")
MALFORMED, TOO_BIG, UNSUPPORTED = 1007, 1009, 1003  # why a websocket is closed

Index = Annotated[int, Field(ge=0, lt=2**31)]
Side = Annotated[int, Field(ge=1, lt=2**31)]
Sides = tuple[Side, Side]
# Rows and columns may lie outside of the image.
Place = Annotated[int, Field(gt=-(2**31), lt=2**31)]
Key = Annotated[str, Field(min_length=1, max_length=4096)]
Number = Annotated[int, Field(ge=0, lt=2**53)]
Setting = Annotated[FiniteFloat, Field(ge=0, lt=2**31)]


class FramingError(Exception):
    """A frame that is none of the page's: the connection is closed, with this reason and code."""

    def __init__(self, reason: str, code: int = MALFORMED) -> None:
        super().__init__(reason)
        self.code = code


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class About(_Strict):
    """Show an image, or ask where to annotate it next."""

    op: Literal["open", "suggest"]
    image: Key


class View(_Strict):
    """The part of the image that is seen: first row and column, and those behind the last."""

    op: Literal["view"]
    image: Key
    box: tuple[Index, Index, Index, Index]


class Stroke(_Strict):
    """A piece of a stroke; pieces with the same id are one step of undo. The payload is the packed mask."""

    op: Literal["stroke"]
    image: Key
    seq: Number
    stroke: Annotated[str, Field(min_length=1, max_length=64)]
    corner: tuple[Index, Index]
    shape: Sides
    value: Annotated[int, Field(ge=0, le=255)]


class Command(_Strict):
    """Undo, redo or accept; counted like strokes, because their order matters."""

    op: Literal["undo", "redo", "accept", "accept_objects"]
    image: Key
    seq: Number


class Correct(_Strict):
    """Correct objects at pixels, or along a line of them; counted like strokes."""

    op: Literal["accept_object", "delete_object", "merge_objects", "split_objects"]
    image: Key
    seq: Number
    points: Annotated[list[tuple[Place, Place]], Field(min_length=1, max_length=2000)]


class DrawObject(_Strict):
    """Draw an object, counted like strokes. The payload is the packed mask."""

    op: Literal["draw_object"]
    image: Key
    seq: Number
    corner: tuple[Index, Index]
    shape: Sides
    value: Annotated[int, Field(ge=0, le=255)] | None  # of the class; None is that of the objects below


class GrowObject(_Strict):
    """Draw the object around a pixel, counted like strokes; without a reach, one of a typical size."""

    op: Literal["grow_object"]
    image: Key
    seq: Number
    at: tuple[Place, Place]
    reach: Annotated[FiniteFloat, Field(gt=0, lt=2**31)] | None
    value: Annotated[int, Field(ge=0, le=255)] | None


class ClassifyObject(_Strict):
    """Give the object at a pixel a class, counted like strokes."""

    op: Literal["classify_object"]
    image: Key
    seq: Number
    at: tuple[Place, Place]
    value: Annotated[int, Field(ge=0, le=255)]


class SetClasses(_Strict):
    """All classes anew."""

    op: Literal["classes"]
    classes: list[LabelClass]


class SetAxes(_Strict):
    """Names of the axes of files that do not name them."""

    op: Literal["axes"]
    axes: Annotated[str, Field(min_length=1, max_length=16)]


class CheckLabels(_Strict):
    """Find labels that are contradicted by a model which has not seen them."""

    op: Literal["check_labels"]


class Settings(_Strict):
    """Whether to learn after each stroke, and whose predictions to show."""

    op: Literal["settings"]
    live: bool
    source: Literal["strokes", "model"]


class SetObjects(_Strict):
    """How objects that touch are told apart; none is as the labels teach it."""

    op: Literal["object_settings"]
    depth: Setting | None
    smallest: Setting | None
    fill_holes: bool | None


class TrainNetwork(_Strict):
    """Train a network on all labels, or end its training."""

    op: Literal["train_network", "cancel_network"]


class Segment(_Strict):
    """Segment all images of the folder, or of another one; a path of this machine."""

    op: Literal["segment"]
    images: Annotated[str, Field(min_length=1, max_length=4096)] | None
    output: Annotated[str, Field(min_length=1, max_length=4096)] | None
    retrain: bool


class CancelRun(_Strict):
    """End the segmentation of a folder."""

    op: Literal["cancel_run"]


class Export(_Strict):
    """Write model and masks."""

    op: Literal["export"]


class TileQuery(BaseModel):
    """One channel of a tile, or all, and the values that are shown black and white."""

    channel: Index | None = None
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None


class PictureQuery(BaseModel):
    """A picture of results: an image by its path, one of its pages, and whether it is to be small."""

    image: Key
    page: Annotated[int, Field(ge=0, lt=100_000)]
    pages: Annotated[int, Field(ge=1, le=100_000)]
    small: bool = False


Change = Stroke | Command | Correct | DrawObject | GrowObject | ClassifyObject
Message = (
    About
    | View
    | Change
    | SetClasses
    | SetAxes
    | Settings
    | SetObjects
    | TrainNetwork
    | Segment
    | CancelRun
    | CheckLabels
    | Export
)
Query = TypeVar("Query", bound=BaseModel)
_READER: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="op")])


def pack(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """Make the frame of a message."""
    text = to_json(header)
    return _LENGTH.pack(len(text)) + text + payload


def to_json(content: Mapping[str, Any]) -> bytes:
    """Write JSON, in which NaN and infinity are null, and arrays lists."""
    plain = to_jsonable_python(content, inf_nan_mode="null", fallback=lambda array: array.tolist())
    return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode("utf-8", errors="replace")


def split(frame: bytes) -> tuple[bytes, bytes]:
    """Take a frame apart into the header, not yet read, and the payload; a FramingError says that it cannot be."""
    if len(frame) > LIMIT:
        raise FramingError(f"message of {len(frame)} bytes, at most {LIMIT}", TOO_BIG)
    if len(frame) < _LENGTH.size:
        raise FramingError("message without a header")
    (length,) = _LENGTH.unpack_from(frame)
    if length > min(_HEADER_LIMIT, len(frame) - _LENGTH.size):
        raise FramingError(f"header of {length} bytes in a message of {len(frame)}")
    return frame[_LENGTH.size : _LENGTH.size + length], frame[_LENGTH.size + length :]


def read_message(frame: bytes) -> tuple[Message, bytes]:
    """Read and check a message of the page."""
    header, payload = split(frame)
    try:
        message = _READER.validate_json(header)
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":
            raise FramingError("header is not JSON") from error
        raise _refusal(error) from error
    if payload and not isinstance(message, Stroke | DrawObject):
        raise InputError(
            f"message of the page: {message.op} with {len(payload)} bytes behind it, expected none"
        )
    return message, payload


def read_query(asked: Mapping[str, str], kind: type[Query]) -> Query:
    """Read and check how the page asks for a picture."""
    try:
        return kind.model_validate(dict(asked))
    except ValidationError as error:
        raise _refusal(error) from error


def _refusal(error: ValidationError) -> InputError:
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"])) or "message"
    told = " ".join(fault["msg"].lower().split())
    return InputError(f"message of the page: {where}: {told}: reload the page and try again")


def unpack_mask(stroke: Stroke | DrawObject, payload: bytes, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Read the mask of a stroke."""
    (row, column), (height, width) = stroke.corner, stroke.shape
    if row + height > size[0] or column + width > size[1]:
        raise InputError(
            f"stroke over rows {row} to {row + height} and columns {column} to {column + width} of an image of "
            f"{size[0]} x {size[1]} pixels: reload the page and draw it again"
        )
    expected = -(-height * width // 8)
    if len(payload) != expected:
        raise InputError(
            f"stroke of {height} x {width} pixels with {len(payload)} bytes, expected {expected}: draw it again"
        )
    bits = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), count=height * width)
    return bits.astype(np.bool_).reshape(height, width)


def labels_frame(image: str, drawing: Drawing, box: tuple[int, int, int, int]) -> bytes:
    """Make the message about the labels within a box: first row and column, and those behind the last."""
    top, left, bottom, right = box
    values = drawing.labels[top:bottom, left:right]
    header = {
        "op": "labels",
        "image": image,
        "corner": (top, left),
        "shape": values.shape,
        "undo": drawing.undo_box,
        "redo": drawing.redo_box,
    }
    return pack(header, values.tobytes())


def prediction_frame(event: Prediction) -> bytes:
    """Make the message about a block of a prediction: mask values, uncertainty, then one plane for each class."""
    header = {
        "op": "prediction",
        "image": event.key,
        "generation": event.generation,
        "stride": int(event.stride),
        "corner": event.corner,
        "shape": event.values.shape,
        "classes": event.classes,
    }
    return pack(header, event.values.tobytes() + event.uncertainty.tobytes() + event.probabilities.tobytes())


def objects_frame(event: Objects) -> bytes:
    """Make the message about objects: how many, by which rule, and their outlines, one bit a pixel."""
    header = {
        "op": "objects",
        "image": event.key,
        "generation": event.generation,
        "count": event.count,
        "rule": event.rule,
        "checked": len(event.checked),
        "depth": event.depth,
        "interval": event.interval,
    }
    outlines = find_boundaries(event.labels, mode="inner")  # type: ignore[no-untyped-call]
    return pack(header, np.packbits(outlines).tobytes())
