"""Random features of the patch around every pixel, averaged over the patch's turns.

A patch is a disc, weighted towards its centre, with its mean and its norm taken away. Its features
are those of a kernel that does not see how the patch is turned: the mean, over a group of turns g,
of random Fourier features, of steps (000) or of kernel values (002) of the turned patch g x. Because
``<w, g x> = <g' w, x>``, the few templates are turned and not the many patches. The image is smoothed
a little first, so that a patch can be read between pixels and any angle serves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from sklearn.utils import check_random_state

from segkit._common import FloatArray, Progress, is_whole, pass_on
from segkit.errors import ConfigError, InputError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image, rotation_matrices
from segkit.features.patches import (
    Disc,
    Embedding,
    FourierEmbedding,
    NystroemEmbedding,
    StepEmbedding,
    TemplateOrbit,
    whiten,
)

TEMPLATES = ("gaussian", "patches", "whitened")
NONLINEARITIES = ("fourier", "step", "nystroem")
# Patches that templates are drawn from, for each template.
DRAWS_PER_TEMPLATE = 20
# Numbers held for one block of pixels, 32 MB.
BLOCK_SIZE = 2**23
# Smoothing windows end at this many standard deviations.
TRUNCATE = 4.0


class OrbitBank(FilterBank):
    """Rotation-invariant features of the patch around every pixel.

    Parameters
    ----------
    patch_sizes : sequence of int, default=(9, 17)
        Diameters of the patches in pixels, odd.
    n_templates : int, default=64
        Templates for each patch size.
    n_angles : int, default=16
        Turns averaged over, equispaced over a whole turn. 1 averages over none.
    reflections : bool, default=False
        Whether mirror images of the turned patches are averaged over too.
    scales : sequence of float, default=(1.0,)
        Enlargements of the patch that are averaged over too, such as (0.9, 1, 1.1).
    templates : {"gaussian", "patches", "whitened"}, default="gaussian"
        White noise; or patches of the training images, as they are or whitened, which `fit` draws.
    nonlinearity : {"fourier", "step", "nystroem"}, default="fourier"
        Cosine and sine of the projections on templates; the share of turns whose projection is
        up to each threshold; or Gaussian kernel values at the templates, orthonormalised
        (for `templates="patches"`).
    gamma : float, default=1.0
        Width of the Gaussian kernel of patches, ``exp(-gamma ||x - y||^2)``; patches have a norm of up
        to 1. Steps do without.
    thresholds : sequence of float, default=(-1.0, -0.5, 0.0, 0.5, 1.0)
        Thresholds of the steps; projections have a mean square of about 1.
    smoothing : float, default=0.7
        Standard deviation of the smoothing of the image, and of reading between its pixels, >= 0.5 pixels.
    floor : float, default=0.02
        Contrast, in units of intensity, below which patches count as flat: it is added in quadrature
        to their standard deviation before they are divided by it, so that noise is not amplified.
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
    The patch x of all image channels together, ``x = a (image - mean) / sqrt(variance + floor^2)``
    with mean and variance under the window a^2 (summing to 1), has a norm up to 1. For the group G
    of turns, and for templates w_j, the features are

    - fourier: mean over g of ``cos(sqrt(2 gamma) <w_j, g x>)`` and of the sine,
    - step: mean over g of ``[<w_j, g x> <= t]`` for each threshold t,
    - nystroem: ``L k``, k_j the mean over g of ``exp(-gamma ||w_j - g x||^2)`` and L'L the inverse of
      the kernel matrix of the templates. As reading x at turned offsets smooths it, ``||g x||`` is not
      ``||x||``.

    Normalising takes absolute intensity and contrast away, so the (smoothed) pixel itself, and the mean
    of each image channel and the standard deviation in each window, are channels too. A turned
    image gives turned maps, exactly for quarter turns if they are among the angles, and up to the
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
    >>> bank = OrbitBank(patch_sizes=(7,), n_templates=4, n_angles=8)
    >>> [channel.name for channel in bank.channels(1)][:5]
    ['pixel', 's7 mean', 's7 deviation', 's7 cos 000', 's7 sin 000']
    >>> image = np.random.default_rng(0).random((20, 30))
    >>> np.allclose(bank.dense(np.rot90(image)), np.rot90(bank.dense(image), axes=(1, 2)), atol=1e-4)
    True
    """

    def __init__(
        self,
        patch_sizes: Sequence[int] = (9, 17),
        *,
        n_templates: int = 64,
        n_angles: int = 16,
        reflections: bool = False,
        scales: Sequence[float] = (1.0,),
        templates: str = "gaussian",
        nonlinearity: str = "fourier",
        gamma: float = 1.0,
        thresholds: Sequence[float] = (-1.0, -0.5, 0.0, 0.5, 1.0),
        smoothing: float = 0.7,
        floor: float = 0.02,
        stride: int = 1,
        random_state: int = 0,
    ) -> None:
        self.patch_sizes = patch_sizes
        self.n_templates = n_templates
        self.n_angles = n_angles
        self.reflections = reflections
        self.scales = scales
        self.templates = templates
        self.nonlinearity = nonlinearity
        self.gamma = gamma
        self.thresholds = thresholds
        self.smoothing = smoothing
        self.floor = floor
        self.stride = stride
        self.random_state = random_state

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """Channels: the pixel, then for each patch size means, deviation and embedded templates."""
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
        return self._margin + math.ceil(TRUNCATE * self.smoothing) + (self.stride > 1) * self.stride

    @property
    def alignment(self) -> int:
        """Stride of the patches."""
        return self.stride

    def fit(self, images: Sequence[ArrayLike]) -> Self:
        """Draw the templates from images, unless they are noise.

        Parameters
        ----------
        images : sequence of array-like of shape (H, W) or (H, W, C), float in [0, 1]
            Images, of one number of channels.

        Returns
        -------
        OrbitBank
            Itself.

        Raises
        ------
        InputError
            If there are no images, they differ in their number of channels, or have too few patches
            that are not flat.
        """
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
        """Features at n pixels, of their patches only if every pixel has one; see `FilterBank.sample`."""
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
        """Templates drawn from images, by patch size."""
        templates = getattr(self, "templates_", {}) if self.learns_weights else {}
        return {f"templates.{size}": array for size, array in templates.items()}

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Take these templates instead of drawing them."""
        expected = {f"templates.{size}": size for size in self.patch_sizes if self.learns_weights}
        if weights.keys() != expected.keys():
            raise InputError(
                f"arrays {', '.join(weights) or 'none'}: this bank needs {', '.join(expected) or 'none'}; "
                f"give those that weights_used returned"
            )
        templates = {expected[name]: array for name, array in weights.items()}
        if templates:
            n_image_channels = np.atleast_3d(templates[self.patch_sizes[0]]).shape[1]
            self._check_templates(templates, n_image_channels)
        self.templates_ = templates

    def _check(self) -> None:
        sizes = list(self.patch_sizes)
        if not sizes or not all(is_whole(size) and size >= 3 and size % 2 for size in sizes):
            raise ConfigError(f"patch_sizes {sizes}: give odd numbers of pixels from 3 up, such as [9, 17]")
        if len(set(sizes)) < len(sizes):
            raise ConfigError(f"patch_sizes {sizes}: give each size once")
        for name in ("n_templates", "n_angles", "stride"):
            if not is_whole(getattr(self, name)):
                raise ConfigError(f"{name} {getattr(self, name)}: give a whole number, 1 or more")
        if not is_whole(self.random_state, least=0):
            raise ConfigError(
                f"random_state {self.random_state}: give a whole number, 0 or more, to have the same templates each time"
            )
        for name in ("gamma", "floor"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} {getattr(self, name)}: give a positive number")
        if not 0.5 <= self.smoothing < math.inf:
            raise ConfigError(
                f"smoothing {self.smoothing}: give 0.5 pixels or more, to read turned patches between pixels"
            )
        if not len(self.scales) or not all(0 < scale < math.inf for scale in self.scales):
            raise ConfigError(
                f"scales {list(self.scales)}: give positive enlargements, such as [0.9, 1, 1.1]"
            )
        if self.templates not in TEMPLATES:
            raise ConfigError(f"templates {self.templates!r}: choose one of {', '.join(TEMPLATES)}")
        if self.nonlinearity not in NONLINEARITIES:
            raise ConfigError(
                f"nonlinearity {self.nonlinearity!r}: choose one of {', '.join(NONLINEARITIES)}"
            )
        if self.nonlinearity == "nystroem" and self.templates != "patches":
            raise ConfigError(
                f"nonlinearity 'nystroem' with templates {self.templates!r}: it compares patches, take templates 'patches'"
            )
        if self.nonlinearity == "step":
            self._check_thresholds()

    def _check_thresholds(self) -> None:
        thresholds = list(self.thresholds)
        if not thresholds:
            raise ConfigError("thresholds []: steps need at least one, such as [-1, 0, 1]")
        if not np.isfinite(thresholds).all() or len(set(self._embedding.names(0))) < len(thresholds):
            raise ConfigError(f"thresholds {thresholds}: give finite numbers that differ in six digits")

    def _check_templates(self, templates: dict[int, FloatArray], n_image_channels: int) -> None:
        found = {int(size): array.shape for size, array in templates.items()}
        needed = self._shapes(n_image_channels)
        if found != needed:
            raise InputError(
                f"templates of sizes and shapes {found}: this bank needs {needed} for an image with "
                f"{n_image_channels} channels; fit it again, to images of the same kind"
            )

    @property
    def _embedding(self) -> Embedding:
        if self.nonlinearity == "fourier":
            return FourierEmbedding(self.gamma)
        return (
            NystroemEmbedding(self.gamma)
            if self.nonlinearity == "nystroem"
            else StepEmbedding(tuple(self.thresholds))
        )

    @property
    def _margin(self) -> int:
        return max(Disc.of(size, scale).reach for size in self.patch_sizes for scale in self.scales)

    @property
    def _turns(self) -> NDArray[np.float64]:
        """Matrices of the turns, and of the reflected turns; (n, 2, 2)."""
        turns = rotation_matrices(self.n_angles)
        return np.concatenate([turns, turns * [1, -1]]) if self.reflections else turns

    def _planes(self, image: FloatArray) -> FloatArray:
        """Smoothed image, mirrored at its edges as far as patches reach; (C, H, W)."""
        smooth = ndimage.gaussian_filter(image, (self.smoothing, self.smoothing, 0), truncate=TRUNCATE)
        pad = (self._margin, self._margin)
        return np.ascontiguousarray(np.pad(smooth, (pad, pad, (0, 0)), mode="symmetric").transpose(2, 0, 1))

    def _shapes(self, n_image_channels: int) -> dict[int, tuple[int, ...]]:
        """Shapes of the templates by patch size, (n_templates, n_image_channels, n_pixels) each."""
        return {
            int(size): (int(self.n_templates), n_image_channels, len(Disc.of(size).offsets))
            for size in self.patch_sizes
        }

    def _templates(self, n_image_channels: int) -> dict[int, FloatArray]:
        """Templates by patch size; (n_templates, n_image_channels, n_pixels) each."""
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
        """Draw templates from patches of smoothed images, the rarer the flatter."""
        disc = Disc.of(size)
        n_each = math.ceil(DRAWS_PER_TEMPLATE * self.n_templates / len(images))
        patches = []
        for planes in images:
            height, width = (length - 2 * self._margin for length in planes.shape[1:])
            rows, cols = rng.randint(height, size=n_each), rng.randint(width, size=n_each)
            patches.append(disc.read(planes, rows + self._margin, cols + self._margin, self.floor).values)
        pool = np.concatenate(patches)
        contrast = np.square(pool, dtype=np.float64).sum(axis=1)
        if np.count_nonzero(contrast) < self.n_templates:
            raise InputError(
                f"{np.count_nonzero(contrast)} of {len(pool)} patches are not flat: {self.n_templates} templates need "
                f"as many; give images with more in them, or fewer n_templates"
            )
        drawn = pool[rng.choice(len(pool), self.n_templates, replace=False, p=contrast / contrast.sum())]
        if self.templates == "whitened":
            drawn = whiten(drawn, pool)
        if self.nonlinearity != "nystroem":
            drawn = drawn / np.sqrt(np.square(pool @ drawn.T, dtype=np.float64).mean(axis=0))[:, None]
        return drawn.reshape(self.n_templates, len(images[0]), -1).astype(np.float32)

    def _embed(
        self, image: FloatArray, rows: NDArray[np.intp], cols: NDArray[np.intp], channels: NDArray[np.intp]
    ) -> FloatArray:
        """Features of the patches around n pixels; (n, n_channels)."""
        planes = self._planes(image)
        rows, cols = rows + self._margin, cols + self._margin
        out = np.empty((rows.size, channels.size), dtype=np.float32)
        at = np.flatnonzero(channels < len(planes))
        out[:, at] = planes[channels[at][:, None], rows, cols].T
        start = len(planes)
        n_channels = len(planes) + 1 + self.n_templates * len(self._embedding.names(0))
        templates = self._templates(len(planes))
        for size in self.patch_sizes:
            at = np.flatnonzero((channels >= start) & (channels < start + n_channels))
            if at.size:
                wanted = channels[at] - start
                out[:, at] = self._embed_patches(planes, rows, cols, size, templates[size], wanted)
            start += n_channels
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
        """Features of patches of one size, averaged over the group; (n, n_wanted)."""
        n_window, n_each = len(planes) + 1, len(self._embedding.names(0))
        owner, feature = np.divmod(wanted - n_window, n_each)
        used = np.arange(len(templates)) if self._embedding.mixes else np.unique(owner[owner >= 0])
        column = np.where(owner < 0, wanted, n_window + np.searchsorted(used, owner) * n_each + feature)
        disc = Disc.of(size)
        discs = [disc.scaled(scale) for scale in self.scales]
        orbits = [
            TemplateOrbit.of(templates[used], disc.readers(scaled, self._turns, self.smoothing))
            for scaled in discs
        ]
        n_numbers = max(2 * (orbit.turned[0].size + len(orbit.turned)) for orbit in orbits)
        n_block = max(1, BLOCK_SIZE // n_numbers)
        out = np.empty((rows.size, wanted.size), dtype=np.float32)
        for start in range(0, rows.size, n_block):
            block = slice(start, start + n_block)
            parts = []
            for scaled, orbit in zip(discs, orbits, strict=True):
                patches = scaled.read(planes, rows[block], cols[block], self.floor)
                features = [patches.means, patches.deviation]
                if used.size:
                    embedded = self._embedding(patches.values, orbit)
                    features.append(embedded.reshape(len(embedded), -1))
                parts.append(np.hstack(features))
            out[block] = np.mean(parts, axis=0)[:, column]
        return out
