"""Invariance by more samples: transformed support vectors in training, or transformed queries.

Baselines for best-fit kernels. Both classifiers keep a plain kernel and pay for the
transformations elsewhere: `VirtualSVC` once, in a larger training set, `JitteredQuerySVC` at each
prediction.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import validate_data

from segkit.invariance.bestfit import BestFitKernel
from segkit.invariance.groups import Element, Group, Identity, draw_elements
from segkit.invariance.samples import validate_samples
from segkit.invariance.svc import InvariantSVC
from segkit.kernels.base import FloatArray, Kernel


class _TransformingSVC(ClassifierMixin, BaseEstimator):
    """Base of both classifiers: parameters, checks and the machine with the plain kernel."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [Kernel, None],
        "group": [Group, None],
        "C": [Interval(Real, 0, None, closed="neither")],
        "n_transforms": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        group: Group | None = None,
        C: float = 1.0,
        n_transforms: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.group = group
        self.C = C
        self.n_transforms = n_transforms
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from labelled samples."""
        samples, labels = validate_data(self, X, y, dtype=[np.float64, np.float32], allow_nd=True)
        rng = check_random_state(self.random_state)
        self.shape_in_ = samples.shape[1:]
        self.elements_ = draw_elements(self._group, self.n_transforms, self.shape_in_, rng)
        # Best fit over no transformations is the kernel itself, of samples of any shape.
        plain = InvariantSVC(BestFitKernel(self.kernel), C=self.C).fit(samples, labels)
        self.classes_ = plain.classes_
        self.svc_ = self._improve(plain, labels[plain.support_])
        return self

    @abstractmethod
    def _improve(self, plain: InvariantSVC, support_labels: NDArray[Any]) -> InvariantSVC:
        """Make the machine for prediction from the machine trained on the samples alone."""

    @property
    def _group(self) -> Group:
        return Identity() if self.group is None else self.group


class VirtualSVC(_TransformingSVC):
    """Support vector classifier retrained on its transformed support vectors.

    Parameters
    ----------
    kernel : Kernel or None, default=None
        Kernel of the values of a sample in one row; None is ``Polynomial(8, gamma=1 / m)`` with m
        values per sample.
    group : Group or None, default=None
        The transformations; None is `Identity`, a plain classifier.
    C : float, default=1.0
        Penalty of margin violations, > 0.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    random_state : int, RandomState instance or None, default=None
        Seed of that draw.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    elements_ : sequence
        The transformations.
    svc_ : InvariantSVC
        The classifier trained on the support vectors and their transforms.
    shape_in_ : tuple of int
        Shape of one sample.
    n_features_in_ : int
        Length of the first axis of a sample.

    Notes
    -----
    A first classifier finds the support vectors. They and their transforms are the training set of
    the second. This set grows with the number of transformations, its Gram matrix with the square.

    References
    ----------
    D. DeCoste and B. Scholkopf, Training invariant support vector machines, 2002, section 3.
    T. Liu et al., Learning from few samples: transformation-invariant SVMs with composition and
    locality at multiple scales, 2022, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation
    >>> from segkit.invariance.virtual import VirtualSVC
    >>> bar, dots = np.zeros((2, 5, 5))
    >>> bar[2, 1:4], dots[2, 0:5:2] = 1, 1
    >>> svc = VirtualSVC(group=Translation()).fit([bar, dots], ["bar", "dots"])
    >>> svc.predict(np.roll([bar, dots], (1, 2), axis=(1, 2)))
    array(['bar', 'dots'], dtype='<U4')
    """

    def _improve(self, plain: InvariantSVC, support_labels: NDArray[Any]) -> InvariantSVC:
        samples, labels = _virtual_samples(
            self._group, self.elements_, plain.support_vectors_, support_labels
        )
        retrained: InvariantSVC = clone(plain).fit(samples, labels)
        return retrained

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Score samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, *shape)
            Samples of the training samples' shape.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes), float64
            Positive for the second of two classes; of more, largest for the predicted one but for
            ties of votes.

        Raises
        ------
        InputError
            If samples differ in shape from the training samples.
        """
        samples = validate_samples(self, X)
        return self.svc_.decision_function(samples)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classify samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, *shape)
            Samples of the training samples' shape.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.

        Raises
        ------
        InputError
            If samples differ in shape from the training samples.
        """
        samples = validate_samples(self, X)
        return self.svc_.predict(samples)


class JitteredQuerySVC(_TransformingSVC):
    """Support vector classifier that looks at transformed copies of each sample to classify.

    Parameters
    ----------
    kernel : Kernel or None, default=None
        Kernel of the values of a sample in one row; None is ``Polynomial(8, gamma=1 / m)`` with m
        values per sample.
    group : Group or None, default=None
        The transformations; None is `Identity`, a plain classifier.
    C : float, default=1.0
        Penalty of margin violations, > 0.
    n_transforms : int or None, default=None
        How many transformations to draw; None takes all of a finite group.
    random_state : int, RandomState instance or None, default=None
        Seed of that draw.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    elements_ : sequence
        The transformations.
    svc_ : InvariantSVC
        The classifier, trained on the samples alone.
    shape_in_ : tuple of int
        Shape of one sample.
    n_features_in_ : int
        Length of the first axis of a sample.

    Notes
    -----
    The score of a class is its largest over the transformations, ``max_T f(T x)``; with two classes
    it is the f(T x) farthest from 0. Prediction evaluates the classifier once per transformation.

    References
    ----------
    D. DeCoste and M. C. Burl, Distortion-invariant recognition via jittered queries, 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from segkit.invariance import Translation
    >>> from segkit.invariance.virtual import JitteredQuerySVC
    >>> bar, dots = np.zeros((2, 5, 5))
    >>> bar[2, 1:4], dots[2, 0:5:2] = 1, 1
    >>> svc = JitteredQuerySVC(group=Translation()).fit([bar, dots], ["bar", "dots"])
    >>> svc.predict(np.roll([bar, dots], (1, 2), axis=(1, 2)))
    array(['bar', 'dots'], dtype='<U4')
    """

    def _improve(self, plain: InvariantSVC, support_labels: NDArray[Any]) -> InvariantSVC:  # noqa: ARG002
        return plain

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Score samples by their most convincing transforms.

        Parameters
        ----------
        X : array-like of shape (n_samples, *shape)
            Samples of the training samples' shape.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes), float64
            Positive for the second of two classes; of more, largest for the predicted one.

        Raises
        ------
        InputError
            If samples differ in shape from the training samples.
        """
        samples = validate_samples(self, X)
        scores = (
            self.svc_.decision_function(self._group.act(element, samples)) for element in self.elements_
        )
        return reduce(np.maximum if len(self.classes_) > 2 else _farther_from_zero, scores)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classify samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, *shape)
            Samples of the training samples' shape.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.

        Raises
        ------
        InputError
            If samples differ in shape from the training samples.
        """
        scores = self.decision_function(X)
        best = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(np.intp)
        labels: NDArray[Any] = self.classes_[best]
        return labels


def _virtual_samples(
    group: Group, elements: Sequence[Element], X: FloatArray, y: NDArray[Any]
) -> tuple[FloatArray, NDArray[Any]]:
    """Add transforms of labelled samples to them."""
    samples, labels = [X], [y]
    for element in elements:
        transformed = group.act(element, X)
        moved = (transformed != X).reshape(len(X), -1).any(axis=1)
        samples.append(transformed[moved])
        labels.append(y[moved])
    return np.concatenate(samples), np.concatenate(labels)


def _farther_from_zero(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.abs(second) > np.abs(first), second, first)
