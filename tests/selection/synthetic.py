"""Synthetic data of which three or four features of ten matter, and how often a selector finds them."""

import math

import numpy as np

N_FEATURES = 10


def orange_skin(n, rng):
    """Half N(0, I) given 9 < sum of the first four squares < 16, half N(0, I), in random order."""
    shell = []
    while len(shell) < n // 2:
        x = rng.standard_normal(N_FEATURES)
        if 9 < (x[:4] ** 2).sum() < 16:
            shell.append(x)
    X = np.concatenate([shell, rng.standard_normal((n // 2, N_FEATURES))])
    order = rng.permutation(n)
    return X[order], np.repeat([-1, 1], n // 2)[order]


def xor(n, rng):
    """Put the first three features about a corner of {-1, 1}^3; opposite corners share one of 4 classes."""
    halves = np.array([[1, 1, 1], [1, 1, -1], [1, -1, -1], [-1, 1, -1]])
    corners = np.stack([halves, -halves], axis=1).reshape(8, 3)
    corner = np.repeat(np.arange(8), np.diff(np.linspace(0, n, 9, dtype=int)))
    X = rng.standard_normal((n, N_FEATURES))
    X[:, :3] += corners[corner]
    order = rng.permutation(n)
    return X[order], (corner // 2)[order]


def regression(n, rng):
    """Draw a target of four features: -2 sin(2 x1) + max(x2, 0) + x3 + exp(-x4) + noise."""
    X = rng.standard_normal((n, N_FEATURES))
    signal = -2 * np.sin(2 * X[:, 0]) + np.maximum(X[:, 1], 0) + X[:, 2] + np.exp(-X[:, 3])
    return X, signal + rng.standard_normal(n)


# Generators, and the number of features that matter: the first ones.
TASKS = {"orange_skin": (orange_skin, 4), "XOR": (xor, 3), "regression": (regression, 4)}


def shuffled_draw(task, n, seed):
    """Draw X, y and which columns matter.

    The legacy generator repeats the draws that the authors' statistics were recorded on. The columns
    are shuffled: a solver that never leaves equal weights would else "find" the first ones.
    """
    X, y = TASKS[task][0](n, np.random.RandomState(seed))
    order = np.random.default_rng(seed).permutation(N_FEATURES)
    return X[:, order], y, order < TASKS[task][1]


def recovery(select, task, n, seeds):
    """Share of draws whose informative features are all among the selected ones."""
    draws = (shuffled_draw(task, n, seed) for seed in range(seeds))
    return float(np.mean([select(X, y)[informative].all() for X, y, informative in draws]))


def standard_errors_below(ours, theirs, n_ours, n_theirs):
    """Return by how many standard errors our rate is lower, a hit and a miss added to each."""
    p = (ours * n_ours + 1) / (n_ours + 2)
    q = (theirs * n_theirs + 1) / (n_theirs + 2)
    return (q - p) / math.sqrt(p * (1 - p) / (n_ours + 2) + q * (1 - q) / (n_theirs + 2))
