import numpy as np
import pytest
from sklearn.svm import SVC

from segkit.errors import ConfigError, InputError
from segkit.invariance import Dihedral, InvariantSVC, Rotation, Translation, virtual_samples


def three_classes(rng, n=12, size=6):
    """Noisy copies of three images."""
    prototypes = rng.normal(size=(3, size, size))
    y = np.arange(n) % 3
    return prototypes[y] + 0.7 * rng.normal(size=(n, size, size)), np.array(["a", "b", "c"])[y]


def reference(X, y):
    """SVC of plain scikit-learn with the default kernel on flattened images."""
    svc = SVC(kernel="poly", degree=8, gamma=1 / X[0].size, coef0=1)
    return svc.fit(X.reshape(len(X), -1), y)


def test_a_machine_of_transformed_support_vectors(rng):
    X, y = three_classes(rng)
    queries, _ = three_classes(rng)
    group = Translation(max_shift=1)
    support = reference(X, y).support_
    moved = [np.roll(X[support], shift, axis=(1, 2)) for shift in group.elements(X.shape[1:]) if any(shift)]
    samples = np.concatenate([X[support], *moved])
    expected = reference(samples, np.tile(y[support], 9))
    support = InvariantSVC().fit(X, y).support_
    svc = InvariantSVC().fit(*virtual_samples(X[support], y[support], group))
    np.testing.assert_allclose(
        svc.decision_function(queries), expected.decision_function(queries.reshape(len(queries), -1))
    )
    assert (svc.predict(queries) == expected.predict(queries.reshape(len(queries), -1))).all()


def test_samples_that_do_not_move_are_not_repeated(rng):
    X = rng.normal(size=(2, 4, 4)).astype(np.float32)
    X[1] = 1
    samples, labels = virtual_samples(X, [5, 6], Dihedral())
    assert labels.tolist() == [5, 6] + 7 * [5]
    assert samples.dtype == np.float32
    np.testing.assert_array_equal(samples[:2], X)
    np.testing.assert_array_equal(samples[2], np.rot90(X[0]))


def test_transformations_are_drawn_by_the_seed(rng):
    X, y = three_classes(rng)
    first, again, other = (
        virtual_samples(X, y, Rotation(), n_transforms=3, random_state=seed)[0] for seed in (0, 0, 1)
    )
    assert len(first) == 4 * len(X)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_bad_input(rng):
    X, y = three_classes(rng)
    with pytest.raises(ConfigError, match=r"has infinitely many elements: list some of them"):
        virtual_samples(X, y, Rotation())
    with pytest.raises(InputError, match=r"samples of shape \(36,\): Dihedral acts on 2 axes"):
        virtual_samples(X.reshape(12, 36), y, Dihedral())
