import itertools

import numpy as np
import pytest

from benchmarks.attribution import CENTRINGS, CLASSIFIERS, THRESHOLDS, measure, score, train
from segkit.baselines import PixelForest
from segkit.benchmark import few_shot_split
from segkit.cli.phantom import make_demo_set
from segkit.evaluation.metrics import confusion, iou_of
from segkit.features import MultiscaleBank, ScatteringBank
from segkit.images import load_pairs, write_image, write_mask
from segkit.segmentation.threshold import label_pixels

BANK = MultiscaleBank(sigma_max=2)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attribution")
    for index, (image, mask) in enumerate(zip(*make_demo_set(4, shape=(64, 64)), strict=True)):
        write_image(folder / "images" / f"{index}.png", image)
        write_mask(folder / "masks" / f"{index}.png", 255 * mask)
    return folder


@pytest.fixture(scope="module")
def dataset(folder):
    return load_pairs(folder / "images", folder / "masks")


@pytest.fixture(scope="module")
def trained(dataset):
    return train(dataset, {1: ["0"]}, BANK, 0, 400)


def test_every_classifier_is_trained_with_centring_and_without(trained):
    levels = [(one.classifier, one.centred) for one in trained]
    assert sorted(levels) == sorted(itertools.product(CLASSIFIERS, CENTRINGS))
    for one in trained:
        bank = one.model if isinstance(one.model, PixelForest) else one.model.bank
        assert bank.normalization == ("image" if one.centred else "set")


def test_a_score_is_that_of_the_methods_own_prediction(dataset, trained):
    """The image is small, so that the grid has all of its pixels, and one training image keeps all regions."""
    image, truth = dataset.images[3], dataset.label_map.encode(dataset.masks[3])
    found = {
        (one.classifier, one.centred, threshold): iou
        for one, threshold, iou in score(dataset, "3", BANK, trained)
    }
    assert len(found) == len(trained) * len(THRESHOLDS)
    for one in trained:
        own = one.model.label_map_.encode(one.model.predict(image))
        expected = np.nanmean(iou_of(confusion(truth, own, 2)))
        assert found[one.classifier, one.centred, "adaptive"] == pytest.approx(expected, abs=2e-3)
        if one.classifier != "forest":
            signs = label_pixels(one.model.decision_function(image)[..., None], 0, 0)
            expected = np.nanmean(iou_of(confusion(truth, signs, 2)))
            assert found[one.classifier, one.centred, "zero"] == pytest.approx(expected, abs=2e-3)


def test_without_gaussian_kernels_the_mixture_is_the_linear_svm(dataset):
    coarse = train(dataset, {1: ["0"]}, ScatteringBank(J=2, L=2, pixels=False), 0, 400)
    models = {(one.classifier, one.centred): one.model for one in coarse}
    for centred in CENTRINGS:
        assert models["mixture", centred] is models["linear", centred]


def test_rows_hold_the_test_images_of_the_protocol(dataset, folder):
    rows = measure(dataset, folder, [1, 2], BANK, 3, 400)
    assert len(rows) == 2 * len(CLASSIFIERS) * len(CENTRINGS) * len(THRESHOLDS)
    test = few_shot_split(dataset.stems, 2, 3).test
    assert all(tuple(row["images"]) == test for row in rows)
