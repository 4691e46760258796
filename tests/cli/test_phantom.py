"""Demo pictures: seeded, of the promised sizes, red where the lesions are, and no colour alone finds them."""

import numpy as np
import pytest
from scipy import ndimage

from segkit.cli.cells import make_cell_set
from segkit.cli.phantom import make_demo_set
from segkit.errors import InputError


@pytest.fixture(scope="module")
def demo_set():
    return make_demo_set(8, random_state=1)


def test_lesions_are_as_many_and_as_large_as_promised(demo_set):
    for mask in demo_set[1]:
        assert set(np.unique(mask)) == {0, 1}
        assert 0.005 <= mask.mean() <= 0.06
        assert 1 <= ndimage.label(mask)[1] <= 3


def test_lesions_are_redder_than_what_surrounds_them(demo_set):
    for image, mask in zip(*demo_set, strict=True):
        near = ndimage.binary_dilation(mask, iterations=12) & ~ndimage.binary_dilation(mask, iterations=3)
        redness = image[:, :, 0] / (image[:, :, 1] + 0.05)
        assert redness[mask == 1].mean() > 1.15 * redness[near].mean()


def test_no_threshold_on_redness_solves_it(demo_set):
    redness = [image[:, :, 0] / (image[:, :, 1] + 0.05) for image in demo_set[0]]
    truths = [mask == 1 for mask in demo_set[1]]

    def mean_iou(threshold):
        guesses = [values > threshold for values in redness]
        return np.mean([(g & t).sum() / (g | t).sum() for g, t in zip(guesses, truths, strict=True)])

    assert max(mean_iou(threshold) for threshold in np.quantile(redness, np.linspace(0.8, 0.999, 40))) < 0.7


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


@MAKERS
def test_too_small_requests(make, dtype):
    with pytest.raises(InputError) as error:
        make(0)
    assert str(error.value) == "0 pictures of 192 x 256 pixels, expected at least 1 of 64 x 64: ask for more"
    with pytest.raises(InputError, match="1 picture of 63 x 64 pixels"):
        make(1, shape=(63, 64))
