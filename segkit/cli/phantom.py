"""Synthetic capsule endoscopy, not pasted from photographs, so that the demo needs no download and nobody's data.

The pictures show small-bowel mucosa with vascular lesions and what is mistaken for them, drawn from fields (folds,
villi, light, vessels). Colours follow published capsule pictures: orange-pink mucosa, bile-stained in places, darker with
distance; angiodysplasia is a cherry-red patch with ragged, partly fern-like borders. Folds, faint vessels and smears of
blood are red without being lesions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.draw import line_aa

FloatArray = NDArray[np.float64]

_MUCOSA = np.array([0.86, 0.52, 0.31])
_BILE = np.array([0.74, 0.60, 0.22])
_CHERRY = np.array([0.66, 0.14, 0.11])
_VESSEL = np.array([0.62, 0.27, 0.20])
_BLOOD = np.array([0.62, 0.18, 0.12])
_REFERENCE_SIZE = 192  # detail is sized for images whose shorter side has this many pixels
_LESION_SHARE = (0.005, 0.06)
_SMALLEST_PIECE = 0.001


class _Folds(NamedTuple):
    relief: FloatArray  # height, 0 in a crease to 1 on a crest
    creases: FloatArray  # 0 to 1
    lumen: FloatArray  # 0 to 1 where the gut runs on into the dark


def make_demo_set(
    n_images: int, *, shape: tuple[int, int] = (192, 256), random_state: int = 0
) -> tuple[list[NDArray[np.float32]], list[NDArray[np.uint8]]]:
    """Draw capsule endoscopy pictures with vascular lesions and their masks, of 64 x 64 pixels or more."""
    seeds = np.random.SeedSequence(random_state).spawn(n_images)
    drawn = [_draw(shape, np.random.default_rng(seed)) for seed in seeds]
    return [image for image, _ in drawn], [mask for _, mask in drawn]


def _draw(shape: tuple[int, int], rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    scale = min(shape) / _REFERENCE_SIZE
    lamp_angle = rng.uniform(0, 2 * np.pi)
    folds = _folds(shape, scale, rng)
    villi = _villi(shape, scale, lamp_angle, rng)
    light = _light(folds, scale, lamp_angle, rng)

    colour = _mucosa(shape, scale, folds.creases, rng)
    colour = _blend(colour, _VESSEL, _faint_vessels(shape, scale, rng))
    colour = _blend(colour, _BLOOD, _smears(shape, scale, rng))
    lesions, mask = _lesions(shape, scale, light, rng)
    colour = _blend(colour, _CHERRY * rng.uniform(0.9, 1.12), lesions)

    shading = light * (1 + 0.075 * villi * (1 - 0.6 * lesions))
    picture = colour * shading[:, :, None] + _highlights(folds.relief, light, scale, rng)[:, :, None]
    return _camera(picture, scale, rng), mask.astype(np.uint8)


def smooth_noise(shape: tuple[int, int], sigma: float, rng: np.random.Generator) -> FloatArray:
    """Smooth Gaussian noise of mean 0 and standard deviation 1."""
    spectrum = np.fft.rfft2(rng.standard_normal(shape))  # wide blurs cost no more than narrow ones there
    field = np.fft.irfft2(ndimage.fourier_gaussian(spectrum, sigma, n=shape[1]), s=shape)
    return np.asarray((field - field.mean()) / field.std())


def _blend(colour: FloatArray, pigment: FloatArray, opacity: FloatArray) -> FloatArray:
    return colour + opacity[:, :, None] * (pigment - colour)


def _unit_grid(shape: tuple[int, int]) -> tuple[FloatArray, FloatArray]:
    """Coordinates (y, x) in [-1, 1] along the shorter side, 0 in the middle."""
    rows, cols = np.indices(shape, dtype=np.float64)
    half = min(shape) / 2
    return (rows - (shape[0] - 1) / 2) / half, (cols - (shape[1] - 1) / 2) / half


def _folds(shape: tuple[int, int], scale: float, rng: np.random.Generator) -> _Folds:
    """Overlap circular folds around a lumen off the centre of the picture."""
    y, x = _unit_grid(shape)
    angle, distance = rng.uniform(0, 2 * np.pi), rng.uniform(0.7, 1.9)
    radius = np.hypot(y - distance * np.sin(angle), x - distance * np.cos(angle))
    warped = radius + 0.14 * smooth_noise(shape, 26 * scale, rng) + 0.02 * smooth_noise(shape, 8 * scale, rng)
    phase = warped * rng.uniform(1.2, 2.2) + rng.uniform()
    # a fold rises slowly and falls off sharply into the shadow it casts on the next
    position = phase - np.floor(phase)
    back = position**0.7 / (1 + np.exp((position - 0.95) / 0.02))
    strength = np.clip(0.55 + 0.3 * smooth_noise(shape, 30 * scale, rng), 0.1, 1.0)
    relief = 0.8 + strength * (back - 0.8)
    creases = strength * np.exp(-((np.minimum(position, 1.1 * (1 - position)) / 0.09) ** 2))
    return _Folds(relief, creases, np.exp(-((radius / 0.55) ** 2)))


def _villi(shape: tuple[int, int], scale: float, lamp_angle: float, rng: np.random.Generator) -> FloatArray:
    """Shade the velvet of finger-like villi: bumps a few pixels wide, lit from one side."""
    height = smooth_noise(shape, 1.7 * scale, rng) + 0.35 * smooth_noise(shape, 0.8 * scale, rng)
    slope_y, slope_x = np.gradient(height)
    lit = np.sin(lamp_angle) * slope_y + np.cos(lamp_angle) * slope_x
    shade = lit / lit.std() + 0.6 * height
    prominence = np.clip(0.8 + 0.3 * smooth_noise(shape, 24 * scale, rng), 0.25, 1.3)
    return np.asarray(np.tanh(0.7 * shade) * prominence)


def _light(folds: _Folds, scale: float, lamp_angle: float, rng: np.random.Generator) -> FloatArray:
    """Light the scene by the capsule's own lamps: height, slope, depth and the fall-off to the rim."""
    shape = (folds.relief.shape[0], folds.relief.shape[1])
    y, x = _unit_grid(shape)
    smooth = ndimage.gaussian_filter(folds.relief, 1.2 * scale)
    slope_y, slope_x = np.gradient(ndimage.gaussian_filter(folds.relief, 5 * scale), 1 / (20 * scale))
    slope = np.tanh(0.5 * (np.sin(lamp_angle) * slope_y + np.cos(lamp_angle) * slope_x))
    lamp_y, lamp_x = rng.uniform(-0.35, 0.35, 2)
    fall_off = np.exp(-0.36 * ((y - lamp_y) ** 2 + (x - lamp_x) ** 2))
    depth = (1 + 0.13 * smooth_noise(shape, 34 * scale, rng)) * (1 - 0.85 * folds.lumen)
    return np.asarray(np.clip((0.42 + 0.62 * smooth + 0.14 * slope) * fall_off * depth, 0.05, 1.3))


def _mucosa(
    shape: tuple[int, int], scale: float, creases: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Tissue colour: a patient's own hue, blood-fuller regions, bile, and reddened creases."""
    base = _MUCOSA * rng.normal(1.0, (0.04, 0.06, 0.10))
    colour = np.broadcast_to(base, (*shape, 3)) * np.ones((*shape, 1))
    flush = smooth_noise(shape, 20 * scale, rng)
    colour = colour * (1 + flush[:, :, None] * np.array([0.02, -0.055, -0.06]))
    bile = rng.uniform(0, 0.7) * np.clip(0.5 * smooth_noise(shape, 34 * scale, rng), 0, 1)
    colour = _blend(colour, _BILE, bile)
    return _blend(colour, np.array([0.52, 0.22, 0.13]), 0.62 * creases)


def _tree(
    start: FloatArray,
    heading: float,
    length: float,
    width: float,
    depth: int,
    canvas: FloatArray,
    rng: np.random.Generator,
    *,
    wander: float,
) -> None:
    """Draw a vessel that meanders, thins and forks onto `canvas`; each stroke is its width."""
    position = start
    n_steps = max(3, round(length / 2))
    forks = rng.choice(np.arange(1, n_steps + 1), size=min(2, n_steps), replace=False)
    for step in range(1, n_steps + 1):
        heading += rng.normal(0, wander)
        following = position + 2 * np.array([np.sin(heading), np.cos(heading)])
        _stroke(canvas, position, following, width * (1 - 0.5 * step / n_steps))
        position = following
        if depth and step in forks:
            turn = rng.choice([-1, 1]) * rng.uniform(0.5, 1.1)
            _tree(position, heading + turn, 0.6 * length, 0.65 * width, depth - 1, canvas, rng, wander=wander)


def _stroke(canvas: FloatArray, start: FloatArray, end: FloatArray, weight: float) -> None:
    ends = (*np.rint(start).astype(int), *np.rint(end).astype(int))
    rows, cols, coverage = line_aa(*ends)  # type: ignore[no-untyped-call]
    inside = (rows >= 0) & (rows < canvas.shape[0]) & (cols >= 0) & (cols < canvas.shape[1])
    at = rows[inside], cols[inside]
    canvas[at] = np.maximum(canvas[at], weight * coverage[inside])


def _faint_vessels(shape: tuple[int, int], scale: float, rng: np.random.Generator) -> FloatArray:
    """Opacity of the normal submucosal vessels seen through the surface."""
    canvas = np.zeros(shape)
    for _ in range(rng.integers(1, 5)):
        start = rng.uniform(0.05, 0.95, 2) * shape
        heading = rng.uniform(0, 2 * np.pi)
        _tree(start, heading, rng.uniform(40, 90) * scale, 1.0, 3, canvas, rng, wander=0.16)
    blurred = ndimage.gaussian_filter(canvas, 0.9 * scale)
    return np.asarray(np.clip(rng.uniform(0.5, 1.1) * blurred, 0, 0.5))


def _smears(shape: tuple[int, int], scale: float, rng: np.random.Generator) -> FloatArray:
    """Opacity of thin films of blood: smooth, drawn out, as red as a pale lesion but without texture."""
    y, x = np.indices(shape, dtype=np.float64)
    opacity = np.zeros(shape)
    for _ in range(rng.integers(1, 4)):
        centre = rng.uniform(0.1, 0.9, 2) * shape
        angle = rng.uniform(0, np.pi)
        along = (y - centre[0]) * np.sin(angle) + (x - centre[1]) * np.cos(angle)
        across = (y - centre[0]) * np.cos(angle) - (x - centre[1]) * np.sin(angle)
        across = across + 3 * scale * smooth_noise(shape, 10 * scale, rng)
        length, width = rng.uniform(12, 26) * scale, rng.uniform(2, 4.5) * scale
        film = np.exp(-((along / length) ** 2) - (across / width) ** 2)
        opacity = np.maximum(opacity, rng.uniform(0.5, 0.9) * film)
    return opacity


def _lesions(
    shape: tuple[int, int], scale: float, light: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Opacity and mask of one to three lesions in lit places, redrawn until their share of the picture is as promised."""
    while True:
        opacity = np.zeros(shape)
        for _ in range(rng.choice([1, 2, 3], p=[0.6, 0.28, 0.12])):
            opacity = np.maximum(opacity, _lesion(shape, scale, light, rng))
        mask = ndimage.binary_opening(ndimage.binary_closing(opacity > 0.3, iterations=2))
        pieces, _ = ndimage.label(ndimage.binary_fill_holes(mask))
        large = np.bincount(pieces.ravel()) >= _SMALLEST_PIECE * mask.size
        large[0] = False
        mask = large[pieces]
        if 1 <= large.sum() <= 3 and _LESION_SHARE[0] <= mask.mean() <= _LESION_SHARE[1]:
            return opacity, mask


def _lesion(shape: tuple[int, int], scale: float, light: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Opacity of one lesion: a ragged patch out of which dilated vessels ramify like a fern."""
    radius = np.exp(rng.normal(np.log(15), 0.4)) * scale
    lit = light > np.quantile(light, 0.35)
    margin = int(14 * scale)
    lit[:margin], lit[-margin:], lit[:, :margin], lit[:, -margin:] = False, False, False, False
    centre = rng.choice(np.argwhere(lit)).astype(np.float64)

    y, x = np.indices(shape, dtype=np.float64)
    angle, stretch = rng.uniform(0, np.pi), rng.uniform(1.0, 1.7)
    along = (y - centre[0]) * np.sin(angle) + (x - centre[1]) * np.cos(angle)
    across = (y - centre[0]) * np.cos(angle) - (x - centre[1]) * np.sin(angle)
    distance = np.hypot(along / stretch, across * stretch**0.3) / radius
    ragged = (
        distance + 0.22 * smooth_noise(shape, 5 * scale, rng) + 0.10 * smooth_noise(shape, 2 * scale, rng)
    )
    core = 1 / (1 + np.exp((ragged - rng.uniform(0.45, 0.8)) / 0.09))

    canvas = np.zeros(shape)
    for heading in rng.uniform(0, 2 * np.pi, rng.integers(6, 12)):
        _tree(centre, heading, rng.uniform(1.0, 1.7) * radius, 1.0, 2, canvas, rng, wander=0.22)
    fern = np.clip(1.7 * ndimage.gaussian_filter(canvas, 0.7 * scale), 0, 1) * np.exp(
        -((distance / 1.5) ** 4)
    )
    mottled = np.clip(0.82 + 0.13 * smooth_noise(shape, 2.5 * scale, rng), 0.4, 1)
    halo = 0.18 * np.exp(-((distance / 1.2) ** 2))
    return np.asarray(rng.uniform(0.6, 0.92) * np.max([core * mottled, 0.9 * fern, halo], axis=0))


def _highlights(relief: FloatArray, light: FloatArray, scale: float, rng: np.random.Generator) -> FloatArray:
    """Mirror the lamps on the wet crests: few spots, tiny, almost white."""
    shape = (relief.shape[0], relief.shape[1])
    wet = smooth_noise(shape, 1.3 * scale, rng) + 1.2 * relief + 1.6 * light
    threshold = np.quantile(wet, rng.uniform(0.998, 0.9996))
    sparkle = np.clip(3 * (wet - threshold) / (wet.max() - threshold), 0, 1)
    return np.asarray(0.6 * ndimage.gaussian_filter(sparkle, 0.5 * scale))


def _camera(picture: FloatArray, scale: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Take the picture as the capsule's sensor does: blur, exposure, a gentle shoulder and noise."""
    blurred = ndimage.gaussian_filter(picture, (0.5 * scale, 0.5 * scale, 0))
    exposed = rng.uniform(0.9, 1.12) * blurred
    shown = 1 - np.logaddexp(0, 9 * (1 - exposed)) / 9  # below 1 as it is, above it levels off
    shown = shown + rng.normal(0, 0.008, picture.shape)
    return np.asarray(np.clip(shown, 0, 1), dtype=np.float32)
