"""The scattering transform of one plane: moduli of Morlet wavelets, averaged by a Gaussian window.

Filters and results are kymatio's, up to rounding, at a fraction of its time. The averages over windows are products with
two small matrices, since a Gaussian is separable. Coefficients whose mean is wanted are added up before they are averaged
over windows. Filters are sampled where they are not zero, so that they may be built for planes of any shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from segkit._common import FloatArray

# Kymatio's constants: standard deviation and frequency of the finest wavelet, and pi as its normalisation has it.
_SIGMA, _XI, _PI = 0.8, 3 * math.pi / 4, 3.1415
# Standard deviations beyond which a Gaussian is zero in single precision.
_REACH = 8
# Parts of a transfer function below this fraction of its maximum are rounding.
_NEGLIGIBLE = 1e-7

# Parts (rows, columns) of a spectrum, with the transfer function there as a torch tensor, each value twice: for the real
# and the imaginary part.
Blocks = list[tuple[slice, slice, Any]]


class Scattering:
    """Scattering transform of planes of one shape, multiples of 2**scale, which are taken to repeat.

    `outputs` are the output that each path, in kymatio's order, is averaged into. `margin` cells at each side are left out.
    """

    def __init__(
        self,
        scale: int,
        shape: tuple[int, int],
        L: int,
        max_order: int,
        outputs: NDArray[np.intp],
        margin: int,
    ) -> None:
        self.scale, self.shape, self.L = scale, shape, L
        paths = list(paths_of(scale, L, max_order))
        self._output = dict(zip(paths, outputs.tolist(), strict=True))
        self._n_paths = np.bincount(outputs)
        self._windows = [
            [_window(scale, level, length, margin) for length in shape] for level in range(scale)
        ]
        wavelets = {(j, angle): _wavelet(j, angle, L, shape) for j in range(scale) for angle in range(L)}
        self._blocks = {
            (wavelet, level): _blocks(_cropped(transfer, level), 2 ** (wavelet[0] - level))
            for wavelet, transfer in wavelets.items()
            for level in range(wavelet[0] + 1)
            if level == 0 or max_order == 2
        }

    def __call__(self, plane: FloatArray, wanted: NDArray[np.intp]) -> FloatArray:
        """Compute the means of the wanted outputs' paths; (H, W) -> (n, H / 2**J - 2 margin, W / 2**J - 2 margin)."""
        used = [path for path, output in self._output.items() if output in set(wanted.tolist())]
        sums: dict[int, FloatArray] = {}
        level_of: dict[int, int] = {}
        for path, moduli in self._moduli(plane, used):
            output = self._output[path]
            sums[output] = np.add(sums[output], moduli, out=moduli) if output in sums else moduli
            level_of[output] = path[-1][0] if path else 0
        means = [self._average(sums[output], level_of[output]) for output in wanted.tolist()]
        return np.asarray(np.stack(means) / self._n_paths[wanted, None, None].astype(np.float32))

    def _moduli(self, plane: FloatArray, used: list[_Path]) -> Iterator[tuple[_Path, FloatArray]]:
        """Compute the used paths before they are averaged over windows; each is its receiver's to change."""
        # Imported here: `import segkit` must not pay for torch.
        import torch

        if () in used:
            yield (), plane.copy()
        wavelets = {path[0] for path in used if path}
        spectrum = torch.fft.fft2(torch.from_numpy(plane)) if wavelets else None
        for first in sorted(wavelets):
            further = [path[1] for path in used if len(path) == 2 and path[0] == first]
            moduli = self._response(spectrum, first, 0)
            inner = torch.fft.fft2(torch.from_numpy(moduli)) if further else None
            if (first,) in used:
                yield (first,), moduli
            for second in further:
                yield (first, second), self._response(inner, second, first[0])

    def _response(self, spectrum: Any, wavelet: tuple[int, int], level: int) -> FloatArray:
        """Compute the modulus of a wavelet's response at the wavelet's level, from a spectrum at another level."""
        import torch

        parts = torch.view_as_real(spectrum).flatten(1)
        rows, cols, transfer = self._blocks[wavelet, level][0]
        folded = parts[rows, cols] * transfer
        # Adding up blocks of the spectrum subsamples the response.
        for rows, cols, transfer in self._blocks[wavelet, level][1:]:
            folded.addcmul_(parts[rows, cols], transfer)
        response = torch.fft.ifft2(torch.view_as_complex(folded.unflatten(1, (-1, 2))))
        return np.asarray(np.abs(response.numpy()))

    def _average(self, moduli: FloatArray, level: int) -> FloatArray:
        """Average over windows, at the cells of the output."""
        rows, cols = self._windows[level]
        return np.asarray(rows @ moduli @ cols.T)


# Wavelets (j, angle) that a path passes.
_Path = tuple[tuple[int, int], ...]


def paths_of(scale: int, L: int, max_order: int) -> Iterator[_Path]:
    """List the paths in kymatio's order."""
    wavelets = [(j, angle) for j in range(scale) for angle in range(L)]
    yield ()
    yield from ((wavelet,) for wavelet in wavelets)
    if max_order == 2:
        yield from ((first, second) for first in wavelets for second in wavelets if second[0] > first[0])


def side_of_wavelet(j: int, L: int) -> int:
    """Count the pixels of a side of the square beyond which a wavelet is zero in single precision."""
    return 1 + 2 * math.ceil(_REACH * _SIGMA * 2.0**j / min(4 / L, 1))


def _wavelet(j: int, angle: int, L: int, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Sample a Morlet wavelet, which repeats with the shape, and transform it; the transform is real."""
    sigma, slant, theta = _SIGMA * 2**j, 4 / L, (int(L - L / 2 - 1) - angle) * math.pi / L
    reach = side_of_wavelet(j, L) // 2
    at = np.arange(-reach, reach + 1)
    along = at[:, None] * math.cos(theta) + at * math.sin(theta)
    across = -at[:, None] * math.sin(theta) + at * math.cos(theta)
    gaussian = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2)) / (2 * _PI * sigma**2 / slant)
    wave = np.exp(1j * _XI / 2**j * along)
    wavelet = gaussian * (wave - (gaussian * wave).sum() / gaussian.sum())
    repeating = np.zeros(shape, dtype=np.complex128)
    np.add.at(repeating, np.ix_(at % shape[0], at % shape[1]), wavelet)
    return np.asarray(fft.fft2(repeating).real)


def _window(scale: int, level: int, length: int, margin: int) -> FloatArray:
    """Build the matrix (n_cells, n) that averages n = length / 2**level values over windows around the cells."""
    sigma = _SIGMA * 2 ** (scale - 1)
    reach = math.ceil(_REACH * sigma)
    at = np.arange(-reach, reach + 1)
    gaussian = np.zeros(length)
    np.add.at(gaussian, at % length, np.exp(-(at**2) / (2 * sigma**2)) / math.sqrt(2 * _PI * sigma**2))
    window = fft.ifft(_cropped(fft.fft(gaussian).real, level)).real
    cells = np.arange(margin, (length >> scale) - margin) << (scale - level)
    return np.asarray(window[(cells[:, None] - np.arange(window.size)) % window.size], dtype=np.float32)


def _cropped(transfer: NDArray[np.float64], level: int) -> NDArray[np.float64]:
    """Keep the low frequencies, those of signals that are subsampled by 2**level."""
    for axis, length in enumerate(transfer.shape):
        half = length >> (level + 1)
        kept = np.r_[:half, length - half : length] if level else np.arange(length)
        transfer = transfer.take(kept, axis=axis)
    return transfer


def _blocks(transfer: NDArray[np.float64], step: int) -> Blocks:
    """Cut a transfer function into the blocks that subsampling by a step adds up, and drop those that are negligible."""
    import torch

    height, width = transfer.shape[0] // step, transfer.shape[1] // step
    blocks = []
    for row, col in np.ndindex(step, step):
        part = transfer[row * height : (row + 1) * height, col * width : (col + 1) * width]
        if np.abs(part).max() > _NEGLIGIBLE * np.abs(transfer).max():
            rows, cols = (
                slice(row * height, (row + 1) * height),
                slice(2 * col * width, 2 * (col + 1) * width),
            )
            doubled = np.repeat(part / step**2, 2, axis=1).astype(np.float32)
            blocks.append((rows, cols, torch.from_numpy(doubled)))
    return blocks
