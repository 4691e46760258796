"""Patches of an image: how they are read and normalised, and how they meet templates that a group moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from segkit._common import FloatArray
from segkit.invariance.groups import Similarity

if TYPE_CHECKING:
    import torch


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

    def read(
        self, planes: FloatArray, rows: NDArray[np.intp], cols: NDArray[np.intp], floor: float
    ) -> Patches:
        """Read normalised patches around n pixels of an image (C, H, W) that has room for them."""
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

    def readers(self, scaled: Disc, moves: Sequence[Similarity], smoothing: float) -> FloatArray:
        """Build the matrices (n_moves, n_pixels, n_scaled_pixels) that read an enlarged patch where each move places it."""
        turns = np.array([move.turn for move in moves])
        amplitudes = np.array([[[1 / move.amplitude]] for move in moves]).round(14)
        points = scaled.scale * self.offsets @ turns.transpose(0, 2, 1)
        squared = np.square(points[:, :, None] - scaled.offsets).sum(axis=-1)
        width = scaled.scale * smoothing
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
