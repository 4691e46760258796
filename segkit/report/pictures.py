"""Pictures of predictions: the image, its truth, and for each method heat map, residual and overlay."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segkit.images import overlay
from segkit.images.labels import UNLABELLED
from segkit.report.summary import Record

WIDTH = 360  # pixels
_HEAT = "magma"
_NO_TRUTH = (128, 128, 128)


@dataclass(frozen=True, eq=False)
class Picture:
    """One test image with its truth and what a method made of it.

    Parameters
    ----------
    image : ndarray of shape (H, W, C), float32
        The image, in [0, 1].
    truth : ndarray of shape (H, W), int
        True class ids; 255 marks unlabelled pixels.
    prediction : ndarray of shape (H, W), int
        Predicted class ids.
    probability : ndarray of shape (H, W, n_classes), float32, or None
        Probability of each class, if there is any.
    """

    image: NDArray[np.float32]
    truth: NDArray[Any]
    prediction: NDArray[Any]
    probability: NDArray[np.float32] | None


# of a method, its n_train and seed, and an image's name; None where nothing was kept
Pictures = Callable[[str, int | None, int | None, str], Picture | None]


def choose_images(records: Sequence[Record]) -> dict[str, Record]:
    """Choose the images on which a method did best, about average, and worst.

    Parameters
    ----------
    records : sequence of dict
        Records of one run of one method.

    Returns
    -------
    dict of str to dict
        The records of the ``best``, ``median`` and ``worst`` image; fewer where there are fewer images.
    """
    order = sorted(records, key=lambda record: -float(record["mean_iou"]))
    places = {"best": 0, "worst": len(order) - 1, "median": len(order) // 2}
    rank_of = {place: rank for rank, place in reversed(places.items())}
    return {rank_of[place]: order[place] for place in sorted(rank_of)}


def draw_image(picture: Picture) -> str:
    """Draw the image as it is.

    Parameters
    ----------
    picture : Picture
        The picture.

    Returns
    -------
    str
        A data URI of at most `WIDTH` pixels' width, as of every function here.
    """
    return _encode(_overlay(picture.image, np.zeros_like(picture.truth)))


def draw_truth(picture: Picture) -> str:
    """Draw the outlines of the true classes over the image; see `draw_image`."""
    return _encode(_overlay(picture.image, picture.truth))


def draw_overlay(picture: Picture) -> str:
    """Draw the outlines of the predicted classes over the image; see `draw_image`."""
    return _encode(_overlay(picture.image, picture.prediction))


def draw_heat_map(picture: Picture) -> str | None:
    """Draw the probability of any class but the first; None where there are no probabilities.

    Parameters
    ----------
    picture : Picture
        The picture.

    Returns
    -------
    str or None
        As of `draw_image`.
    """
    if picture.probability is None:
        return None
    return _encode(_heat(1 - picture.probability[:, :, 0]))


def draw_residual(picture: Picture) -> str:
    """Draw |map - truth|, which is 1 - the probability of the true class; grey where there is no truth.

    Parameters
    ----------
    picture : Picture
        The picture. Without probabilities the residual is 1 where the predicted class is wrong.

    Returns
    -------
    str
        As of `draw_image`.
    """
    labelled = picture.truth != UNLABELLED
    truth = np.where(labelled, picture.truth, 0)
    if picture.probability is None:
        residual = (picture.prediction != truth).astype(np.float32)
    else:
        residual = (
            1 - np.take_along_axis(picture.probability, truth[:, :, None].astype(np.intp), axis=2)[:, :, 0]
        )
    pixels = _heat(residual)
    pixels[~labelled] = _NO_TRUTH
    return _encode(pixels)


def heat_colours(n_stops: int = 9) -> list[str]:
    """Give the colours of the heat maps from 0 to 1.

    Parameters
    ----------
    n_stops : int, default=9
        Number of colours.

    Returns
    -------
    list of str
        Hexadecimal colours.
    """
    stops = _heat(np.linspace(0, 1, n_stops))
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in stops.tolist()]


def _heat(values: NDArray[Any]) -> NDArray[np.uint8]:
    colours = matplotlib.colormaps[_HEAT](np.clip(values, 0, 1), bytes=True)
    return np.array(colours[..., :3], dtype=np.uint8)


def _overlay(image: NDArray[np.float32], ids: NDArray[Any]) -> NDArray[np.uint8]:
    """Draw contours that are still seen when the picture is as small as it will be."""
    return overlay(image, ids, line_width=max(1, ids.shape[1] // WIDTH))


def _encode(pixels: NDArray[np.uint8]) -> str:
    image = Image.fromarray(pixels)
    if image.width > WIDTH:
        height = max(1, round(image.height * WIDTH / image.width))
        image = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=88, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
