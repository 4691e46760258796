import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold

from segkit import LinearSVM
from segkit.classifier import PlattScaling
from segkit.errors import InputError
from segkit.invariance import InvariantSVC
from segkit.kernels import Gaussian

CLASSIFIERS = [LinearSVM(C=0.5), InvariantSVC(Gaussian(0.3))]


def clouds(n_classes, n, seed=0):
    """Overlapping clouds of points about the corners of a polygon, and names of their classes."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, n_classes, n)
    angles = 2 * np.pi * label / n_classes
    X = np.column_stack([np.cos(angles), np.sin(angles)]) + 0.6 * rng.standard_normal((n, 2))
    return X, np.array(["a", "b", "c", "d"])[label]


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_interface(classifier, n_classes):
    (X, y), (Z, truth) = clouds(n_classes, 120), clouds(n_classes, 300, seed=1)
    fitted = clone(classifier).set_params(probability=True).fit(X, y)
    assert fitted.classes_.tolist() == list("abcd")[:n_classes]
    decisions, probabilities = fitted.decision_function(Z), fitted.predict_proba(Z)
    assert decisions.shape == ((300,) if n_classes == 2 else (300, n_classes))
    assert probabilities.shape == (300, n_classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    winner = decisions.argmax(axis=1) if n_classes > 2 else (decisions > 0).astype(int)
    # votes for pairs of classes may tie, and the first class then wins
    agreement = np.mean(fitted.predict(Z) == fitted.classes_[winner])
    assert agreement == 1 if isinstance(fitted, LinearSVM) else agreement > 0.98
    assert np.mean(fitted.predict(Z) == truth) > 0.6


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
def test_probabilities_are_calibrated_on_held_out_decisions(classifier):
    X, y = clouds(3, 90)
    fitted = clone(classifier).set_params(probability=True).fit(X, y)
    label = np.unique(y, return_inverse=True)[1]
    held_out = np.empty((90, 3))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        held_out[test] = clone(classifier).fit(X[train], y[train]).decision_function(X[test])
    platt = PlattScaling().fit(held_out, label)
    np.testing.assert_allclose(fitted.platt_.slope_, platt.slope_, rtol=1e-4)
    np.testing.assert_allclose(fitted.platt_.intercept_, platt.intercept_, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(
        fitted.decision_function(X), clone(classifier).fit(X, y).decision_function(X)
    )


def test_rows_without_weight_and_feature_maps_count_as_they_do_in_fit():
    X, y = clouds(2, 80)
    weight = np.r_[np.ones(60), np.zeros(20)]
    svm = LinearSVM(probability=True)

    def squares(rows):
        return np.hstack([rows, rows**2])

    left_out = clone(svm).fit(squares(X[:60]), y[:60])
    weighted = clone(svm).fit(X, y, weight, feature_map=squares)
    np.testing.assert_allclose(
        weighted.predict_proba(squares(X)), left_out.predict_proba(squares(X)), atol=1e-6
    )
    [first, second] = clone(svm).path(X, y, [0.1, 1.0], weight, feature_map=squares)
    np.testing.assert_allclose(
        second.predict_proba(squares(X)), weighted.predict_proba(squares(X)), atol=1e-3
    )
    assert np.abs(first.platt_.slope_ - second.platt_.slope_).max() > 1e-3


def test_probabilities_that_were_not_asked_for():
    X, y = clouds(2, 40)
    fitted = LinearSVM().fit(X, y)
    assert not hasattr(fitted, "predict_proba")
    fitted.set_params(probability=True)
    with pytest.raises(NotFittedError):
        fitted.predict_proba(X)
    fitted.fit(X, y).set_params(probability=False).fit(X, y).set_params(probability=True)
    with pytest.raises(NotFittedError):
        fitted.predict_proba(X)


def test_a_class_needs_two_samples():
    svm = LinearSVM(probability=True)
    message = (
        "probability=True: class b has one sample, probabilities need 2 of each to hold one out; give more, or "
        "probability=False"
    )
    with pytest.raises(InputError) as caught:
        svm.fit([[0.0], [1.0], [5.0]], ["a", "a", "b"])
    assert str(caught.value) == message
    fitted = svm.fit([[0.0], [1.0], [5.0], [6.0]], ["a", "a", "b", "b"])
    np.testing.assert_allclose(fitted.predict_proba([[2.0]]).sum(axis=1), 1)
