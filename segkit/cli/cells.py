"""Synthetic histology: nuclei that touch, in stained tissue, with a number for each.

Pictures are drawn from amounts of two stains and Beer and Lambert's law, not pasted from photographs. Haematoxylin is
blue and marks nuclei, eosin is pink and marks the rest. Nuclei out of focus, red cells and smears of haematoxylin look
like nuclei without being any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import expit

from segkit._common import count
from segkit.cli.phantom import smooth_noise
from segkit.errors import InputError

FloatArray = NDArray[np.float64]
Labels = NDArray[np.int32]

# Height and width of a pixel in micrometres: a 20x objective.
PIXEL_SIZE = 0.5

# Optical density of a unit of stain in red, green and blue (Ruifrok and Johnston).
_HAEMATOXYLIN = np.array([0.65, 0.70, 0.29])
_EOSIN = np.array([0.07, 0.99, 0.11])
_RED_CELL = np.array([0.06, 0.8, 0.55])
_PER_PIXEL = 1 / 450  # nuclei that are tried, where they lie densest
_LEAST_AREA = 25
# How near the centres of two nuclei may be, in sums of their radii.
_NEAREST = 0.78
# Distance from the centre of a nucleus, in radii, over which its stain fades.
_FADE = 0.09


class _Nucleus(NamedTuple):
    centre: FloatArray  # row, column
    radius: float
    stretch: float  # long axis over short axis
    angle: float
    bumps: FloatArray  # amplitudes and phases of two waves along the contour
    stain: float  # amount of haematoxylin
    is_pale: bool  # chromatin at the rim, and a nucleolus


class _Drawn(NamedTuple):
    labels: Labels
    haematoxylin: FloatArray


def make_cell_set(
    n_images: int, *, shape: tuple[int, int] = (192, 256), random_state: int = 0
) -> tuple[list[NDArray[np.float32]], list[Labels]]:
    """Draw stained tissue with nuclei, some of which touch, and number them."""
    if n_images < 1 or min(shape) < 64:
        raise InputError(
            f"{count(n_images, 'picture')} of {shape[0]} x {shape[1]} pixels, "
            f"expected at least 1 of 64 x 64: ask for more"
        )
    seeds = np.random.SeedSequence(random_state).spawn(n_images)
    drawn = [_draw(shape, np.random.default_rng(seed)) for seed in seeds]
    return [image for image, _ in drawn], [labels for _, labels in drawn]


def _draw(shape: tuple[int, int], rng: np.random.Generator) -> tuple[NDArray[np.float32], Labels]:
    crowding = np.clip(0.62 + 0.38 * smooth_noise(shape, 26, rng), 0.12, 1)
    fibres = _fibres(shape, rng)
    gaps = _gaps(shape, crowding, rng)
    nuclei = _draw_nuclei(list(_place(shape, crowding * (1 - gaps), rng)), shape, rng)

    eosin = _eosin(fibres, gaps, crowding, nuclei.labels, rng)
    haematoxylin = nuclei.haematoxylin + _haze(shape, crowding, gaps, nuclei.labels, rng)
    red_cells = _red_cells(shape, gaps, nuclei.labels, rng)
    density = (
        haematoxylin[:, :, None] * _HAEMATOXYLIN * rng.normal(1, 0.06, 3)
        + eosin[:, :, None] * _EOSIN * rng.normal(1, (0.3, 0.06, 0.3))
        + red_cells[:, :, None] * _RED_CELL
    )
    return _camera(density, rng), nuclei.labels


def _place(shape: tuple[int, int], crowding: FloatArray, rng: np.random.Generator) -> Iterator[_Nucleus]:
    """Throw nuclei where they crowd; those too near to an earlier one are left out."""
    taken: list[_Nucleus] = []
    typical, lean = rng.uniform(6.0, 8.0), rng.uniform(0, np.pi)
    for _ in range(round(4 * crowding.size * _PER_PIXEL)):
        centre = rng.uniform(-4, np.add(shape, 4))
        row, col = np.clip(centre.astype(int), 0, np.subtract(shape, 1))
        if rng.uniform() > crowding[row, col]:
            continue
        is_pale = bool(rng.uniform() < 0.55)
        spread = (1.12, 0.2) if is_pale else (0.86, 0.16)
        nucleus = _Nucleus(
            centre,
            typical * spread[0] * np.exp(rng.normal(0, spread[1])),
            1 + rng.gamma(2, 0.16),
            lean + rng.normal(0, 0.7),
            np.array([rng.uniform(0, 0.07), rng.uniform(0, 0.05), *rng.uniform(0, 2 * np.pi, 2)]),
            rng.uniform(0.36, 0.8) if is_pale else rng.uniform(0.6, 1.1),
            is_pale,
        )
        if all(_are_apart(nucleus, other) for other in taken):
            taken.append(nucleus)
            yield nucleus


def _are_apart(one: _Nucleus, other: _Nucleus) -> bool:
    step = other.centre - one.centre
    across = float(np.hypot(*step))
    angle = float(np.arctan2(step[0], step[1]))
    reach = _reach(one, angle) + _reach(other, angle)
    return across > _NEAREST * reach


def _reach(nucleus: _Nucleus, angle: float) -> float:
    """Distance from centre to contour in a direction, bumps aside."""
    turn, root = angle - nucleus.angle, np.sqrt(nucleus.stretch)
    return float(nucleus.radius / np.hypot(np.cos(turn) / root, np.sin(turn) * root))


def _draw_nuclei(nuclei: list[_Nucleus], shape: tuple[int, int], rng: np.random.Generator) -> _Drawn:
    """Draw nuclei side by side: a pixel belongs to the one whose contour it is deepest within."""
    depth = np.full(shape, 1.0)
    labels = np.zeros(shape, dtype=np.int32)
    for number, nucleus in enumerate(nuclei, start=1):
        window = _window(nucleus, shape)
        distance = _distance(nucleus, window)
        nearer = distance < depth[window]
        depth[window][nearer] = distance[nearer]
        labels[window][nearer] = number
    labels = _whole(labels)

    chromatin = smooth_noise(shape, 1.0, rng) + 0.7 * smooth_noise(shape, 2.0, rng)
    stain = np.zeros(shape)
    kept = np.unique(labels[labels > 0])
    numbered = np.zeros(shape, dtype=np.int32)
    for number, old in enumerate(kept, start=1):
        nucleus = nuclei[old - 1]
        window = _window(nucleus, shape)
        own = labels[window] == old
        numbered[window][own] = number
        amount = _stain(nucleus, _distance(nucleus, window), chromatin[window], rng)
        # stain spreads over the contour, but not into a neighbour
        free = own | (labels[window] == 0)
        stain[window] = np.maximum(stain[window], np.where(free, amount, 0))
    return _Drawn(numbered, stain)


def _window(nucleus: _Nucleus, shape: tuple[int, int]) -> tuple[slice, slice]:
    """Rows and columns around a nucleus, within the picture."""
    half = 1.6 * nucleus.radius * nucleus.stretch
    low = np.clip(np.floor(nucleus.centre - half), 0, shape).astype(int)
    high = np.clip(np.ceil(nucleus.centre + half) + 1, 0, shape).astype(int)
    return slice(low[0], high[0]), slice(low[1], high[1])


def _distance(nucleus: _Nucleus, window: tuple[slice, slice]) -> FloatArray:
    """Distance from the centre over that of the contour; 1 on the contour."""
    rows, cols = np.mgrid[window]
    y, x = rows - nucleus.centre[0], cols - nucleus.centre[1]
    sine, cosine, root = np.sin(nucleus.angle), np.cos(nucleus.angle), np.sqrt(nucleus.stretch)
    along, across = (y * sine + x * cosine) / root, (y * cosine - x * sine) * root
    angle = np.arctan2(across, along)
    low, high, first, second = nucleus.bumps
    contour = 1 + low * np.cos(2 * angle + first) + high * np.cos(3 * angle + second)
    return np.asarray(np.hypot(along, across) / (nucleus.radius * contour))


def _whole(labels: Labels) -> Labels:
    """Keep the largest piece of each nucleus, and leave out those of fewer than 25 pixels."""
    kept = np.zeros_like(labels)
    for number, box in enumerate(ndimage.find_objects(labels), start=1):
        if box is None:
            continue
        pieces, _ = ndimage.label(labels[box] == number)
        areas = np.bincount(pieces.ravel())
        areas[0] = 0
        if areas.max() >= _LEAST_AREA:
            kept[box][pieces == areas.argmax()] = number
    return kept


def _stain(
    nucleus: _Nucleus, distance: FloatArray, chromatin: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Amount of haematoxylin: even in dense nuclei; in pale ones clumped, with a dark rim and a nucleolus."""
    body = expit((0.97 - distance) / _FADE)
    if not nucleus.is_pale:
        return np.asarray(nucleus.stain * body * np.clip(1 + 0.1 * chromatin, 0.5, 1.5))
    rim = np.exp(-(((distance - 0.9) / 0.13) ** 2))
    texture = np.clip(0.78 + 0.24 * chromatin + 0.42 * rim, 0.3, 1.6)
    centre = np.unravel_index(int(distance.argmin()), distance.shape)
    place = np.asarray(centre) + rng.normal(0, 0.25 * nucleus.radius, 2)
    rows, cols = np.indices(distance.shape)
    spot = np.exp(-((rows - place[0]) ** 2 + (cols - place[1]) ** 2) / (0.2 * nucleus.radius) ** 2)
    return np.asarray(nucleus.stain * body * (texture + 0.5 * spot))


def _fibres(shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
    """Wavy fibres: noise drawn out along a direction that turns slowly from place to place."""
    angle = rng.uniform(0, np.pi) + 0.6 * smooth_noise(shape, 40, rng)
    fine = smooth_noise(shape, 1.1, rng)
    grid = np.indices(shape, dtype=np.float64)
    heading = np.stack([np.sin(angle), np.cos(angle)])
    steps = [
        ndimage.map_coordinates(fine, grid + step * heading, order=1, mode="reflect")
        for step in np.arange(-12, 13, 1.5)
    ]
    drawn_out = np.mean(steps, axis=0)
    return np.asarray(drawn_out / drawn_out.std())


def _gaps(shape: tuple[int, int], crowding: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Clefts and vessels without tissue, 0 to 1."""
    openness = smooth_noise(shape, 14, rng) + 0.25 * smooth_noise(shape, 4, rng) - 1.2 * (crowding - 0.6)
    threshold = rng.uniform(1.3, 2.2)
    return np.asarray(expit((openness - threshold) / 0.06))


def _eosin(
    fibres: FloatArray, gaps: FloatArray, crowding: FloatArray, labels: Labels, rng: np.random.Generator
) -> FloatArray:
    """Amount of eosin: fibres, grainy cytoplasm where cells crowd, little in nuclei, none in gaps."""
    shape = (labels.shape[0], labels.shape[1])
    base = rng.uniform(0.2, 0.34) * (1 + 0.22 * smooth_noise(shape, 22, rng))
    cytoplasm = 0.8 + 0.1 * smooth_noise(shape, 1.6, rng) + 0.1 * smooth_noise(shape, 5, rng)
    woven = 1 + 0.3 * fibres
    tissue = base * np.clip(woven + (cytoplasm - woven) * np.clip(1.4 * crowding - 0.3, 0, 1), 0.2, 2)
    inside = ndimage.gaussian_filter((labels > 0).astype(np.float64), 0.8)
    return np.asarray(np.clip(tissue * (1 - 0.45 * inside) * (1 - 0.95 * gaps), 0, None))


def _haze(
    shape: tuple[int, int], crowding: FloatArray, gaps: FloatArray, labels: Labels, rng: np.random.Generator
) -> FloatArray:
    """Faint haematoxylin that is no nucleus: cytoplasm, nuclei out of focus, smears."""
    blurred = np.zeros(shape)
    for _ in range(rng.poisson(crowding.size / 2500)):
        row, col = rng.uniform(0, shape)
        spot = np.zeros(shape)
        spot[int(row), int(col)] = 1
        width = rng.uniform(2.6, 4.2)
        spot = ndimage.gaussian_filter(spot, (width, width * rng.uniform(0.7, 1.5)), truncate=3)
        blurred = np.maximum(blurred, rng.uniform(0.08, 0.34) * spot / spot.max())
    cloud = 0.05 * crowding * np.clip(1 + 0.5 * smooth_noise(shape, 8, rng), 0, None)
    outside = 1 - ndimage.gaussian_filter((labels > 0).astype(np.float64), 1)
    return np.asarray((blurred * outside + cloud) * (1 - 0.9 * gaps))


def _red_cells(
    shape: tuple[int, int], gaps: FloatArray, labels: Labels, rng: np.random.Generator
) -> FloatArray:
    """Red blood cells: small, even, without a nucleus, most of them in gaps."""
    likely = (0.04 + gaps) * (ndimage.distance_transform_edt(labels == 0) > 5)
    discs = np.zeros(shape)
    if not likely.any():
        return discs
    rows, cols = np.indices(shape)
    number = rng.poisson(0.2 * np.sqrt(likely.sum()))
    for place in rng.choice(likely.size, size=number, p=(likely / likely.sum()).ravel()):
        row, col = np.unravel_index(place, shape)
        distance = np.hypot(rows - row, cols - col) / rng.uniform(3.4, 4.8)
        discs = np.maximum(discs, rng.uniform(0.2, 0.42) * expit((1 - distance) / 0.12))
    return discs


def _camera(density: FloatArray, rng: np.random.Generator) -> NDArray[np.float32]:
    """Light through the slide: Beer and Lambert, uneven light, blur and noise."""
    light = np.array([0.96, 0.955, 0.965]) * (
        1 + 0.015 * smooth_noise(density.shape[:2], 60, rng)[:, :, None]
    )
    seen = light * 10.0**-density
    seen = ndimage.gaussian_filter(seen, (0.7, 0.7, 0)) + rng.normal(0, 0.012, density.shape)
    return np.asarray(np.clip(seen, 0, 1), dtype=np.float32)
