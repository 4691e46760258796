import base64
import io

import numpy as np
import pytest
from PIL import Image

from segkit.images.write import CLASS_COLOURS
from segkit.report.pictures import (
    WIDTH,
    Picture,
    choose_images,
    draw_heat_map,
    draw_image,
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
    """Of the heat map at value, a multiple of 1/10."""
    text = heat_colours(11)[round(10 * value)]
    return [int(text[place : place + 2], 16) for place in (1, 3, 5)]


@pytest.mark.parametrize(
    ("probability", "truth", "foreground", "residual"),
    [
        ([0.2, 0.8], 1, 0.8, 0.2),
        ([0.2, 0.8], 0, 0.8, 0.8),
        ([0.5, 0.3, 0.2], 2, 0.5, 0.8),
        ([1, 0, 0], 1, 0, 1),
    ],
)
def test_heat_map_and_residual(probability, truth, foreground, residual):
    drawn = picture(probability, truth)
    assert np.abs(decode(draw_heat_map(drawn)) - colour(foreground)).max() <= 3
    assert np.abs(decode(draw_residual(drawn)) - colour(residual)).max() <= 3


def test_residual_is_grey_without_truth():
    assert np.abs(decode(draw_residual(picture([0.2, 0.8], 255))) - 128).max() <= 3


def test_residual_of_hard_predictions_is_right_or_wrong():
    with_maps = picture([0.2, 0.8], 0)
    hard = Picture(with_maps.image, with_maps.truth, with_maps.prediction, None)
    assert np.abs(decode(draw_residual(hard)) - colour(1)).max() <= 3
    assert draw_heat_map(hard) is None


def test_outlines_are_drawn_over_the_image():
    truth = np.zeros((40, 40), int)
    truth[10:30, 10:30] = 1
    drawn = Picture(np.full((40, 40, 3), 0.5, np.float32), truth, np.zeros_like(truth), None)
    assert np.abs(decode(draw_image(drawn)) - 128).max() <= 3
    assert np.abs(decode(draw_overlay(drawn)) - 128).max() <= 3
    assert np.abs(decode(draw_truth(drawn))[10:30, 10] - CLASS_COLOURS[0]).max() <= 60


@pytest.mark.parametrize("side", [300, 1000, 2400])
def test_outlines_of_large_images_are_still_seen(side):
    truth = np.zeros((side, side), int)
    truth[side // 2 :] = 1
    rows = decode(draw_truth(Picture(np.full((side, side, 3), 0.5, np.float32), truth, truth, None)))[:, 20]
    tinted = rows[-5]
    assert np.abs(rows - tinted)[side // 2 * len(rows) // side :][:2].max() > 45


@pytest.mark.parametrize(
    ("shape", "size"), [((100, 200), (100, 200)), ((90, 720), (45, 360)), ((3, 4000), (1, 360))]
)
def test_no_picture_is_wider_than_it_need_be(shape, size):
    assert decode(draw_heat_map(picture([0.5, 0.5], 0, shape))).shape[:2] == size
    assert size[1] <= WIDTH


def test_images_of_any_number_of_channels_are_drawn():
    for n_channels in (1, 2, 5):
        image = np.random.default_rng(0).random((8, 8, n_channels), dtype=np.float32)
        zeros = np.zeros((8, 8), int)
        assert decode(draw_image(Picture(image, zeros, zeros, None))).shape == (8, 8, 3)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5], {"best": 0}),
        ([0.5, 0.9], {"best": 1, "worst": 0}),
        ([0.1, 0.9, 0.5], {"best": 1, "median": 2, "worst": 0}),
        ([0.1, 0.9, 0.5, 0.2, 0.3], {"best": 1, "median": 4, "worst": 0}),
    ],
)
def test_best_median_and_worst(scores, expected):
    chosen = choose_images([{"mean_iou": score, "place": place} for place, score in enumerate(scores)])
    assert {rank: record["place"] for rank, record in chosen.items()} == expected
    assert list(chosen) == list(expected)
