import numpy as np
import pytest

from segkit.invariance import Dihedral, NormSortedPermutation
from segkit.invariance.embeddings import Embedding
from segkit.invariance.orbit import PAIR_BYTES, orbit_averages


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
