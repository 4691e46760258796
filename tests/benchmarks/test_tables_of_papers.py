import numpy as np
import pytest

from benchmarks.markdown import pivot
from benchmarks.tables import cdf
from benchmarks.tables.cdf import (
    N_PERMUTATIONS,
    at_speed,
    cdf_of_digits,
    cdf_of_sequences,
    features_of_paper,
    fewest_columns,
    multisets,
    sequences,
    unit,
)
from benchmarks.tables.few_digits import LAYERS, PAPERS_LAYER, layers_of_windows
from benchmarks.tables.positive_definite import (
    BASES,
    largest,
    largest_dominant_n,
    of_products,
    theorem,
    without_copies,
)
from segkit.invariance import Translation, best_fit
from segkit.kernels import Polynomial


def row(figures, what="", **where):
    return {"what": what, "where": where, "figures": figures}


def test_numbers_of_the_paper_stand_beside_the_measured_ones():
    rows = [row({"value": 2.0, "interval": [1, 3.5]}, features="ours", layers="1"),
            row({"value": 1.5, "interval": None}, features="ours", layers="2")]  # fmt: skip
    papers = {("ours", "1"): 2.5, ("other", "1"): 4.0}
    assert pivot(rows, "layers", papers, title="layers: {}").splitlines() == [
        "| features | layers: 1 | layers: 2 |",
        "| --- | --- | --- |",
        "| ours | 2.00\u00a0±\u00a01.50, paper 2.50 | 1.50 |",
        "| other | paper 4.00 |  |",
    ]


@pytest.fixture(scope="module")
def digits():
    return unit(np.random.default_rng(0).integers(1, 255, size=(9, 28, 28)).astype(np.uint8))


def test_one_column_stands_for_all_constant_ones(digits):
    n, m = 20, 3
    train, test = features_of_paper(n, m, digits[:6], digits[6:])
    whole = cdf_of_digits(n, m, "[-s, s]")
    expected = whole.fit_transform(digits[:6])
    assert expected.shape[1] == (2 * n + 1) * m > train.shape[1]
    np.testing.assert_allclose(train @ train.T, expected @ expected.T, rtol=1e-5)
    np.testing.assert_allclose(test @ train.T, whole.transform(digits[6:]) @ expected.T, rtol=1e-5)


def test_thresholds_that_do_not_hold_all_projections_are_refused(digits, monkeypatch):
    monkeypatch.setattr(cdf, "LARGEST", 1.0)
    with pytest.raises(ValueError, match=r"beyond 1\.0 standard deviations"):
        features_of_paper(50, 3, digits[:6], digits[6:])


def test_speech_is_played_about_its_middle(rng):
    patches = rng.normal(size=(2, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(at_speed(patches, 1.0), patches, atol=1e-6)
    twice = np.sqrt(np.float32(2)) * patches[:, [0, 2, 4]]
    np.testing.assert_allclose(at_speed(patches, 2.0)[:, 1:4], twice, atol=1e-6)
    assert not at_speed(patches, 2.0)[:, [0, 4]].any()
    between = np.sqrt(0.5) * (patches[:, 1] + patches[:, 2]) / 2
    np.testing.assert_allclose(at_speed(patches, 0.5)[:, 1], between, atol=1e-6)


def test_fewer_columns_keep_inner_products(rng):
    features = rng.standard_normal((4, 9))
    fewer = fewest_columns(features)
    assert fewer.shape == (4, 4)
    np.testing.assert_allclose(fewer @ fewer.T, features @ features.T)
    np.testing.assert_array_equal(fewest_columns(features.T), features.T)


@pytest.mark.parametrize(("n_elements", "is_invariant"), [(N_PERMUTATIONS, True), (3, False)])
def test_only_all_permutations_make_features_of_multisets(n_elements, is_invariant):
    found = cdf_of_sequences(5, 2, 0, n_elements=n_elements)
    of_sequences = found.features[found.rows]
    assert len(of_sequences) == len(sequences())
    orbit = multisets()[1]
    spread = np.ptp(of_sequences[orbit == orbit[12345]], axis=0).max()
    assert (spread == 0) == is_invariant


def test_the_range_of_the_data_has_other_thresholds():
    usual, narrow = (cdf_of_sequences(2, 1, 0, reach=reach).features for reach in ("[-s, s]", "data"))
    varying = [np.count_nonzero(np.ptp(features, axis=0) > 1e-12) for features in (usual, narrow)]
    assert varying[1] > varying[0]


def test_all_kernels_of_layers_have_degree_eight(rng):
    images = rng.uniform(0.5, 1, size=(1, 12, 12))
    for name, kernel in LAYERS.items():
        near, far = (float(kernel(factor * images)[0, 0]) for factor in (1e4, 2e4))
        # a kernel of degree 8 in x and in y
        assert far / near == pytest.approx(2**16, rel=1e-3), name


def test_differences_are_of_the_same_draws():
    what, n = "003 layers of windows", {"training images": 100}
    rows = [
        row({"value": np.mean(runs), "interval": [70, 90], "runs": runs}, what, kernel=kernel, **n)
        for kernel, runs in ((PAPERS_LAYER, [80, 82, 84]), ("two", [81, 83, 86]))
    ]
    lines = layers_of_windows(rows).splitlines()
    assert lines[2].endswith("| 82.00\u00a0±\u00a012.00 |")
    assert lines[3] == "| two | +1.33\u00a0±\u00a01.43 |"


@pytest.fixture
def images(rng):
    images = rng.uniform(size=(8, 4, 5))
    images[5] = np.roll(images[2], (1, 2), axis=(0, 1))
    return images


@pytest.fixture
def products(images):
    return best_fit(images, base=Polynomial(degree=1, gamma=1 / 20, coef0=0.0), group=Translation())


@pytest.mark.parametrize("base", BASES)
def test_values_of_products_are_those_of_the_kernel(images, products, base):
    degree, slope, constant = BASES[base]
    kernel = Polynomial(degree=degree, gamma=slope / 20, coef0=constant)
    expected = best_fit(images, base=kernel, group=Translation())
    np.testing.assert_allclose(of_products(products, base), expected, rtol=1e-10)


def test_products_below_the_turning_point_are_refused():
    with pytest.raises(ValueError, match="least product"):
        of_products(np.array([[-0.2]]), "polynomial, slope 8 / m")


def test_dominance_is_that_of_every_row():
    gram = np.array(
        [[1.0, -0.4, 0.5, 0.0], [-0.4, 1.0, 0.7, 0.0], [0.5, 0.7, 9.0, 0.0], [0.0, 0.0, 0.0, 0.1]]
    )
    for n in range(1, 5):
        part = gram[:n, :n]
        sums = np.abs(part).sum(axis=1) - np.diag(part)
        assert (largest_dominant_n(gram) >= n) == bool((np.diag(part) > sums).all())


def test_shifted_copies_are_left_out(images, products):
    kept, rows = without_copies(products, images)
    np.testing.assert_array_equal(rows, np.delete(images, 5, axis=0))
    np.testing.assert_array_equal(kept, np.delete(np.delete(products, 5, axis=0), 5, axis=1))


def test_theorem_of_independent_pixels():
    images = np.sqrt(12) * np.eye(12).reshape(12, 3, 4)  # second moments are the identity
    found = theorem(images)
    assert found["theorem"] == pytest.approx(np.sqrt(12) / (2 * np.sqrt(np.log(12))))
    assert found["spread"] == pytest.approx(np.sqrt(12))
    assert found["least_spread"] == pytest.approx(np.sqrt(np.log(12)) / 2)


def test_a_tolerance_admits_more_than_the_strict_condition(rng):
    gram = np.eye(6)
    gram[3, 4] = gram[4, 3] = 1 + 1e-4  # an eigenvalue a little below 0
    found = largest(gram, rng.normal(size=(6, 2, 2)), 20)
    assert found["least"] < found["most"] < 6
    assert found["tolerant"] == 6
    assert (
        found["gershgorin"] == found["single"] == found["value"]
    )  # all fail as the second of the two is met
