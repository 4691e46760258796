"""Module sequences: convolution with atoms, a non-linearity, pooling, an output atom, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import next_fast_len

from segkit.errors import ConfigError
from segkit.features.base import Channel, FeatureMaps, FilterBank, FloatArray, as_image
from segkit.features.wavelets import FAMILIES, bessel_bound, check_family_size

if TYPE_CHECKING:
    import torch

Path = tuple[tuple[int, int], ...]  # the (scale, angle) of the atom taken in each layer
Tree = dict[tuple[int, int], "Tree"]  # paths that share their first atoms share a branch

_CHOICES = {
    "atoms": tuple(FAMILIES),
    "nonlinearity": ("modulus", "relu", "tanh"),
    "pooling": ("subsample", "average", "max"),
    "output": ("delta", "lowpass", "none"),
}


@dataclass(frozen=True)
class Module:
    r"""One layer of a module sequence: atoms, a non-linearity, a pooling, an output atom.

    Parameters
    ----------
    atoms : {"morlet", "gabor", "shearlet"}, default="morlet"
        Family of atoms. Morlet atoms are Gabor atoms with their mean removed.
    n_scales : int, default=3
        Number of dyadic scales, 1 or more.
    n_angles : int, default=8
        Number of directions, 2 or more.
    nonlinearity : {"modulus", "relu", "tanh"}, default="modulus"
        Pointwise, with Lipschitz constant 1. ReLU and tanh are functions of a real variable: on the complex
        Gabor and Morlet atoms they act on the real part, the response of the even atom.
    pooling : {"subsample", "average", "max"}, default="subsample"
        What a block of ``factor`` by ``factor`` values becomes: its first value, its mean, or its
        largest absolute value.
    factor : int, default=1
        Pooling factor :math:`S_n`; 1 keeps the grid.
    output : {"delta", "lowpass", "none"}, default="delta"
        Output atom :math:`\chi_n` of the layer: the maps themselves, the maps averaged at the coarsest
        scale, or no maps (zero).

    Raises
    ------
    ConfigError
        If an option does not exist or a number is too small.

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, definition 7.2.

    Examples
    --------
    >>> from segkit.features.modules import Module
    >>> Module("shearlet", n_scales=2).n_angles
    8
    """

    atoms: Literal["morlet", "gabor", "shearlet"] = "morlet"
    n_scales: int = 3
    n_angles: int = 8
    nonlinearity: Literal["modulus", "relu", "tanh"] = "modulus"
    pooling: Literal["subsample", "average", "max"] = "subsample"
    factor: int = 1
    output: Literal["delta", "lowpass", "none"] = "delta"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(choices)}")
        check_family_size(self.n_scales, self.n_angles)
        if self.factor < 1:
            raise ConfigError(f"factor={self.factor}: expected 1 or more; 1 keeps the pixel grid")


class _Grid(NamedTuple):
    """Where the cells of a layer lie in the image."""

    stride: int
    offset: float


class ModuleBank(FilterBank):
    r"""Filter bank that cascades modules of wavelet atoms, a scattering network in the widest sense.

    Parameters
    ----------
    modules : sequence of Module or of dict, default=(Module(), Module())
        The layers, first to last; a dict holds the arguments of `Module`.
    frequency_decreasing : bool, default=True
        Follow only paths whose scale grows from layer to layer: the modulus of a response is smoother than the
        response, so finer atoms find almost nothing in it.

    Raises
    ------
    ConfigError
        From `channels`, `halo` and `maps`, if there is no module, or one is misspelt or outputs nothing.

    Notes
    -----
    A path :math:`p = (\lambda_1, \ldots, \lambda_n)` picks one atom per layer. It propagates the image f as

    .. math:: U[p] f = P_n(\rho_n(\cdots P_1(\rho_1(f \star g_{\lambda_1})) \cdots \star g_{\lambda_n}))

    and outputs :math:`S[p] f = U[p] f \star \chi_n`. The empty path (order 0) is f itself and takes the output
    atom of the first module. Every image channel is filtered on its own. Scales count cells
    of the layer's own grid, so pooling by 2 makes the atoms of later layers twice as coarse in pixels.

    The image is reflected at its border as far as the atoms reach. Atoms have no sharp end: `halo` leaves out
    1e-4 of the absolute sum of a Gabor or Morlet atom and of the energy of a shearlet
    (1e-3 for the diagonal ones at scale 0, which the Nyquist square cuts).

    References
    ----------
    M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
    feature space, eq. 7.9-7.13.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.features.modules import Module, ModuleBank
    >>> bank = ModuleBank((Module("morlet", n_scales=2, n_angles=4),))
    >>> [channel.name for channel in bank.channels(1)][:3]
    ['c0 o0', 'c0 o1 morlet j0 a0', 'c0 o1 morlet j0 a45']
    >>> bank.dense(np.eye(32)).shape
    (9, 32, 32)
    """

    def __init__(
        self,
        modules: tuple[Module | Mapping[str, Any], ...] = (Module(), Module()),
        *,
        frequency_decreasing: bool = True,
    ) -> None:
        self.modules = modules
        self.frequency_decreasing = frequency_decreasing

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """Channels by image channel, then by order, then by path, scales before angles.

        Parameters
        ----------
        n_image_channels : int, default=3
            Number of channels of the image.

        Returns
        -------
        tuple of Channel
            Named ``c0 o2 morlet j1 a30 > morlet j2 a90``: image channel, order, then family, scale
            and angle in degrees of each atom; grouped by order.
        """
        layers = self._layers()
        return tuple(
            Channel(f"c{c} o{len(path)}{_path_name(layers, path)}", f"order {len(path)}")
            for c in range(n_image_channels)
            for path in self._outputs()
        )

    @property
    def halo(self) -> int:
        """Pixels around a pixel that its features may depend on."""
        return max(self._reach(path) for path in self._outputs())

    @property
    def alignment(self) -> int:
        """Pixels between the cells of the last layer: the product of the pooling factors."""
        return math.prod(layer.factor for layer in self._layers())

    def bessel_bounds(self, shape: tuple[int, int]) -> tuple[float, ...]:
        r"""Bessel bound of the atoms of each module, on the grid that it works on.

        Parameters
        ----------
        shape : (int, int)
            Height and width of the image.

        Returns
        -------
        tuple of float
            :math:`B_n` of eq. 7.8. Where all are at most 1 no layer amplifies: together with the
            non-linearities, of Lipschitz constant 1, each layer is then non-expansive.

        References
        ----------
        M. Badiei Khuzani et al., Multiple kernel learning from U-statistics of empirical measures in the
        feature space, eq. 7.8.
        """
        return tuple(
            bessel_bound(
                FAMILIES[layer.atoms].atoms(_cells(shape, grid.stride), layer.n_scales, layer.n_angles)
            )
            for layer, grid in zip(self._layers(), self._grids(), strict=False)
        )

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute feature maps at their native resolution.

        Parameters
        ----------
        image : array-like of shape (H, W) or (H, W, C), float in [0, 1]
            The image.
        channels : ndarray of int, optional
            Which channels are wanted, all by default; only the paths that lead to them are followed.

        Returns
        -------
        list of FeatureMaps
            One entry for each order.

        Raises
        ------
        InputError
            If the image is not a finite floating-point array of shape (H, W) or (H, W, C).
        """
        image = as_image(image)
        paths = self._outputs()
        wanted = np.arange(image.shape[2] * len(paths)) if channels is None else np.asarray(channels)
        found: dict[int, FloatArray] = {}
        for c in np.unique(wanted // len(paths)):
            index = {paths[i % len(paths)]: int(i) for i in wanted if i // len(paths) == c}
            found |= {index[path]: values for path, values in self._scatter(image[:, :, c], set(index))}
        return self._stack(found, paths)

    def _stack(self, found: dict[int, FloatArray], paths: list[Path]) -> list[FeatureMaps]:
        """Gather the maps of each order, which share a grid."""
        stacks = []
        for order, grid in enumerate(self._grids()):
            indices = sorted(i for i in found if len(paths[i % len(paths)]) == order)
            if indices:
                values = np.stack([found[i] for i in indices])
                stacks.append(FeatureMaps(values, np.array(indices), grid.stride, grid.offset))
        return stacks

    # --- what the bank consists of ---

    def _layers(self) -> tuple[Module, ...]:
        """Return the modules, checked."""
        layers = tuple(_as_module(module) for module in self.modules)
        if all(layer.output == "none" for layer in layers):
            raise ConfigError(
                f"{len(layers)} modules, none with an output: "
                f"expected one or more; set output='delta' or 'lowpass' in one of them"
            )
        return layers

    def _grids(self) -> list[_Grid]:
        """Return the grid of each order, the image's own first."""
        grids = [_Grid(1, 0.0)]
        for layer in self._layers():
            stride, offset = grids[-1]
            if layer.pooling != "subsample":
                offset += stride * (layer.factor - 1) / 2
            grids.append(_Grid(stride * layer.factor, offset))
        return grids

    def _outputs(self) -> list[Path]:
        """Return the paths whose maps are channels, in order."""
        layers, grids = self._layers(), self._grids()
        reached: list[Path] = [()]
        outputs: list[Path] = [] if layers[0].output == "none" else [()]
        for n, layer in enumerate(layers):
            atoms = list(product(range(layer.n_scales), range(layer.n_angles)))
            reached = [(*path, atom) for path in reached for atom in atoms if self._follows(grids, path, atom)]
            outputs += [] if layer.output == "none" else reached
            del n
        return outputs

    def _follows(self, grids: list[_Grid], path: Path, atom: tuple[int, int]) -> bool:
        """Whether the path may go on with this atom."""
        if not path or not self.frequency_decreasing:
            return True
        width = [grids[len(path) + step].stride * 2**j for step, (j, _) in ((-1, path[-1]), (0, atom))]
        return width[1] > width[0]

    def _reach(self, path: Path) -> int:
        """Pixels on either side that a map depends on, between its cells included."""
        layers, grids = self._layers(), self._grids()
        reach = 0.0
        for layer, grid, (j, _) in zip(layers, grids, path, strict=False):
            reach += grid.stride * 2**j * FAMILIES[layer.atoms].radius(layer.n_angles)
        last = max(len(path) - 1, 0)
        if layers[last].output == "lowpass":
            family = FAMILIES[layers[last].atoms]
            reach += grids[last].stride * 2 ** layers[last].n_scales * family.lowpass_radius
        # A block pools up to a stride of pixels; interpolation then looks at the next block.
        return math.ceil(reach) + 2 * (grids[len(path)].stride - 1)

    # --- what it computes ---

    def _scatter(self, plane: FloatArray, wanted: set[Path]) -> Iterator[tuple[Path, FloatArray]]:
        """Yield each wanted path with its map, cropped to the image."""
        import torch

        margin = self.alignment * math.ceil(self.halo / self.alignment)
        padding = [
            (margin, _padded(size, margin, self.alignment) - size - margin) for size in plane.shape
        ]
        signal = torch.from_numpy(np.pad(plane, padding, mode="reflect"))
        grids = self._grids()
        for path, values in self._propagate(signal, _tree(wanted), wanted):
            stride = grids[len(path)].stride
            first = margin // stride
            height, width = _cells(plane.shape, stride)
            yield path, values[first : first + height, first : first + width].numpy().copy()

    def _propagate(
        self, signal: torch.Tensor, tree: Tree, wanted: set[Path], path: Path = ()
    ) -> Iterator[tuple[Path, torch.Tensor]]:
        """Yield S[q] for each wanted path q from `path` on, given U[path]."""
        import torch

        layers = self._layers()
        lowpass = self._lowpass(path, signal) if path in wanted else None
        if path in wanted and lowpass is None:
            yield path, signal
        if not tree and lowpass is None:
            return
        spectrum = torch.fft.fft2(signal)
        if lowpass is not None:
            yield path, _convolve(spectrum, lowpass, is_real=True)
        for atom, branch in tree.items():
            layer = layers[len(path)]
            response = _convolve(spectrum, _filters(layer, signal)[atom], FAMILIES[layer.atoms].is_real)
            pooled = _pool(_rectify(response, layer.nonlinearity), layer.pooling, layer.factor)
            yield from self._propagate(pooled, branch, wanted, (*path, atom))
