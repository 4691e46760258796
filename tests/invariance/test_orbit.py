import math
from itertools import product

import numpy as np
import pytest
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import parametrize_with_checks

from segkit.errors import ConfigError, InputError
from segkit.invariance import (
    Dihedral,
    LocalPolynomialKernel,
    NormSortedPermutation,
    OrbitFourier,
    OrbitNystroem,
    Permutation,
    Rotation,
    Scaling,
    Translation,
)
from segkit.invariance.embeddings import Embedding
from segkit.invariance.orbit import PAIR_BYTES, orbit_averages
from segkit.kernels import Anova, Gaussian, L1Laplacian, Laplacian, Normalized, Polynomial, median_gamma


@parametrize_with_checks([OrbitFourier(n_components=10), OrbitNystroem(n_components=10)])
def test_estimator_checks(estimator, check):
    check(estimator)


def orbits(group, X, elements):
    """Transformed samples in rows; (n_elements, n, n_values)."""
    return np.stack([group.act(element, X).reshape(len(X), -1) for element in elements])


def averaged(kernel, group, X, elements=None):
    """The kernel averaged over pairs of transformations, exactly."""
    moved = orbits(group, X, group.elements(X.shape[1:]) if elements is None else elements)
    return np.mean([kernel(left, right) for left in moved for right in moved], axis=0)


LOCAL = LocalPolynomialKernel(windows=3, degrees=(2, 1))


@pytest.mark.parametrize(
    ("shape", "group"), [((4,), Permutation()), ((4, 4), Dihedral()), ((3, 4, 2), Translation())], ids=repr
)
@pytest.mark.parametrize("make", [OrbitFourier, OrbitNystroem])
def test_features_are_invariant_to_a_group_listed_completely(shape, group, make, rng):
    X = rng.normal(size=(30, *shape))
    embedding = make(Gaussian(0.1), group, n_components=20, random_state=0).fit(X)
    features = embedding.transform(X)
    assert features.shape == (30, 20) == (30, len(embedding.get_feature_names_out()))
    assert np.abs(features[0] - features[1]).max() > 0.01
    for element in group.elements(shape)[:8]:
        np.testing.assert_allclose(embedding.transform(group.act(element, X)), features, atol=1e-9)


@pytest.mark.parametrize(
    ("kernel", "frequencies"),
    [
        *product([Gaussian(0.2), Laplacian(0.4)], ["random", "orthogonal", "qmc"]),
        (L1Laplacian(0.1), "random"),
    ],
    ids=repr,
)
def test_fourier_features_average_the_kernel(kernel, frequencies, rng):
    X = rng.normal(size=(5, 3, 3))
    embedding = OrbitFourier(kernel, Dihedral(), n_components=30_000, frequencies=frequencies, random_state=0)
    features = embedding.fit_transform(X)
    np.testing.assert_allclose(features @ features.T, averaged(kernel, Dihedral(), X), atol=0.02)


def test_fourier_features_are_eq_7(rng):
    X = rng.normal(size=(4, 5, 5))
    group = Rotation()
    embedding = OrbitFourier(Gaussian(0.1), group, n_components=6, n_transforms=3, random_state=0)
    features = embedding.fit_transform(X)
    angles = np.einsum(
        "kni,ji->knj", orbits(group, X, embedding.elements_), embedding.frequencies_.reshape(3, -1)
    )
    psi = np.exp(-1j * angles).sum(axis=0) / (3 * math.sqrt(3))
    np.testing.assert_allclose(features, np.hstack([psi.real, -psi.imag]), atol=1e-12)


@pytest.mark.parametrize("group", [Rotation(), Scaling((0.8, 1.2)), Translation(1, mode="zero")], ids=repr)
@pytest.mark.parametrize(
    "embedding",
    [OrbitFourier(Gaussian(0.1), n_components=12), OrbitNystroem(Polynomial(2), n_components=6)],
    ids=["Fourier", "Nystroem"],
)
def test_transformed_templates_and_transformed_data_give_the_same(group, embedding, rng):
    """Fewer samples than templates are transformed themselves, more leave that to the templates."""
    X = rng.normal(size=(20, 6, 6))
    embedding.set_params(group=group, n_transforms=4, random_state=0).fit(X)
    many = embedding.transform(X)
    few = np.concatenate([embedding.transform(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(few, many, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("n", [1, 10])
def test_which_side_is_transformed(n, rng, monkeypatch):
    applied = []
    for name in ("act", "adjoint"):
        monkeypatch.setattr(Rotation, name, lambda self, g, X, name=name: applied.append(name) or X)
    X = rng.normal(size=(10, 4, 4))
    group = Rotation(3)
    options = {"group": group, "n_components": 8, "random_state": 0}
    for embedding, expected in [
        (OrbitFourier(**options), "act" if n == 1 else "adjoint"),
        (OrbitNystroem(Polynomial(2), **options), "act" if n == 1 else "adjoint"),
        (OrbitNystroem(Gaussian(1.0), **options), "act"),  # not unitary
        (OrbitNystroem(Anova(1.0), **options), "act"),
    ]:
        embedding.fit(X)
        applied.clear()
        embedding.transform(X[:n])
        assert applied == [expected] * 3


@pytest.mark.parametrize("kernel", [Gaussian(0.05), L1Laplacian(0.05), Polynomial(2)], ids=repr)
@pytest.mark.parametrize(("group", "n_transforms"), [(Rotation(), 3), (Dihedral(), None)], ids=repr)
def test_nystroem_features_are_eq_8(kernel, group, n_transforms, rng):
    X = rng.normal(size=(12, 5, 5))
    embedding = OrbitNystroem(kernel, group, n_components=6, n_transforms=n_transforms, random_state=0)
    features = embedding.fit_transform(X)
    landmarks = embedding.map_.landmarks
    assert all(any((row == x.ravel()).all() for x in X) for row in landmarks)
    mean = np.mean([kernel(moved, landmarks) for moved in orbits(group, X, embedding.elements_)], axis=0)
    gram = mean @ np.linalg.pinv(kernel(landmarks)) @ mean.T
    np.testing.assert_allclose(features @ features.T, gram, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make", [OrbitFourier, OrbitNystroem])
def test_single_precision_stays(make, rng):
    X = rng.normal(size=(40, 4, 4))
    embedding = make(Gaussian(0.05), Rotation(6), n_components=20, random_state=0).fit(X.astype(np.float32))
    single = embedding.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, embedding.transform(X), atol=1e-4)


def test_smooth_kernels_keep_their_rank_in_single_precision(rng):
    X = rng.normal(size=(60, 30)).astype(np.float32)
    features = OrbitNystroem(Gaussian(1e-4), random_state=0).fit_transform(X)
    assert features.shape == (60, 60)
    np.testing.assert_allclose(features @ features.T, Gaussian(1e-4)(X.astype(np.float64)), atol=1e-6)


@pytest.mark.parametrize("make", [OrbitFourier, OrbitNystroem])
def test_permuted_matrices_sorted_by_norm(make, rng):
    X = rng.normal(size=(20, 5, 5))
    X += X.transpose(0, 2, 1)
    order = rng.permutation(5)
    permuted = X[:, order][:, :, order]
    embedding = make(Gaussian(0.02), NormSortedPermutation(noise=0.0), n_components=10, random_state=0).fit(X)
    np.testing.assert_allclose(embedding.transform(permuted), embedding.transform(X))
    noisy = embedding.set_params(group=NormSortedPermutation(noise=0.1), n_transforms=30).fit(X)
    features = noisy.transform(X)
    distances = np.linalg.norm(noisy.transform(permuted)[:, None] - features, axis=2)
    np.testing.assert_array_equal(distances.argmin(axis=1), np.arange(20))


@pytest.mark.parametrize("kernel", [LOCAL, Normalized(LOCAL)], ids=["local", "normalized local"])
def test_nystroem_of_a_local_kernel_is_that_kernel(kernel, rng):
    X = rng.normal(size=(6, 5, 5))
    features = OrbitNystroem(kernel, n_components=6, random_state=0).fit_transform(X)
    np.testing.assert_allclose(features @ features.T, kernel(X), rtol=1e-6)


@pytest.mark.parametrize("make", [OrbitFourier, OrbitNystroem])
def test_bad_input(make):
    X = np.random.default_rng(0).normal(size=(5, 4, 4))
    with pytest.raises(InvalidParameterError, match=r"'n_transforms'.*range \[1, inf\) or None. Got 0"):
        make(group=Dihedral(), n_transforms=0).fit(X)
    with pytest.raises(ConfigError, match="has infinitely many elements: list some of them"):
        make(group=Rotation()).fit(X)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        make().fit(X * np.nan)
    with pytest.raises(
        InputError, match=r"^samples of shape \(4, 5\): Dihedral by quarter turns needs square"
    ):
        make(group=Dihedral()).fit(np.ones((3, 4, 5)))
    with pytest.raises(
        InputError,
        match=rf"^samples of shape \(4, 5\): {make.__name__} was fitted on \(4, 4\); resize or crop them alike$",
    ):
        make().fit(X).transform(np.ones((3, 4, 5)))


def test_options_that_do_not_fit():
    with pytest.raises(InvalidParameterError, match="'kernel'"):
        OrbitFourier(Polynomial(2)).fit(np.ones((3, 4)))
    with pytest.raises(InputError, match="is 0 on all 3 landmarks"):
        OrbitNystroem(Polynomial(coef0=0.0)).fit(np.zeros((3, 4)))
    mixture = SpectralMixture()
    assert OrbitFourier(mixture, n_components=4).fit_transform(np.ones((3, 2))).shape == (3, 4)
    for frequencies in ("orthogonal", "qmc"):
        with pytest.raises(
            ConfigError,
            match=rf"^frequencies='{frequencies}' are made for Gaussian and Laplacian kernels, not SpectralMixture\(\): "
            r"take frequencies='random'$",
        ):
            OrbitFourier(mixture, frequencies=frequencies).fit(np.ones((3, 2)))


class SpectralMixture:
    """A shift-invariant kernel that is no function of the distance: cos(x_1 - y_1)."""

    def __repr__(self):
        return "SpectralMixture()"

    def __call__(self, X, Y=None):
        return np.cos(np.subtract.outer(X[:, 0], (X if Y is None else Y)[:, 0]))

    def diagonal(self, X):
        return np.ones(len(X))

    def frequencies(self, n_features, n_draws, rng):
        return np.eye(n_features)[:, :1] * rng.choice([-1.0, 1.0], n_draws)


@pytest.mark.parametrize("embedding", [OrbitFourier, OrbitNystroem])
@pytest.mark.parametrize("scale", [1, 255])
def test_the_default_bandwidth_fits_the_images(embedding, scale, rng):
    X = (scale * rng.random((40, 16, 16))).astype(np.float64)
    fitted = embedding(group=Dihedral(), n_components=40, random_state=0).fit(X)
    kernel = fitted.kernel_ if embedding is OrbitFourier else fitted.map_.kernel
    assert kernel == Gaussian(median_gamma(X.reshape(40, -1)))


@pytest.mark.parametrize("embedding", [OrbitFourier, OrbitNystroem])
def test_a_default_bandwidth_needs_samples_that_differ(embedding):
    with pytest.raises(
        InputError, match=r"kernel=None: values of 5 samples have no median .*kernel=Gaussian"
    ):
        embedding().fit(np.ones((5, 3, 3)))
    with pytest.raises(ConfigError, match="kernel=Gaussian: give a kernel with its parameters"):
        embedding(kernel=Gaussian).fit(np.eye(3))


class ProductsAndSquares(Embedding):
    """Inner products and their squares; counts the pairs that are evaluated at once."""

    def __init__(self):
        self.pairs = []

    def names(self, index):
        return [f"product{index}", f"square{index}"]

    def values(self, pairs):
        products = pairs.products()
        self.pairs.append(products.numel())
        yield products
        yield products**2


def collect(X, templates, group, *, of_templates, **options):
    options |= {"of_templates": of_templates, "transform": group.adjoint if of_templates else group.act}
    values = np.full((len(X), 2, len(templates)), np.nan)
    blocks = 0
    for average in orbit_averages(X, templates, ProductsAndSquares(), **options):
        assert np.isnan(values[average.rows, :, average.templates]).all()
        values[average.rows, :, average.templates] = average.values.numpy()
        blocks += 1
    return values, blocks


@pytest.fixture
def images(rng):
    return rng.normal(size=(7, 3, 3))


@pytest.fixture
def templates(rng):
    return rng.normal(size=(5, 3, 3))


@pytest.mark.parametrize("of_templates", [True, False])
@pytest.mark.parametrize("memory_limit", [1, 4000, 2**30])
def test_averages_are_those_of_a_loop_in_blocks_of_any_size(images, templates, of_templates, memory_limit):
    group = Dihedral()
    elements = group.elements((3, 3))[:3]
    products = np.array(
        [[[np.vdot(t, g) for t in templates] for g in group.act(e, images)] for e in elements]
    )
    expected = np.stack([products.mean(axis=0), (products**2).mean(axis=0)], axis=1)
    values, blocks = collect(
        images, templates, group, of_templates=of_templates, elements=elements, memory_limit=memory_limit
    )
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert (blocks == 1) == (memory_limit == 2**30)
    assert (blocks == len(templates if of_templates else images)) == (memory_limit == 1)


@pytest.mark.parametrize("of_templates", [True, False])
def test_pairs_evaluated_at_once_fit_the_memory(of_templates):
    many, few, embedding = np.ones((200, 1)), np.ones((5, 1)), ProductsAndSquares()
    X, templates = (many, few) if of_templates else (few, many)
    limit = 128_000
    options = {"transform": lambda element, block: block, "of_templates": of_templates, "memory_limit": limit}
    assert len(list(orbit_averages(X, templates, embedding, elements=range(2), **options))) == 1
    assert sum(embedding.pairs) == 2 * 200 * 5
    assert 1 < max(embedding.pairs) * PAIR_BYTES <= limit / 4


@pytest.mark.parametrize("of_templates", [True, False])
def test_each_block_is_transformed_once_by_each_element(images, templates, of_templates):
    applied = []

    def transform(element, block):
        applied.append((element, block.tobytes()))
        return block

    options = {"elements": range(4), "of_templates": of_templates, "memory_limit": 1}
    list(orbit_averages(images, templates, ProductsAndSquares(), transform=transform, **options))
    assert len(applied) == len(set(applied)) == 4 * len(templates if of_templates else images)


def test_what_depends_on_the_data_is_averaged_over_the_data(images, templates):
    group = NormSortedPermutation(noise=0.0)
    values, _ = collect(images, templates, group, of_templates=False, elements=[np.zeros(3)])
    expected = np.einsum("iab,jab->ij", group.act(np.zeros(3), images), templates)
    np.testing.assert_allclose(values[:, 0], expected)


def test_arguments_are_neither_written_to_nor_need_to_be_writeable(images, templates):
    images.flags.writeable = templates.flags.writeable = False
    values, _ = collect(images, templates, Dihedral(), of_templates=True, elements=[(0, False)])
    np.testing.assert_allclose(values[:, 0], np.einsum("iab,jab->ij", images, templates))


def test_single_precision_is_summed_in_double(images, templates):
    elements = [(0, False)] * 300
    single = images.astype(np.float32), templates.astype(np.float32)
    once, _ = collect(*single, Dihedral(), of_templates=True, elements=elements[:1])
    often, _ = collect(*single, Dihedral(), of_templates=True, elements=elements)
    # Three hundred additions in single precision would err by some 1e-6.
    np.testing.assert_allclose(often, once, rtol=1e-12)
