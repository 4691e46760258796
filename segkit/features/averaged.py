"""Any filter bank, averaged over a group of turns of the image, so that its maps turn with the image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage
from sklearn.base import clone

from segkit._common import FloatArray
from segkit._threads import in_threads
from segkit.errors import ConfigError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image, refuse_former
from segkit.features.tiles import Tile, whole
from segkit.invariance.groups import Group, Matrix
from segkit.invariance.plane import Similarity, similarities
from segkit.invariance.spatial import Dihedral

EMBEDDINGS = ("mean", "moments")
# Deviations below this fraction of a channel's largest mean count as rounding.
ROUNDING = 1e-6
# Turned copies of images of up to this many pixels are computed in parallel. One copy of a larger image fills the cores,
# and several would fill the memory.
PIXELS_SIDE_BY_SIDE = 2**20
# Features read at a time, 32 MB.
BLOCK_SIZE = 2**23


class OrbitAveraged(FilterBank):
    """A bank's features, averaged over the turned images.

    Parameters
    ----------
    bank : FilterBank
        The bank, not averaged already.
    group : Group, default=None
        Turns and reflections of the image, listed. None is `Dihedral()`, the eight symmetries of the square. Quarter
        turns and reflections move pixels onto pixels and are exact. By any other angle, as of ``Rotation(16)``,
        the image is turned by bilinear interpolation, mirrored at its edges.
    embedding : {"mean", "moments"}, default="mean"
        The features are averaged, or the features and their squares. The latter gives means and
        standard deviations over the group, twice as many channels.

    Attributes
    ----------
    bank_ : FilterBank
        The bank after `fit`, or with the weights that `use_weights` took. Without either, `bank` itself is used.

    Notes
    -----
    With the features ``F`` of the bank and an embedding e, the feature of image I at position p is the mean
    over the group of ``e(F(g I)(g p))``. The feature of h I at h p is the same for each h of the group. Positions
    are the cells of grids as coarse as the bank's own and centred on the image. Quarter turns and reflections
    therefore move cells onto cells, and the interpolated features between them, to rounding. Computing the maps
    takes as long as the bank's times the number of elements.

    References
    ----------
    A. Raj et al., Local group invariant representations via orbit embeddings, 2017, eq. 2.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit import ScatteringBank
    >>> from segkit.features import OrbitAveraged
    >>> bank = OrbitAveraged(ScatteringBank(J=1, L=2, tile=16))
    >>> image = np.random.default_rng(0).random((12, 15))
    >>> np.allclose(bank.dense(np.rot90(image)), np.rot90(bank.dense(image), axes=(1, 2)))
    True
    """

    @refuse_former(orbit="group, such as Dihedral() or Rotation(16)")
    def __init__(self, bank: FilterBank, *, group: Group | None = None, embedding: str = "mean") -> None:
        self.bank = bank
        self.group = group
        self.embedding = embedding

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """Channels of the bank, in groups called averaged; with moments, their means, then their standard deviations."""
        self._check()
        channels = self._bank.channels(n_image_channels)
        if self.embedding == "mean":
            return tuple(Channel(name, f"{group} averaged") for name, group in channels)
        return tuple(
            Channel(f"{moment} {name}", f"{moment} {group}")
            for moment in ("mean", "std")
            for name, group in channels
        )

    def n_channels(self, n_image_channels: int = 3) -> int:
        """Count the channels."""
        self._check()
        return self._bank.n_channels(n_image_channels) * (1 if self.embedding == "mean" else 2)

    @property
    def label(self) -> str:
        """Label of the bank, and the group."""
        self._check()
        inner = f"({self._bank.label})" if " + " in self._bank.label else self._bank.label
        moves = self._moves()
        reflects = any(np.linalg.det(move.turn) < 0 for move in moves)
        return f"{inner} averaged over {'turns and reflections' if reflects else f'{len(moves)} turns'}"

    @property
    def halo(self) -> int:
        """Halo of the bank, as far as the corners of its square reach when they are turned, and a cell between grids.

        Pixels farther away do not matter to a pixel. Yet a tile with this halo has the features of
        the whole image only if the group moves pixels onto pixels and the bank has an alignment of 1.
        """
        self._check()
        halo = self._bank.halo if self._is_exact else math.ceil(math.sqrt(2) * (self._bank.halo + 1))
        return halo + (self.alignment if self.alignment > 1 else 0)

    @property
    def alignment(self) -> int:
        """Alignment of the bank.

        It does not make tiles see the same grid as the image: the frame of a turned image depends on
        the image's size, and the grid of the bank and the pixels of the frame with it.
        """
        return self._bank.alignment

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Strides of the bank's channels, repeated for the standard deviations."""
        return np.tile(self._bank.strides(n_image_channels), 1 if self.embedding == "mean" else 2)

    def tiles(self, shape: tuple[int, ...]) -> list[Tile]:
        """Leave the image whole, about whose centre it is turned."""
        return [whole(shape)]

    def fit(self, images: Sequence[ArrayLike]) -> Self:
        """Let a copy of the bank, `bank_`, learn from the images."""
        self._check()
        self.bank_ = clone(self.bank).fit(images)
        return self

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels; see `FilterBank.maps`."""
        image = as_image(image)
        channels = self._wanted(channels, image.shape[2])
        n_channels = self._bank.n_channels(image.shape[2])
        wanted = np.unique(channels % n_channels)
        n_moments = 1 + bool((channels >= n_channels).any())

        def look(turn: Matrix) -> list[FeatureMaps]:
            """Compute maps of the turned image, read at cells centred on the image."""
            view = _Symmetry(image, turn) if self._is_exact else _Turned(image, turn)
            return [_read(view, stack, image.shape) for stack in self._bank.maps(view.image, wanted)]

        side_by_side = image.shape[0] * image.shape[1] <= PIXELS_SIDE_BY_SIDE
        turns = [move.turn for move in self._moves()]
        moments: list[_Moments] = []
        for stacks in (in_threads if side_by_side else map)(look, turns):
            moments = moments or [_Moments(stack, n_moments) for stack in stacks]
            for moment, stack in zip(moments, stacks, strict=True):
                moment.add(stack.values)
        averaged = [maps for moment in moments for maps in moment.maps(len(turns), n_channels)]
        return [stack.subset(channels) for stack in averaged if np.isin(stack.indices, channels).any()]

    @property
    def learns_weights(self) -> bool:
        """Whether the bank learns from images."""
        return self._bank.learns_weights

    def weights_used(self, channels: NDArray[np.intp], n_image_channels: int) -> dict[str, NDArray[Any]]:
        """Weights that the bank needs for these channels."""
        wanted = np.unique(channels % self._bank.n_channels(n_image_channels))
        return self._bank.weights_used(wanted, n_image_channels)

    def use_weights(self, weights: dict[str, NDArray[Any]]) -> None:
        """Give a copy of the bank, `bank_`, these weights."""
        bank = clone(self.bank)
        bank.use_weights(weights)
        self.bank_ = bank

    def _check(self) -> None:
        if not isinstance(self.bank, FilterBank) or isinstance(self.bank, OrbitAveraged):
            raise ConfigError(
                f"bank {type(self.bank).__name__}: give a filter bank, not averaged already, such as ScatteringBank()"
            )
        if not isinstance(self._group, Group):
            raise ConfigError(
                f"group {self.group!r}: give turns and reflections of segkit.invariance, such as Dihedral() or Rotation(16)"
            )
        if any(move.scale != 1 or move.amplitude != 1 for move in self._moves()):
            raise ConfigError(
                f"group {self.group}: images are averaged over turns and reflections, leave Scaling out"
            )
        if self.embedding not in EMBEDDINGS:
            raise ConfigError(f"embedding {self.embedding!r}: choose one of {', '.join(EMBEDDINGS)}")

    @property
    def _bank(self) -> FilterBank:
        return self.bank_ if hasattr(self, "bank_") else self.bank

    @property
    def _group(self) -> Group:
        return Dihedral() if self.group is None else self.group

    @property
    def _is_exact(self) -> bool:
        """Whether every element moves pixels onto pixels."""
        return all(np.isin(move.turn, (-1, 0, 1)).all() for move in self._moves())

    def _moves(self) -> list[Similarity]:
        return similarities(self._group, (2, 2))


class _Moments:
    """Sums over the group of some channels, and of their squared differences from the first element's values.

    Subtracting those values first avoids cancellation. Double precision adds a few single-precision numbers exactly.
    """

    def __init__(self, first: FeatureMaps, n_moments: int) -> None:
        self.first = first
        self.sums = np.zeros((n_moments, *first.values.shape))

    def add(self, features: FloatArray) -> None:
        """Add the channels of a turned image, (n_channels, n_rows, n_cols)."""
        self.sums[0] += features
        for squares in self.sums[1:]:
            squares += np.square(np.subtract(features, self.first.values, dtype=np.float64))

    def maps(self, n_turns: int, n_channels: int) -> Iterator[FeatureMaps]:
        """Give the means and, as channels behind all `n_channels`, the standard deviations."""
        indices, grid = self.first.indices, (self.first.stride, self.first.offset)
        means = self.sums[0] / n_turns
        yield FeatureMaps(means.astype(np.float32), indices, *grid)
        for squares in self.sums[1:]:
            deviations = np.sqrt(np.maximum(squares / n_turns - (means - self.first.values) ** 2, 0))
            deviations[deviations < ROUNDING * np.abs(means).max(axis=(1, 2), keepdims=True)] = 0
            yield FeatureMaps(deviations.astype(np.float32), indices + n_channels, *grid)


def _read(view: _Symmetry | _Turned, stack: FeatureMaps, shape: tuple[int, ...]) -> FeatureMaps:
    """Read maps of a turned image at cells of the same stride, centred on the image."""
    rows, cols = (_cells(length, stack.stride) for length in shape[:2])
    offset = float(rows[0]), float(cols[0])
    return FeatureMaps(view.read(stack, rows, cols), stack.indices, stack.stride, offset)


def _cells(length: int, stride: float) -> NDArray[np.float64]:
    """Positions of one stride, centred on a row of so many pixels."""
    n = int((length - 1) / stride) + 1
    first = (length - 1 - stride * (n - 1)) / 2
    return np.asarray(first + stride * np.arange(n), dtype=np.float64)


class _Symmetry:
    """An image moved by a symmetry of the square, pixel onto pixel."""

    def __init__(self, image: FloatArray, turn: Matrix) -> None:
        self.swaps = turn[0, 0] == 0
        # steps of -1 reverse the rows or columns of the moved image
        self.steps = [int(np.sign(sums)) for sums in turn.sum(axis=1)]
        swapped = image.transpose(1, 0, 2) if self.swaps else image
        self.image = np.ascontiguousarray(swapped[:: self.steps[0], :: self.steps[1]])

    def read(self, stack: FeatureMaps, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read maps of the moved image where rows cross columns of the image; (n_channels, n_rows, n_cols)."""
        values = stack.values[:, :: self.steps[0], :: self.steps[1]]
        offsets = [
            offset if step > 0 else length - 1 - offset - stack.stride * (n - 1)
            for offset, step, length, n in zip(
                np.broadcast_to(stack.offset, 2),
                self.steps,
                self.image.shape[:2],
                stack.values.shape[1:],
                strict=True,
            )
        ]
        if self.swaps:
            values, offsets = values.transpose(0, 2, 1), offsets[::-1]
        maps = FeatureMaps(values, stack.indices, stack.stride, (offsets[0], offsets[1]))
        return maps.interpolate(rows, cols)


class _Turned:
    """An image turned about its centre by bilinear interpolation, mirrored at its edges, in a frame that holds it."""

    def __init__(self, image: FloatArray, turn: Matrix) -> None:
        self.turn = turn
        self.centre = (np.array(image.shape[:2]) - 1) / 2
        shape = [int(length) + 1 for length in np.ceil((2 * np.abs(turn) @ self.centre).round(9))]
        self.turned_centre = (np.array(shape) - 1) / 2
        grid = np.indices(shape).reshape(2, -1).T
        sources = _move(grid, turn.T, self.turned_centre, self.centre)
        planes = [
            ndimage.map_coordinates(plane, sources, order=1, mode="mirror").reshape(shape)
            for plane in image.transpose(2, 0, 1)
        ]
        self.image = np.stack(planes, axis=2)

    def read(self, stack: FeatureMaps, rows: NDArray[Any], cols: NDArray[Any]) -> FloatArray:
        """Read maps of the turned image where rows cross columns of the image; (n_channels, n_rows, n_cols)."""
        positions = np.stack(np.meshgrid(rows, cols, indexing="ij"), axis=-1).reshape(-1, 2)
        at = _move(positions, self.turn, self.centre, self.turned_centre)
        out = np.empty((len(stack.values), rows.size, cols.size), dtype=np.float32)
        n_block = max(1, BLOCK_SIZE // len(positions))
        for start in range(0, len(out), n_block):
            block = slice(start, start + n_block)
            maps = FeatureMaps(stack.values[block], stack.indices[block], stack.stride, stack.offset)
            out[block] = maps.sample(*at).T.reshape(-1, rows.size, cols.size)
        return out


def _move(
    positions: NDArray[Any], turn: Matrix, centre: NDArray[Any], new_centre: NDArray[Any]
) -> NDArray[np.float64]:
    """Turn positions (n, 2) about one centre, which moves to another; (2, n)."""
    # Rounding keeps positions on a pixel exact.
    moved: NDArray[np.float64] = ((positions - centre) @ turn.T + new_centre).round(9)
    return moved.T
