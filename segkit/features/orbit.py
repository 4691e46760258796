"""Invariant random features of the patch around every pixel.

A patch is a disc, weighted towards its centre, less its mean and divided by its norm. An embedding of
`segkit.invariance` compares it with templates that a group moves, and averages over the group. A few
templates are moved in place of many patches: ``<g w, x> = <w, g' x>``. The image is smoothed a little
first, so that patches can be read between pixels, at any angle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy import ndimage
from sklearn.utils import check_random_state

from segkit._common import FloatArray, Progress, pass_on
from segkit.errors import ConfigError, InputError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image, share_out
from segkit.features.options import ODD, ONCE
from segkit.invariance.embeddings import Embedding, FourierEmbedding, StepEmbedding
from segkit.invariance.groups import Group, Similarity, similarities
from segkit.invariance.spatial import Rotation
from segkit.kernels.base import Gaussian

if TYPE_CHECKING:
    import torch

# Larger windows and more templates than these are a mistake.
LARGEST_PATCH, MOST_TEMPLATES = 301, 10_000
_PatchSize = Annotated[int, Field(ge=3, le=LARGEST_PATCH), ODD]
# Patches that templates are drawn from, for each template.
DRAWS_PER_TEMPLATE = 20
# Numbers held for one block of pixels, 32 MB.
BLOCK_SIZE = 2**23
# Standard deviation in pixels of the smoothing of the image, and of reading between its pixels.
SMOOTHING = 0.7
# Contrast, in units of intensity, below which patches count as flat.
FLOOR = 0.02
# Gaussian filters are cut off at this many standard deviations.
TRUNCATE = 4.0


class Patches(NamedTuple):
    """Normalised patches (n, C * n_pixels), with their former means (n, C) and deviations (n, 1)."""

    values: FloatArray
    means: FloatArray
    deviation: FloatArray


@dataclass(frozen=True)
class Disc:
    """The pixels nearer than `radius` to a pixel. `scale` is its enlargement over the templates' disc."""

    radius: float
    scale: float = 1.0

    @classmethod
    def of(cls, size: int, scale: float = 1.0) -> Self:
        """Make the disc of a patch of so many pixels, enlarged."""
        return cls((size + 1) / 2).scaled(scale)

    def scaled(self, scale: float) -> Self:
        """Enlarge the disc."""
        return replace(self, radius=self.radius * scale, scale=self.scale * scale)

    @property
    def reach(self) -> int:
        """Pixels from the centre to the farthest pixel along an axis."""
        return math.ceil(self.radius) - 1

    @property
    def offsets(self) -> NDArray[np.intp]:
        """Rows and columns of the pixels, relative to the centre; (n_pixels, 2)."""
        square = np.indices((2 * self.reach + 1, 2 * self.reach + 1)).reshape(2, -1).T - self.reach
        inside: NDArray[np.intp] = square[np.hypot(*square.T) < self.radius]
        return inside

    @property
    def amplitude(self) -> FloatArray:
        """Weight of each pixel in a patch, falling to 0 at the radius, of norm 1; (n_pixels,)."""
        weight = 1 - np.square(self.offsets / self.radius).sum(axis=1)
        amplitude: FloatArray = (weight / np.linalg.norm(weight)).astype(np.float32)
        return amplitude

    def read(self, planes: FloatArray, rows: NDArray[np.intp], cols: NDArray[np.intp]) -> Patches:
        """Read normalised patches around n pixels of an image (C, H, W) that has room for them."""
        width = planes.shape[2]
        pixels = (rows * width + cols)[:, None] + self.offsets @ [width, 1]
        values = np.stack([plane.ravel().take(pixels) for plane in planes], axis=1)
        window = np.square(self.amplitude)
        means = values @ window
        values -= means[:, :, None]
        variance = (np.square(values) @ window).sum(axis=1)
        values *= self.amplitude
        values /= np.sqrt(variance + FLOOR**2)[:, None, None]
        return Patches(values.reshape(len(values), -1), means, np.sqrt(variance)[:, None])

    def readers(self, scaled: Disc, moves: Sequence[Similarity]) -> FloatArray:
        """Build the matrices (n_moves, n_pixels, n_scaled_pixels) that read an enlarged patch where each move places it."""
        turns = np.array([move.turn for move in moves])
        amplitudes = np.array([[[1 / move.amplitude]] for move in moves]).round(14)
        points = scaled.scale * self.offsets @ turns.transpose(0, 2, 1)
        squared = np.square(points[:, :, None] - scaled.offsets).sum(axis=-1)
        width = scaled.scale * SMOOTHING
        gaussians = amplitudes * np.exp(-squared / (2 * width**2)) / (2 * np.pi * width**2)
        readers: FloatArray = gaussians.astype(np.float32)
        return readers


def moved_templates(templates: FloatArray, readers: FloatArray, factor: float) -> FloatArray:
    """Move templates (T, C, n_pixels), times a factor, by the transposes of readers; (C * n_scaled_pixels, T, n_moves)."""
    moved = np.tensordot(templates, readers, axes=(2, 1))
    n_templates, n_planes, n_moves, n_pixels = moved.shape
    moved = moved.transpose(1, 3, 0, 2).reshape(n_planes * n_pixels, n_templates, n_moves)
    return np.asarray(factor * moved)


class PatchPairs(NamedTuple):
    """Pairs of patches (n, C * n_scaled_pixels) and moved templates, for embeddings of `segkit.invariance`."""

    patches: FloatArray
    moved: FloatArray

    def products(self) -> torch.Tensor:
        """Compute inner products of patches and moved templates; (n, T, n_moves)."""
        import torch

        flat = torch.from_numpy(self.patches) @ torch.from_numpy(self.moved.reshape(len(self.moved), -1))
        return flat.reshape(-1, *self.moved.shape[1:])


class OrbitBank(FilterBank):
    """Features of the patch around every pixel, invariant to a group.

    Parameters
    ----------
    patch_sizes : sequence of int, default=(9, 17)
        Diameters of the patches in pixels, odd.
    n_templates : int, default=64
        Templates for each patch size.
    group : Group, default=None
        Turns, reflections and enlargements to average over, listed: `Rotation`, `Reflection`, `Dihedral`, `Scaling`
        or a composition of them. None is ``Rotation(16)``.
    templates : {"gaussian", "patches"}, default="gaussian"
        White noise; or patches that `fit` draws from the training images.
    embedding : Embedding, default=None
        Function of templates and patches to average: `FourierEmbedding` of a Gaussian kernel, or `StepEmbedding`. None
        is ``FourierEmbedding(Gaussian(1.0))``.
    stride : int, default=1
        Pixels between the patches; features in between are interpolated.
    random_state : int, default=0
        Seed of the templates.

    Attributes
    ----------
    templates_ : dict of int to ndarray of shape (n_templates, n_image_channels, n_pixels)
        Templates by patch size, if they were drawn from images.

    Notes
    -----
    The patch x holds all image channels: ``x = a (image - mean) / sqrt(variance + 0.02^2)``, with mean and variance under
    the window a^2, which sums to 1. Its norm is at most 1, and noise far below the contrast 0.02 is not amplified. The
    group acts on the templates, as in the CDF features of Mroueh et al.: a template enlarged by 1.1 meets a patch enlarged
    by 1.1. For templates w_j the features are

    - `FourierEmbedding`: mean over g of ``cos(sqrt(2 gamma) <g w_j, x>)`` and of the sine,
    - `StepEmbedding`: mean over g of ``[<g w_j, x> <= t]`` for each threshold t. Projections have a mean square of
      about 1.

    They are the features of a whole sample, the patch, by `OrbitFourier` and `GroupCDF`, without the factors that make
    inner products kernel values there. Turned patches are read between pixels by a Gaussian, whole samples bilinearly.

    Normalising takes absolute intensity and contrast away. The (smoothed) pixel itself, and the mean
    of each image channel and the standard deviation in each window, are therefore channels too. A turned
    image gives turned maps: exactly for quarter turns of the group, and up to the
    interpolation of the image otherwise. Steps jump: give them more angles.

    References
    ----------
    Y. Mroueh, S. Voinea, T. Poggio, Learning with group invariant features: a kernel perspective, 2015,
    section 2.2 (its feature map, unnumbered).

    A. Raj et al., Local group invariant representations via orbit embeddings, 2017, eq. 7 and 8.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit import OrbitBank
    >>> from segkit.invariance import Rotation
    >>> bank = OrbitBank(patch_sizes=(7,), n_templates=4, group=Rotation(8))
    >>> [channel.name for channel in bank.channels(1)][:5]
    ['pixel', 's7 mean', 's7 deviation', 's7 cos 000', 's7 sin 000']
    >>> image = np.random.default_rng(0).random((20, 30))
    >>> np.allclose(bank.dense(np.rot90(image)), np.rot90(bank.dense(image), axes=(1, 2)), atol=1e-4)
    True
    """

    def __init__(
        self,
        patch_sizes: Annotated[Sequence[_PatchSize], Field(min_length=1, max_length=20), ONCE] = (9, 17),
        *,
        n_templates: Annotated[int, Field(gt=0, le=MOST_TEMPLATES)] = 64,
        group: Group | None = None,
        templates: Literal["gaussian", "patches"] = "gaussian",
        embedding: FourierEmbedding | StepEmbedding | None = None,
        stride: Annotated[int, Field(gt=0, le=1024)] = 1,
        random_state: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        self.patch_sizes = patch_sizes
        self.n_templates = n_templates
        self.group = group
        self.templates = templates
        self.embedding = embedding
        self.stride = stride
        self.random_state = random_state

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels: the pixel, then for each patch size means, deviation and embedded templates."""
        self._check()
        suffixes = [f" c{index}" if n_image_channels > 1 else "" for index in range(n_image_channels)]
        names = [Channel(f"pixel{suffix}", "pixels") for suffix in suffixes]
        for size in self.patch_sizes:
            names += [Channel(f"s{size} mean{suffix}", f"s{size} window") for suffix in suffixes]
            names += [Channel(f"s{size} deviation", f"s{size} window")]
            names += [
                Channel(f"s{size} {name}", f"s{size} orbit")
                for index in range(self.n_templates)
                for name in self._embedding.names(index)
            ]
        return tuple(names)

    @property
    def halo(self) -> int:
        """Reach of the largest enlarged patch, of the smoothing, and of interpolation between patches."""
        return self._margin + math.ceil(TRUNCATE * SMOOTHING) + (self.stride > 1) * self.stride

    @property
    def alignment(self) -> int:
        """Stride of the patches."""
        return self.stride

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride of the patches, for each channel."""
        return np.full(self.n_channels(n_image_channels), float(self.stride))

    def fit(
        self,
        images: Sequence[ArrayLike],
        ids: Sequence[NDArray[np.uint8]] | None = None,  # noqa: ARG002
        *,
        parts: Sequence[NDArray[np.uint8]] | None = None,  # noqa: ARG002
        groups: NDArray[np.intp] | None = None,  # noqa: ARG002
        progress: Progress = pass_on,  # noqa: ARG002
        checkpoint: Path | None = None,  # noqa: ARG002
    ) -> Self:
        """Draw the templates from images, all of one number of channels, unless they are noise."""
        self._check()
        if not self.learns_weights:
            return self
        rng = check_random_state(self.random_state)
        planes = [self._planes(as_image(image)) for image in images]
        n_channels = sorted({len(image) for image in planes})
        if len(n_channels) != 1:
            raise InputError(
                f"{len(planes)} images with {n_channels} channels: give one or more, all of one kind"
            )
        self.templates_ = {size: self._draw(planes, size, rng) for size in self.patch_sizes}
        return self

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        channels = self._wanted(channels, image.shape[2])
        rows, cols = (np.arange(0, size, self.stride) for size in image.shape[:2])
        grid_rows, grid_cols = np.meshgrid(rows, cols, indexing="ij")
        features = self._embed(image, grid_rows.ravel(), grid_cols.ravel(), channels)
        values = np.ascontiguousarray(features.T).reshape(-1, rows.size, cols.size)
        return [FeatureMaps(values, channels, stride=float(self.stride))]

    def sample(
        self,
        image: ArrayLike,
        rows: NDArray[Any],
        cols: NDArray[Any],
        channels: NDArray[np.intp] | None = None,
        *,
        progress: Progress = pass_on,
    ) -> FloatArray:
        """Compute features at n pixels, of their own patches only, if every pixel has one; see `FilterBank.sample`."""
        self._check()
        rows, cols = np.asarray(rows), np.asarray(cols)
        if self.stride > 1 or not np.issubdtype(np.result_type(rows, cols), np.integer):
            return super().sample(image, rows, cols, channels, progress=progress)
        image = as_image(image)
        return self._embed(image, rows, cols, self._wanted(channels, image.shape[2]))

    @property
    def learns_weights(self) -> bool:
        """Whether templates are drawn from images."""
        return self.templates != "gaussian"

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:  # noqa: ARG002
        """Return the templates drawn from images, by patch size."""
        templates = getattr(self, "templates_", {}) if self.learns_weights else {}
        return {f"templates.{size}": array for size, array in templates.items()}

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Take these templates instead of drawing them."""
        self._check()
        expected = {f"templates.{size}": size for size in self.patch_sizes if self.learns_weights}
        if weights.keys() != expected.keys():
            raise InputError(
                f"arrays {', '.join(weights) or 'none'}: this bank needs {', '.join(expected) or 'none'}; "
                f"give the arrays of weights_used"
            )
        templates = {expected[name]: array for name, array in weights.items()}
        if templates:
            n_image_channels = np.atleast_3d(templates[self.patch_sizes[0]]).shape[1]
            self._check_templates(templates, n_image_channels)
        self.templates_ = templates

    def _check(self) -> None:
        super()._check()
        self._moves()
        embedding = self._embedding
        if not isinstance(getattr(embedding, "kernel", Gaussian(1.0)), Gaussian):
            raise ConfigError(f"embedding {embedding}: give it a Gaussian kernel, such as Gaussian(1.0)")
        names = embedding.names(0)
        if len(set(names)) < len(names):
            raise ConfigError(f"embedding {embedding}: give thresholds that differ in six digits")

    def _check_templates(self, templates: dict[int, FloatArray], n_image_channels: int) -> None:
        found = {int(size): array.shape for size, array in templates.items()}
        needed = self._shapes(n_image_channels)
        if found != needed:
            raise InputError(
                f"templates of sizes and shapes {found}: this bank needs {needed} for an image with "
                f"{n_image_channels} channels; fit it again, to images of the same kind"
            )

    @property
    def _group(self) -> Group:
        return Rotation(16) if self.group is None else self.group

    @property
    def _embedding(self) -> Embedding:
        return FourierEmbedding(Gaussian(1.0)) if self.embedding is None else self.embedding

    def _moves(self) -> dict[float, list[Similarity]]:
        """List the elements of the group by their enlargement; equal enlargements share their patches."""
        largest = max(self.patch_sizes)
        moves: dict[float, list[Similarity]] = {}
        for move in similarities(self._group, (largest, largest)):
            moves.setdefault(move.scale, []).append(move)
        return moves

    @property
    def _margin(self) -> int:
        return max(Disc.of(size, scale).reach for size in self.patch_sizes for scale in self._moves())

    def _planes(self, image: FloatArray) -> FloatArray:
        """Smooth the image, mirrored at its edges as far as patches reach; (C, H, W)."""
        smooth = ndimage.gaussian_filter(image, (SMOOTHING, SMOOTHING, 0), truncate=TRUNCATE)
        pad = (self._margin, self._margin)
        return np.ascontiguousarray(np.pad(smooth, (pad, pad, (0, 0)), mode="symmetric").transpose(2, 0, 1))

    def _shapes(self, n_image_channels: int) -> dict[int, tuple[int, ...]]:
        """List the shapes of the templates by patch size, (n_templates, n_image_channels, n_pixels) each."""
        return {
            int(size): (int(self.n_templates), n_image_channels, len(Disc.of(size).offsets))
            for size in self.patch_sizes
        }

    def _templates(self, n_image_channels: int) -> dict[int, FloatArray]:
        """Return the templates by patch size; (n_templates, n_image_channels, n_pixels) each."""
        if self.learns_weights:
            if not hasattr(self, "templates_"):
                raise InputError(
                    f"OrbitBank(templates={self.templates!r}) has no templates yet: fit it to images first"
                )
            self._check_templates(self.templates_, n_image_channels)
            return self.templates_
        rng = check_random_state(self.random_state)
        shapes = self._shapes(n_image_channels)
        return {size: rng.standard_normal(shape).astype(np.float32) for size, shape in shapes.items()}

    def _draw(self, images: list[FloatArray], size: int, rng: np.random.RandomState) -> FloatArray:
        """Draw templates from patches of smoothed images, flat patches rarely."""
        disc = Disc.of(size)
        n_each = math.ceil(DRAWS_PER_TEMPLATE * self.n_templates / len(images))
        patches = []
        for planes in images:
            height, width = (length - 2 * self._margin for length in planes.shape[1:])
            rows, cols = rng.randint(height, size=n_each), rng.randint(width, size=n_each)
            patches.append(disc.read(planes, rows + self._margin, cols + self._margin).values)
        pool = np.concatenate(patches)
        contrast = np.square(pool, dtype=np.float64).sum(axis=1)
        if np.count_nonzero(contrast) < self.n_templates:
            raise InputError(
                f"{np.count_nonzero(contrast)} of {len(pool)} patches are not flat: {self.n_templates} templates need "
                f"as many; give images with more in them, or fewer n_templates"
            )
        drawn = pool[rng.choice(len(pool), self.n_templates, replace=False, p=contrast / contrast.sum())]
        drawn = drawn / np.sqrt(np.square(pool @ drawn.T, dtype=np.float64).mean(axis=0))[:, None]
        return np.asarray(drawn.reshape(self.n_templates, len(images[0]), -1), dtype=np.float32)

    def _embed(
        self, image: FloatArray, rows: NDArray[np.intp], cols: NDArray[np.intp], channels: NDArray[np.intp]
    ) -> FloatArray:
        """Compute features of the patches around n pixels; (n, n_channels)."""
        planes = self._planes(image)
        rows, cols = rows + self._margin, cols + self._margin
        out = np.empty((rows.size, channels.size), dtype=np.float32)
        templates = self._templates(len(planes))
        n_of_size = len(planes) + 1 + self.n_templates * len(self._embedding.names(0))
        sizes = list(self.patch_sizes)
        for part, at, own in share_out(channels, [len(planes), *[n_of_size] * len(sizes)]):
            if part == 0:
                out[:, at] = planes[own[:, None], rows, cols].T
            else:
                size = sizes[part - 1]
                out[:, at] = self._embed_patches(planes, rows, cols, size, templates[size], own)
        return out

    def _embed_patches(
        self,
        planes: FloatArray,
        rows: NDArray[np.intp],
        cols: NDArray[np.intp],
        size: int,
        templates: FloatArray,
        wanted: NDArray[np.intp],
    ) -> FloatArray:
        """Compute features of patches of one size, averaged over the group; (n, n_wanted)."""
        embedding = self._embedding
        n_window, n_each = len(planes) + 1, len(embedding.names(0))
        owner, feature = np.divmod(wanted - n_window, n_each)
        used = np.unique(owner[owner >= 0])
        column = np.where(owner < 0, wanted, n_window + np.searchsorted(used, owner) * n_each + feature)
        disc = Disc.of(size)
        discs = [disc.scaled(scale) for scale in self._moves()]
        orbits = [
            moved_templates(templates[used], disc.readers(scaled, moves), embedding.factor)
            for scaled, moves in zip(discs, self._moves().values(), strict=True)
        ]
        n_moves = np.array([moved.shape[2] for moved in orbits], dtype=np.float32)
        n_numbers = max(2 * (moved[0].size + len(moved)) for moved in orbits)
        n_block = max(1, BLOCK_SIZE // n_numbers)
        out = np.empty((rows.size, wanted.size), dtype=np.float32)
        for start in range(0, rows.size, n_block):
            block = slice(start, start + n_block)
            parts = []
            for scaled, moved in zip(discs, orbits, strict=True):
                patches = scaled.read(planes, rows[block], cols[block])
                features: list[NDArray[Any]] = [patches.means, patches.deviation]
                if used.size:
                    embedded = embedding.average(PatchPairs(patches.values, moved))
                    features.append(embedded.reshape(len(embedded), -1))
                parts.append(np.hstack(features))
            out[block] = np.average(parts, axis=0, weights=n_moves / n_moves[0])[:, column]
        return out
