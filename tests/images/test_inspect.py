"""What is told of folders of images, with masks and without."""

import numpy as np
import tifffile

from segkit.images import IMAGE_EXTENSIONS, inspect_images
from tests.images.conftest import MASK, NOISE, save


def test_faults_are_listed_not_raised(complete):
    images, masks = complete
    save(images / "blank.png", np.zeros_like(NOISE))
    save(masks / "blank.png", MASK)
    save(images / "grey.png", NOISE[:, :, 0])
    save(masks / "grey.png", np.full_like(MASK, 7))
    save(images / "lonely.png", NOISE)
    report = inspect_images(images, masks)
    assert len(report.faults) == 3
    assert report.label_map is None
    assert report.class_counts == {}
    assert report.stems == ["a 1", "b", "grey", "süß/ñ"]
    assert "  channels        colour (3 channels) (3), grey (1 channel) (1)" in report.describe().splitlines()


def test_inspection_counts_pixels(complete):
    assert inspect_images(complete[0] / "b.png").describe().startswith("1 image\n")
    report = inspect_images(*complete)
    n_foreground = 3 * np.count_nonzero(MASK)
    assert report.faults == []
    assert report.facts.shapes == {(6, 8, 3): 3}
    assert report.facts.dtypes == {"uint8": 3}
    assert report.value_counts == {0: 3 * 48 - n_foreground, 255: n_foreground}
    assert report.class_counts == {"background": 3 * 48 - n_foreground, "foreground": n_foreground}
    assert report.describe() == "\n".join(
        [
            "3 annotated images",
            "  height x width  6 x 8",
            "  channels        colour (3 channels)",
            "  bit depth       8 bits",
            f"  mask values     0 ({1 - n_foreground / 144:.2%}), 255 ({n_foreground / 144:.2%})",
            f"  classes         background ({1 - n_foreground / 144:.2%}), foreground ({n_foreground / 144:.2%})",
            "masks hold 0 and 255: read as background and foreground",
        ]
    )


def test_inspection_of_nothing(tmp_path):
    report = inspect_images(tmp_path / "gone", tmp_path)
    assert report.stems == []
    assert [fault.split(": ")[1] for fault in report.faults] == [
        "no such file or folder",
        f"no images or masks, expected files that end in {', '.join(IMAGE_EXTENSIONS)}",
    ]
    assert report.describe().startswith("0 annotated images\nfault: ")


def test_unlabelled_pixels_are_no_class(complete):
    images, masks = complete
    save(masks / "b.tif", np.resize(np.array([0, 255, 9, 9], dtype=np.uint8), (6, 8)))
    told = inspect_images(images, masks, unlabelled=9).describe().splitlines()
    assert "  annotated       83.33% of the pixels" in told
    assert "1 mask annotated in part (b) and 2 as a whole (a 1, süß/ñ): all are used" in told


def test_images_without_masks(complete):
    images, _ = complete
    for stem in ("b", "a 1", "süß/ñ"):
        save(images / f"{stem}.png", NOISE)
    report = inspect_images(images)
    assert report.stems == ["a 1", "b", "süß/ñ"]
    assert report.describe().splitlines() == [
        "3 images",
        "  height x width  6 x 8",
        "  channels        colour (3 channels)",
        "  bit depth       8 bits",
        f"  pixel values    {NOISE.min()} to {NOISE.max()}",
        "note: the same picture 3 times: a 1, b, süß/ñ",
    ]


def test_what_is_odd_about_images_is_told(tmp_path):
    rng = np.random.default_rng(1)
    save(tmp_path / "colour.png", NOISE)
    save(tmp_path / "grey.png", NOISE[:, :, 0])
    save(tmp_path / "colour_mask.png", MASK)
    save(tmp_path / "blank.png", np.full((6, 8), 3, dtype=np.uint8))
    (tmp_path / "broken.png").write_bytes(b"no picture")
    tifffile.imwrite(
        tmp_path / "stack.tif", rng.integers(0, 4096, (2, 9, 8)).astype(np.uint16), metadata={"axes": "ZYX"}
    )
    report = inspect_images(tmp_path)
    assert report.stems == ["colour", "grey", "stack#1", "stack#2"]
    assert report.facts.shapes == {(6, 8, 3): 1, (6, 8, 1): 1, (9, 8, 1): 2}
    told = report.describe().splitlines()
    assert told[1:5] == [
        "  height x width  6 x 8 (2), 9 x 8 (2)",
        "  channels        colour (3 channels) (1), grey (1 channel) (3)",
        "  planes          single (2), Z 2 (2)",
        "  bit depth       8 bits (2), 16 bits (2)",
    ]
    assert [line for line in told if line.startswith("note")] == [
        "note: 3 images (grey, stack#1, stack#2) are grey and read as colour (three equal channels), as the others are",
        "note: images of several types: 2 of uint8 (colour, grey), 2 of uint16 (stack#1, stack#2); each is read by the "
        "range of its own type: right if the pictures look alike",
        "note: 2 images (stack#1, stack#2) much darker than others: the brightest pixel is at 6.1% of full scale, of "
        "others at 99.6%: right if the pictures look so, else save all with one scale",
        "note: 2 images (stack#1, stack#2) use less than an eighth of the range of their type: 12 bits stored as 16, "
        "for example, are read as dark images; save all images alike",
        f"note: left out of {tmp_path}: 1 mask beside the images (colour_mask.png)",
    ]
    assert [fault.split(": ")[0].split("/")[-1] for fault in report.faults] == ["blank.png", "broken.png"]


def test_grey_images_stored_as_colour_are_told_of(tmp_path):
    save(tmp_path / "a.png", np.repeat(NOISE[:, :, :1], 3, axis=2))
    assert inspect_images(tmp_path).messages == [
        "every image is RGB with three equal channels: grey, stored as colour"
    ]
