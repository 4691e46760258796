import numpy as np
import pytest
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import ConfigError, InputError
from segkit.invariance import Dihedral, Permutation, Rotation, Translation
from segkit.invariance.virtual import JitteredQuerySVC, VirtualSVC, _virtual_samples
from segkit.kernels import Gaussian

BOTH = pytest.mark.parametrize("Classifier", [VirtualSVC, JitteredQuerySVC])


# Some checks have random labels, which degree 8 fits after more steps than are worth a warning.
@pytest.mark.filterwarnings("ignore:Solver terminated early:sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([VirtualSVC(), JitteredQuerySVC()])
def test_estimator_checks(estimator, check):
    check(estimator)


def three_classes(rng, n=12, size=6):
    """Noisy copies of three images."""
    prototypes = rng.normal(size=(3, size, size))
    y = np.arange(n) % 3
    return prototypes[y] + 0.7 * rng.normal(size=(n, size, size)), np.array(["a", "b", "c"])[y]


def reference(X, y, C=1.0):
    """SVC of plain scikit-learn with the default kernel on flattened images."""
    svc = SVC(kernel="poly", degree=8, gamma=1 / X[0].size, coef0=1, C=C)
    return svc.fit(X.reshape(len(X), -1), y)


def test_virtual_support_vectors_are_those_of_the_first_machine(rng):
    X, y = three_classes(rng)
    queries, _ = three_classes(rng)
    group = Translation(max_shift=1)
    support = reference(X, y).support_
    moved = [np.roll(X[support], shift, axis=(1, 2)) for shift in group.elements(X.shape[1:]) if any(shift)]
    samples = np.concatenate([X[support], *moved])
    expected = reference(samples, np.tile(y[support], 9))
    svc = VirtualSVC(group=group).fit(X, y)
    np.testing.assert_allclose(
        svc.decision_function(queries), expected.decision_function(queries.reshape(len(queries), -1))
    )
    assert (svc.predict(queries) == expected.predict(queries.reshape(len(queries), -1))).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_jittered_query_takes_the_most_convincing_transform(rng, n_classes):
    X, y = three_classes(rng)
    X, y = X[y < "abcd"[n_classes]], y[y < "abcd"[n_classes]]
    queries, _ = three_classes(rng)
    svc = reference(X, y)
    transforms = [
        np.rot90(mirror, k, axes=(1, 2)) for mirror in (queries, queries[:, :, ::-1]) for k in range(4)
    ]
    scores = np.stack([svc.decision_function(T.reshape(len(T), -1)) for T in transforms])
    if n_classes == 2:
        expected = scores[np.abs(scores).argmax(axis=0), np.arange(len(queries))]
        labels = np.where(expected > 0, "b", "a")
    else:
        expected = scores.max(axis=0)
        labels = np.array(["a", "b", "c"])[expected.argmax(axis=1)]
    jittered = JitteredQuerySVC(group=Dihedral()).fit(X, y)
    np.testing.assert_allclose(jittered.decision_function(queries), expected)
    assert (jittered.predict(queries) == labels).all()


def test_jittered_query_is_invariant(rng):
    X, y = three_classes(rng)
    svc = JitteredQuerySVC(Gaussian(0.05), group=Dihedral()).fit(X, y)
    turned = np.rot90(X, axes=(1, 2))
    np.testing.assert_allclose(svc.decision_function(turned), svc.decision_function(X))


@BOTH
def test_without_a_group_it_is_a_plain_machine(rng, Classifier):
    X, y = three_classes(rng)
    queries, _ = three_classes(rng)
    svc, plain = Classifier(C=10.0).fit(X, y), reference(X, y, C=10.0)
    np.testing.assert_allclose(
        svc.decision_function(queries), plain.decision_function(queries.reshape(len(queries), -1)), atol=1e-3
    )


def test_samples_that_do_not_move_are_not_repeated(rng):
    X = rng.normal(size=(2, 4, 4))
    X[1] = 1
    samples, labels = _virtual_samples(Dihedral(), Dihedral().elements((4, 4)), X, np.array([5, 6]))
    assert labels.tolist() == [5, 6] + 7 * [5]
    np.testing.assert_array_equal(samples[:2], X)
    np.testing.assert_array_equal(samples[2], np.rot90(X[0]))


@BOTH
def test_transformations_are_drawn_by_the_seed(rng, Classifier):
    X, y = three_classes(rng)
    group = Rotation()
    first, again, other = (
        Classifier(group=group, n_transforms=3, random_state=seed).fit(X, y).elements_ for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(first) == 3


@BOTH
def test_rows_and_float32(rng, Classifier):
    X = rng.normal(size=(20, 5)).astype(np.float32)
    y = X.max(axis=1) > np.median(X.max(axis=1))
    svc = Classifier(Gaussian(0.1), C=100.0, group=Permutation(), n_transforms=20, random_state=0).fit(X, y)
    assert svc.svc_.support_vectors_.dtype == np.float32
    assert svc.score(X, y) > 0.8


@BOTH
def test_bad_input(rng, Classifier):
    X, y = three_classes(rng)
    with pytest.raises(ConfigError, match=r"has infinitely many elements: list some of them"):
        Classifier(group=Rotation()).fit(X, y)
    with pytest.raises(InputError, match=r"samples of shape \(36,\): Dihedral acts on 2 axes"):
        Classifier(group=Dihedral()).fit(X.reshape(12, 36), y)
    with pytest.raises(InputError, match=r"y holds the one class"):
        Classifier().fit(X, np.zeros(12))
    svc = Classifier(group=Translation(1)).fit(X, y)
    for other in (X[:, :, 1:], X[:, :, 0], X[..., None]):
        shape = ", ".join(map(str, other.shape[1:])) + ("," if other.ndim == 2 else "")
        message = (
            rf"^samples of shape \({shape}\): {Classifier.__name__} was fitted on \(6, 6\); resize or crop"
        )
        with pytest.raises(InputError, match=message):
            svc.predict(other)
