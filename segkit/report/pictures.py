"""Pictures of predictions: outlines over the image, errors, objects, probability maps."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import maximum_filter, minimum_filter

from segkit.evaluation.object_scores import match
from segkit.images import overlay
from segkit.images.labels import UNLABELLED
from segkit.report.summary import Record

# Pixels of the longer side: sharp at a third of the page's width on a screen of double resolution.
_SIDE = 720
# The same of probability maps, which are smooth.
_SMALL_SIDE = 360
# Pixels, of a picture with the full side.
_LINE_WIDTH = 2
_HEAT = "magma"
_NO_TRUTH = (128, 128, 128)
# Okabe and Ito's colours and white: safe for colour-blind readers, and unlike the dark image under them.
ERROR_COLOURS = {
    "right": (255, 255, 255),
    "missed": (213, 94, 0),
    "false": (86, 180, 233),
    "confused": (240, 228, 66),
}
_ERROR_STRENGTH = 0.85
# Of the inside of an outlined object.
_TINT = 0.25
# IoU from which an object is drawn as found.
_FOUND = 0.5
# Range of the grey image under the errors, of 255.
_DARKEST, _LIGHTEST = 15, 85


@dataclass(frozen=True, eq=False)
class Picture:
    """One test image with its truth and the prediction of a method.

    Parameters
    ----------
    image : ndarray of shape (H, W, C), float32
        The image, in [0, 1].
    truth : ndarray of shape (H, W), int
        True class ids; 255 marks unlabelled pixels.
    prediction : ndarray of shape (H, W), int
        Predicted class ids.
    probability : ndarray of shape (H, W, n_classes), float32, or None
        Probability of each class, if the method gives any.
    objects : tuple of two ndarray of shape (H, W), int, or None
        True and predicted label images (0 is background), if the masks number objects.
    """

    image: NDArray[np.float32]
    truth: NDArray[Any]
    prediction: NDArray[Any]
    probability: NDArray[np.float32] | None
    objects: tuple[NDArray[Any], NDArray[Any]] | None = None


# Arguments: method, n_train, seed, name of the image. None if no prediction was kept.
Pictures = Callable[[str, int, int, str], Picture | None]


def choose_images(records: Sequence[Record]) -> dict[str, Record]:
    """Choose the images with the highest, the median and the lowest mean IoU."""
    order = sorted(records, key=lambda record: -float(record["mean_iou"]))
    places = {"best": 0, "worst": len(order) - 1, "median": len(order) // 2}
    rank_of = {place: rank for rank, place in reversed(places.items())}
    return {rank_of[place]: order[place] for place in sorted(rank_of)}


def draw_image(picture: Picture) -> str:
    """Draw the image as it is."""
    return _encode(_overlay(picture.image, np.zeros_like(picture.truth)))


def draw_truth(picture: Picture) -> str:
    """Draw the outlines of the true classes over the image; see `draw_image`."""
    return _encode(_overlay(picture.image, picture.truth))


def draw_overlay(picture: Picture) -> str:
    """Draw the outlines of the predicted classes over the image; see `draw_image`."""
    return _encode(_overlay(picture.image, picture.prediction))


def draw_errors(picture: Picture) -> str:
    """Colour right, missed and false pixels over the image in dark grey; right background has no colour."""
    pixels = _darkened(overlay(picture.image, np.zeros_like(picture.truth)))
    for kind, where in _errors(picture).items():
        pixels[where] += _ERROR_STRENGTH * (np.array(ERROR_COLOURS[kind]) - pixels[where])
    pixels[picture.truth == UNLABELLED] = _NO_TRUTH
    return _encode(_enlarged(np.rint(pixels).astype(np.uint8)))


def draw_objects(picture: Picture) -> tuple[str, str] | None:
    """Outline the true objects, found or missed, and the predicted ones, right or false; None without objects."""
    if picture.objects is None:
        return None
    truth, predicted = picture.objects
    found = match(truth, predicted, labelled=picture.truth != UNLABELLED)
    pairs = found.matched(_FOUND)
    return (
        _outlined(picture, truth, found.true_ids, found.true_ids[found.true[pairs]], "missed"),
        _outlined(
            picture, predicted, found.predicted_ids, found.predicted_ids[found.predicted[pairs]], "false"
        ),
    )


def _outlined(
    picture: Picture, ids: NDArray[Any], counted: NDArray[Any], matched: NDArray[Any], other: str
) -> str:
    """Outline the objects that count, the matched ones as right."""
    pixels = _darkened(
        _enlarged(overlay(picture.image, np.zeros_like(picture.truth)), Image.Resampling.BICUBIC)
    )
    factor = len(pixels) // len(ids)
    pixels[_repeated(picture.truth == UNLABELLED, factor)] = _NO_TRUTH
    large = _repeated(np.where(np.isin(ids, counted), ids, 0), factor)
    right = np.isin(large, matched)
    size = 1 + 2 * math.ceil(_LINE_WIDTH * max(large.shape) / _SIDE)
    edge = maximum_filter(large, size, mode="nearest") != minimum_filter(large, size, mode="nearest")
    for kind, inside in (("right", right), (other, (large > 0) & ~right)):
        for where, strength in ((inside & ~edge, _TINT), (inside & edge, 1)):
            pixels[where] += strength * (np.array(ERROR_COLOURS[kind]) - pixels[where])
    return _encode(np.rint(pixels).astype(np.uint8))


def _darkened(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Make a picture a dark grey ground for colours."""
    grey = pixels.mean(axis=2, keepdims=True) / 255
    return np.repeat(_DARKEST + (_LIGHTEST - _DARKEST) * grey, 3, axis=2)


def _repeated(values: NDArray[Any], factor: int) -> NDArray[Any]:
    return values.repeat(factor, axis=0).repeat(factor, axis=1)


def _errors(picture: Picture) -> dict[str, NDArray[np.bool_]]:
    """Find the pixels of each kind of `ERROR_COLOURS`."""
    true, found = (ids != 0 for ids in (picture.truth, picture.prediction))
    same = picture.truth == picture.prediction
    return {
        "right": true & same,
        "missed": true & ~found,
        "false": found & ~true,
        "confused": true & found & ~same,
    }


def draw_heat_map(picture: Picture) -> str | None:
    """Draw the probability of all classes but the first together; None without probabilities."""
    if picture.probability is None:
        return None
    return _encode(_heat(1 - picture.probability[:, :, 0]), side=_SMALL_SIDE)


def draw_residual(picture: Picture) -> str | None:
    """Draw 1 - the probability of the true class, grey at unlabelled pixels; None without probabilities."""
    if picture.probability is None:
        return None
    labelled = picture.truth != UNLABELLED
    truth = np.where(labelled, picture.truth, 0)
    given = np.take_along_axis(picture.probability, truth[:, :, None].astype(np.intp), axis=2)
    pixels = _heat(1 - given[:, :, 0])
    pixels[~labelled] = _NO_TRUTH
    return _encode(pixels, side=_SMALL_SIDE)


def heat_colours() -> list[str]:
    """Return the colours of the heat maps from 0 to 1."""
    stops = _heat(np.linspace(0, 1, 9))
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in stops.tolist()]


def _heat(values: NDArray[Any]) -> NDArray[np.uint8]:
    colours = matplotlib.colormaps[_HEAT](np.clip(values, 0, 1), bytes=True)
    return np.array(colours[..., :3], dtype=np.uint8)


def _overlay(image: NDArray[np.float32], ids: NDArray[Any]) -> NDArray[np.uint8]:
    """Draw contours over the image, enlarged if it is small; contours of large images are wider."""
    plain = _enlarged(overlay(image, np.zeros_like(ids)), Image.Resampling.BICUBIC)
    width = math.ceil(_LINE_WIDTH * max(plain.shape) / _SIDE)
    return overlay(plain / 255, _enlarged(ids), line_width=width)


def _enlarged(
    pixels: NDArray[Any], resampling: Image.Resampling = Image.Resampling.NEAREST
) -> NDArray[np.uint8]:
    """Enlarge a small picture by a whole factor; lines drawn on it can then be thinner than its pixels."""
    height, width = pixels.shape[:2]
    factor = max(1, _SIDE // max(height, width))
    return np.asarray(
        Image.fromarray(pixels.astype(np.uint8)).resize((factor * width, factor * height), resampling)
    )


def _encode(pixels: NDArray[np.uint8], *, side: int = _SIDE) -> str:
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=88, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
