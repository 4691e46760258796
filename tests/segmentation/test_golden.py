"""Model files of each format version must load and predict the same as when they were written.

``python tests/segmentation/test_golden.py`` writes the file of the current format version; commit it once and
never write it again.
"""

from pathlib import Path

import numpy as np
import pytest

import segkit
from segkit.config.recorded import read_training
from segkit.config.schema import Config
from segkit.evaluation.object_scores import match
from segkit.images import Dataset, PixelSize
from segkit.segmentation.model_file import FORMAT_VERSION

GOLDEN = Path(__file__).parent / "golden"


N_IMAGES = 9  # the fewest with a margin for 90 % of images
OPTIONS = {
    "bank": {"name": "modules", "modules": [{"n_scales": 2, "n_angles": 4}], "orbit": "d4"},
    "selection": {"n_features": 4, "pixels": 300},
    "training": {"pixels": 600},
}


def picture(number=0):
    """A disc in deterministic clutter: no random numbers, which may change between versions of NumPy."""
    rows, cols = np.indices((40, 48))
    mask = (np.hypot(rows - 18 - number % 4, cols - 26 + number) < 9 - number % 3).astype(np.uint8)
    clutter = 0.05 * np.sin((1.7 + 0.02 * number) * rows + 0.3 * cols) * np.cos(0.9 * cols + number)
    return ((0.35 + 0.01 * (number % 5)) + 0.3 * mask + clutter).astype(np.float32), mask


def lesson():
    """The training set of the file of the current format version."""
    images, masks = map(list, zip(*map(picture, range(N_IMAGES)), strict=True))
    return images, [255 * mask for mask in masks], masks


@pytest.fixture(params=range(1, FORMAT_VERSION + 1), name="golden")
def golden_model(request):
    """The path of the model file of a version, and what it predicted when it was written."""
    stem = GOLDEN / f"version-{request.param}"
    return stem.with_suffix(".segkit"), np.load(stem.with_suffix(".npz"))


def test_old_models_predict_what_they_did(golden):
    path, expected = golden
    segmenter = segkit.load(path)
    image, _ = picture()
    np.testing.assert_allclose(segmenter.decision_function(image), expected["decisions"], atol=1e-3)
    np.testing.assert_allclose(segmenter.predict_proba(image), expected["probabilities"], atol=1e-3)
    threshold = segmenter.rule_.adapted_to(expected["decisions"][..., None]).threshold
    sure = np.abs(expected["decisions"] - threshold) > 1e-3
    np.testing.assert_array_equal(segmenter.predict(image)[sure], expected["labels"][sure])
    assert segmenter.classes_.tolist() == [0, 255]
    assert segmenter.rule_.least_areas.any()
    assert segmenter.rule_.otsu_weight == 2 / (N_IMAGES + 2)
    assert segmenter.label_map_.names == ("background", "foreground")
    assert segmenter.objects_.parts is not None
    found = match(expected["objects"], segmenter.segment(image, objects=True).objects)
    assert found.matched(0.9).size == found.true_ids.size == found.predicted_ids.size == 1


def test_old_models_can_be_saved_anew(golden, tmp_path):
    segmenter = segkit.load(golden[0])
    segmenter.save(tmp_path / "again.segkit")
    again, (image, _) = segkit.load(tmp_path / "again.segkit"), picture()
    np.testing.assert_array_equal(again.decision_function(image), segmenter.decision_function(image))


def test_old_models_check_as_they_did(golden):
    """Expected IoU, margins, distance and warnings, of a usual image and of a dark one with other pixels."""
    path, expected = golden
    segmenter = segkit.load(path)
    image, _ = picture()
    check = segmenter.segment(image).check
    found = [
        check.expected_object_iou,
        check.expected_mean_iou,
        check.margin_80,
        check.margin_90,
        check.distance,
    ]
    np.testing.assert_allclose(found, expected["check"], atol=1e-3)
    assert check.unlike == ()
    assert any(note.startswith("darker") for note in segmenter.segment(0.1 * image).check.unlike)
    assert segmenter.alarms_.expected.errors.size == len(segmenter.alarms_.known.light) == N_IMAGES
    assert segmenter.alarms_.compare_file("uint8", PixelSize(0.5, 0.5)) == []
    assert segmenter.alarms_.compare_file("uint16", PixelSize(2.0, 2.0)) == [
        "pixels of uint16, of the training images uint8",
        "pixels of 2 µm, of the training images 0.5 to 0.52 µm",
    ]


def test_trainings_of_old_models_can_be_repeated(golden):
    """The settings are read, and the training set is recognised by its digest."""
    recorded = read_training(golden[0])
    config = recorded.configure(["seed=3"])
    assert config.model_copy(update={"seed": 0}) == Config.from_options(OPTIONS)
    assert config.seed == 3
    segmenter, (images, masks, instances) = config.build(), lesson()
    label_map = segkit.load(recorded.path).label_map_
    stems = [str(number) for number in range(N_IMAGES)]
    dataset = Dataset(stems, stems, images, masks, label_map, [], instances)
    assert not [note for note in recorded.compare(segmenter, dataset, dataset.files) if "trained on" in note]
    images[0] = images[0] + np.float32(0.01)
    assert (
        "was trained on (9 images; some of them, or --groups, differ)"
        in recorded.compare(segmenter, dataset, dataset.files)[0]
    )


if __name__ == "__main__":
    image, _ = picture()
    images, masks, instances = lesson()
    config = Config.from_options(OPTIONS)
    segmenter = config.build().fit(images, masks, instances=instances)
    sizes = [PixelSize(0.5, 0.5)] * (N_IMAGES - 2) + [PixelSize(0.52, 0.52), None]
    segmenter.note_files(["uint8"] * N_IMAGES, sizes)
    segmenter.save(GOLDEN / f"version-{FORMAT_VERSION}.segkit", settings=config.model_dump(mode="json"))
    check = segmenter.segment(image).check
    np.savez_compressed(
        GOLDEN / f"version-{FORMAT_VERSION}.npz",
        decisions=segmenter.decision_function(image),
        probabilities=segmenter.predict_proba(image),
        labels=segmenter.predict(image),
        objects=segmenter.segment(image, objects=True).objects,
        check=[
            check.expected_object_iou,
            check.expected_mean_iou,
            check.margin_80,
            check.margin_90,
            check.distance,
        ],
    )
