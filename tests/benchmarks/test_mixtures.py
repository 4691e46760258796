import numpy as np
import pytest

from benchmarks.mixtures import (
    KINDS,
    MULTIPLES,
    QUADRATIC,
    LinearGaussianQuadratic,
    kernels_of,
    measure,
    mixtures,
)
from segkit.benchmark import few_shot_split
from segkit.cli.phantom import make_demo_set
from segkit.features import MultiscaleBank
from segkit.images import load_pairs, write_image, write_mask
from segkit.kernels import LinearGaussianMixture, Normalized, Polynomial


def test_kernels_have_the_bandwidths_of_distances_between_standardised_channels():
    """Two rows at the mean squared distance: 2 in each of 5 channels."""
    pair = np.array([[0.0] * 5, [np.sqrt(2)] * 5])
    expected = {
        "gaussian": np.exp(-MULTIPLES),
        "laplacian": np.exp(-np.sqrt(MULTIPLES)),
        # the same in each channel: (5 exp(-m))^2, scaled by 5^2
        "anova": np.exp(-2 * MULTIPLES),
    }
    for kind, values in expected.items():
        found = [Normalized(kernel)(pair)[0, 1] for kernel in kernels_of(kind, 5)]
        np.testing.assert_allclose(found, values)
    # <x, x> of a standardised row is the number of channels on average: kernel values of (1 + 1)^degree
    row = np.ones((1, 5))
    np.testing.assert_allclose(
        [float(kernel(row)[0, 0]) for kernel in kernels_of("polynomial", 5)], [2, 4, 8, 16, 32]
    )


def test_the_quadratic_kernel_is_half_of_the_mixture():
    """Of as many rows as features, Nystroem features are those of the kernel itself."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.arange(40) % 2
    X[:, 0] += y
    both = LinearGaussianQuadratic(n_components=48, random_state=0).fit(X, y)
    default = LinearGaussianMixture(n_components=48, random_state=0).fit(X, y).transform(X)
    quadratic = Normalized(Polynomial(2, gamma=1 / 3))(X)
    scale = quadratic[0, 0] / (both.quadratic_.transform(X)[0] ** 2).sum()
    Z = both.transform(X)
    np.testing.assert_allclose(Z @ Z.T, (default @ default.T + quadratic / scale) / 2, atol=1e-5)
    coef = rng.standard_normal((2, Z.shape[1]))
    np.testing.assert_allclose(both.dot(X, coef), Z @ coef.T)
    # what predicts whole images takes all of it as nonlinear
    assert both.linear_coef(coef) is None
    np.testing.assert_allclose(both.nonlinear_dot(X[:, both.nonlinear_columns], coef), Z @ coef.T)


def test_only_the_kinds_asked_for_are_measured(tmp_path):
    for index, (image, mask) in enumerate(zip(*make_demo_set(3, shape=(64, 64)), strict=True)):
        write_image(tmp_path / "images" / f"{index}.png", image)
        write_mask(tmp_path / "masks" / f"{index}.png", 255 * mask)
    dataset = load_pairs(tmp_path / "images", tmp_path / "masks")
    rows = measure(dataset, tmp_path, [1], MultiscaleBank(sigma_max=2), 3, 400, [QUADRATIC])
    assert [row["kind"] for row in rows] == [QUADRATIC]


def test_rows_hold_each_kind_and_the_test_images_of_the_protocol(tmp_path):
    for index, (image, mask) in enumerate(zip(*make_demo_set(4, shape=(64, 64)), strict=True)):
        write_image(tmp_path / "images" / f"{index}.png", image)
        write_mask(tmp_path / "masks" / f"{index}.png", 255 * mask)
    dataset = load_pairs(tmp_path / "images", tmp_path / "masks")
    rows = measure(dataset, tmp_path, [1, 2], MultiscaleBank(sigma_max=2), 3, 400)
    assert [(row["n_train"], row["kind"]) for row in rows] == [(n, kind) for n in (1, 2) for kind in KINDS]
    test = few_shot_split(dataset.stems, 2, 3).test
    for row in rows:
        assert tuple(row["images"]) == test
        assert sum(row["weights"]) == pytest.approx(1, abs=1e-3)
    assert len({tuple(row["images"].values()) for row in rows}) > 2  # the kinds differ


def test_the_table_shows_differences_on_the_same_splits_and_equal_weights_of_sets():
    of_kind = {"gaussian": 0.5, "laplacian": 0.6, "anova": 0.4, "polynomial": 0.5}
    rows = [
        {
            "set": name,
            "seed": seed,
            "kind": kind,
            "n_train": 1,
            "images": {"x": iou + shift, "y": iou + shift},
        }
        for name, shift, factor in (("drive", 0.0, 1), ("isbi2012_em", 0.2, 2))
        for seed in (0, 1)
        for kind, value in of_kind.items()
        for iou in [0.5 + factor * (value - 0.5)]
    ]
    lines = mixtures({"rows": rows}).splitlines()
    cells = {
        line.split("|")[2].strip(): [cell.strip() for cell in line.split("|")[3:-1]]
        for line in lines
        if "|" in line
    }
    assert cells["mixture of kernels"] == ["drive", "isbi2012_em", "sets with equal weight"]
    assert cells["Gaussian, mean IoU"] == ["0.500", "0.700", "0.600"]
    assert cells["Laplacian, less it"][:2] == ["+0.100 (+0.100 to +0.100)", "+0.200 (+0.200 to +0.200)"]
    assert cells["Laplacian, less it"][2].startswith("+0.150")
    assert cells["ANOVA, degree 2, less it"][0].startswith("-0.100")
    assert lines[-1] == "Splits: drive 2, isbi2012_em 2."
