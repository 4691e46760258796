"""Every column equals that of scikit-image, and closed forms; bad input is told in one line."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.measure import label, regionprops_table

from segkit.errors import InputError
from segkit.objects import measure

PROPERTIES = (
    "label", "area", "centroid", "bbox", "perimeter", "axis_major_length", "axis_minor_length", "eccentricity",
    "solidity", "intensity_mean", "intensity_std",
)  # fmt: skip


def blobs(rng, smooth=2.0, share=0.6, shape=(60, 75)):
    field = ndimage.gaussian_filter(rng.standard_normal(shape), smooth)
    return label(field > np.quantile(field, share))


def spread_out(rng):
    """Objects in many pieces, of numbers far apart."""
    return rng.choice([0, 0, 1, 7, 70_000], (30, 40))


def lines(rng):
    labels = np.zeros((40, 50), dtype=np.uint16)
    labels[3, 2:40], labels[5:35, 4] = 1, 2
    np.fill_diagonal(labels[6:, 6:], 3)
    labels[np.arange(12), 40 - np.arange(12) * 2] = 4
    return labels


def single_pixels(rng):
    labels = np.zeros((9, 9), dtype=np.int32)
    labels[0, 0], labels[4, 4], labels[8, 3] = 1, 2, 3
    return labels


def rings(rng):
    """A ring around a disc, a square with holes, both at the border."""
    rows, columns = np.indices((50, 50))
    distance = np.hypot(rows - 20, columns - 20)
    labels = np.where(distance < 20, 1, 0) - np.where(distance < 12, 1, 0) + np.where(distance < 6, 2, 0)
    labels[42:, 5:45] = 3
    labels[44:48:2, 8:40:3] = 0
    return labels


def touching(rng):
    seeds = rng.integers(0, 50, (20, 2))
    rows, columns = np.indices((50, 50))
    return 1 + np.argmin(
        [(rows - row) ** 2 + (columns - column) ** 2 for row, column in np.unique(seeds, axis=0)], axis=0
    )


@pytest.mark.parametrize(
    "make", [blobs, spread_out, lines, single_pixels, rings, touching], ids=lambda make: make.__name__
)
def test_every_column_is_that_of_scikit_image(make, rng):
    labels = make(rng)
    n_channels = {"blobs": (), "rings": (1,)}.get(make.__name__, (3,))
    image = rng.uniform(size=labels.shape + n_channels)
    expected = regionprops_table(labels, image, properties=PROPERTIES)
    found = measure(labels, image)
    for name, column in expected.items():
        assert found[name].dtype == column.dtype, name
        np.testing.assert_allclose(found[name], column, atol=1e-6, err_msg=name)
    ends = {name.removeprefix("intensity_sum") for name in found if name.startswith("intensity_sum")}
    more = {f"intensity_{kind}{end}" for kind in ("sum", "gradient") for end in ends}
    assert len(ends) == (image.shape[2] if n_channels else 1)
    assert set(found) - set(expected) == {"touches_border", "circularity", "nearest_distance"} | more
    for end in ends:
        channel = image if not end else image[:, :, int(end[1:])]
        np.testing.assert_allclose(found[f"intensity_sum{end}"], ndimage.sum(channel, labels, found["label"]))
        down, right = (ndimage.gaussian_filter(channel, 2, order) for order in ((1, 0), (0, 1)))
        steep = ndimage.mean(np.hypot(down, right), labels, found["label"])
        np.testing.assert_allclose(found[f"intensity_gradient{end}"], steep)
    with np.errstate(divide="ignore", invalid="ignore"):
        round_ = np.minimum(1, 4 * np.pi * expected["area"] / expected["perimeter"] ** 2)
    is_thin = expected["axis_minor_length"] < 2
    np.testing.assert_allclose(found["circularity"], np.where(is_thin, np.nan, round_))


def test_the_gradient_of_a_slope_is_its_steepness_whatever_the_brightness():
    rows, columns = np.indices((60, 60))
    labels = np.zeros((60, 60), dtype=int)
    labels[20:40, 20:40] = 1
    for brightness in (0, 500):
        found = measure(labels, (brightness + 3 * rows + 4 * columns).astype(np.uint16))
        np.testing.assert_allclose(found["intensity_gradient"], 5, rtol=1e-3)
    assert measure(labels, np.full((60, 60), 7))["intensity_gradient"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("pixel_size", [0.5, (0.5, 0.5), (2.0, 0.3)])
def test_micrometres_are_spacings_of_scikit_image(pixel_size, rng):
    labels, spacing = blobs(rng), tuple(np.broadcast_to(pixel_size, 2).tolist())
    names = ["area", "axis_major_length", "axis_minor_length", "centroid", "eccentricity"]
    expected = regionprops_table(labels, spacing=spacing, properties=names)
    found = measure(labels, pixel_size=pixel_size)
    np.testing.assert_allclose(found["area_um2"], expected["area"])
    for name in ("axis_major_length", "axis_minor_length"):
        np.testing.assert_allclose(found[f"{name}_um"], expected[name], atol=1e-6)
        np.testing.assert_allclose(found[name], measure(labels)[name])
    for axis in "01":
        np.testing.assert_allclose(found[f"centroid_um-{axis}"], expected[f"centroid-{axis}"])
    np.testing.assert_allclose(found["eccentricity"], expected["eccentricity"], atol=1e-6)
    if spacing[0] == spacing[1]:
        of_squares = regionprops_table(labels, spacing=spacing, properties=["perimeter"])
        np.testing.assert_allclose(found["perimeter_um"], of_squares["perimeter"])
    else:
        assert np.isnan(found["perimeter_um"]).all()
        assert np.isnan(found["circularity"]).all()


def test_a_rectangle_in_closed_form():
    height, width = 5, 12
    labels = np.zeros((20, 30), dtype=np.uint8)
    labels[4 : 4 + height, 6 : 6 + width] = 9
    found = {name: column.item() for name, column in measure(labels).items()}
    assert found == pytest.approx(
        {
            "label": 9,
            "area": height * width,
            "centroid-0": 4 + (height - 1) / 2,
            "centroid-1": 6 + (width - 1) / 2,
            "bbox-0": 4,
            "bbox-1": 6,
            "bbox-2": 9,
            "bbox-3": 18,
            "perimeter": 2 * (height - 1) + 2 * (width - 1),
            "axis_major_length": 4 * np.sqrt((width**2 - 1) / 12),
            "axis_minor_length": 4 * np.sqrt((height**2 - 1) / 12),
            "eccentricity": np.sqrt(1 - (height**2 - 1) / (width**2 - 1)),
            "solidity": 1,
            "circularity": 4 * np.pi * height * width / (2 * (height - 1) + 2 * (width - 1)) ** 2,
            "nearest_distance": np.nan,
            "touches_border": False,
        },
        nan_ok=True,
    )


@pytest.mark.parametrize("pixel_size", [None, (2.0, 0.3)])
def test_the_nearest_object_is_that_of_the_least_distance(pixel_size, rng):
    found = measure(blobs(rng), pixel_size=pixel_size)
    end = "" if pixel_size is None else "_um"
    centres = np.stack([found[f"centroid{end}-{axis}"] for axis in "01"], axis=1)
    apart = np.hypot(*np.moveaxis(centres[:, None] - centres, 2, 0))
    apart[np.diag_indices_from(apart)] = np.inf
    np.testing.assert_allclose(found[f"nearest_distance{end}"], apart.min(axis=1))


def test_only_the_border_of_the_image_counts_as_border():
    labels = np.zeros((10, 10), dtype=int)
    labels[0, 4], labels[9, 2], labels[5, 0], labels[6, 9], labels[4:6, 4:6], labels[1, 1] = 1, 2, 3, 4, 5, 6
    assert measure(labels)["touches_border"].tolist() == [True] * 4 + [False] * 2


def test_most_pixels_decide_the_class():
    labels = np.repeat([[1, 1, 1, 5, 5, 5, 0]], 2, axis=0)
    classes = np.array([[2, 2, 1, 3, 3, 3, 9], [1, 2, 2, 1, 1, 1, 9]])
    assert measure(labels, classes=classes)["class"].tolist() == [2, 1]
    names = measure(labels, classes={5: "cell", 1: "debris", 8: "none"})["class"]
    assert names.tolist() == ["debris", "cell"]
    with pytest.raises(InputError) as error:
        measure(labels, classes={1: "cell"})
    assert str(error.value) == ("no class name for object 5, expected one for each: add them to the classes")


def test_probability_is_the_mean_over_the_object(rng):
    labels, probability = touching(rng), rng.uniform(size=(50, 50))
    expected = ndimage.mean(probability, labels, np.unique(labels))
    np.testing.assert_allclose(measure(labels, probability=probability)["probability"], expected)


def test_no_object_gives_columns_without_rows(rng):
    image, classes = rng.uniform(size=(6, 7, 3)), np.ones((6, 7), dtype=np.uint8)
    options = {"image": image, "probability": image[:, :, 0], "classes": classes, "pixel_size": 2.0}
    empty = measure(np.zeros((6, 7), dtype=np.uint16), **options)
    full = measure(np.ones((6, 7), dtype=np.uint16), **options)
    assert list(empty) == list(full)
    for name, column in empty.items():
        assert column.shape == (0,)
        assert column.dtype == full[name].dtype, name
    assert measure(np.zeros((0, 5), dtype=int))["area"].shape == (0,)
    assert measure(np.zeros((3, 3), dtype=int), classes={})["class"].dtype.kind == "U"


def test_any_type_of_whole_numbers_is_measured(rng):
    labels = touching(rng)
    expected = measure(labels)
    for dtype in (np.uint8, np.uint64, np.float32):
        for name, column in measure(labels.astype(dtype)).items():
            np.testing.assert_array_equal(column, expected[name])


def test_input_is_left_as_it_is(rng):
    labels, image = blobs(rng), rng.uniform(size=(60, 75, 3))
    before = labels.copy(), image.copy()
    measure(labels, image, classes=labels % 3, probability=image[:, :, 0])
    np.testing.assert_array_equal(labels, before[0])
    np.testing.assert_array_equal(image, before[1])


FOR, GIVE = "for a label image of shape (2, 3), expected (2, 3)", "give that of the label image"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ones((2, 3), dtype=bool), "label image of bool, expected a whole number for each object"),
        (np.array([["a"]]), "label image of <U1, expected a whole number for each object"),
        (
            np.ones((2, 3, 1)),
            "label image of shape (2, 3, 1), expected (H, W): give one number for each pixel",
        ),
        (
            np.array([[0, 0.25]]),
            "label image holds 0.25, expected 0 for background and whole numbers above it",
        ),
        (np.array([[0, np.nan]]), "label image holds nan, expected 0 for background"),
        (np.array([[0, np.inf]]), "label image holds inf, expected 0 for background"),
        (np.array([[0, -1]]), "label image holds -1, expected 0 for background"),
        (np.array([[255, 0, 255]]), "label image of 0 and 255 in several pieces, which would be one object"),
    ],
)
def test_what_is_no_label_image(labels, message):
    with pytest.raises(InputError) as error:
        measure(labels)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": np.ones((3, 2))}, f"image of shape (3, 2) {FOR} or (2, 3, C): {GIVE}"),
        ({"probability": np.ones((2, 3, 1))}, f"probability map of shape (2, 3, 1) {FOR}: {GIVE}"),
        ({"classes": np.ones((2, 4), dtype=int)}, f"class mask of shape (2, 4) {FOR}: {GIVE}"),
        ({"classes": np.ones((2, 3))}, "class mask of float64, expected integers: give class ids"),
    ],
)
def test_what_does_not_fit_the_label_image(options, message):
    with pytest.raises(InputError) as error:
        measure(np.ones((2, 3), dtype=int), **options)
    assert str(error.value) == message


def test_what_is_no_pixel_size():
    told = r"expected micrometres, 0.00001 to 100,000: give the width of a pixel"
    for pixel_size in (0, -0.3, np.nan, np.inf, 0.9e-5, 1.1e5, (0.3, 0), (1, 1, 1)):
        with pytest.raises(InputError, match=told):
            measure(np.ones((2, 3), dtype=int), pixel_size=pixel_size)
