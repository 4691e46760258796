"""Synthetic histology: nuclei that touch, in stained tissue.

They are drawn from amounts of two stains and Beer and Lambert's law. Haematoxylin is blue and marks nuclei, eosin is pink
and marks the rest. Nuclei out of focus look like nuclei without being any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import expit

from segkit.cli.phantom import smooth_noise

FloatArray = NDArray[np.float64]
Labels = NDArray[np.int32]

# Height and width of a pixel in micrometres: a 20x objective.
PIXEL_SIZE = 0.5

# Optical density of a unit of stain in red, green and blue (Ruifrok and Johnston).
_HAEMATOXYLIN = np.array([0.65, 0.70, 0.29])
_EOSIN = np.array([0.07, 0.99, 0.11])
_PER_PIXEL = 1 / 110  # nuclei that are tried, where they lie densest
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
    is_pale: bool  # clumped chromatin, dark at the rim


def make_cell_set(
    n_images: int, *, shape: tuple[int, int] = (192, 256), random_state: int = 0
) -> tuple[list[NDArray[np.float32]], list[Labels]]:
    """Draw stained tissue with nuclei, some of which touch, and number them. Picture i depends on seed and i only."""
    seeds = np.random.SeedSequence(random_state).spawn(n_images)
    drawn = [_draw_cells(shape, np.random.default_rng(seed)) for seed in seeds]
    return [image for image, _ in drawn], [labels for _, labels in drawn]


def _draw_cells(shape: tuple[int, int], rng: np.random.Generator) -> tuple[NDArray[np.float32], Labels]:
    crowding = np.clip(0.62 + 0.38 * smooth_noise(shape, 26, rng), 0.12, 1)
    openness = smooth_noise(shape, 14, rng) + 0.25 * smooth_noise(shape, 4, rng) - 1.2 * (crowding - 0.6)
    gaps = expit((openness - rng.uniform(1.3, 2.2)) / 0.06)  # clefts without tissue
    nuclei = _place(shape, crowding * (1 - gaps), rng)
    labels = _number(nuclei, shape)
    haematoxylin = _stain(nuclei, labels, rng) + _haze(crowding, labels, rng) * (1 - 0.9 * gaps)
    density = haematoxylin[:, :, None] * _HAEMATOXYLIN * rng.normal(1, 0.06, 3) + (
        _eosin(labels, rng) * (1 - 0.95 * gaps)
    )[:, :, None] * _EOSIN * rng.normal(1, (0.3, 0.06, 0.3))
    seen = ndimage.gaussian_filter(0.96 * 10.0**-density, (0.7, 0.7, 0))
    seen = seen + rng.normal(0, 0.012, density.shape)
    return np.asarray(np.clip(seen, 0, 1), dtype=np.float32), labels


def _place(shape: tuple[int, int], crowding: FloatArray, rng: np.random.Generator) -> list[_Nucleus]:
    """Throw nuclei where they crowd; those too near to an earlier one are left out."""
    taken: list[_Nucleus] = []
    typical, lean = rng.uniform(6.0, 8.0), rng.uniform(0, np.pi)
    for _ in range(round(crowding.size * _PER_PIXEL)):
        centre = rng.uniform(-4, np.add(shape, 4))
        row, col = np.clip(centre.astype(int), 0, np.subtract(shape, 1))
        if rng.uniform() > crowding[row, col]:
            continue
        is_pale = bool(rng.uniform() < 0.55)
        size, spread = (1.12, 0.2) if is_pale else (0.86, 0.16)
        radius = typical * size * np.exp(rng.normal(0, spread))
        if any(np.hypot(*(centre - one.centre)) < _NEAREST * (radius + one.radius) for one in taken):
            continue
        bumps = np.array([rng.uniform(0, 0.07), rng.uniform(0, 0.05), *rng.uniform(0, 2 * np.pi, 2)])
        stretch, angle = 1 + rng.gamma(2, 0.16), lean + rng.normal(0, 0.7)
        stain = rng.uniform(0.36, 0.8) if is_pale else rng.uniform(0.6, 1.1)
        taken.append(_Nucleus(centre, radius, stretch, angle, bumps, stain, is_pale))
    return taken


def _number(nuclei: Sequence[_Nucleus], shape: tuple[int, int]) -> Labels:
    """Draw a label image of nuclei: a pixel belongs to the one whose contour it is deepest within."""
    depth, labels = np.full(shape, 1.0), np.zeros(shape, dtype=np.int32)
    for number, nucleus in enumerate(nuclei, start=1):
        window = _window(nucleus, shape)
        distance = _distance(nucleus, window)
        nearer = distance < depth[window]
        depth[window][nearer] = distance[nearer]
        labels[window][nearer] = number
    # a neighbour may have cut a nucleus in pieces: the largest is kept, unless it is too small
    for number, box in enumerate(ndimage.find_objects(labels, max_label=len(nuclei)), start=1):
        if box is not None:
            pieces, _ = ndimage.label(labels[box] == number)
            areas = np.bincount(pieces.ravel())[1:]
            largest = areas.argmax() + 1 if areas.max() >= _LEAST_AREA else 0
            labels[box][(pieces > 0) & (pieces != largest)] = 0
    return labels


def _window(nucleus: _Nucleus, shape: tuple[int, int]) -> tuple[slice, slice]:
    """Find rows and columns around a nucleus, within the picture."""
    half = 1.6 * nucleus.radius * nucleus.stretch
    low = np.clip(np.floor(nucleus.centre - half), 0, shape).astype(int)
    high = np.clip(np.ceil(nucleus.centre + half) + 1, 0, shape).astype(int)
    return slice(low[0], high[0]), slice(low[1], high[1])


def _distance(nucleus: _Nucleus, window: tuple[slice, slice]) -> FloatArray:
    """Divide the distance from the centre by that of the contour; 1 on the contour."""
    rows, cols = np.mgrid[window]
    y, x = rows - nucleus.centre[0], cols - nucleus.centre[1]
    sine, cosine, root = np.sin(nucleus.angle), np.cos(nucleus.angle), np.sqrt(nucleus.stretch)
    along, across = (y * sine + x * cosine) / root, (y * cosine - x * sine) * root
    angle = np.arctan2(across, along)
    low, high, first, second = nucleus.bumps
    contour = 1 + low * np.cos(2 * angle + first) + high * np.cos(3 * angle + second)
    return np.asarray(np.hypot(along, across) / (nucleus.radius * contour))


def _stain(nuclei: Sequence[_Nucleus], labels: Labels, rng: np.random.Generator) -> FloatArray:
    """Draw haematoxylin: even in dense nuclei, clumped and with a dark rim in pale ones. Numbers become 1 to n."""
    shape = (labels.shape[0], labels.shape[1])
    chromatin = smooth_noise(shape, 1.0, rng) + 0.7 * smooth_noise(shape, 2.0, rng)
    stain = np.zeros(shape)
    for number, old in enumerate(np.unique(labels[labels > 0]), start=1):
        nucleus = nuclei[old - 1]
        window = _window(nucleus, shape)
        own = labels[window] == old
        distance = _distance(nucleus, window)
        rim = 0.42 * np.exp(-(((distance - 0.9) / 0.13) ** 2))
        mean, contrast, edge = (0.78, 0.24, rim) if nucleus.is_pale else (1.0, 0.1, 0.0)
        texture = np.clip(mean + contrast * chromatin[window] + edge, 0.3, 1.6)
        amount = nucleus.stain * expit((0.97 - distance) / _FADE) * texture
        # stain spreads over the contour, but not into a neighbour
        free = own | (labels[window] == 0)
        stain[window] = np.maximum(stain[window], np.where(free, amount, 0))
        labels[window][own] = number
    return stain


def _haze(crowding: FloatArray, labels: Labels, rng: np.random.Generator) -> FloatArray:
    """Draw faint haematoxylin that is no nucleus: cytoplasm, and nuclei out of focus."""
    blurred = np.zeros(labels.shape)
    for _ in range(rng.poisson(crowding.size / 2500)):
        row, col = rng.uniform(0, labels.shape)
        spot = np.zeros(labels.shape)
        spot[int(row), int(col)] = 1
        width = rng.uniform(2.6, 4.2)
        spot = ndimage.gaussian_filter(spot, (width, width * rng.uniform(0.7, 1.5)), truncate=3)
        blurred = np.maximum(blurred, rng.uniform(0.08, 0.34) * spot / spot.max())
    outside = 1 - ndimage.gaussian_filter((labels > 0).astype(np.float64), 1)
    return np.asarray(blurred * outside + 0.05 * crowding)


def _eosin(labels: Labels, rng: np.random.Generator) -> FloatArray:
    """Draw eosin: noise drawn out along a direction as fibres are, and little in nuclei."""
    shape = (labels.shape[0], labels.shape[1])
    fine, grid, angle = (
        smooth_noise(shape, 1.1, rng),
        np.indices(shape, dtype=np.float64),
        rng.uniform(0, np.pi),
    )
    bent = angle + 0.6 * smooth_noise(shape, 40, rng)
    heading = np.stack([np.sin(bent), np.cos(bent)])
    fibres = np.mean(
        [
            ndimage.map_coordinates(fine, grid + step * heading, order=1, mode="reflect")
            for step in np.arange(-12, 13, 1.5)
        ],
        axis=0,
    )
    base = rng.uniform(0.2, 0.34) * (1 + 0.22 * smooth_noise(shape, 22, rng))
    inside = ndimage.gaussian_filter((labels > 0).astype(np.float64), 0.8)
    woven = np.clip(1 + 0.25 * fibres / fibres.std(), 0.2, 2)
    return np.asarray(np.clip(base * woven * (1 - 0.45 * inside), 0, None))
