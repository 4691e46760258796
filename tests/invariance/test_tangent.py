import numpy as np
import pytest

from segkit.errors import InputError
from segkit.invariance import tangent, tangent_distances
from segkit.invariance.tangent import tangent_vectors


def naive_distance(x, y, elasticity):
    """Least squares over the moves of one pair, the price of the moves as further equations."""
    (x, u), (y, v) = tangent_vectors(x[None]), tangent_vectors(y[None])
    left, right = (np.linalg.qr(vectors.reshape(7, -1).T)[0] for vectors in (u, v))
    moves = np.hstack([left, -right])
    priced = np.vstack([moves, np.sqrt(elasticity) * np.eye(14)])
    difference = np.append((x - y).ravel(), np.zeros(14))
    best = np.linalg.lstsq(priced, -difference)[0]
    return ((priced @ best + difference) ** 2).sum()


@pytest.mark.parametrize("elasticity", [1e-6, 0.3])
def test_distances_are_least_squares(rng, elasticity, monkeypatch):
    monkeypatch.setattr(tangent, "ELASTICITY", elasticity)
    X, Y = rng.normal(size=(3, 9, 8)), rng.normal(size=(2, 9, 8))
    expected = [[naive_distance(x, y, elasticity) for y in Y] for x in X]
    np.testing.assert_allclose(tangent_distances(X, Y), expected, rtol=1e-8)


def test_tangents_are_derivatives_by_the_transformations():
    size, sigma, step = 33, 0.9, 1e-4
    v, u = np.indices((size, size)) - (size - 1) / 2

    def image(v, u):
        """A Gaussian away from the centre; smoothing it by sigma gives another one."""
        return np.exp(-(((u - 3) / 3) ** 2 + ((v + 2) / 2.5) ** 2) / 2)

    def smoothed(v, u):
        width_u, width_v = np.sqrt(3**2 + sigma**2), np.sqrt(2.5**2 + sigma**2)
        peak = 3 * 2.5 / (width_u * width_v)
        return peak * np.exp(-(((u - 3) / width_u) ** 2 + ((v + 2) / width_v) ** 2) / 2)

    moved = [
        (v, u + step),  # horizontal
        (v + step, u),  # vertical
        (v - step * u, u + step * v),  # rotation
        (v + step * v, u + step * u),  # scaling
        (v - step * v, u + step * u),  # axis
        (v + step * u, u + step * v),  # diagonal
    ]
    base, vectors = tangent_vectors(image(v, u)[None])
    np.testing.assert_allclose(base[0], smoothed(v, u), atol=1e-3)
    for (down, right), vector in zip(moved, vectors[0], strict=False):
        derivative = (smoothed(down, right) - smoothed(v, u)) / step
        np.testing.assert_allclose(vector, derivative, atol=5e-3)
    np.testing.assert_allclose(vectors[0, 6], vectors[0, 0] ** 2 + vectors[0, 1] ** 2)


def test_distances_are_symmetric_and_0_to_oneself(rng):
    X = rng.normal(size=(5, 16, 16))
    distances = tangent_distances(X)
    np.testing.assert_allclose(distances, distances.T, atol=1e-9)
    np.testing.assert_allclose(np.diag(distances), 0, atol=1e-9)


def test_dependent_tangents_are_one_direction(rng, monkeypatch):
    """In a line of pixels nothing moves up or down, and both stretches are the scaling."""
    X, Y = rng.normal(size=(3, 1, 20)), rng.normal(size=(4, 1, 20))
    whole, vectors = tangent_distances(X, Y), tangent.tangent_vectors

    def independent(images):
        smoothed, derivatives = vectors(images)
        return smoothed, derivatives[:, [0, 3, 6]]  # horizontal, scaling and thickness

    monkeypatch.setattr(tangent, "tangent_vectors", independent)
    np.testing.assert_allclose(tangent_distances(X, Y), whole, rtol=1e-9)


def test_blocks_do_not_change_the_result(rng, monkeypatch):
    X, Y = rng.normal(size=(5, 16, 16)), rng.normal(size=(3, 16, 16))
    whole = tangent_distances(X, Y)
    monkeypatch.setattr(tangent, "MEMORY", 1)
    np.testing.assert_allclose(tangent_distances(X, Y), whole, rtol=1e-12)


def test_bad_input(rng):
    X = rng.normal(size=(2, 16, 16))
    grey = r"array of shape \(2, 256\): tangents are derivatives of images; give grey images \(n_samples, H, W\)$"
    for samples, message in [
        ([X.reshape(2, -1)], grey),
        ([X, X.reshape(2, 8, 32)], r"arrays of shapes .* of one shape"),
        ([X * np.nan], "512 of 512 values are NaN or infinite"),
    ]:
        with pytest.raises(InputError, match=f"^{message}"):
            tangent_distances(*samples)
