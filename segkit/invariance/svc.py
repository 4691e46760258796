"""A support vector classifier of samples of any shape, by any kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.svm import SVC
from sklearn.utils import gen_batches
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from segkit.classifier.margin import MarginClassifier
from segkit.errors import InputError
from segkit.invariance.bestfit import as_arguments, best_fit
from segkit.invariance.samples import validate_samples
from segkit.kernels.base import FloatArray

# Steps of the solver, which warns when it stops there: on an indefinite kernel, or one of huge values, it may never
# converge.
MAX_ITER = 100_000
# Bytes of kernel values held at a time in prediction.
MEMORY = 2**30


class InvariantSVC(MarginClassifier):
    """Support vector classifier with a kernel of whole samples: images, signals or rows.

    Parameters
    ----------
    kernel : callable or None, default=None
        ``kernel(X, Y=None)``: a kernel of rows, a `LocalPolynomialKernel`, or `best_fit` or `average_fit` with their
        options. None is `best_fit` over no transformation, a polynomial kernel of degree 8.
    C : float, default=1.0
        Penalty of margin violations, > 0.
    probability : bool, default=False
        Whether `fit` also learns probabilities, from decisions on samples held out in five folds.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels.
    support_ : ndarray of shape (n_support,)
        Positions of the support vectors in the training set, ascending.
    support_vectors_ : ndarray of shape (n_support, *shape)
        The training samples that prediction needs.
    platt_ : PlattScaling
        From decisions to probabilities, if `probability` is set.
    shape_in_ : tuple of int
        Shape of one sample.

    Notes
    -----
    One classifier for each pair of classes, which vote; a tie goes to the first of the classes in it, as in
    `sklearn.svm.SVC`. The kernel need not be positive definite; the solver then stops at a stationary point.

    References
    ----------
    T. Liu et al. 2022, section 2.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from segkit.invariance import InvariantSVC, Translation, best_fit
    >>> bar, dots = np.zeros((2, 5, 5))
    >>> bar[2, 1:4], dots[2, 0:5:2] = 1, 1
    >>> svc = InvariantSVC(partial(best_fit, group=Translation())).fit([bar, dots], ["bar", "dots"])
    >>> svc.predict(np.roll([bar, dots], (1, 2), axis=(1, 2)))
    array(['bar', 'dots'], dtype='<U4')
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [callable, None],
        "C": [Interval(Real, 0, None, closed="neither")],
        "probability": ["boolean"],
    }

    def __init__(
        self, kernel: Callable[..., FloatArray] | None = None, C: float = 1.0, *, probability: bool = False
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.probability = probability

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from samples (n_samples, *shape) of any one shape and the labels (n_samples,) of two classes or more."""
        samples, labels = validate_data(self, X, y, dtype=[np.float64, np.float32], allow_nd=True)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise InputError(f"y holds the one class {self.classes_[0]}: give samples of 2 classes or more")
        gram = self._kernel(as_arguments(self._kernel, samples))
        self._machine = self._new_machine().fit(gram, labels)
        self.support_ = np.sort(self._machine.support_)
        self.support_vectors_ = samples[self.support_]
        self.shape_in_ = samples.shape[1:]
        self._n_fitted = len(samples)

        def decide(train: NDArray[np.intp], test: NDArray[np.intp]) -> NDArray[np.float64]:
            machine = self._new_machine().fit(gram[np.ix_(train, train)], labels[train])
            decisions: NDArray[np.float64] = machine.decision_function(gram[np.ix_(test, train)])
            return decisions

        self._fit_probabilities(labels, decide)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Score samples, (n_samples, *shape) -> (n_samples,) or (n_samples, n_classes).

        Scores are positive for the second of two classes; of more, largest for the predicted one but for ties of votes.
        """
        return np.concatenate([self._machine.decision_function(gram) for gram in self._grams(X)])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classify samples, (n_samples, *shape) -> (n_samples,), one vote for each pair of classes."""
        return np.concatenate([self._machine.predict(gram) for gram in self._grams(X)])

    def _new_machine(self) -> SVC:
        return SVC(kernel="precomputed", C=self.C, max_iter=MAX_ITER)

    @property
    def _kernel(self) -> Callable[..., FloatArray]:
        return best_fit if self.kernel is None else self.kernel

    def _grams(self, X: ArrayLike) -> Iterator[NDArray[np.float64]]:
        """Kernel values with the training set, in blocks of samples."""
        samples = as_arguments(self._kernel, validate_samples(self, X))
        supports = as_arguments(self._kernel, self.support_vectors_)
        for rows in gen_batches(len(samples), max(1, MEMORY // (8 * self._n_fitted))):
            # The machine reads the columns of its support vectors only.
            gram = np.zeros((rows.stop - rows.start, self._n_fitted))
            gram[:, self.support_] = self._kernel(samples[rows], supports)
            yield gram
