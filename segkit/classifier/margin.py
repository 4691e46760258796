"""The interface of classifiers by decisions: labels and, where asked, probabilities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from segkit.classifier.platt import PlattScaling
from segkit.errors import InputError

# Folds that samples are held out in, or as many as the rarest class has samples.
N_FOLDS = 5

_HeldOutDecisions = Callable[[NDArray[np.intp], NDArray[np.intp]], NDArray[Any]]


def _gives_probabilities(classifier: MarginClassifier) -> bool:
    if not classifier.probability:
        raise AttributeError(
            f"{type(classifier).__name__}(probability=False) has no probabilities: fit it with probability=True"
        )
    return True


class MarginClassifier(ClassifierMixin, BaseEstimator):
    """Base of classifiers by decisions, whose `fit` sets `classes_` and calls `_fit_probabilities`."""

    probability: bool
    classes_: NDArray[Any]

    @abstractmethod
    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Score samples: (n,), positive for ``classes_[1]`` of two, else (n, n_classes), the largest wins."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classify samples by the sign of the decision, or by the largest of several."""
        decisions = self.decision_function(X)
        label = (decisions > 0).astype(np.intp) if decisions.ndim == 1 else decisions.argmax(axis=1)
        return cast(NDArray[Any], self.classes_[label])

    @available_if(_gives_probabilities)
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Estimate the probabilities of the classes by Platt's scaling; needs ``probability=True`` in `fit`."""
        check_is_fitted(self, "platt_")
        return self.platt_.predict_proba(self.decision_function(X))

    def _fit_probabilities(
        self, y: NDArray[Any], decide: _HeldOutDecisions, sample_weight: NDArray[Any] | None = None
    ) -> None:
        """Fit Platt's scaling to decisions on samples that were held out in turn, if probabilities are asked for.

        ``decide(train, test)`` trains on some samples and returns the decisions of others.
        """
        self.__dict__.pop("platt_", None)
        if not self.probability:
            return
        classes, label, counts = np.unique(y, return_inverse=True, return_counts=True)
        if counts.min() < 2:
            raise InputError(
                f"probability=True: class {classes[counts.argmin()]} has one sample, probabilities need 2 of each to hold "
                f"one out; give more, or probability=False"
            )
        folds = StratifiedKFold(min(N_FOLDS, counts.min()), shuffle=True, random_state=0)
        splits = list(folds.split(label, label))
        decisions = np.concatenate([decide(train, test) for train, test in splits])
        held_out = np.concatenate([test for _, test in splits])
        weight = None if sample_weight is None else sample_weight[held_out]
        self.platt_ = PlattScaling().fit(decisions, label[held_out], weight)
