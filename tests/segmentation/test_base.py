"""Checks of images and masks that all segmenters share, on one that learns nothing."""

import numpy as np
import pytest

from segkit import Segmenter
from segkit.errors import InputError
from segkit.images import UNLABELLED, LabelMap
from segkit.segmentation.base import as_list, mask_values


@pytest.fixture
def image(rng):
    return rng.uniform(size=(6, 8))


@pytest.fixture
def mask(image):
    return (image > 0.5).astype(np.uint8)


@pytest.fixture
def bright(Bright, image, mask):
    return Bright().fit([image], [mask])


def test_images_and_masks_are_learnt_as_channels_and_ids(Bright, image, mask):
    model = Bright().fit([image, image], [mask * 7, mask * 7])
    images, ids = model.learnt_
    assert [one.shape for one in images] == [(6, 8, 1)] * 2
    assert all(one.dtype == np.float32 for one in images)
    np.testing.assert_array_equal(ids[1], mask)
    assert model.classes_.tolist() == [0, 7]
    assert model.n_image_channels_ == 1
    assert list(model.progress_([1, 2], "words")) == [1, 2]


def test_a_progress_is_passed_on(Bright, image, mask):
    assert Bright().fit([image], [mask], progress=max).progress_ is max


@pytest.mark.parametrize(("shape", "n"), [((6, 8), 1), ((6, 8, 3), 1), ((2, 6, 8, 3), 2), ((1, 6, 8, 3), 1)])
def test_one_array_of_up_to_three_axes_is_one_image(shape, n):
    listed = as_list(np.zeros(shape))
    assert len(listed) == n
    assert listed[0].shape == (shape if len(shape) < 4 else shape[1:])


def test_arrays_of_objects_and_tuples_are_several_images():
    several = np.empty(2, dtype=object)
    several[:] = [np.zeros((4, 5)), np.zeros((5, 4))]
    assert [one.shape for one in as_list(several)] == [(4, 5), (5, 4)]
    assert as_list((1, 2)) == [1, 2]


@pytest.mark.parametrize(("given", "kind"), [("a.png", "str"), (b"a", "bytes"), ({1: 2}, "dict"), (3, "int")])
def test_what_is_no_list_of_images_is_refused(given, kind):
    with pytest.raises(InputError) as caught:
        as_list(given, what="masks")
    assert str(caught.value).startswith(f"masks given as {kind}: give an array (H, W), or a list of arrays")


def test_predictions_are_a_list_if_a_list_was_given(bright, image, mask):
    np.testing.assert_array_equal(bright.predict(image), mask)
    np.testing.assert_array_equal(bright.predict(image[:, :, None]), mask)
    for several in ([image], image[None, :, :, None]):
        found = bright.predict(several)
        assert isinstance(found, list)
        np.testing.assert_array_equal(found[0], mask)
    assert bright.predict_proba(image).shape == (6, 8, 2)


LIKE_ARRAYS = {
    "list": lambda array: array.tolist(),
    "torch": lambda array: pytest.importorskip("torch").tensor(array),
    "dask": lambda array: pytest.importorskip("dask.array").from_array(array),
    "zarr": lambda array: pytest.importorskip("zarr").array(array),
    "masked": np.ma.masked_array,
}


@pytest.mark.parametrize("wrap", LIKE_ARRAYS.values(), ids=LIKE_ARRAYS)
def test_arrays_of_other_libraries_are_images(Bright, image, mask, wrap):
    model = Bright().fit(wrap(image), wrap(mask))
    assert [one.shape for one in model.learnt_[0]] == [(6, 8, 1)]
    np.testing.assert_array_equal(model.predict(wrap(image)), mask)
    for images in ([wrap(image), wrap(image)], wrap(np.stack([image, image]))):
        model = Bright().fit(images, [wrap(mask)] * 2)
        np.testing.assert_array_equal(model.learnt_[1], [mask, mask])
        np.testing.assert_array_equal(model.predict(images), [mask, mask])
        assert model.score(images, wrap(np.stack([mask, mask]))) == 1


@pytest.mark.parametrize("n_channels", [0, 1, 3])
def test_stacks_are_several_images(Bright, image, mask, n_channels):
    one = np.stack([image] * n_channels, axis=-1) if n_channels else image
    for masks in (np.stack([mask] * 4), np.stack([mask] * 4)[..., None], [mask] * 4):
        model = Bright().fit(np.stack([one] * 4), masks)
        assert [learnt.shape for learnt in model.learnt_[0]] == [(6, 8, n_channels or 1)] * 4
    found = model.predict(np.stack([one] * 2))
    assert (isinstance(found, list), len(found)) == (True, 2)
    np.testing.assert_array_equal(model.predict(one), mask)


def test_images_of_integers_are_scaled_by_their_type(Bright, image, mask):
    stored = np.rint(255 * image).astype(np.uint8)
    model = Bright().fit([stored], [mask])
    np.testing.assert_array_equal(model.learnt_[0][0][:, :, 0], stored / np.float32(255))
    with pytest.raises(InputError, match=r"floats from 0 to 255, expected \[0, 1\]"):
        Bright().fit([np.linspace(0, 255, 48).reshape(6, 8)], [mask])


def test_channels_come_last(Bright, image, mask):
    first = np.stack([image, image, 1 - image])
    told = r"channels last, such as numpy.moveaxis\(image, 0, -1\)"
    with pytest.raises(InputError, match=rf"^image 0 of shape \(3, 6, 8\) for a mask of \(6, 8\), .*{told}"):
        Bright().fit([first], [mask])
    with pytest.raises(InputError, match=rf"^image of shape \(3, 6, 8\), expected \(H, W, 3\): give {told}"):
        Bright().fit([np.moveaxis(first, 0, -1)], [mask]).predict(first)


def test_hidden_values_are_refused(Bright, image, mask):
    hidden = np.ma.masked_greater(image, 0.9)
    with pytest.raises(InputError, match=r"masked array that hides .* of 48 values: fill them first"):
        Bright().fit([hidden], [mask])
    with pytest.raises(InputError, match=r"^mask 0: masked array .* filled\(255\), and give unlabelled=255"):
        Bright().fit([image], [np.ma.masked_equal(mask, 0)])


def test_tensors_that_numpy_cannot_read_are_refused(bright, image):
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"given as Tensor \(.*detach.*\): give a NumPy array"):
        bright.predict(torch.tensor(image, requires_grad=True))


def test_a_segmentation_has_labels_and_probabilities(bright, image, mask):
    found = bright.segment(image)
    np.testing.assert_array_equal(found.labels, mask)
    np.testing.assert_array_equal(found.probability, bright.predict_proba(image))
    assert (found.check, found.objects) == (None, None)
    with pytest.raises(InputError, match="Bright knows no objects: segment without them"):
        bright.segment(image, objects=True)


def test_the_score_is_the_mean_iou(bright, image, mask):
    wrong = mask.copy()
    wrong[mask == 1] = 0
    assert bright.score([image], [mask]) == 1
    share = np.mean(mask == 0)
    assert bright.score([image, image], [mask, wrong]) == pytest.approx((1 + share / 2) / 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i, m: ([i], [m[:, :, None] * [1, 1]]),
         "mask 0 of shape (6, 8, 2) and dtype int64: expected (H, W) of integers"),
        (lambda i, m: ([i], [m[0]]), "mask 0 of shape (8,) and dtype uint8: expected (H, W) of integers"),
        (
            lambda i, m: ([i, i], [m, m / 2]),
            "mask 1 of shape (6, 8) and dtype float64: expected (H, W) of integers",
        ),
        (lambda i, m: ([i, i], [m]), "2 images and 1 mask: give one mask for each image, at least one"),
        (lambda i, m: ([i], [m, m]), "1 image and 2 masks: give one mask for each image, at least one"),
        (lambda i, m: ([], []), "0 images and 0 masks: give one mask for each image, at least one"),
        (
            lambda i, m: ([i], [m[:, :7]]),
            "image 0 is 6 x 8, its mask 6 x 7: give masks of the images' own size",
        ),
        (
            lambda i, m: ([i, i.T], [m, m]),
            "image 1 is 8 x 6, its mask 6 x 8: give masks of the images' own size",
        ),
        (
            lambda i, m: ([i, np.stack([i] * 3, axis=2)], [m, m]),
            "image 1 has 3 channels, image 0 has 1: give images of one kind",
        ),
        (
            lambda i, m: ([np.stack([i] * 3, axis=2), i], [m, m]),
            "image 1 has 1 channel, image 0 has 3: give images of one kind",
        ),
        (
            lambda i, m: ([i, np.full_like(i, 0.25)], [m, m]),
            "image 1 is constant: there is nothing to learn from it, leave it out",
        ),
        (
            lambda i, m: ([i, i], [m, np.full_like(m, UNLABELLED)]),
            "mask 1 has no labelled pixel: annotate some, or leave that image out",
        ),
    ],
)  # fmt: skip
def test_images_and_masks_that_do_not_fit_are_refused(Bright, image, mask, change, message):
    images, masks = change(image, mask)
    with pytest.raises(InputError) as caught:
        Bright().fit(images, masks)
    assert str(caught.value) == message


def test_a_class_without_pixels_is_named(Bright, image, mask):
    labels = LabelMap(dict(enumerate("abcd")))
    with pytest.raises(InputError) as caught:
        Bright().fit([image], [2 * mask], label_map=labels)
    assert str(caught.value) == "no mask holds class b, d: leave it out of the label map, or annotate some"
    assert Bright().fit([image], [mask], label_map=LabelMap({0: "a", 1: "b"})).label_map_.names == (
        "a",
        "b",
    )


def test_an_image_of_other_channels_is_refused(bright, image):
    with pytest.raises(InputError) as caught:
        bright.predict(np.stack([image] * 3, axis=2))
    assert str(caught.value) == (
        "image with 3 channels, the model was trained on 1: give images of the same kind"
    )


@pytest.mark.parametrize("index", [0, 1])
def test_an_image_that_is_not_scaled_is_named(Bright, image, mask, index):
    images = [image, image]
    images[index] = 300 * image
    with pytest.raises(InputError, match=f"^image {index}"):
        Bright().fit(images, [mask, mask])
    with pytest.raises(InputError, match=r"^image: floats from"):
        Bright().fit([image], [mask]).predict(images[index])


@pytest.mark.parametrize(
    ("values", "unlabelled", "classes", "names"),
    [
        ([0, 1], 255, [0, 1], ("background", "foreground")),
        ([0, 255], 255, [0, 255], ("background", "foreground")),
        ([0, 1, 255], 255, [0, 1], ("background", "foreground")),
        ([1, 2, 3], 255, [1, 2, 3], ("1", "2", "3")),
        ([1, 2, 3, 255], 255, [1, 2, 3], ("1", "2", "3")),
        ([0, 4, 9], 9, [0, 4], ("background", "foreground")),
        ([0, 1, 255], None, [0, 1, 255], ("0", "1", "255")),
    ],
)
def test_classes_are_those_of_the_values_that_occur(Bright, image, values, unlabelled, classes, names):
    mask = np.resize(np.array(values, dtype=np.uint8), image.shape)
    model = Bright(unlabelled).fit([image], [mask])
    assert model.classes_.tolist() == classes
    assert model.label_map_.names == names
    ids = model.learnt_[1][0]
    assert {int(one) for one in np.unique(ids)} - {UNLABELLED} == set(range(len(classes)))
    assert (UNLABELLED in ids) == (len(values) > len(classes))


def test_masks_of_true_and_false_are_of_two_classes(Bright, image, mask):
    model = Bright().fit([image], [mask > 0])
    assert model.classes_.dtype == np.uint8
    np.testing.assert_array_equal(model.predict(image), mask)


@pytest.mark.parametrize(("values", "dtype"), [((0, 255), np.uint8), ((0, 256), np.uint16)])
def test_mask_values_have_the_smallest_type_that_holds_them(values, dtype):
    found = mask_values(LabelMap(dict(zip(values, "ab", strict=True))))
    assert (found.dtype, found.tolist()) == (dtype, list(values))


@pytest.mark.parametrize("n_objects", [2, 6, 28])
def test_masks_that_number_objects_are_no_classes(Bright, n_objects):
    """Each object was learnt as a class of its own."""
    numbers = np.zeros((30, 40), dtype=np.int32)
    numbers[1::4, 1::4].flat[:n_objects] = np.arange(1, n_objects + 1)
    image = np.where(numbers > 0, 0.9, 0.1)
    told = f"masks hold {n_objects + 1} values .*: if they number objects, give .mask > 0 for mask in masks. as masks"
    for model in (Bright(), Segmenter()):
        with pytest.raises(InputError, match=told):
            model.fit([image], [numbers])
    names = {value: str(value) for value in range(n_objects + 1)}
    assert len(Bright().fit([image], [numbers], label_map=LabelMap(names)).classes_) == n_objects + 1
    assert Bright().fit([image], [numbers > 0]).classes_.tolist() == [0, 1]


def test_values_in_several_pieces_are_classes(Bright, image):
    classes = np.resize([0, 1, 0, 2, 0], image.shape)
    assert Bright().fit([image], [classes]).classes_.tolist() == [0, 1, 2]
