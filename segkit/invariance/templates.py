"""Averages of an embedding over a group, for whole samples, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils.validation import validate_data

from segkit.invariance.bestfit import as_arguments
from segkit.invariance.embeddings import Embedding
from segkit.invariance.groups import Element, Group, Identity, draw_elements
from segkit.kernels.base import FloatArray, Kernel

if TYPE_CHECKING:
    import torch

# Templates transformed at once, and pairs evaluated at once: few enough for the cache, enough for a fast
# matrix product.
LARGEST_BLOCK = 1024
LARGEST_TILE = 2**18
# Bytes per pair, and copies of each value, that evaluation and transformations need for a moment.
PAIR_BYTES = 64
COPIES = 6


@dataclass(frozen=True)
class _Rows:
    """Samples and templates in rows, (n, n_values) and (m, n_values): the `Pairs` of whole samples."""

    left: torch.Tensor
    right: torch.Tensor
    shape: tuple[int, ...]

    def products(self) -> torch.Tensor:
        return self.left @ self.right.T

    def kernel_values(self, kernel: Kernel) -> torch.Tensor:
        import torch

        x, y = (
            as_arguments(kernel, rows.numpy().reshape(-1, *self.shape)) for rows in (self.left, self.right)
        )
        return torch.from_numpy(kernel(x, y))


@dataclass(frozen=True)
class Average:
    """Averages of an embedding of some samples at some templates: values (n_rows, n_features, n_templates), float64."""

    rows: slice
    templates: slice
    values: torch.Tensor


def orbit_averages(
    X: FloatArray,
    templates: FloatArray,
    embedding: Embedding,
    *,
    elements: Sequence[Element],
    transform: Callable[[Element, FloatArray], FloatArray],
    of_templates: bool,
    memory_limit: int = 2**30,
) -> Iterator[Average]:
    """Average an embedding of samples and templates over transformations of one of them.

    Yields all samples at some templates, if templates are transformed; else some samples at all templates. Each
    transformation is applied once to each block of the transformed side. `memory_limit` is of blocks; the arguments are
    extra.
    """
    import torch

    templates = templates.astype(X.dtype, copy=False)
    moved, still = (templates, X) if of_templates else (X, templates)
    fixed = _rows(still)
    n_sums = embedding.n_sums
    per_template = 8 * n_sums * len(still) + COPIES * fixed[0].nbytes
    n_block = max(1, min(LARGEST_BLOCK, len(moved), memory_limit // (2 * per_template)))
    n_tile = max(1, min(LARGEST_TILE, memory_limit // (4 * PAIR_BYTES)) // n_block)
    for block in gen_batches(len(moved), n_block):
        total = torch.zeros((n_sums, len(still), block.stop - block.start), dtype=torch.float64)
        for element in elements:
            transformed = _rows(transform(element, moved[block]))
            for tile in gen_batches(len(still), n_tile):
                embedding.add(_Rows(fixed[tile], transformed, X.shape[1:]), total[:, tile])
        means = embedding.finish(total.div_(len(elements)))
        if of_templates:
            yield Average(slice(0, len(X)), block, means.permute(1, 0, 2))
        else:
            yield Average(block, slice(0, len(templates)), means.permute(2, 0, 1))


class OrbitTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of transformers that average over a group: checks the samples to fit, and draws ``elements_``."""

    group: Group | None
    n_transforms: int | None

    def _start(self, X: ArrayLike, rng: np.random.RandomState) -> FloatArray:
        samples: FloatArray = validate_data(self, X, dtype=[np.float64, np.float32], allow_nd=True)
        self.shape_in_ = samples.shape[1:]
        self.elements_ = draw_elements(self._group, self.n_transforms, self.shape_in_, rng)
        return samples

    @property
    def _group(self) -> Group:
        return Identity() if self.group is None else self.group

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _rows(block: FloatArray) -> torch.Tensor:
    """Put samples in rows, without a copy where that is possible."""
    import torch

    rows = np.ascontiguousarray(block.reshape(len(block), -1))
    # Torch warns of arrays that it could write to by mistake.
    return torch.from_numpy(rows if rows.flags.writeable else rows.copy())
