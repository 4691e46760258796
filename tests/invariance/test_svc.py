from functools import partial

import numpy as np
import pytest
from scipy import ndimage
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import InputError
from segkit.invariance import (
    Identity,
    InvariantSVC,
    LocalPolynomialKernel,
    Rotation,
    Translation,
    average_fit,
    best_fit,
    svc,
)
from segkit.kernels import Gaussian, Polynomial


# Some checks have random labels, which degree 8 fits after more steps than are worth a warning.
@pytest.mark.filterwarnings("ignore:Solver terminated early:sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([InvariantSVC(Gaussian(0.5), probability=True)])
def test_sklearn_estimator(estimator, check):
    check(estimator)


def strokes(rng, n, side=8):
    """Bars, crosses and corners at random places, wrapping round the edge, with noise."""
    shapes = np.zeros((3, side, side))
    shapes[0, 2, 1:6] = shapes[1, 3, 1:6] = shapes[1, 1:6, 3] = shapes[2, 1:6, 1] = shapes[2, 5, 1:6] = 1
    y = rng.integers(0, 3, n)
    moved = [np.roll(shapes[label], rng.integers(0, side, 2), axis=(0, 1)) for label in y]
    return np.array(moved) + 0.1 * rng.normal(size=(n, side, side)), np.array(["bar", "cross", "corner"])[y]


def test_equals_a_machine_given_all_kernel_values(rng, monkeypatch):
    (X, y), (Z, _) = strokes(rng, 40), strokes(rng, 30)
    kernel = partial(average_fit, base=Polynomial(degree=2), group=Translation(1))
    reference = SVC(kernel="precomputed", C=0.5).fit(kernel(X), y)
    monkeypatch.setattr(svc, "MEMORY", 8 * 40 * 11)  # kernel values of 11 samples at a time
    machine = InvariantSVC(kernel, C=0.5).fit(X, y)
    assert 0 < len(machine.support_) < len(X)
    np.testing.assert_array_equal(machine.support_vectors_, X[machine.support_])
    np.testing.assert_allclose(
        machine.decision_function(Z), reference.decision_function(kernel(Z, X)), rtol=1e-9
    )
    np.testing.assert_array_equal(machine.predict(Z), reference.predict(kernel(Z, X)))


def test_invariance_is_learnt_from_few_samples(rng):
    (X, y), (Z, truth) = strokes(rng, 12), strokes(rng, 100)
    svc = InvariantSVC(partial(best_fit, group=Translation())).fit(X, y)
    assert svc.score(Z, truth) == 1
    assert InvariantSVC().fit(X, y).score(Z, truth) < 0.8
    np.testing.assert_array_equal(svc.predict(np.roll(Z, (3, 5), axis=(1, 2))), svc.predict(Z))


def scene(rng, n_rows=5, n_cols=8, side=15):
    """An image of bars, crosses and corners, one in each cell of a grid, turned by any angle, and their kinds."""
    shapes = np.zeros((3, side, side))
    shapes[:, 7, 4:11] = shapes[1, 4:11, 7] = 1
    shapes[2, 7, 4:7], shapes[2, 7:11, 7] = 0, 1
    kinds = rng.integers(0, 3, (n_rows, n_cols))
    smooth = ndimage.gaussian_filter(shapes, (0, 1, 1))
    turned = [ndimage.rotate(smooth[kind], rng.uniform(0, 360), reshape=False) for kind in kinds.ravel()]
    image = np.block([turned[start : start + n_cols] for start in range(0, kinds.size, n_cols)])
    return image + 0.02 * rng.standard_normal(image.shape), kinds, side


def test_regions_of_an_image_are_classified_whichever_way_they_lie(rng):
    """Each region is the square about its centre; few are annotated, in one picture."""

    def regions(image, kinds, side):
        labels, n_regions = ndimage.label(image > 0.2)
        centres = np.array(ndimage.center_of_mass(image, labels, range(1, n_regions + 1)))
        sizes = ndimage.sum_labels(labels > 0, labels, range(1, n_regions + 1))
        centres = centres[sizes > 10]
        row, col = np.clip(centres.round().astype(int), 5, np.array(image.shape) - 6).T
        squares = np.stack([image[r - 5 : r + 6, c - 5 : c + 6] for r, c in zip(row, col, strict=True)])
        names = np.array(["bar", "cross", "corner"])
        return squares, names[kinds[row // side, col // side]]

    X, y = regions(*scene(rng, n_rows=3))
    Z, truth = regions(*scene(rng))
    svc = InvariantSVC(partial(best_fit, base=Gaussian(0.3), group=Rotation(16)), probability=True).fit(X, y)
    assert svc.score(Z, truth) > 0.9
    plain = InvariantSVC(Gaussian(0.3), probability=True).fit(X, y)
    assert plain.score(Z, truth) < svc.score(Z, truth) - 0.1
    probabilities = svc.predict_proba(Z)
    of_truth = probabilities[np.arange(len(Z)), np.searchsorted(svc.classes_, truth)]
    assert -np.log(of_truth).mean() < 0.5 * np.log(3)
    turned = svc.predict_proba(np.rot90(Z, axes=(1, 2)))
    np.testing.assert_allclose(turned, probabilities, atol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    [LocalPolynomialKernel(windows=3), partial(average_fit, group=Rotation(4)), best_fit],
    ids=["local", "average", "best fit"],
)
def test_takes_kernels_of_images(kernel, rng):
    X, y = strokes(rng, 30)
    assert InvariantSVC(kernel, C=1e3).fit(X, y).score(X, y) == 1


@pytest.mark.parametrize(
    ("group", "accuracy"),
    [(Identity(), 0.6816), pytest.param(Rotation(range(-10, 10), order=3), 0.7382, marks=pytest.mark.slow)],
    ids=["polynomial", "rotations"],
)
def test_accuracy_of_the_authors_code_on_mnist(group, accuracy, shared):
    """Trained on 100 digits and tested on 10,000, as their code was, to the last digit."""
    mnist = np.load(shared / "kernel-data" / "mnist" / "mnist.npz")
    split = np.load(shared / "oracle" / "tisvm_mnist_split.npz")
    X = np.concatenate([mnist["X_train"], mnist["X_test"]])
    y = np.concatenate([mnist["y_train"], mnist["y_test"]])
    train, test = split["train_idx"][:100], split["test_idx"]
    svc = InvariantSVC(partial(best_fit, group=group, symmetric=False)).fit(
        X[train].astype(np.float32) / 255, y[train]
    )
    assert svc.score(X[test].astype(np.float32) / 255, y[test]) == pytest.approx(accuracy)


def test_one_class():
    message = r"^y holds the one class a: give samples of 2 classes or more$"
    with pytest.raises(InputError, match=message):
        InvariantSVC().fit(np.ones((2, 3, 3)), ["a", "a"])


def test_samples_of_another_shape(rng):
    svc = InvariantSVC(Polynomial()).fit(rng.normal(size=(4, 3)), [0, 1, 0, 1])
    images = InvariantSVC().fit(rng.normal(size=(4, 3, 5)), [0, 1, 0, 1])
    message = r"^samples of shape \(3, 4\): InvariantSVC was fitted on \(3, 5\); resize or crop them alike$"
    with pytest.raises(InputError, match=message):
        images.predict(np.ones((1, 3, 4)))
    with pytest.raises(InputError, match=r"^samples of shape \(3, 1\): InvariantSVC was fitted on \(3,\);"):
        svc.predict(np.ones((1, 3, 1)))


def test_a_kernel_of_rows_takes_images(rng):
    images, labels = rng.normal(size=(20, 4, 4)), np.arange(20) % 2
    svc = InvariantSVC(Gaussian(0.1)).fit(images, labels)
    rows = InvariantSVC(Gaussian(0.1)).fit(images.reshape(20, -1), labels)
    np.testing.assert_array_equal(
        svc.decision_function(images), rows.decision_function(images.reshape(20, -1))
    )
