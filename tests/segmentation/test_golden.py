"""Model files written by earlier versions must still load and predict the same.

``python tests/segmentation/test_golden.py`` writes the file of the current format version; commit it once and
never write it again.
"""

from pathlib import Path

import numpy as np
import pytest

import segkit
from segkit import MMDSelector, ModuleBank, Segmenter
from segkit.errors import ConfigError
from segkit.evaluation.objects import match
from segkit.features import OrbitAveraged
from segkit.segmentation.model_file import FORMAT_VERSION
from segkit.segmentation.threshold import image_threshold

GOLDEN = Path(__file__).parent / "golden"


def picture():
    """A disc in deterministic clutter: no random numbers, which may change between versions of NumPy."""
    rows, cols = np.indices((40, 48))
    mask = (np.hypot(rows - 18, cols - 26) < 9).astype(np.uint8)
    clutter = 0.05 * np.sin(1.7 * rows + 0.3 * cols) * np.cos(0.9 * cols)
    return (0.35 + 0.3 * mask + clutter).astype(np.float32), mask


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_old_models_predict_what_they_did(version):
    segmenter = segkit.load(GOLDEN / f"version-{version}.segkit")
    expected = np.load(GOLDEN / f"version-{version}.npz")
    image, _ = picture()
    np.testing.assert_allclose(segmenter.decision_function(image), expected["decisions"], atol=1e-3)
    np.testing.assert_allclose(segmenter.predict_proba(image), expected["probabilities"], atol=1e-3)
    threshold = image_threshold(expected["decisions"], segmenter.threshold_, segmenter.otsu_weight_)
    sure = np.abs(expected["decisions"] - threshold) > 1e-3
    np.testing.assert_array_equal(segmenter.predict(image)[sure], expected["labels"][sure])
    assert segmenter.classes_.tolist() == [0, 255]
    assert segmenter.smallest_region == (0 if version < 4 else 0.5)
    assert segmenter.least_areas_.any() == (version >= 4)
    assert segmenter.otsu_weight_ == (0 if version < 5 else 0.5)
    assert segmenter.label_map_.names == ("background", "foreground")
    if version < 8:
        with pytest.raises(ConfigError, match="earlier format, which knew no objects: train it anew"):
            segmenter.predict_objects(image)
    else:
        assert segmenter.objects_.rim is not None
        found = match(expected["objects"], segmenter.predict_objects(image))
        assert found.matched(0.9).size == found.true_ids.size == found.predicted_ids.size == 1


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_old_models_can_be_saved_anew(version, tmp_path):
    segmenter = segkit.load(GOLDEN / f"version-{version}.segkit")
    segmenter.save(tmp_path / "again.segkit")
    again, (image, _) = segkit.load(tmp_path / "again.segkit"), picture()
    np.testing.assert_array_equal(again.decision_function(image), segmenter.decision_function(image))
    assert (again.objects_ is None) == (segmenter.objects_ is None) == (version < 8)


if __name__ == "__main__":
    image, mask = picture()
    segmenter = Segmenter(
        OrbitAveraged(ModuleBank(({"n_scales": 2, "n_angles": 4},))),
        selector=MMDSelector(n_features_to_select=5),
        selection_pixels=200,
        training_pixels=600,
    ).fit([image, image[::-1]], [255 * mask, 255 * mask[::-1]], instances=[mask, mask[::-1]])
    segmenter.save(GOLDEN / f"version-{FORMAT_VERSION}.segkit")
    np.savez_compressed(
        GOLDEN / f"version-{FORMAT_VERSION}.npz",
        decisions=segmenter.decision_function(image),
        probabilities=segmenter.predict_proba(image),
        labels=segmenter.predict(image),
        objects=segmenter.predict_objects(image),
    )
