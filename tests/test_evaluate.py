import numpy as np
import pytest

from segkit.errors import InputError
from segkit.evaluate import compare_folders
from segkit.images import write_mask


@pytest.fixture
def folders(tmp_path, rng):
    truth = (rng.random((3, 8, 9)) < 0.5).astype(np.uint8) * 255
    for index, mask in enumerate(truth):
        write_mask(tmp_path / "masks" / "a" / f"{index}.png", mask)
        write_mask(tmp_path / "predictions" / "a" / f"{index}.tif", mask)
    return tmp_path / "predictions", tmp_path / "masks"


def test_folders_are_compared_by_stem(folders):
    predictions, masks = folders
    write_mask(predictions / "extra.png", np.zeros((2, 2), dtype=np.uint8))
    write_mask(predictions / "overlay" / "a" / "0.png", np.zeros((2, 2), dtype=np.uint8))
    result = compare_folders(predictions, masks, skip=("overlay",))
    assert result["mean_iou"] == 1
    assert [image["stem"] for image in result["images"]] == ["a/0", "a/1", "a/2"]
    assert [entry["name"] for entry in result["classes"]] == ["background", "foreground"]
    assert result["notes"] == [
        "1 predictions have no true mask and were left out",
        "3 images are too few to rank methods by: give 10 or more",
    ]


def test_every_true_mask_needs_a_prediction_of_its_size(folders):
    predictions, masks = folders
    (predictions / "a" / "1.tif").unlink()
    with pytest.raises(InputError, match=r"1 of 3 true masks have no prediction \(a/1\)"):
        compare_folders(predictions, masks)
    write_mask(predictions / "a" / "1.png", np.zeros((4, 4), dtype=np.uint8))
    with pytest.raises(InputError, match="sizes differ: a/1: true mask 8 x 9, prediction 4 x 4"):
        compare_folders(predictions, masks)
