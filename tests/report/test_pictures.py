import base64
import io

import numpy as np
import pytest
from PIL import Image

from segkit.images.write import CLASS_COLOURS
from segkit.report.pictures import (
    ERROR_COLOURS,
    Picture,
    choose_images,
    draw_errors,
    draw_heat_map,
    draw_image,
    draw_objects,
    draw_overlay,
    draw_residual,
    draw_truth,
    heat_colours,
)


def decode(uri):
    kind, _, data = uri.partition(",")
    assert kind == "data:image/jpeg;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))).astype(int)


def picture(probability, truth, shape=(16, 16)):
    """Constant probabilities of the classes, a constant true class."""
    maps = np.broadcast_to(np.float32(probability), (*shape, len(probability)))
    prediction = np.full(shape, int(np.argmax(probability)))
    return Picture(np.full((*shape, 3), 0.5, np.float32), np.full(shape, truth), prediction, maps)


def colour(value):
    """Of the heat map at value, a multiple of 1/8."""
    text = heat_colours()[round(8 * value)]
    return [int(text[place : place + 2], 16) for place in (1, 3, 5)]


@pytest.mark.parametrize(
    ("probability", "truth", "foreground", "residual"),
    [
        ([0.25, 0.75], 1, 0.75, 0.25),
        ([0.5, 0.25, 0.25], 2, 0.5, 0.75),
        ([1, 0, 0], 1, 0, 1),
    ],
)
def test_heat_map_and_residual(probability, truth, foreground, residual):
    drawn = picture(probability, truth)
    assert np.abs(decode(draw_heat_map(drawn)) - colour(foreground)).max() <= 3
    assert np.abs(decode(draw_residual(drawn)) - colour(residual)).max() <= 3


def test_residual_is_grey_without_truth():
    assert np.abs(decode(draw_residual(picture([0.2, 0.8], 255))) - 128).max() <= 3


def test_hard_predictions_have_no_maps():
    with_maps = picture([0.2, 0.8], 0)
    hard = Picture(with_maps.image, with_maps.truth, with_maps.prediction, None)
    assert draw_residual(hard) is draw_heat_map(hard) is None


# true class, predicted class, what it is
PAIRS = [
    (0, 0, None),
    (1, 1, "right"),
    (2, 2, "right"),
    (1, 0, "missed"),
    (0, 2, "false"),
    (2, 1, "confused"),
    (255, 1, None),
]


def draw_pairs(brightness):
    """The colour of each pair over an image of one brightness, enlarged six times."""
    truth, prediction = (
        np.repeat([pair[index] for pair in PAIRS], 16)[None].repeat(16, axis=0) for index in (0, 1)
    )
    image = np.full((*truth.shape, 3), brightness, np.float32)
    drawn = decode(draw_errors(Picture(image, truth, prediction, None)))
    assert drawn.shape[1] == 6 * truth.shape[1]
    return drawn[48, 48::96]


def test_errors_have_the_colours_of_the_legend():
    for (true, _, kind), shown in zip(PAIRS, draw_pairs(0.0), strict=True):
        plain = 128 if true == 255 else 15
        expected = 0.85 * np.array(ERROR_COLOURS[kind]) + 0.15 * 15 if kind else [plain] * 3
        np.testing.assert_allclose(shown, expected, atol=6)


def test_outlines_are_drawn_over_the_image():
    truth = np.zeros((40, 40), int)
    truth[10:30, 10:30] = 1
    drawn = Picture(np.full((40, 40, 3), 0.5, np.float32), truth, np.zeros_like(truth), None)
    assert np.abs(decode(draw_image(drawn)) - 128).max() <= 3
    assert np.abs(decode(draw_overlay(drawn)) - 128).max() <= 3
    outlined = decode(draw_truth(drawn))
    assert outlined.shape == (720, 720, 3)  # a small image is enlarged, and lines are thinner than its pixels
    assert np.abs(outlined[184:530:20, 181] - CLASS_COLOURS[0]).max() <= 60
    assert outlined[184:530:20, 178].max() <= 60
    assert np.abs(outlined[184:530:20, 174] - 128).max() <= 25


def near(pixel, kind):
    return np.abs(pixel - ERROR_COLOURS[kind]).max() <= 40


def test_objects_are_outlined_as_right_missed_and_false():
    truth, guess = np.zeros((2, 120, 120), int)
    truth[10:40, 10:40], guess[10:40, 12:42] = 70_000, 3
    truth[60:90, 10:40] = 5
    guess[60:90, 70:100] = 1
    guess[5:25, 60:80] = 9  # in unlabelled ground
    classes = (truth > 0).astype(int)
    classes[:45, 50:] = 255
    image = np.full((120, 120, 3), 0.5, np.float32)
    true, found = map(
        decode, draw_objects(Picture(image, classes, (guess > 0).astype(int), None, (truth, guess)))
    )
    assert true.shape == found.shape == (720, 720, 3)
    assert near(true[150, 61], "right")
    assert near(found[150, 73], "right")
    assert near(true[450, 61], "missed")
    assert near(found[450, 421], "false")
    assert np.abs(found[90, 420] - 128).max() <= 6
    inside, ground = true[450, 150], true[650, 650]
    assert np.abs(inside - (0.75 * ground + 0.25 * np.array(ERROR_COLOURS["missed"]))).max() <= 6
    assert draw_objects(Picture(image, classes, classes, None)) is None


def test_objects_that_touch_have_a_line_between_them():
    truth = np.ones((60, 60), int)
    truth[:, 30:] = 2
    drawn, _ = map(
        decode, draw_objects(Picture(np.zeros((60, 60, 1), np.float32), truth, truth, None, (truth, truth)))
    )
    assert near(drawn[360, 359], "right")
    assert near(drawn[360, 361], "right")
    assert drawn[360, 300].max() < 110
    assert drawn[360, 2].max() < 110  # the border of the image is no outline


@pytest.mark.parametrize("side", [300, 1500])
def test_outlines_of_large_images_are_still_seen(side):
    truth = np.zeros((side, side), int)
    truth[side // 2 :] = 1
    rows = decode(draw_truth(Picture(np.full((side, side, 3), 0.5, np.float32), truth, truth, None)))[:, 20]
    tinted, middle = rows[-5], len(rows) // 2
    assert np.abs(rows - tinted)[middle : middle + 2].max() > 45
    assert rows[middle - 4 : middle].min() < 60


@pytest.mark.parametrize(
    ("shape", "outlined", "mapped"),
    [
        ((100, 200), (300, 600), (100, 200)),
        ((500, 600), (500, 600), (300, 360)),
        ((90, 1440), (45, 720), (23, 360)),
    ],
)
def test_pictures_are_as_large_as_they_need_be(shape, outlined, mapped):
    drawn = picture([0.5, 0.5], 0, shape)
    assert decode(draw_overlay(drawn)).shape[:2] == decode(draw_errors(drawn)).shape[:2] == outlined
    assert decode(draw_heat_map(drawn)).shape[:2] == decode(draw_residual(drawn)).shape[:2] == mapped


def test_images_of_any_number_of_channels_are_drawn():
    for n_channels in (1, 2, 5):
        image = np.random.default_rng(0).random((8, 8, n_channels), dtype=np.float32)
        zeros = np.zeros((8, 8), int)
        drawn = Picture(image, zeros, zeros, None)
        assert decode(draw_image(drawn)).shape == decode(draw_errors(drawn)).shape == (720, 720, 3)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5], {"best": 0}),
        ([0.5, 0.9], {"best": 1, "worst": 0}),
        ([0.1, 0.9, 0.5, 0.2, 0.3], {"best": 1, "median": 4, "worst": 0}),
    ],
)
def test_best_median_and_worst(scores, expected):
    chosen = choose_images([{"mean_iou": score, "place": place} for place, score in enumerate(scores)])
    assert {rank: record["place"] for rank, record in chosen.items()} == expected
    assert list(chosen) == list(expected)
