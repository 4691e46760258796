"""Virtual samples: transformed copies of support vectors, for a plain kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from segkit.invariance.groups import Group, draw_elements
from segkit.invariance.samples import as_samples
from segkit.kernels.base import FloatArray


def virtual_samples(
    X: ArrayLike,
    y: ArrayLike,
    group: Group,
    *,
    n_transforms: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[FloatArray, NDArray[Any]]:
    """Add transforms of labelled samples to them.

    Parameters
    ----------
    X : array-like of shape (n_samples, *shape)
        Samples, usually the support vectors of a first classifier.
    y : array-like of shape (n_samples,)
        Their labels.
    group : Group
        The transformations.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    random_state : int, RandomState instance or None, default=None
        Seed of that draw.

    Returns
    -------
    samples : ndarray of shape (n_virtual, *shape)
        The samples, then their transforms, element by element. Transforms equal to their sample are left out.
    labels : ndarray of shape (n_virtual,)
        Labels of all of them.

    Notes
    -----
    A second classifier learns from them. Its Gram matrix grows with the square of the number of transformations.

    References
    ----------
    D. DeCoste and B. Scholkopf, Training invariant support vector machines, 2002, section 3.
    T. Liu et al. 2022, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import InvariantSVC, Translation, virtual_samples
    >>> bar, dots = np.zeros((2, 5, 5))
    >>> bar[2, 1:4], dots[2, 0:5:2] = 1, 1
    >>> images, names = np.stack([bar, dots]), np.array(["bar", "dots"])
    >>> supports = InvariantSVC().fit(images, names).support_
    >>> svc = InvariantSVC().fit(*virtual_samples(images[supports], names[supports], Translation()))
    >>> svc.predict(np.roll(images, (1, 2), axis=(1, 2)))
    array(['bar', 'dots'], dtype='<U4')
    """
    originals, given = as_samples(X), np.asarray(y)
    samples, labels = [originals], [given]
    for element in draw_elements(group, n_transforms, originals.shape[1:], check_random_state(random_state)):
        transformed = group.act(element, originals)
        moved = (transformed != originals).reshape(len(originals), -1).any(axis=1)
        samples.append(transformed[moved])
        labels.append(given[moved])
    return np.concatenate(samples), np.concatenate(labels)
