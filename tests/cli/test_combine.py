import numpy as np
import tifffile


def test_files_of_channels_become_images_that_train_reads(tmp_path, segkit, rng):
    (tmp_path / "plate").mkdir()
    for image in "ab":
        for channel in (1, 2):
            path = tmp_path / "plate" / f"{image}_w{channel}.tif"
            tifffile.imwrite(path, rng.integers(0, 255, (16, 20)).astype(np.uint8))
    sources = [str(tmp_path / "plate" / f"*_w{channel}") for channel in (1, 2)]
    code, out, err = segkit("combine", *sources, "-o", tmp_path / "images")
    assert (code, err) == (0, "")
    assert out == f"2 images of 2 channels (w1, w2): {tmp_path / 'images'}\n"
    code, out, _ = segkit("inspect", tmp_path / "images")
    assert code == 0
    assert "w1, w2" in out
    code, out, err = segkit("combine", *sources, "-o", tmp_path / "images")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert segkit("combine", *sources, "-o", tmp_path / "images", "--overwrite")[0] == 0
