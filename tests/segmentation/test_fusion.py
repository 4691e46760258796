"""Late fusion, from banks to model files."""

import numpy as np
import pytest

from segkit import Segmenter, load
from segkit.classifier.svm import LinearSVM
from segkit.cli.terminal import describe_training
from segkit.errors import ConfigError
from segkit.features import ConvNetBank, MultiscaleBank, StackedBank
from segkit.kernels import LinearMixture
from segkit.objects.split import Splitter
from segkit.segmentation.model_file import read_model
from segkit.segmentation.objects import Lesson
from segkit.segmentation.segmenter import segmenter_of
from segkit.selection import MMDSelector

FIRST = ConvNetBank("vgg16", weights="random", layers=["conv1_1", "conv2_1"])
SECOND = ConvNetBank("vgg16", weights="random", layers=["conv1_2"], random_state=1)
FILTERS = MultiscaleBank(sigma_max=2)


def scenes(n=2):
    rng = np.random.default_rng(0)
    images, masks = [], []
    for _ in range(n):
        mask = np.zeros((40, 44), dtype=int)
        row, col = rng.integers(4, 20, 2)
        mask[row : row + 14, col : col + 16] = 1
        image = 0.4 + 0.2 * mask[..., None] + 0.08 * rng.standard_normal((*mask.shape, 3))
        images.append(np.clip(image, 0, 1))
        masks.append(mask)
    return images, masks


def segmenter(bank, **options):
    options = {"selection_pixels": 400, "training_pixels": 600, "selector": MMDSelector(20)} | options
    return Segmenter(bank, random_state=0, **options)


def test_decisions_are_the_mean_over_the_networks():
    (image, *_), _ = scenes(1)
    images, masks = scenes()
    options = {"kernels": LinearMixture(), "lambdas": None, "svm": LinearSVM(C=0.01, tol=1e-8)}
    late = segmenter(StackedBank([FIRST, FILTERS, SECOND]), fusion="late", **options).fit(images, masks)
    single = [
        segmenter(StackedBank(banks), **options).fit(images, masks).decision_function(image)
        for banks in ([FIRST, FILTERS], [FILTERS, SECOND])
    ]
    np.testing.assert_allclose(late.decision_function(image), np.mean(single, axis=0), atol=1e-3)
    assert np.abs(single[0] - single[1]).max() > 0.05
    early = segmenter(StackedBank([FIRST, FILTERS, SECOND]), **options).fit(images, masks)
    assert np.abs(early.decision_function(image) - late.decision_function(image)).max() > 0.05


def test_a_model_file_brings_it_back(tmp_path):
    images, masks = scenes()
    model = segmenter(StackedBank([FIRST, SECOND, FILTERS]), fusion="late").fit(images, masks)
    assert model.held_out_ is not None
    model.save(tmp_path / "m.segkit")
    again = load(tmp_path / "m.segkit")
    assert again.fusion == "late"
    np.testing.assert_array_equal(again.decision_function(images[0]), model.decision_function(images[0]))
    np.testing.assert_array_equal(again.predict(images[1]), model.predict(images[1]))
    assert again.summary_.kernels == model.summary_.kernels
    assert again.summary_.n_parts == model.summary_.n_parts == 2
    told = describe_training(again.summary_, again.label_map_, ["a", "b"], explain=True)
    assert "Networks: each has a classifier. The mean of the 2 decisions counts (late fusion)." in told


def test_three_classes_are_fused_too():
    images, masks = scenes(3)
    for image, mask in zip(images, masks, strict=True):
        mask[:, 36:], image[:, 36:] = 2, 0.2 * image[:, 36:]
    bank = StackedBank([FIRST, SECOND, FILTERS])
    model = segmenter(bank, fusion="late").fit(images, masks)
    assert model.decision_function(images[0]).shape == (40, 44, 3)
    assert model.score(images, masks) > 0.75


def test_objects_are_learnt_from_fused_decisions(monkeypatch, tmp_path):
    """The threshold and the probabilities are those of fused decisions, so other decisions would not fit them."""
    seen, decide = [], Lesson._decide

    def note(self, image, judges):
        seen.append([judge.n_parts for judge in judges])
        return decide(self, image, judges)

    monkeypatch.setattr(Lesson, "_decide", note)
    monkeypatch.setattr(Splitter, "needs_inside", True)
    images, masks = scenes()
    model = segmenter(StackedBank([FIRST, SECOND, FILTERS]), fusion="late")
    model.fit(images, masks, instances=masks)
    assert seen == [[2, 2]] * 2
    assert model.objects_.rim.n_parts == 2
    model.save(tmp_path / "m.segkit")
    again = load(tmp_path / "m.segkit")
    np.testing.assert_array_equal(again.predict_objects(images[0]), model.predict_objects(images[0]))


def test_a_model_file_without_fusion_is_of_early_fusion(tmp_path):
    images, masks = scenes()
    model = segmenter(StackedBank([FIRST, SECOND])).fit(images, masks)
    model.save(tmp_path / "m.segkit")
    header, arrays = read_model(tmp_path / "m.segkit")
    del header["parameters"]["fusion"], header["summary"]["n_parts"]
    again = segmenter_of(header, arrays, "m.segkit")
    assert (again.fusion, again.summary_.n_parts) == ("early", 1)
    np.testing.assert_array_equal(again.decision_function(images[0]), model.decision_function(images[0]))


@pytest.mark.parametrize("banks", [[FILTERS], [FIRST, FILTERS]])
def test_with_fewer_than_two_networks_it_is_early_fusion(banks):
    images, masks = scenes()
    early = segmenter(StackedBank(banks)).fit(images, masks)
    with pytest.warns(UserWarning, match="fusion='late' changes nothing here"):
        late = segmenter(StackedBank(banks), fusion="late").fit(images, masks)
    np.testing.assert_array_equal(early.decision_function(images[0]), late.decision_function(images[0]))
    assert late.summary_.n_parts == 1
    assert "late fusion" not in describe_training(late.summary_, late.label_map_, ["a", "b"], explain=True)


def test_an_unknown_fusion_is_refused():
    images, masks = scenes(1)
    with pytest.raises(ConfigError, match="fusion='middle': choose early or late"):
        segmenter(FILTERS, fusion="middle").fit(images, masks)
