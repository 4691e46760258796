"""Patches of an image: how they are read and normalised, how templates turn, what is made of projections."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit.kernels import Gaussian
from segkit.kernels.fourier import fourier_map


class Patches(NamedTuple):
    """Normalised patches, (n, C * n_pixels), and what normalising took away, (n, C) and (n, 1)."""

    values: FloatArray
    means: FloatArray
    deviation: FloatArray


@dataclass(frozen=True)
class Disc:
    """The pixels nearer than `radius` to a pixel; the grid of offsets is stretched by `scale` in templates."""

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

    def read(
        self, planes: FloatArray, rows: NDArray[np.intp], cols: NDArray[np.intp], floor: float
    ) -> Patches:
        """Normalised patches around n pixels of an image (C, H, W) that has room for them."""
        width = planes.shape[2]
        pixels = (rows * width + cols)[:, None] + self.offsets @ [width, 1]
        values = np.stack([plane.ravel().take(pixels) for plane in planes], axis=1)
        window = np.square(self.amplitude)
        means = values @ window
        values -= means[:, :, None]
        variance = (np.square(values) @ window).sum(axis=1)
        values *= self.amplitude
        values /= np.sqrt(variance + floor**2)[:, None, None]
        return Patches(values.reshape(len(values), -1), means, np.sqrt(variance)[:, None])

    def readers(self, scaled: Disc, turns: NDArray[np.float64], smoothing: float) -> FloatArray:
        """Matrices of the turns g, each from an enlarged patch x to g x, of this disc's pixels.

        They read x at the turned offsets, with a Gaussian between pixels; (n_turns, n_pixels,
        n_scaled_pixels).
        """
        points = scaled.scale * self.offsets @ turns.transpose(0, 2, 1)
        squared = np.square(points[:, :, None] - scaled.offsets).sum(axis=-1)
        width = scaled.scale * smoothing
        gaussians = scaled.scale * np.exp(-squared / (2 * width**2)) / (2 * np.pi * width**2)
        readers: FloatArray = gaussians.astype(np.float32)
        return readers


class TemplateOrbit(NamedTuple):
    """Templates (T, C, n_pixels), readers, and the templates turned, (C * n_scaled_pixels, T, n_turns)."""

    templates: FloatArray
    readers: FloatArray
    turned: FloatArray

    @classmethod
    def of(cls, templates: FloatArray, readers: FloatArray) -> Self:
        """Turn templates by the transposes of the readers."""
        turned = np.tensordot(templates, readers, axes=(2, 1))
        n_templates, n_planes, n_turns, n_pixels = turned.shape
        turned = turned.transpose(1, 3, 0, 2).reshape(n_planes * n_pixels, n_templates, n_turns)
        return cls(templates, readers, turned)

    def project(self, patches: FloatArray) -> FloatArray:
        """``<w, g x>`` for each template w and turn g of n patches; (n, T, n_turns)."""
        projections: FloatArray = np.tensordot(patches, self.turned, axes=1)
        return projections

    def squared_norms(self, patches: FloatArray) -> FloatArray:
        """``||g x||^2`` of n patches; (n, n_turns)."""
        planes = patches.reshape(-1, self.readers.shape[2])
        norms = np.stack([np.square(planes @ reader.T).sum(axis=1) for reader in self.readers], axis=1)
        squared: FloatArray = norms.reshape(len(patches), -1, len(self.readers)).sum(axis=1)
        return squared


def whiten(templates: FloatArray, patches: FloatArray) -> FloatArray:
    """Apply the inverse covariance of patches, so that projections are those of whitened patches."""
    covariance = np.cov(patches.astype(np.float64), rowvar=False)
    covariance += 0.1 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    whitened: FloatArray = np.linalg.solve(covariance, (templates - patches.mean(axis=0)).T).T
    return whitened


class Embedding(Protocol):
    """What becomes of the projections of a patch on the turns of a template."""

    mixes: ClassVar[bool]

    def names(self, index: int) -> list[str]:
        """Name the features of one template."""
        ...

    def __call__(self, patches: FloatArray, orbit: TemplateOrbit) -> FloatArray:
        """Average over the turns of patches (n, C * n_scaled_pixels); (n, T, n_features)."""
        ...


@dataclass(frozen=True)
class FourierEmbedding:
    """Means of cosine and sine of ``sqrt(2 gamma) <w, g x>``: random Fourier features."""

    gamma: float
    mixes: ClassVar[bool] = False

    def names(self, index: int) -> list[str]:
        """Name the features of one template."""
        return [f"cos {index:03d}", f"sin {index:03d}"]

    def __call__(self, patches: FloatArray, orbit: TemplateOrbit) -> FloatArray:
        """Average over the turns of patches (n, C * n_scaled_pixels); (n, T, n_features)."""
        turned = orbit.turned
        frequencies = math.sqrt(2 * self.gamma) * turned.reshape(len(turned), -1)
        features = fourier_map(patches, frequencies, scale=False)
        means: FloatArray = features.reshape(len(patches), 2, *turned.shape[1:]).mean(axis=3)
        return means.transpose(0, 2, 1)


@dataclass(frozen=True)
class StepEmbedding:
    """Share of the turns g with ``<w, g x>`` up to each threshold: CDF features."""

    thresholds: tuple[float, ...]
    mixes: ClassVar[bool] = False

    def names(self, index: int) -> list[str]:
        """Name the features of one template."""
        return [f"step {index:03d} at {threshold:g}" for threshold in self.thresholds]

    def __call__(self, patches: FloatArray, orbit: TemplateOrbit) -> FloatArray:
        """Average over the turns of patches (n, C * n_scaled_pixels); (n, T, n_features)."""
        projections = orbit.project(patches)
        shares = [(projections <= threshold).mean(axis=2, dtype=np.float32) for threshold in self.thresholds]
        return np.stack(shares, axis=2)


@dataclass(frozen=True)
class NystroemEmbedding:
    """Means of kernel values at the templates, orthonormalised by the templates' own."""

    gamma: float
    mixes: ClassVar[bool] = True

    def names(self, index: int) -> list[str]:
        """Name the features of one template."""
        return [f"nystroem {index:03d}"]

    def __call__(self, patches: FloatArray, orbit: TemplateOrbit) -> FloatArray:
        """Average over the turns of patches (n, C * n_scaled_pixels); (n, T, n_features)."""
        kernel = Gaussian(self.gamma)
        landmarks = orbit.templates.reshape(len(orbit.templates), -1).astype(np.float64)
        squared = orbit.squared_norms(patches)[:, None] - 2 * orbit.project(patches)
        squared += np.square(landmarks).sum(axis=1).astype(np.float32)[:, None]
        means: FloatArray = kernel.of_squared_distances(squared).mean(axis=2)
        return (means @ _inverse_root(kernel(landmarks)))[:, :, None]


def _inverse_root(matrix: NDArray[Any]) -> FloatArray:
    """Symmetric L with L'L the pseudo-inverse of a positive semi-definite matrix."""
    eigenvalues, vectors = np.linalg.eigh(matrix)
    kept = eigenvalues > len(matrix) * np.finfo(np.float32).eps * eigenvalues[-1]
    root: FloatArray = ((vectors[:, kept] / np.sqrt(eigenvalues[kept])) @ vectors[:, kept].T).astype(
        np.float32
    )
    return root
