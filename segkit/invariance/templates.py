"""Averages over a group of what templates make of samples, in bounded memory.

CDF features, orbit embeddings by random Fourier features and by landmarks are one computation: a
function of pairs (sample, template), one of the two transformed, averaged over the transformations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import validate_data

from segkit.errors import ConfigError
from segkit.invariance.groups import Element, Group, Identity, draw_elements
from segkit.invariance.samples import validate_samples
from segkit.kernels.base import FloatArray

if TYPE_CHECKING:
    import torch

# Templates transformed at once, and pairs evaluated at once: what a cache holds, and enough for
# the matrix product to run at full speed.
LARGEST_BLOCK = 1024
LARGEST_TILE = 2**18
# Bytes per pair and per value that the evaluation and the transformations need for a moment.
PAIR_BYTES = 64
COPIES = 6


@dataclass(frozen=True)
class Average:
    """Average responses of some samples to some templates.

    Parameters
    ----------
    rows, templates : slice
        Which samples and which templates.
    values : torch.Tensor of shape (n_rows, n_cells, n_templates)
        The averages, float64.
    """

    rows: slice
    templates: slice
    values: torch.Tensor


def orbit_averages(
    X: FloatArray,
    templates: FloatArray,
    add: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object],
    *,
    elements: Sequence[Element],
    transform: Callable[[Element, FloatArray], FloatArray],
    of_templates: bool,
    n_cells: int = 1,
    device: str = "cpu",
    memory_limit: int = 2**30,
) -> Iterator[Average]:
    """Average a symmetric function of samples and templates over transformations of one of them.

    Parameters
    ----------
    X : ndarray of shape (n_samples, *shape), float32 or float64
        Samples.
    templates : ndarray of shape (n_templates, *shape)
        Templates.
    add : callable
        ``add(left, right, total)`` adds the function of rows, (a, n_values) and (b, n_values), to
        `total`, (n_cells, a, b).
    elements : sequence
        The transformations.
    transform : callable
        ``transform(element, block)`` transforms templates or samples.
    of_templates : bool
        Whether templates are transformed, or samples.
    n_cells : int, default=1
        Number of values of the function for each pair.
    device : str, default="cpu"
        Torch device that `add` runs on.
    memory_limit : int, default=2**30
        Bytes of blocks held at a time, beside the arguments.

    Yields
    ------
    Average
        Responses of all samples to some templates, if these are transformed, else of some samples
        to all templates.

    Notes
    -----
    What is transformed is cut into blocks, and each transformation is applied once to each block.
    Sums are float64.
    """
    import torch

    templates = templates.astype(X.dtype, copy=False)
    moved, still = (templates, X) if of_templates else (X, templates)
    fixed = _rows(still, device)
    per_template = 8 * n_cells * len(still) + COPIES * fixed[0].nbytes
    n_block = max(1, min(LARGEST_BLOCK, len(moved), memory_limit // (2 * per_template)))
    n_tile = max(1, min(LARGEST_TILE, memory_limit // (4 * PAIR_BYTES)) // n_block)
    for block in gen_batches(len(moved), n_block):
        size = block.stop - block.start
        total = torch.zeros((n_cells, len(still), size), dtype=torch.float64, device=device)
        for element in elements:
            transformed = _rows(transform(element, moved[block]), device)
            for tile in gen_batches(len(still), n_tile):
                add(fixed[tile], transformed, total[:, tile])
        total /= len(elements)
        if of_templates:
            yield Average(slice(0, len(X)), block, total.permute(1, 0, 2))
        else:
            yield Average(block, slice(0, len(templates)), total.permute(2, 0, 1))


class OrbitTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What transformers that average over a group share: its elements, and checks of samples.

    Attributes
    ----------
    elements_ : sequence
        The transformations.
    shape_in_ : tuple of int
        Shape of one sample.
    """

    group: Group | None
    n_transforms: int | None

    def _start(self, X: ArrayLike, rng: np.random.RandomState) -> FloatArray:
        """Check the samples to fit and draw the transformations."""
        samples: FloatArray = validate_data(self, X, dtype=[np.float64, np.float32], allow_nd=True)
        self.shape_in_ = samples.shape[1:]
        self.elements_ = draw_elements(self._group, self.n_transforms, self.shape_in_, rng)
        return samples

    def _validated(self, X: ArrayLike) -> FloatArray:
        """Check the samples to transform."""
        return validate_samples(self, X)

    @property
    def _group(self) -> Group:
        return Identity() if self.group is None else self.group

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_device(device: str) -> None:
    """Check that torch can compute on a device.

    Parameters
    ----------
    device : str
        Name of the device, such as ``"cpu"`` or ``"cuda"``.

    Raises
    ------
    ConfigError
        If it does not exist here, or has no float64.
    """
    import torch

    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ConfigError(
            f"device={device!r}: torch cannot compute in float64 on it here; take 'cpu' or a device that it lists"
        ) from error


def _rows(block: FloatArray, device: str) -> torch.Tensor:
    """Put samples in rows on a device, without a copy where that is possible."""
    import torch

    rows = np.ascontiguousarray(block.reshape(len(block), -1))
    # Torch warns of arrays that it could write to by mistake.
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy()).to(device)
