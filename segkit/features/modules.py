"""Module sequences: layers of convolution with atoms, non-linearity, pooling and an output atom."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.fft import next_fast_len

from segkit._common import FloatArray
from segkit._common.device import told_if_full, torch_device
from segkit.errors import ConfigError
from segkit.features.base import Channel, FeatureMaps, FilterBank, as_image
from segkit.features.options import check_options
from segkit.features.wavelets import FAMILIES, bessel_bound

if TYPE_CHECKING:
    import torch

# The (scale, angle) of one atom in each layer.
_Path = tuple[tuple[int, int], ...]
# Paths as a tree: paths with the same first atoms share a branch.
_Tree = dict[tuple[int, int], "_Tree"]
_Layers = tuple["Module", ...]

_MOST_PATHS = 20_000
# Images are padded by a cell of the last layer on each side, so large cells would take more time than the image.
_LARGEST_CELL = 64
# Images are padded as far as atoms reach, and atoms are sampled there: 2^24 values take a second or two, and 64 MiB.
_MOST_VALUES = 2**24


@dataclass(frozen=True)
class Module:
    r"""One layer of a module sequence: atoms, a non-linearity, a pooling, an output atom.

    Parameters
    ----------
    atoms : {"morlet", "gabor", "shearlet"}, default="morlet"
        Family of atoms. Morlet atoms are Gabor atoms with their mean removed.
    n_scales : int, default=3
        Number of dyadic scales, 1 to 10.
    n_angles : int, default=8
        Number of directions, 2 to 64.
    nonlinearity : {"modulus", "relu", "tanh"}, default="modulus"
        Pointwise function with Lipschitz constant 1. ReLU and tanh need real values: the responses of the
        complex Gabor and Morlet atoms lose their imaginary part first.
    pooling : {"subsample", "average", "max"}, default="subsample"
        Value that replaces a block of ``factor`` by ``factor`` values: the first, the mean, or the largest
        absolute value.
    factor : int, default=1
        Pooling factor :math:`S_n`; 1 keeps the grid.
    output : {"delta", "lowpass", "none"}, default="delta"
        Output atom :math:`\chi_n` of the layer. "delta" outputs the maps, "lowpass" the maps averaged at the
        coarsest scale, "none" no maps.

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
    n_scales: Annotated[int, Field(ge=1, le=10)] = 3
    n_angles: Annotated[int, Field(ge=2, le=64)] = 8
    nonlinearity: Literal["modulus", "relu", "tanh"] = "modulus"
    pooling: Literal["subsample", "average", "max"] = "subsample"
    factor: Annotated[int, Field(ge=1)] = 1
    output: Literal["delta", "lowpass", "none"] = "delta"

    def __post_init__(self) -> None:
        check_options(Module, vars(self))


class ModuleBank(FilterBank):
    r"""Filter bank of cascaded modules of wavelet atoms, a generalised scattering network.

    Parameters
    ----------
    modules : sequence of Module or of dict, default=(Module(), Module())
        The layers, first to last; a dict holds the arguments of `Module`.
    frequency_decreasing : bool, default=True
        Use only paths with growing scales. The modulus of a response is smoother than the response, so finer
        atoms respond very little to it.

    Raises
    ------
    ConfigError
        From `channels`, `halo` and `maps`: if an option of a module is unknown, or no module has an output.

    Notes
    -----
    A path :math:`p = (\lambda_1, \ldots, \lambda_n)` takes one atom of each layer. It propagates the image f as

    .. math:: U[p] f = P_n(\rho_n(\cdots P_1(\rho_1(f \star g_{\lambda_1})) \cdots \star g_{\lambda_n}))

    and outputs :math:`S[p] f = U[p] f \star \chi_n`. The empty path (order 0) is f itself, with the
    output atom of the first module. Each image channel is filtered separately. Scales are in cells of
    the layer's grid, so pooling by 2 makes the atoms of later layers twice as coarse in pixels.

    The image is mirrored at its border, as far as the atoms reach. Atoms decay but never end: `halo` leaves out
    1e-4 of the absolute sum of a Gabor or Morlet atom, and 1e-4 of the energy of a shearlet. A shearlet
    feature of a tile may therefore differ from that of the whole image by some hundredths of its standard
    deviation.

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
        modules: Annotated[Sequence[Module | Mapping[str, Any]], Field(max_length=10)] = (Module(), Module()),
        *,
        frequency_decreasing: bool = True,
    ) -> None:
        self.modules = modules
        self.frequency_decreasing = frequency_decreasing

    def channels(self, n_image_channels: int = 3) -> tuple[Channel, ...]:
        """List the channels by image channel, order and path, in that order.

        A name such as ``c0 o2 morlet j1 a30 > morlet j2 a90`` gives image channel and order, then family, scale and angle in
        degrees of each atom. The group is the order.
        """
        layers, paths = self._network()
        return tuple(
            Channel(f"c{c} {_name(layers, path)}", f"order {len(path)}")
            for c in range(n_image_channels)
            for path in paths
        )

    def strides(self, n_image_channels: int = 3) -> NDArray[np.float64]:
        """Return the stride in pixels of each channel's map, in channel order."""
        layers, paths = self._network()
        grids = _grids(layers)
        return np.tile([float(grids[len(path)].stride) for path in paths], n_image_channels)

    @property
    def label(self) -> str:
        """Name of the bank in configurations."""
        return "modules"

    @property
    def halo(self) -> int:
        """Distance in pixels up to which pixels affect a feature."""
        return _halo(*self._network())

    @property
    def alignment(self) -> int:
        """Stride in pixels of the last layer: the product of the pooling factors."""
        layers, _ = self._network()
        return _grids(layers)[-1].stride

    def bessel_bounds(self, shape: tuple[int, int]) -> tuple[float, ...]:
        r"""Compute the Bessel bound :math:`B_n` (eq. 7.8) of the atoms of each module, on the grid of its input.

        A module with a bound of at most 1 does not amplify, since its non-linearity has Lipschitz constant 1.
        """
        layers, _ = self._network()
        return tuple(
            bessel_bound(_atoms(layer.atoms, layer.n_scales, layer.n_angles, grid.cells(shape)).numpy())
            for layer, grid in zip(layers, _grids(layers)[:-1], strict=True)
        )

    def maps(self, image: ArrayLike, channels: NDArray[np.intp] | None = None) -> list[FeatureMaps]:
        """Compute the maps of the wanted channels, one entry for each order; see `FilterBank.maps`."""
        image = as_image(image)
        layers, paths = self._network()
        wanted = self._wanted(channels, image.shape[2])
        orders = np.array([len(path) for path in paths])[wanted % len(paths)]
        stacks = []
        for order, grid in enumerate(_grids(layers)):
            indices = wanted[orders == order]
            if indices.size:
                values = np.empty((indices.size, *grid.cells(image.shape[:2])), dtype=np.float32)
                stacks.append(FeatureMaps(values, indices, grid.stride, grid.offset))
        rows = {int(i): row for stack in stacks for i, row in zip(stack.indices, stack.values, strict=True)}
        for c in range(image.shape[2]):
            first = c * len(paths)
            out = {path: rows[first + i] for i, path in enumerate(paths) if first + i in rows}
            if out:
                _scatter(layers, image[:, :, c], self.halo, out)
        return stacks

    def _network(self) -> tuple[_Layers, list[_Path]]:
        """Return the checked modules, and the paths with an output."""
        layers = tuple(_as_module(module) for module in self.modules)
        if all(layer.output == "none" for layer in layers):
            raise ConfigError(
                f"{len(layers)} modules, none of them with an output: "
                f"expected one or more; set output='delta' or 'lowpass'"
            )
        cell = math.prod(layer.factor for layer in layers)
        if cell > _LARGEST_CELL:
            raise ConfigError(
                f"{len(layers)} modules whose factors make cells of {cell} pixels: at most {_LARGEST_CELL} can be computed; "
                "give smaller factors"
            )
        n_paths = _count_paths(layers, frequency_decreasing=self.frequency_decreasing)
        if n_paths > _MOST_PATHS:
            raise ConfigError(
                f"{len(layers)} modules with {n_paths:,} paths: at most {_MOST_PATHS:,} can be computed; give fewer "
                f"modules, scales or angles"
            )
        paths = _output_paths(layers, frequency_decreasing=self.frequency_decreasing)
        n_atoms, halo = sum(layer.n_scales * layer.n_angles for layer in layers), _halo(layers, paths)
        if n_atoms * (2 * halo) ** 2 > _MOST_VALUES:
            raise ConfigError(
                f"{len(layers)} modules with {n_atoms} atoms that reach {halo} pixels: too many to be computed; give fewer "
                "scales or angles"
            )
        return layers, paths


def _as_module(module: Module | Mapping[str, Any]) -> Module:
    """Return the module, or make it from a mapping of its arguments."""
    if isinstance(module, Module):
        return module
    known = [field.name for field in fields(Module)]
    unknown = ", ".join(sorted(set(module) - set(known)))
    if unknown:
        raise ConfigError(f"unknown module option {unknown}: expected some of {', '.join(known)}")
    return Module(**module)


# --- The paths and their grids ------------------------------------------------------------------


class _Grid(NamedTuple):
    """Grid of a layer: cell (i, j) is centred on pixel (offset + stride * i, offset + stride * j)."""

    stride: int
    offset: float

    def cells(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Count the rows and columns of cells of an image."""
        return -(-shape[0] // self.stride), -(-shape[1] // self.stride)


def _grids(layers: _Layers) -> list[_Grid]:
    """Compute the grid of the maps of each order; a cell of order 0 is a pixel."""
    grids = [_Grid(1, 0.0)]
    for layer in layers:
        stride, offset = grids[-1]
        if layer.pooling != "subsample":
            # A block's mean or maximum belongs to the centre of the block, not to its first cell.
            offset += stride * (layer.factor - 1) / 2
        grids.append(_Grid(stride * layer.factor, offset))
    return grids


def _count_paths(layers: _Layers, *, frequency_decreasing: bool) -> int:
    """Count the paths of all orders, output or not, without listing them."""
    total, factor = 1, 1
    ending: dict[int, int] | None = None  # number of paths by the scale of their last atom
    for layer in layers:
        if layer.n_scales * layer.n_angles > _MOST_PATHS:
            return layer.n_scales * layer.n_angles
        ending = {
            j: layer.n_angles
            * (
                1
                if ending is None
                else sum(
                    n for last, n in ending.items() if not frequency_decreasing or factor * 2**j > 2**last
                )
            )
            for j in range(layer.n_scales)
        }
        total += sum(ending.values())
        if total > _MOST_PATHS:
            return total
        factor = layer.factor
    return total


def _output_paths(layers: _Layers, *, frequency_decreasing: bool) -> list[_Path]:
    """List the paths of every order with an output, in the order of the channels."""
    reached: list[_Path] = [()]
    outputs = [] if layers[0].output == "none" else reached
    factor = 1
    for layer in layers:
        reached = [
            (*path, (j, k))
            for path in reached
            for j, k in product(range(layer.n_scales), range(layer.n_angles))
            if not frequency_decreasing or not path or factor * 2**j > 2 ** path[-1][0]
        ]
        outputs = outputs if layer.output == "none" else outputs + reached
        factor = layer.factor
    return outputs


def _output_module(layers: _Layers, path: _Path) -> Module:
    """Return the module that outputs a path: its last one, or the first module for the empty path."""
    return layers[max(len(path) - 1, 0)]


def _output_scale(layers: _Layers, path: _Path) -> float:
    """Compute the scale of the low-pass, in cells of the path's grid: pooled, unless the path is empty."""
    module = _output_module(layers, path)
    return module.n_scales - (math.log2(module.factor) if path else 0.0)


def _halo(layers: _Layers, paths: Iterable[_Path]) -> int:
    """Compute the distance in pixels up to which pixels affect any of the paths."""
    return max(_reach(layers, path) for path in paths)


def _reach(layers: _Layers, path: _Path) -> int:
    """Compute the distance in pixels up to which pixels affect the feature of a path."""
    grids = _grids(layers)
    reach = 0.0
    for layer, grid, (j, _) in zip(layers, grids, path, strict=False):
        reach += grid.stride * 2**j * FAMILIES[layer.atoms].radius(layer.n_angles)
    module, stride = _output_module(layers, path), grids[len(path)].stride
    if module.output == "lowpass":
        reach += stride * 2 ** _output_scale(layers, path) * FAMILIES[module.atoms].lowpass_radius
    # Interpolation reads a cell up to stride - 1 pixels away, and the cell pools as many pixels again.
    return math.ceil(reach) + 2 * (stride - 1)


def _name(layers: _Layers, path: _Path) -> str:
    """Name a path: its order, then the atom of each layer."""
    steps = []
    for layer, (j, k) in zip(layers, path, strict=False):
        angle = FAMILIES[layer.atoms].angles(layer.n_angles)[k]
        steps.append(f"{layer.atoms} j{j} a{angle:.0f}")
    return " ".join([f"o{len(path)}", " > ".join(steps)]).rstrip()


# --- Computation along the paths ----------------------------------------------------------------


def _scatter(layers: _Layers, plane: FloatArray, halo: int, out: dict[_Path, FloatArray]) -> None:
    """Compute the map of each path in `out` from one image channel, and write it there."""
    import torch

    grids = _grids(layers)
    stride = grids[-1].stride
    # The margin and the padded sides are multiples of the stride, so that cells keep their places on the image.
    margin = stride * -(-halo // stride)
    padding = [
        (margin, stride * next_fast_len(-(-(size + 2 * margin) // stride)) - size - margin)
        for size in plane.shape
    ]
    with told_if_full():
        signal = torch.from_numpy(np.pad(plane, padding, mode="reflect")).to(torch_device())
        for path, values in _propagate(layers, signal, _tree(out), set(out)):
            first = margin // grids[len(path)].stride
            height, width = out[path].shape
            out[path][:] = values[first : first + height, first : first + width].cpu().numpy()


def _tree(paths: Iterable[_Path]) -> _Tree:
    """Arrange paths as a tree of their steps, so that common beginnings are computed once."""
    root: _Tree = {}
    for path in paths:
        node = root
        for step in path:
            node = node.setdefault(step, {})
    return root


def _propagate(
    layers: _Layers, signal: torch.Tensor, tree: _Tree, wanted: set[_Path], path: _Path = ()
) -> Iterator[tuple[_Path, torch.Tensor]]:
    """Yield the output S[q] of each wanted path q that begins with `path`; the signal is U[path]."""
    import torch

    averaged = path in wanted and _output_module(layers, path).output == "lowpass"
    if path in wanted and not averaged:
        yield path, signal
    if not tree and not averaged:
        return
    spectrum, shape = torch.fft.fft2(signal), (signal.shape[0], signal.shape[1])
    if averaged:
        chi = _lowpass(_output_module(layers, path).atoms, _output_scale(layers, path), shape)
        yield path, _convolve(spectrum, chi.to(signal.device), is_real=True)
    for (j, k), branch in tree.items():
        layer = layers[len(path)]
        atoms = _atoms(layer.atoms, layer.n_scales, layer.n_angles, shape)
        response = _convolve(spectrum, atoms[j, k].to(signal.device), is_real=FAMILIES[layer.atoms].is_real)
        pooled = _pool(_rectify(response, layer.nonlinearity), layer.pooling, layer.factor)
        yield from _propagate(layers, pooled, branch, wanted, (*path, (j, k)))


@lru_cache(maxsize=4)
def _atoms(family: str, n_scales: int, n_angles: int, shape: tuple[int, int]) -> torch.Tensor:
    """Sample the Fourier transforms of the atoms on one grid."""
    import torch

    return torch.from_numpy(FAMILIES[family].atoms(shape, n_scales, n_angles))


@lru_cache(maxsize=8)
def _lowpass(family: str, scale: float, shape: tuple[int, int]) -> torch.Tensor:
    """Sample the Fourier transform of the low-pass on one grid."""
    import torch

    return torch.from_numpy(FAMILIES[family].lowpass(shape, scale))


def _convolve(spectrum: torch.Tensor, atom: torch.Tensor, *, is_real: bool) -> torch.Tensor:
    """Convolve a real signal, given by its spectrum, with an atom; a real atom halves the work."""
    import torch

    # One transform at a time: two to three times faster than a batch (measured), with less memory.
    if is_real:
        half = spectrum.shape[1] // 2 + 1
        response: torch.Tensor = torch.fft.irfft2(spectrum[:, :half] * atom[:, :half], s=spectrum.shape)
    else:
        response = torch.fft.ifft2(spectrum * atom)
    return response


def _rectify(response: torch.Tensor, nonlinearity: str) -> torch.Tensor:
    """Apply the non-linearity; only the modulus uses the imaginary part."""
    import torch

    if nonlinearity == "modulus":
        return torch.abs(response)
    return torch.relu(response.real) if nonlinearity == "relu" else torch.tanh(response.real)


def _pool(signal: torch.Tensor, pooling: str, factor: int) -> torch.Tensor:
    """Reduce each block of `factor` by `factor` values to one value."""
    if pooling == "subsample":
        return signal[::factor, ::factor]
    height, width = signal.shape
    blocks = signal.reshape(height // factor, factor, width // factor, factor)
    return blocks.mean(dim=(1, 3)) if pooling == "average" else blocks.abs().amax(dim=(1, 3))
