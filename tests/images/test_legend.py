"""Masks in colours: classes by a legend beside them, or objects if the user says so."""

import numpy as np
import pytest

from segkit.errors import InputError
from segkit.evaluation.folders import compare_folders
from segkit.images import load_pairs, read_instances
from segkit.objects.folders import measure_folder
from tests.images.conftest import complaint, save

COLOURS = {"background": (0, 0, 0), "nucleus": (250, 50, 83), "cell body": (51, 221, 255)}
LEGENDS = {
    "labelmap.txt": "# label:color_rgb:parts:actions\nbackground:0,0,0::\nnucleus: 250,50,83::\n\ncell body:51,221,255::\n",
    "class_dict.csv": "name,r,g,b\nbackground,0,0,0\nnucleus,250,50,83\ncell body,51,221,255\n",
    "label_colors.txt": "0 0 0 background\n250 50 83\tnucleus\n51 221 255 cell body\n",
    "legend.csv": '"Name";"R";"G";"B"\n"background";0;0;0\n"nucleus";250;50;83\n"cell body";51;221;255\n'.replace(
        '";', ";"
    ),
}


@pytest.fixture
def coloured(tmp_path, rng):
    """Two images, and their masks in colours."""
    ids = np.stack([np.kron(rng.permutation(9).reshape(3, 3) % 3, np.ones((4, 5), int)) for _ in range(2)])
    for name, of_image in zip("ab", ids, strict=True):
        save(tmp_path / "images" / f"{name}.png", rng.integers(0, 255, of_image.shape).astype(np.uint8))
        save(
            tmp_path / "data" / "masks" / f"{name}.png", np.array(list(COLOURS.values()), np.uint8)[of_image]
        )
    return tmp_path / "images", tmp_path / "data" / "masks", ids


@pytest.mark.parametrize("place", [".", ".."])
@pytest.mark.parametrize("name", LEGENDS)
def test_a_legend_names_the_colours(coloured, tmp_path, name, place):
    images, masks, ids = coloured
    legend = masks / place / name
    legend.write_text(LEGENDS[name])
    (masks / "notes.txt").write_text("drawn by hand\n")
    dataset = load_pairs(images, masks)
    assert dataset.label_map.names == tuple(COLOURS)
    np.testing.assert_array_equal(dataset.masks, ids)
    told = f"colours of masks are classes as {legend} names them (background, nucleus, cell body)"
    assert told.replace("/masks/..", "") in dataset.messages
    found = measure_folder(masks, tmp_path / "out", images=images)
    assert set(found.images[0].counts) == {"nucleus", "cell body"}
    (tmp_path / "pred").mkdir()
    for path in masks.glob("*.png"):
        save(tmp_path / "pred" / path.name, ids["ab".index(path.stem)].astype(np.uint8))
    scores = compare_folders(tmp_path / "pred", masks)
    assert (scores["mean_iou"], [one["name"] for one in scores["classes"]]) == (1, list(COLOURS))


def test_colours_without_a_legend_are_refused(coloured):
    images, masks, _ = coloured
    (masks / "list.csv").write_text("name,r,g,b\nbackground,0,0,0\nnucleus,250,50\n")
    told = complaint(load_pairs, images, masks)
    assert "or put labelmap.txt beside it, with a line NAME:RED,GREEN,BLUE for each class" in told


def test_colours_that_a_legend_lacks_are_refused(coloured):
    images, masks, _ = coloured
    (masks / "labelmap.txt").write_text("background:0,0,0::\nnucleus:250,50,83::\n")
    (masks / "b.png").unlink()
    (images / "b.png").unlink()
    assert complaint(load_pairs, images, masks) == (
        f"{masks / 'a.png'}: 1 colour without a name in labelmap.txt (51, 221, 255 (60 pixels)): name them there, or save "
        "the mask without blurred edges, as PNG; if each colour is an object, --set data.masks=instances"
    )


def test_legends_that_differ_are_refused(coloured):
    images, masks, _ = coloured
    (masks / "labelmap.txt").write_text(LEGENDS["labelmap.txt"])
    (masks.parent / "label_colors.txt").write_text("0 0 0 nothing\n250 50 83 nucleus\n51 221 255 cell\n")
    assert "colours with several legends" in complaint(load_pairs, images, masks)
    (masks.parent / "label_colors.txt").write_text("0 0 0 nothing\n0 0 0 nucleus\n")
    assert "colour (0, 0, 0) twice, expected a class for each" in complaint(load_pairs, images, masks)


def test_grey_masks_need_no_legend(coloured):
    images, masks, ids = coloured
    (masks / "labelmap.txt").write_text(LEGENDS["labelmap.txt"])
    for name, of_image in zip("ab", ids, strict=True):
        save(
            masks / f"{name}.png",
            np.repeat(np.where(of_image > 0, 255, 0).astype(np.uint8)[..., None], 3, axis=2),
        )
    assert load_pairs(images, masks).label_map.names == ("background", "foreground")


def test_colours_number_objects_if_the_user_says_so(coloured):
    images, masks, ids = coloured
    labels = read_instances(masks / "a.png")
    for number in (1, 2):
        assert len(np.unique(labels[ids[0] == number])) == 1
    np.testing.assert_array_equal(labels > 0, ids[0] > 0)
    for path in masks.glob("*.png"):
        cells = np.zeros((12, 15, 3), dtype=np.uint8)
        cells[1:4, 1:4], cells[6:9, 6:9] = (9, 9, 200), (9, 200, 9)
        save(path, cells)
    assert load_pairs(images, masks, masks_are="instances").messages == [
        "masks number objects: 4 objects in 2 masks"
    ]
    save(masks / "a.png", cells + 1)
    with pytest.raises(InputError, match="objects by colours without a black background"):
        load_pairs(images, masks, masks_are="instances")
