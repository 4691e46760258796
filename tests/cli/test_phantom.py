"""Demo pictures: seeded, of the promised sizes; lesions as many and as large as promised."""

import numpy as np
import pytest
from scipy import ndimage

from segkit.cli.cells import make_cell_set
from segkit.cli.phantom import make_demo_set


@pytest.fixture(scope="module")
def demo_set():
    return make_demo_set(4, shape=(96, 128), random_state=1)


def test_lesions_are_as_many_and_as_large_as_promised(demo_set):
    for mask in demo_set[1]:
        assert set(np.unique(mask)) == {0, 1}
        assert 0.005 <= mask.mean() <= 0.06
        assert 1 <= ndimage.label(mask)[1] <= 3


MAKERS = pytest.mark.parametrize(("make", "dtype"), [(make_demo_set, np.uint8), (make_cell_set, np.int32)])


@MAKERS
def test_shapes_and_ranges(make, dtype):
    images, masks = make(4, shape=(96, 128), random_state=1)
    assert len(images) == len(masks) == 4
    for image, mask in zip(images, masks, strict=True):
        assert (image.shape, image.dtype) == ((96, 128, 3), np.float32)
        assert (mask.shape, mask.dtype) == ((96, 128), dtype)
        assert 0 <= image.min() < image.max() <= 1


@MAKERS
def test_pictures_depend_on_seed_and_index_only(make, dtype):
    first, more = (make(n, shape=(96, 128), random_state=1) for n in (2, 3))
    for drawn, reference in zip(first, more, strict=True):
        np.testing.assert_array_equal(np.stack(drawn), np.stack(reference[:2]))
    (other,), _ = make(1, shape=(96, 128), random_state=2)
    assert np.abs(other - first[0][0]).mean() > 0.01
