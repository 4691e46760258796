"""From scores to probabilities: one temperature, which leaves the most probable class as it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import softmax

from segkit._common import FloatArray

Floats = NDArray[np.float64]

# Bounds of 1 / T. Where the scores say nothing it would be 0, and no class more probable than another.
_SLOPES = (1e-3, 1e6)


def fit_temperature(scores: FloatArray, label: NDArray[np.integer], weight: Floats) -> float:
    r"""Find the temperature T of least log-loss of the probabilities softmax(scores / T).

    Fit it on scores of rows that the classifier was not trained on, else it is overconfident.

    Parameters
    ----------
    scores : ndarray of shape (n, n_classes), float32
        Scores of the classes; of two classes 0 and the decision above the threshold.
    label : ndarray of shape (n,), int
        Class indices.
    weight : ndarray of shape (n,), float64
        Weights of the rows, from 0 on, not all 0.

    Returns
    -------
    float
        Above 0, from 1e-6 to 1000.

    Notes
    -----
    The targets are Platt's [2]_: :math:`(n_k + 1) / (n_k + 2)` for the class of a row, where :math:`n_k` sums the weights of
    its rows, and what is left shared by the others. They keep T above 0 where the scores separate the classes. Platt's
    intercept is not fitted: it would move the point where two classes are as probable away from the threshold. The
    log-loss is convex in 1 / T.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, On calibration of modern neural networks, ICML 2017.
    .. [2] J. Platt, Probabilistic outputs for support vector machines, Advances in Large Margin Classifiers, 1999.
    """
    scores = scores.astype(np.float64)
    n_classes = scores.shape[1]
    of_class = np.bincount(label, weight, minlength=n_classes)
    others = 1 / (of_class[label] + 2)
    target = np.repeat(others[:, None] / (n_classes - 1), n_classes, axis=1)
    target[np.arange(label.size), label] = 1 - others

    def gradient(slope: float) -> float:
        return float(weight @ ((softmax(slope * scores, axis=1) - target) * scores).sum(axis=1))

    least, most = _SLOPES
    if gradient(least) >= 0:
        return 1 / least
    if gradient(most) <= 0:
        return 1 / most
    return float(1 / brentq(gradient, least, most, rtol=1e-9))
