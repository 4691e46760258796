"""Landscapes that win where they should, by scores that equal those of a count pixel by pixel."""

from dataclasses import replace
from itertools import chain, repeat

import numpy as np
import pytest
from scipy import ndimage

from segkit.evaluation.object_scores import match
from segkit.objects.choose import (
    COUNT_WEIGHT,
    LEAST_GAIN,
    LEAST_PROBABILITIES,
    Example,
    choose,
    count_error,
    mean_ap,
)
from segkit.objects.split import LANDSCAPES, Splitter

SHAPE = (80, 100)
USUAL = Splitter("distance+inside", radius=8)


def discs(*circles, shape=SHAPE):
    """Each disc in the number of its circle (row, column, radius); a pixel goes to the nearest centre."""
    rows, cols = np.indices(shape)
    distances = np.array([np.hypot(rows - row, cols - col) / radius for row, col, radius in circles])
    return np.where(distances.min(axis=0) <= 1, distances.argmin(axis=0) + 1, 0).astype(np.int32)


def noise(rng, shape=SHAPE, smooth=1.5):
    land = ndimage.gaussian_filter(rng.standard_normal(shape), smooth)
    return np.clip(0.5 + 0.25 * land / land.std(), 0, 1).astype(np.float32)


def example(rng, truth, **given_parts):
    parts = {
        "truth": truth,
        "ids": (truth > 0).astype(np.intp),
        "probability": noise(rng, truth.shape),
        "inside": noise(rng, truth.shape),
        "labelled": np.ones(truth.shape, dtype=bool),
    }
    return Example(**parts | given_parts)


def random_example(seed, n_classes=2):
    """Objects, predicted classes and landscapes that agree by chance only."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(5, 40, 2))
    truth = ndimage.label(noise(rng, shape) > 0.5)[0].astype(np.int32)
    ids = np.where(noise(rng, shape) > 0.45, 1 + (noise(rng, shape, 3) > 0.5) * (n_classes - 2), 0)
    labelled = noise(rng, shape, 3) > rng.choice([0, 0.4, 0.6])
    return Example(truth, ids.astype(np.intp), noise(rng, shape), noise(rng, shape), labelled)


def by_pixels(one, splitter):
    labels = splitter.split(one.ids, probability=one.probability, inside=one.inside)
    return match(one.truth, labels, labelled=one.labelled)


@pytest.mark.parametrize("is_smooth", [False, True])
def test_each_image_is_scored_by_the_choice_of_the_others(is_smooth):
    examples = [random_example(seed) for seed in range(4)]
    usual = replace(USUAL, radius=4)
    chosen, scores = choose(examples, usual, is_smooth=is_smooth)
    tried = [
        [by_pixels(one, replace(chosen, least_probability=least)) for one in examples]
        for least in LEAST_PROBABILITIES
    ]

    def worth(pairs):
        return mean_ap(pairs)[0] - COUNT_WEIGHT * count_error(pairs)

    def place_of_best(worths):
        return np.argmax(worths) if max(worths) >= worths[0] + (0 if is_smooth else LEAST_GAIN) else 0

    assert chosen.least_probability == LEAST_PROBABILITIES[place_of_best([*map(worth, tried)])]
    held_out = []
    for index in range(4):
        others = [worth([pair for place, pair in enumerate(pairs) if place != index]) for pairs in tried]
        held_out.append(tried[place_of_best(others)][index])
    ap = mean_ap(held_out)
    assert scores.counts == [[pairs.true_ids.size, pairs.predicted_ids.size] for pairs in held_out]
    assert (scores.ap_50, scores.mean_ap) == pytest.approx((ap[0], ap.mean()))
    assert scores.usual == scores.by_landscape[usual.landscape]
    assert scores.n_objects == sum(one.truth.max() for one in examples)
    assert (scores.regions, scores.n_regions) == ("images", 4)
    assert (
        max(scores.by_landscape.values()) < scores.usual + LEAST_GAIN or chosen.landscape != usual.landscape
    )
    assert list(scores.by_landscape) == list(LANDSCAPES)


def test_regions_are_the_objects_where_shapes_mislead(rng):
    """Dumb-bells are single objects, and what was learnt is noise."""
    truth = np.zeros(SHAPE, dtype=np.int32)
    for index, row in enumerate(range(10, 80, 20), start=1):
        bell = discs((row, 20, 7), (row, 75, 7)) > 0
        bell[row - 1 : row + 2, 20:75] = True
        truth[bell] = index
    chosen, scores = choose([example(rng, truth)], USUAL)
    assert chosen.landscape == "none"
    assert scores.by_landscape["none"] == scores.mean_ap == 1


def test_distance_is_chosen_where_discs_touch(rng):
    truth = discs(*((row, col, 8) for row in (12, 40, 66) for col in (12, 26, 40, 54, 68, 82)))
    chosen, scores = choose([example(rng, truth)], USUAL)
    assert chosen.landscape == "distance"
    assert scores.by_landscape["distance"] > 0.9 > scores.by_landscape["none"] + 0.5


def test_inside_is_chosen_where_no_neck_shows(rng):
    rows, cols = np.indices(SHAPE)
    truth = (1 + rows // 20 * 5 + cols // 20).astype(np.int32)
    inside = (np.minimum(rows % 20, 19 - rows % 20) > 2) & (np.minimum(cols % 20, 19 - cols % 20) > 2)
    given_inside = ndimage.gaussian_filter(inside.astype(np.float32), 1)
    chosen, scores = choose([example(rng, truth, inside=given_inside)], replace(USUAL, landscape="distance"))
    assert "inside" in chosen.landscape
    assert scores.by_landscape["inside"] > 0.9 > scores.by_landscape["distance"] + 0.5


@pytest.mark.parametrize("is_smooth", [False, True])
def test_the_usual_landscape_stays_unless_another_gains_enough(is_smooth, monkeypatch):
    for gain, name in (
        (0.0, "distance+inside"),
        (LEAST_GAIN - 1e-6, "distance+inside"),
        (LEAST_GAIN + 1e-6, "probability"),
    ):
        means = dict.fromkeys(LANDSCAPES, 0.0) | {"distance+inside": 0.5, "probability": 0.5 + gain}
        by_depth = [np.full(5, mean + off) for mean in means.values() for off in (-0.1, 0.3, -0.2)]
        scored = chain(by_depth, repeat(np.zeros(5)))
        monkeypatch.setattr("segkit.objects.choose.mean_ap", lambda _, scored=scored: next(scored))
        found, scores = choose([], USUAL, regions="blocks", is_smooth=is_smooth)
        assert found == replace(USUAL, landscape=name)
        assert scores.by_landscape == pytest.approx(means)
        assert scores.usual == pytest.approx(0.5)
        assert scores.regions == "blocks"


def pairs_of_discs(rng):
    """Pairs that touch more or less, so that each further depth joins some; what is learnt shows some of it."""
    places = [(row, col) for row in range(22, 290, 45) for col in (45, 130, 215, 300)]
    circles = [
        (row, col + side * (8 + 0.75 * index), 20)
        for index, (row, col) in enumerate(places)
        for side in (-0.5, 0.5)
    ]
    truth = discs(*circles, shape=(292, 345))
    depth = ndimage.distance_transform_edt(truth > 0) / 20
    inside, probability = (depth * share + 0.004 * noise(rng, truth.shape) for share in (0.7, 0.8))
    return example(rng, truth, inside=np.float32(inside), probability=np.float32(probability))


@pytest.mark.parametrize("is_smooth", [False, True])
def test_landscapes_are_compared_over_depths(rng, is_smooth):
    examples = [pairs_of_discs(rng)]
    usual = replace(USUAL, radius=20)
    _, scores = choose(examples, usual, is_smooth=is_smooth)
    for name in LANDSCAPES:
        alone = {"smoothing": 0, "depth": 0.075} if is_smooth and name == "inside" else {}
        splitter = replace(usual, landscape=name, **alone)
        by_depth = [
            mean_ap([by_pixels(one, replace(splitter, depth=share * splitter.depth)) for one in examples])[0]
            for share in (0.75, 1, 1.25)
        ]
        assert scores.by_landscape[name] == pytest.approx(np.mean(by_depth))
        assert (len({*by_depth}) > 1) == (name != "none")
    assert len({*scores.by_landscape.values()}) > 3


def test_isolated_discs_leave_the_usual_settings(rng):
    truth = discs((20, 20, 8), (20, 60, 8), (60, 30, 8))
    smooth = np.where(truth > 0, 1.0, 0.0).astype(np.float32)
    chosen, scores = choose([example(rng, truth, inside=smooth, probability=smooth)], USUAL)
    assert chosen == USUAL
    assert scores.mean_ap == scores.usual == 1


@pytest.mark.parametrize(
    ("true", "false", "chosen"),
    [
        (0.9, 0.6, 0.65),  # as little as does it
        (0.9, 0.68, 0.7),
        (0.72, 0.68, 0.7),
        (0.9, 0.95, 0),  # nothing tells them apart
        (0.6, 0.6, 0),
    ],
)
def test_objects_are_left_out_that_are_more_doubtful_than_true_ones(rng, true, false, chosen):
    found = discs((20, 20, 8), (20, 60, 8), (60, 30, 8), (60, 70, 8))
    truth = np.where(found < 4, found, 0).astype(np.int32)
    probability = np.where(found < 4, true, false).astype(np.float32)
    given = {"ids": (found > 0).astype(np.intp), "inside": np.float32(found > 0), "probability": probability}
    splitter, scores = choose([example(rng, truth, **given)] * 2, USUAL)
    assert splitter == replace(USUAL, least_probability=chosen)
    assert scores.counts == [[3, 3 if chosen else 4]] * 2
    assert scores.mean_ap == pytest.approx(1 if chosen else 0.75)
    assert scores.usual == 0.75
    assert LEAST_PROBABILITIES[0] == 0


def test_a_count_that_comes_near_outweighs_a_little_ap(rng):
    """Leaving the doubtful half out costs half the count, and gains less AP."""
    found = discs(*((row, col, 8) for row in (20, 60) for col in (10, 30, 50, 70, 90)))
    is_doubtful = found > 5
    truth = np.where((found > 6) & (np.indices(SHAPE)[0] < 62), 0, found).astype(np.int32)  # IoU below 0.5
    probability = np.where(is_doubtful, 0.6, 0.9).astype(np.float32)
    given = {"ids": (found > 0).astype(np.intp), "inside": np.float32(found > 0), "probability": probability}
    examples = [example(rng, truth, **given)]
    ap, error = [], []
    for least in (0, 0.65):
        pairs = [by_pixels(examples[0], replace(USUAL, least_probability=least))]
        ap.append(mean_ap(pairs)[0])
        error.append(count_error(pairs))
    assert error == [0, 0.5]
    assert ap == [6 / 14, 5 / 10]
    assert ap[1] - ap[0] < COUNT_WEIGHT * 0.5
    assert choose(examples, USUAL)[0].least_probability == 0


def test_the_count_error_is_a_share_of_all_true_objects():
    counts = [(3, 5), (4, 4), (2, 1), (0, 1)]
    numbers = np.arange(6)[None]
    pairs = [
        match(numbers * (numbers <= n_true), numbers * (numbers <= n_found)) for n_true, n_found in counts
    ]
    assert count_error(pairs) == 4 / 9
    assert count_error([]) == count_error(pairs[3:]) - 1 == 0


@pytest.mark.parametrize(("is_smooth", "smoothing", "depth"), [(False, 0.17, 0.08), (True, 0, 0.75 * 0.08)])
def test_smoothing_and_depth_stay_but_for_a_depth_that_is_smooth(rng, is_smooth, smoothing, depth):
    usual = replace(USUAL, landscape="distance", smoothing=0.17, depth=0.08)
    rows, cols = np.indices(SHAPE)
    truth = (1 + rows // 20 * 5 + cols // 20).astype(np.int32)
    inside = (np.minimum(rows % 20, 19 - rows % 20) > 2) & (np.minimum(cols % 20, 19 - cols % 20) > 2)
    examples = [example(rng, truth, inside=inside.astype(np.float32))]
    chosen, _ = choose(examples, usual, is_smooth=is_smooth)
    assert chosen == replace(usual, landscape="inside", smoothing=smoothing, depth=depth)


def test_images_without_objects_do_not_count(rng):
    truth = discs((20, 20, 8), (20, 33, 8), (60, 30, 8))
    empty = example(rng, np.zeros(SHAPE, dtype=np.int32))
    full = example(rng, truth)
    _, alone = choose([full], USUAL)
    _, both = choose([full, empty], USUAL)
    assert (both.mean_ap, both.by_landscape) == (alone.mean_ap, alone.by_landscape)
    assert (both.n_regions, both.n_objects) == (2, 3)
    chosen, scores = choose([empty], USUAL)
    assert (chosen, scores.mean_ap, scores.n_objects) == (USUAL, 0, 0)


def test_objects_found_where_there_are_none_count(rng):
    truth = discs((20, 20, 8), (60, 30, 8))
    wrong = example(rng, np.zeros(SHAPE, dtype=np.int32), ids=(truth > 0).astype(np.intp))
    _, scores = choose([example(rng, truth), wrong], USUAL)
    assert scores.by_landscape["none"] == 0.5


def test_unlabelled_pixels_do_not_count(rng):
    truth = discs((20, 20, 8), (20, 60, 8), (60, 30, 8))
    ids = (discs((20, 20, 8), (20, 60, 8), (60, 30, 8), (60, 75, 10)) > 0).astype(np.intp)
    labelled = np.ones(SHAPE, dtype=bool)
    _, scores = choose([example(rng, truth, ids=ids)], USUAL)
    assert scores.by_landscape["none"] == pytest.approx(3 / 4)
    labelled[:, 66:] = False
    _, scores = choose([example(rng, truth, ids=ids, labelled=labelled)], USUAL)
    assert scores.by_landscape["none"] == 1
    assert scores.to_dict()["n_objects"] == 3


@pytest.mark.parametrize(
    ("options", "labelled", "all_counted"),
    [
        ({}, True, True),
        ({"n_images": 4}, True, True),
        ({"n_images": 5}, True, False),
        ({"regions": "blocks"}, True, False),
        ({}, False, False),
    ],
)
def test_counts_are_of_whole_images_and_all_of_them(rng, options, labelled, all_counted):
    examples = [example(rng, discs((20, 20, 8), (20, 60, 8))) for _ in range(4)]
    if not labelled:
        examples[2].labelled[0, 0] = False
    scores = choose(examples, USUAL, **options)[1]
    assert scores.all_counted == all_counted
    assert (scores.count_factor is not None) == all_counted


def test_an_image_is_scored_by_the_choice_of_other_groups(rng):
    """Doubtful objects are false in the first two images, and true in the third: each choice needs the other group."""
    found = discs((20, 20, 8), (20, 60, 8), (60, 30, 8), (60, 70, 8))
    probability = np.where(found == 4, 0.6, 0.9).astype(np.float32)
    given = {"ids": (found > 0).astype(np.intp), "inside": np.float32(found > 0), "probability": probability}
    false = [example(rng, np.where(found < 4, found, 0).astype(np.int32), **given) for _ in range(2)]
    true = example(rng, found, **given)
    alone = choose([*false, true], USUAL)[1]
    assert (alone.counts, alone.groups) == ([[3, 4], [3, 4], [4, 3]], [])
    grouped = choose([*false, true], USUAL, groups=np.array([5, 5, 7]))[1]
    assert (grouped.counts, grouped.groups) == ([[3, 4], [3, 4], [4, 3]], [5, 5, 7])
    other = choose([*false, true], USUAL, groups=np.array([5, 7, 7]))[1]
    assert other.counts == [[3, 4], [3, 3], [4, 3]]


def test_the_count_is_that_of_the_chosen_splitting(rng):
    examples = [
        example(rng, discs(*((row, col, 8) for row in (12, 40) for col in (12, 26, 54)))),
        example(rng, discs((20, 20, 8), (20, 60, 8))),
    ]
    chosen, scores = choose(examples, USUAL)
    counts = np.zeros(3, dtype=int)
    for one in examples:
        found = chosen.split(one.ids, probability=one.probability, inside=one.inside)
        pairs = match(one.truth, found, labelled=one.labelled)
        counts += (pairs.true_ids.size, pairs.matched(0.5).size, pairs.predicted_ids.size)
    assert counts[0] == 8
    assert (scores.n_true, scores.n_found, scores.n_predicted) == tuple(counts.tolist())
