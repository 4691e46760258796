import numpy as np
import pytest

from segkit.errors import ConfigError, InputError
from segkit.invariance import tangent, tangent_distances
from segkit.invariance.tangent import TANGENTS, tangent_vectors


def naive_distance(x, y, *, elasticity, two_sided):
    """Least squares over the moves of one pair, the price of the moves as further equations."""
    (x, u), (y, v) = tangent_vectors(x[None]), tangent_vectors(y[None])
    right = np.linalg.qr(v.reshape(v.shape[1], -1).T)[0]
    left = np.linalg.qr(u.reshape(u.shape[1], -1).T)[0] if two_sided else right[:, :0]
    moves = np.hstack([left, -right])
    priced = np.vstack([moves, np.sqrt(elasticity) * np.eye(moves.shape[1])])
    difference = np.append((x - y).ravel(), np.zeros(moves.shape[1]))
    best = np.linalg.lstsq(priced, -difference)[0]
    return ((priced @ best + difference) ** 2).sum()


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize("elasticity", [1e-6, 0.3])
def test_distances_are_least_squares(rng, two_sided, elasticity):
    X, Y = rng.normal(size=(3, 9, 8)), rng.normal(size=(2, 9, 8))
    options = {"elasticity": elasticity, "two_sided": two_sided}
    expected = [[naive_distance(x, y, **options) for y in Y] for x in X]
    np.testing.assert_allclose(tangent_distances(X, Y, **options), expected, rtol=1e-8)


def test_tangents_are_derivatives_by_the_transformations():
    size, sigma, step = 33, 1.0, 1e-4
    v, u = np.indices((size, size)) - (size - 1) / 2

    def image(v, u):
        """A Gaussian away from the centre; smoothing it by sigma gives another one."""
        return np.exp(-(((u - 3) / 3) ** 2 + ((v + 2) / 2.5) ** 2) / 2)

    def smoothed(v, u):
        width_u, width_v = np.sqrt(3**2 + sigma**2), np.sqrt(2.5**2 + sigma**2)
        peak = 3 * 2.5 / (width_u * width_v)
        return peak * np.exp(-(((u - 3) / width_u) ** 2 + ((v + 2) / width_v) ** 2) / 2)

    moved = {
        "horizontal": (v, u + step),
        "vertical": (v + step, u),
        "rotation": (v - step * u, u + step * v),
        "scaling": (v + step * v, u + step * u),
        "axis": (v - step * v, u + step * u),
        "diagonal": (v + step * u, u + step * v),
    }
    base, vectors = tangent_vectors(image(v, u)[None], sigma=sigma)
    np.testing.assert_allclose(base[0], smoothed(v, u), atol=1e-3)
    for name, (down, right) in moved.items():
        derivative = (smoothed(down, right) - smoothed(v, u)) / step
        np.testing.assert_allclose(vectors[0, TANGENTS.index(name)], derivative, atol=5e-3, err_msg=name)
    gradient = vectors[0, 0] ** 2 + vectors[0, 1] ** 2
    np.testing.assert_allclose(vectors[0, TANGENTS.index("thickness")], gradient)


def test_distances_are_symmetric_and_0_to_oneself(rng):
    X = rng.normal(size=(5, 16, 16))
    distances = tangent_distances(X)
    np.testing.assert_allclose(distances, distances.T, atol=1e-9)
    np.testing.assert_allclose(np.diag(distances), 0, atol=1e-9)


def test_a_blank_image_does_not_move(rng):
    X = rng.normal(size=(1, 16, 16))
    smooth = tangent_vectors(X)[0]
    blank = np.zeros_like(X)
    np.testing.assert_allclose(tangent_distances(X, blank, two_sided=False), (smooth**2).sum())


def test_dependent_tangents_are_one_direction(rng):
    """In a line of pixels nothing moves up or down, and both stretches are the scaling."""
    X, Y = rng.normal(size=(3, 1, 20)), rng.normal(size=(4, 1, 20))
    independent = ("horizontal", "scaling", "thickness")
    np.testing.assert_allclose(
        tangent_distances(X, Y), tangent_distances(X, Y, tangents=independent), rtol=1e-9
    )


def test_blocks_do_not_change_the_result(rng, monkeypatch):
    X, Y = rng.normal(size=(5, 16, 16)), rng.normal(size=(3, 16, 16))
    whole = tangent_distances(X, Y)
    monkeypatch.setattr(tangent, "MEMORY", 1)
    np.testing.assert_allclose(tangent_distances(X, Y), whole, rtol=1e-12)


def test_bad_input(rng):
    X = rng.normal(size=(2, 16, 16))
    grey = r"array of shape \(2, 256\): tangents are derivatives of images; give grey images \(n_samples, H, W\)$"
    unknown = r"tangents=\('shear',\): choose at least one of horizontal, vertical"
    for options, error, message in [
        ({"X": X.reshape(2, -1)}, InputError, grey),
        ({"X": X, "Y": X.reshape(2, 8, 32)}, InputError, r"arrays of shapes .* of one shape"),
        ({"X": X * np.nan}, InputError, "512 of 512 values are NaN or infinite"),
        ({"X": X, "tangents": ("shear",)}, ConfigError, unknown),
        ({"X": X, "tangents": ()}, ConfigError, r"tangents=\(\): choose at least one of"),
    ]:
        with pytest.raises(error, match=f"^{message}"):
            tangent_distances(**options)


@pytest.mark.parametrize("value", [0, np.nan, np.inf])
@pytest.mark.parametrize("name", ["sigma", "elasticity"])
def test_scales_that_are_not_positive(name, value):
    with pytest.raises(ConfigError, match=rf"^{name}={value}: a positive and finite number is needed$"):
        tangent_distances(np.ones((2, 8, 8)), **{name: value})
