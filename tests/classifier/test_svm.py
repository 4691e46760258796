import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import segkit.classifier.newton
from segkit.classifier.svm import LinearSVM
from segkit.errors import InputError

LOSSES = pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])


@parametrize_with_checks([LinearSVM()])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def overlapping(n=300, d=5, seed=0, n_classes=2):
    """Classes that no plane separates, of unequal size and away from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    score = X @ rng.normal(size=d) + rng.normal(size=n)
    y = np.searchsorted(np.quantile(score, np.linspace(0, 1, n_classes + 1)[1:-1] ** 1.5), score)
    return X, y


def objective(svm, X, positive, weight=1.0, plane=0):
    """The primal objective at a fitted plane, from its definition."""
    beta, b = svm.coef_[plane], svm.intercept_[plane]
    slack = np.maximum(0, 1 - np.where(positive, 1, -1) * (X @ beta + b))
    losses = svm.C * np.sum(weight * (slack if svm.loss == "hinge" else slack**2))
    return 0.5 * beta @ beta + 0.5 * svm.penalize_intercept * b**2 + losses


def squared_hinge_minimum(X, y, C, weight):
    """The minimum by L-BFGS."""
    sign = np.where(y, 1, -1)

    def value_and_gradient(theta):
        slack = np.maximum(0, 1 - sign * (X @ theta[:-1] + theta[-1]))
        pull = -2 * C * weight * slack * sign
        value = 0.5 * theta[:-1] @ theta[:-1] + C * weight @ slack**2
        return value, np.r_[theta[:-1] + X.T @ pull, pull.sum()]

    options = {"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.zeros(X.shape[1] + 1)
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).fun


# the last: fewer rows than features
SIZES = pytest.mark.parametrize(("C", "n", "d"), [(1e-3, 300, 5), (10.0, 300, 5), (0.01, 40, 200)])


@SIZES
def test_squared_hinge_reaches_the_minimum(C, n, d, rng):
    X, y = overlapping(n, d)
    weight = rng.uniform(0.2, 3, size=len(X))
    svm = LinearSVM(C=C, tol=1e-8).fit(X, y, weight)
    minimum = squared_hinge_minimum(X, y, C, weight)
    assert svm.objective_[0] == pytest.approx(minimum, rel=1e-6)
    assert objective(svm, X, y == 1, weight) == pytest.approx(svm.objective_[0], rel=1e-10)


@SIZES
def test_hinge_reaches_the_minimum(C, n, d, rng):
    X, y = overlapping(n, d)
    weight = rng.uniform(0.2, 3, size=len(X))
    svm = LinearSVM(C=C, loss="hinge", tol=1e-5).fit(X, y, weight)
    exact = SVC(C=C, kernel="linear", tol=1e-8).fit(X, y, weight)  # the same problem by SMO, free intercept
    exact.loss, exact.penalize_intercept = "hinge", False
    assert svm.objective_[0] == pytest.approx(objective(exact, X, y == 1, weight), rel=2e-5)
    assert objective(svm, X, y == 1, weight) == pytest.approx(svm.objective_[0], rel=1e-10)


@LOSSES
def test_penalised_intercept_is_liblinear(loss):
    X, y = overlapping()
    ours = LinearSVM(C=0.1, loss=loss, penalize_intercept=True, tol=1e-6).fit(X, y)
    options = {"tol": 1e-8, "max_iter": 100_000, "dual": loss == "hinge", "random_state": 0}
    theirs = LinearSVC(C=0.1, loss=loss, **options).fit(X, y)
    theirs.penalize_intercept = True
    assert ours.objective_[0] == pytest.approx(objective(theirs, X, y == 1), rel=1e-5)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)


@LOSSES
@pytest.mark.parametrize("free", [False, True])
def test_gap_bounds_the_distance_to_the_minimum(loss, free):
    X, y = overlapping(n=1000)
    svm = LinearSVM(loss=loss, penalize_intercept=not free)
    best = svm.set_params(tol=1e-6).fit(X, y).objective_[0]
    for tol in (1e-1, 1e-4):
        svm.set_params(tol=tol).fit(X, y)
        assert svm.dual_gap_[0] <= tol * svm.objective_[0]
        assert svm.objective_[0] - best <= svm.dual_gap_[0] * (1 + 1e-6) + 1e-6 * best


def squares(rows):
    return np.hstack([rows, rows**2])


@LOSSES
@pytest.mark.parametrize("n", [15, 900])  # fewer and more rows than features
def test_feature_map_equals_features(loss, n):
    X, y = overlapping(n=n, d=10)
    mapped = LinearSVM(loss=loss).fit(X, y, feature_map=squares)
    plain = LinearSVM(loss=loss).fit(squares(X), y)
    np.testing.assert_allclose(mapped.coef_, plain.coef_, rtol=1e-9)
    assert mapped.n_features_in_ == 20
    np.testing.assert_array_equal(mapped.predict(squares(X)), plain.predict(squares(X)))


def test_no_block_exceeds_the_memory_limit():
    X, y = overlapping(n=900, d=10)
    sizes = []

    def recorded(rows):
        features = squares(rows)
        sizes.append(features.nbytes)
        return features

    LinearSVM(memory_limit=10_000).fit(X, y, feature_map=recorded)
    assert max(sizes) <= 10_000 / segkit.classifier.newton.ARRAYS_PER_BLOCK
    # and yet all rows were seen
    assert len(sizes) > 900 * 20 * 8 * segkit.classifier.newton.ARRAYS_PER_BLOCK / 10_000


@LOSSES
def test_block_size_does_not_change_the_solution(loss):
    X, y = overlapping(n=900)
    one = LinearSVM(loss=loss).fit(X, y)
    many = LinearSVM(loss=loss, memory_limit=2000).fit(X, y)
    np.testing.assert_allclose(many.coef_, one.coef_, rtol=1e-6, atol=1e-8)


@LOSSES
def test_class_weights_equal_duplicated_rows(loss):
    X, y = overlapping()
    copies = np.where(y == 1, 3, 1)
    weighted = LinearSVM(loss=loss, class_weight={0: 1, 1: 3}, tol=1e-7, max_iter=300).fit(X, y)
    repeated = LinearSVM(loss=loss, tol=1e-7, max_iter=300).fit(
        np.repeat(X, copies, axis=0), np.repeat(y, copies)
    )
    assert weighted.objective_[0] == pytest.approx(repeated.objective_[0], rel=3e-7)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-2)


def test_balanced_weights_are_inverse_frequencies():
    X, y = overlapping()
    counts = np.bincount(y)
    balanced = LinearSVM(class_weight="balanced").fit(X, y)
    explicit = LinearSVM(class_weight=dict(enumerate(len(y) / (2 * counts)))).fit(X, y)
    np.testing.assert_allclose(balanced.coef_, explicit.coef_)


def test_row_of_zero_weight_is_left_out(rng):
    X, y = overlapping(n=900)
    kept = rng.random(len(X)) < 0.6
    y[~kept] = 7  # not even a class
    zero = LinearSVM(class_weight="balanced").fit(X, y, kept.astype(float))
    without = LinearSVM(class_weight="balanced").fit(X[kept], y[kept])
    np.testing.assert_array_equal(zero.classes_, without.classes_)
    np.testing.assert_allclose(zero.coef_, without.coef_, rtol=1e-9)


@LOSSES
def test_many_classes_are_one_against_the_rest(loss):
    X, y = overlapping(n=900, n_classes=4)
    svm = LinearSVM(loss=loss, tol=1e-5).fit(X, y)
    assert svm.coef_.shape == (4, 5)
    for k in range(4):
        alone = LinearSVM(loss=loss, tol=1e-5).fit(X, y == k)
        np.testing.assert_allclose(svm.coef_[k], alone.coef_[0], atol=1e-6)
        assert objective(svm, X, y == k, plane=k) == pytest.approx(svm.objective_[k], rel=1e-9)
    np.testing.assert_array_equal(svm.predict(X), svm.decision_function(X).argmax(axis=1))


def test_a_block_serves_all_classes():
    X, y = overlapping(n=900, n_classes=4)

    def rows_mapped(labels):
        count = 0

        def counted(rows):
            nonlocal count
            count += len(rows)
            return rows

        LinearSVM().fit(X, labels, feature_map=counted)
        return count

    most_for_one = max(rows_mapped(y == k) for k in range(4))
    assert rows_mapped(y) < 2 * most_for_one


def test_one_feature_has_a_closed_form():
    # y = +-1 at x = +-1, both active: min 1/2 b^2 + 2 C (1 - b)^2 gives b = 4 C / (1 + 4 C)
    for C in (0.1, 1.0, 10.0):
        svm = LinearSVM(C=C, tol=1e-12).fit([[-1.0], [1.0]], ["a", "b"])
        assert svm.coef_[0, 0] == pytest.approx(4 * C / (1 + 4 * C))
        assert svm.intercept_[0] == pytest.approx(0, abs=1e-9)


def test_float32_stays_float32():
    X, y = overlapping(n=900, d=30)
    double = LinearSVM().fit(X, y)
    single = LinearSVM().fit(X.astype(np.float32), y)
    assert single.coef_.dtype == single.intercept_.dtype == np.float32
    assert single.decision_function(X.astype(np.float32)).dtype == np.float32
    assert single.objective_[0] == pytest.approx(double.objective_[0], rel=2e-4)
    assert double.coef_.dtype == np.float64


def test_float32_with_large_C_still_converges():
    X, y = overlapping(n=2000, d=40)
    X = X.astype(np.float32)
    X[:, 20:] = X[:, :20]  # a singular Hessian but for the norm
    svm = LinearSVM(C=1e4).fit(X, y)
    assert svm.dual_gap_[0] <= 1e-4 * svm.objective_[0]


def test_restored_from_arrays():
    X, y = overlapping(n_classes=3)
    svm = LinearSVM().fit(X, y)
    restored = LinearSVM.from_arrays(svm.coef_, svm.intercept_)
    np.testing.assert_array_equal(restored.decision_function(X), svm.decision_function(X))
    np.testing.assert_array_equal(restored.predict(X), svm.predict(X))


def test_too_few_steps_warn():
    X, y = overlapping()
    with pytest.warns(
        ConvergenceWarning, match="1 Newton steps left a relative duality gap of .*raise max_iter"
    ):
        LinearSVM(max_iter=1, tol=1e-10).fit(X, y)


def test_gap_at_the_limit_of_steps_is_still_a_bound():
    X, y = overlapping()
    best = LinearSVM(loss="hinge", tol=1e-6).fit(X, y).objective_[0]
    for max_iter in (1, 3, 9):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            svm = LinearSVM(loss="hinge", tol=1e-9, max_iter=max_iter).fit(X, y)
        assert svm.objective_[0] - svm.dual_gap_[0] <= best <= svm.objective_[0] * (1 + 1e-6)


def test_one_class():
    for weight in ([1, 1, 0], [0, 0, 1]):
        with pytest.raises(InputError) as error:
            LinearSVM().fit([[0.0], [1.0], [2.0]], [0, 0, 1], weight)
        assert str(error.value) == (
            "rows of non-zero weight hold 1 class: a classifier needs at least 2, annotate some of another class"
        )


def test_numbers_out_of_range_are_no_fault_of_a_feature_map():
    X, y = overlapping()
    with pytest.raises(InputError, match="beyond the range of float64: scale the features"):
        LinearSVM().fit(1e160 * X, y)
    with pytest.raises(InputError, match="beyond the range of float32"):
        LinearSVM().fit((1e19 * X).astype(np.float32), y)
    with pytest.raises(InputError, match="give no weight below 0"):
        LinearSVM(class_weight={0: -1.0, 1: 1.0}).fit(X, y)


@pytest.mark.parametrize(("n", "bad"), [(4, np.nan), (300, np.inf)])  # fewer and more rows than features
def test_feature_map_must_be_finite(n, bad):
    X, y = overlapping(n=n)
    last = X[-1, 0]
    with pytest.raises(InputError) as error:
        LinearSVM().fit(X, y, feature_map=lambda rows: np.where(rows == last, bad, rows))
    assert str(error.value) == "feature_map returned NaN or infinity: it must return finite floats"


def test_feature_map_must_keep_rows():
    X, y = overlapping()
    with pytest.raises(InputError) as error:
        LinearSVM().fit(X, y, feature_map=lambda rows: rows.sum(axis=1))
    assert str(error.value) == (
        "feature_map turned rows of shape (1, 5) into (1,): it must return (1, n_features)"
    )


def test_memory_limit_below_one_row():
    X, y = overlapping()
    with pytest.raises(InputError) as error:
        LinearSVM(memory_limit=100).fit(X, y)
    assert str(error.value) == (
        "memory_limit=100 bytes: one row of 5 features takes 120, give room for 1,000 or more"
    )


@LOSSES
@pytest.mark.parametrize(("n", "n_classes"), [(300, 3), (6, 2)])  # the last: fewer rows than features
def test_path_is_each_value_by_itself(loss, n, n_classes):
    X, y = overlapping(n=n, d=8, n_classes=n_classes)
    weight = np.random.default_rng(1).uniform(0.5, 2, size=n)
    svm = LinearSVM(loss=loss, tol=1e-7)
    Cs = [1e-3, 1e-2, 1.0, 0.1]  # falling too
    for C, found in zip(Cs, svm.path(X, y, Cs, weight), strict=True):
        alone = LinearSVM(C=C, loss=loss, tol=1e-7).fit(X, y, weight)
        np.testing.assert_allclose(found.objective_, alone.objective_, rtol=1e-6)
        np.testing.assert_allclose(found.coef_, alone.coef_, atol=2e-3)
        assert found.C == C
        assert found.dual_gap_.max() <= 1e-7 * found.objective_.max()
        assert (found.predict(X) == alone.predict(X)).mean() > 0.98
    assert not hasattr(svm, "coef_")


def test_path_looks_at_fewer_rows():
    X, y = overlapping(n=400, d=30)
    Cs = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
    seen = []

    def watched(rows):
        seen.append(len(rows))
        return rows

    LinearSVM().path(X, y, Cs, feature_map=watched)
    on_path, seen = sum(seen), []
    for C in Cs:
        LinearSVM(C=C).fit(X, y, feature_map=watched)
    assert on_path < 0.8 * sum(seen)


def test_every_value_of_a_path_knows_the_features(monkeypatch):
    X, y = overlapping()
    monkeypatch.setattr(
        "sklearn.utils.validation._get_feature_names", lambda _: np.array(list("abcde"), object)
    )
    for found in LinearSVM().path(X, y, [0.1, 1.0]):
        assert list(found.feature_names_in_) == list("abcde")


@pytest.mark.parametrize(("Cs", "error"), [([], InputError), ([1.0, -1.0], ValueError), ([0.0], ValueError)])
def test_path_refuses_what_is_no_path(Cs, error):
    X, y = overlapping()
    with pytest.raises(error, match="C"):
        LinearSVM().path(X, y, Cs)


def test_float32_sums_that_rounding_spoils_do_not_stop_it():
    """Far from the origin the Hessian is positive definite only up to rounding, more so for large C."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    offset = 300 * rng.normal(size=60)
    X = (rng.normal(size=(600, 60)) + offset + np.outer(2 * y - 1, rng.normal(size=60))).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        path = LinearSVM().path(X, y, [1e-2, 1.0, 100.0, 1e4])
    for svm in path:
        assert np.isfinite(svm.coef_).all()
        assert (svm.predict(X) == y).mean() > 0.99


@LOSSES
@pytest.mark.parametrize(("n", "n_features", "n_classes"), [(400, 12, 3), (30, 60, 2)])
def test_warm_start_takes_fewer_steps_to_the_same_minimum(loss, n, n_features, n_classes, rng):
    X = rng.standard_normal((n, n_features))
    y = np.digitize(X[:, 0] + X[:, 1] + 0.3 * rng.standard_normal(n), [-0.5, 0.5][: n_classes - 1])
    options = {"loss": loss, "tol": 1e-6, "C": 1.0}
    warm = LinearSVM(**options, warm_start=True).fit(X[:-5], y[:-5]).fit(X, y)
    cold = LinearSVM(**options).fit(X, y)
    np.testing.assert_allclose(warm.objective_, cold.objective_, rtol=1e-5)
    np.testing.assert_allclose(warm.coef_, cold.coef_, atol=2e-3 * np.abs(cold.coef_).max())
    again = LinearSVM(**options, warm_start=True).fit(X, y)
    assert again.fit(X, y).n_iter_ <= 1 < cold.n_iter_ or loss == "hinge"


def test_warm_start_needs_the_same_classes_and_features(rng):
    X = rng.standard_normal((60, 4))
    warm = LinearSVM(warm_start=True).fit(X[:, :3], X[:, 0] > 0)
    np.testing.assert_array_equal(warm.fit(X, X[:, 1] > 0).coef_, LinearSVM().fit(X, X[:, 1] > 0).coef_)
    labels = np.digitize(X[:, 1], [-0.3, 0.3])
    np.testing.assert_array_equal(warm.fit(X, labels).coef_, LinearSVM().fit(X, labels).coef_)


@LOSSES
def test_a_line_search_takes_a_few_evaluations(loss, monkeypatch):
    """Slopes are looked at in line searches alone, and once for each centred intercept."""
    newton = segkit.classifier.newton
    slopes, searches = [], []
    slope, search = newton.Loss.slope, newton.Problem._line_minimum
    monkeypatch.setattr(newton.Loss, "slope", lambda *args: slopes.append(args) or slope(*args))
    monkeypatch.setattr(newton.Problem, "_line_minimum", lambda *args: searches.append(args) or search(*args))
    X, y = overlapping()
    LinearSVM(loss=loss).fit(X, y)
    assert len(searches) >= 4
    # 9 or 11 of a hinge, as processors round
    assert len(slopes) <= 14 * len(searches)
