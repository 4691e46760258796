import json
import re

import numpy as np
import pytest
import tifffile

from segkit.errors import InputError
from segkit.evaluation.folders import compare_folders, score_image
from segkit.evaluation.object_scores import score_objects
from segkit.evaluation.read_masks import read_folders
from segkit.evaluation.statistics import bootstrap_interval
from segkit.images import LabelMap, write_geojson, write_image, write_labels, write_mask, write_rois
from segkit.images.polygons import trace


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
        "1 prediction without a true mask left out",
        "no firm estimate from 3 images: score 10 or more",
    ]


@pytest.mark.parametrize(("n_equal", "is_told"), [(0, True), (7, True), (8, False), (36, False)])
def test_masks_that_are_nearly_the_opposite_are_noted(tmp_path, n_equal, is_told):
    """Of 72 pixels a tenth are 7.2."""
    truth = np.zeros((8, 9), dtype=np.uint8)
    truth[::2] = 255
    guessed = 255 - truth
    guessed.flat[:n_equal] = truth.flat[:n_equal]
    write_mask(tmp_path / "masks" / "a.png", truth)
    write_mask(tmp_path / "predictions" / "a.png", guessed)
    notes = compare_folders(tmp_path / "predictions", tmp_path / "masks")["notes"]
    told = f"{100 * (1 - n_equal / 72):.0f} % of the pixels differ: the classes of one side are probably inverted"
    assert (told in notes) == is_told


@pytest.fixture
def of_segkit(folders):
    """Predictions as in an output folder of segkit predict; the image 1 failed, and 2 is not in the table."""
    predictions, _ = folders
    (predictions / ".segkit" / "record").mkdir(parents=True)
    summary = predictions / "summary.csv"
    summary.write_text("image,status,reason\na/0.png,written,\na/1.png,failed,gone\n", encoding="utf-8")
    return summary


@pytest.mark.parametrize("record", ["", "{", "[]", '{"values": [0, 1, 2]}'])
def test_classes_are_called_as_in_the_model_of_the_predictions(tmp_path, record):
    mask = blobs(2)
    with pytest.raises(InputError, match="say which"):
        compare_written(tmp_path, [mask], [mask])
    (tmp_path / "predictions" / ".segkit").mkdir()
    classes = tmp_path / "predictions" / ".segkit" / "classes.json"
    label_map = LabelMap({0: "ground", 1: "cell", 2: "rim", 3: "scratch"}, 255)
    classes.write_text(record or json.dumps(label_map.to_dict()), encoding="utf-8")
    both = tmp_path / "predictions", tmp_path / "masks"
    if record:
        with pytest.raises(InputError, match="say which"):
            compare_folders(*both)
        return
    names = [entry["name"] for entry in compare_folders(*both)["classes"]]
    assert names == ["ground", "cell", "rim", "scratch"]
    given = compare_folders(*both, labels={0: "a", 1: "b", 2: "c"})
    assert [entry["name"] for entry in given["classes"]] == ["a", "b", "c"]
    assert "objects" in compare_folders(*both, masks_are="instances")
    write_mask(tmp_path / "masks" / "0.png", blobs(5))
    with pytest.raises(InputError, match="say which"):
        compare_folders(*both)


def test_masks_that_the_last_run_did_not_write_are_noted(folders, of_segkit):
    note = f"2 predictions are not of the last run of segkit predict (a/1, a/2): see {of_segkit}"
    assert note in compare_folders(*folders)["notes"]


def test_nothing_is_noted_where_the_summary_names_all_or_is_damaged(folders, of_segkit):
    whole = "image,status\na/0.png,written\na/1.tif,skipped\na/2.png,written\n"
    for text in (whole, "a,b\n1,2\n", "\0"):
        of_segkit.write_text(text, encoding="utf-8")
        assert compare_folders(*folders)["notes"] == ["no firm estimate from 3 images: score 10 or more"]


def test_every_true_mask_needs_a_prediction_of_its_size(folders):
    predictions, masks = folders
    (predictions / "a" / "1.tif").unlink()
    with pytest.raises(InputError, match=r"1 of 3 true masks have no prediction \(a/1\)"):
        compare_folders(predictions, masks)
    write_mask(predictions / "a" / "1.png", np.zeros((4, 4), dtype=np.uint8))
    with pytest.raises(
        InputError, match="a/1: sizes differ: true mask 8 x 9, prediction 4 x 4: predict the image"
    ):
        compare_folders(predictions, masks)


@pytest.mark.parametrize(
    ("guessed", "true"),
    [
        ([3], [0, 255]),
        ([0, 1], [1, 2]),
        ([0, 1, 2], [1, 2, 3]),
        ([0, 1, 2], [0, 128, 255]),
        ([0, 127, 254], [0, 128, 255]),
        ([0, 85, 170, 255], [0, 1, 2, 3]),
    ],
)
def test_masks_of_other_values_are_refused(folders, guessed, true):
    predictions, masks = folders
    for folder, values in ((predictions, guessed), (masks, true)):
        for path in (folder / "a").iterdir():
            write_mask(path, np.resize(np.array(values, dtype=np.uint8), (8, 9)))
    told = f"predictions hold {', '.join(map(str, guessed))}, true masks {', '.join(map(str, true))}"
    names = ", ".join(f"{value}: NAME" for value in sorted({*guessed, *true}))
    with pytest.raises(InputError) as refused:
        compare_folders(predictions, masks)
    assert str(refused.value) == (
        f"{told}: save both with the same value for each class, or name the class of each value, "
        f"--set data.labels='{{{names}}}'"
    )


@pytest.mark.parametrize(("guessed", "true"), [((0, 1), (0, 255)), ((0, 255), (0, 1)), ((1, 2), (0, 255))])
def test_two_classes_may_have_other_values_on_each_side(tmp_path, rng, guessed, true):
    cells = rng.random((4, 8, 9)) < 0.5
    masks = [np.where(cells, *values[::-1]).astype(np.uint8) for values in (true, guessed)]
    found = compare_written(tmp_path, *masks)
    assert found["mean_iou"] == 1
    told = "predictions hold {}, {}, true masks {}, {}: the larger value is the foreground of each"
    assert told.format(*guessed, *true) in found["notes"]


@pytest.mark.parametrize("of_truth", [[(0, 1), (0, 255)], [(0, 1, 255)] * 2])
def test_255_beside_small_numbers_is_asked_about(tmp_path, of_truth):
    """Pixels nobody annotated, or the foreground of masks that another program wrote."""
    true = [np.resize(np.array(values, dtype=np.uint8), (8, 9)) for values in of_truth]
    guessed = [(mask > 0).astype(np.uint8) for mask in true]
    with pytest.raises(InputError) as refused:
        compare_written(tmp_path, true, guessed)
    assert str(refused.value) == (
        "predictions hold 0, 1, true masks 0, 1, 255: if 255 marks pixels nobody annotated, --set data.unlabelled=255; if "
        "it is a class, or another name of one, name the class of each value, "
        "--set data.labels='{0: NAME, 1: NAME, 255: NAME}'"
    )
    labels = {0: "background", 1: "cell", 255: "cell"}
    found = compare_folders(tmp_path / "predictions", tmp_path / "masks", labels=labels)
    assert found["mean_iou"] == 1


@pytest.mark.parametrize(
    ("true", "guessed"), [([0, 1, 2], [0, 1, 3]), ([0], [0, 1]), ([0, 1], [0]), ([0, 1, 2], [0, 1])]
)
def test_classes_may_be_rare(folders, true, guessed):
    predictions, masks = folders
    for folder, values in ((predictions, guessed), (masks, true)):
        for path in (folder / "a").iterdir():
            write_mask(path, np.resize(np.array(values, dtype=np.uint8), (8, 9)))
    strange = set(guessed) - set(true)
    told = [f"predictions hold {value}, no true mask does" for value in strange]
    assert compare_folders(predictions, masks)["notes"][:-1] == told


def test_two_files_for_one_image_are_refused(folders):
    predictions, masks = folders
    mask = np.zeros((8, 9), dtype=np.uint8)
    write_mask(masks / "a" / "0_gt.png", mask)
    with pytest.raises(InputError, match=r"a/0: 2 masks \(a/0, a/0_gt\), expected one: remove the others"):
        compare_folders(predictions, masks)
    write_mask(predictions / "a" / "1.png", mask)
    with pytest.raises(InputError, match=r"same stem as 1\.tif, expected one file: remove one"):
        compare_folders(predictions, masks)


def test_predictions_of_ome_tiffs_find_their_truth(tmp_path):
    mask = np.array([[0, 255], [0, 255]], dtype=np.uint8)
    predictions, masks = tmp_path / "predictions", tmp_path / "masks"
    write_mask(predictions / "a.ome.png", mask)
    write_mask(masks / "a.png", mask)
    assert compare_folders(predictions, masks)["mean_iou"] == 1


def test_pages_of_a_file_are_resampled_together(tmp_path, rng):
    for name in ("one", "two"):
        truth = (rng.random((6, 8, 9)) < 0.5).astype(np.uint8)
        write_mask(tmp_path / "masks" / f"{name}#1.tif", truth)
        write_mask(tmp_path / "predictions" / f"{name}#1.tif", truth * (rng.random((6, 8, 9)) < 0.8))
    found = read_folders(tmp_path / "predictions", tmp_path / "masks")
    assert found.stems[:2] == ["one#1#1", "one#1#2"]
    assert found.files == ["one#1"] * 6 + ["two#1"] * 6
    assert found.pages == [*range(6), *range(6)]
    result = compare_folders(tmp_path / "predictions", tmp_path / "masks")
    scores = [image["mean_iou"] for image in result["images"]]
    assert result["interval"] == list(bootstrap_interval(scores, found.files))
    assert result["notes"] == [
        "12 pages of 2 files: intervals resample files, not pages",
        "no firm estimate from 2 files: score 10 or more",
    ]


def test_probabilities_must_be_of_the_classes_asked_for():
    with pytest.raises(InputError, match=r"probabilities of shape \(1, 2, 3\) for 2 classes"):
        score_image([[0, 1]], [[0, 1]], np.zeros((1, 2, 3)), 2)


def test_object_scores_are_beside_mean_iou(folders):
    predictions, masks = folders
    write_mask(predictions / "a" / "1.tif", np.zeros((8, 9), dtype=np.uint8))
    result = compare_folders(predictions, masks)
    foreground = result["classes"][1]
    assert (result["object_iou"], result["object_dice"]) == (foreground["iou"], foreground["dice"])
    assert result["object_iou"] == pytest.approx(2 / 3)
    assert [image["object_iou"] for image in result["images"]] == [1, 0, 1]
    assert result["object_iou_interval"] == list(bootstrap_interval([1, 0, 1]))
    low, high = result["object_dice_interval"]
    assert low < result["object_dice"] < high


def test_images_without_objects_have_no_object_score(tmp_path):
    masks = [np.zeros((2, 2), dtype=np.uint8), np.eye(2, dtype=np.uint8)]
    result = compare_written(tmp_path, masks, masks)
    assert [image["object_dice"] for image in result["images"]] == [None, 1]
    assert result["object_dice"] == 1


@pytest.mark.parametrize(("predicted", "true"), [("", "_mask"), ("_pred_mask", "_pred")])
def test_either_side_may_have_a_suffix(tmp_path, predicted, true):
    for name, suffix in (("predictions", predicted), ("masks", true)):
        write_mask(tmp_path / name / "a" / f"x{suffix}.png", np.eye(2, dtype=np.uint8))
    found = read_folders(tmp_path / "predictions", tmp_path / "masks")
    assert found.stems == found.files == ["a/x_pred" if true == "_pred" else "a/x"]


def test_masks_beside_their_images_are_the_truth(folders):
    predictions, masks = folders
    for path in sorted((masks / "a").iterdir()):
        path.rename(path.with_stem(f"{path.stem}_mask"))
        write_mask(path, np.arange(72, dtype=np.uint8).reshape(8, 9))
    assert compare_folders(predictions, masks)["mean_iou"] == 1


def test_one_folder_is_not_scored_against_itself(folders):
    _, masks = folders
    with pytest.raises(InputError, match="given for predictions and true masks, so every score would be 1"):
        compare_folders(masks, masks / ".." / masks.name)


def test_values_of_one_class_are_scored_as_one(tmp_path):
    truth, guess = np.array([[[0, 2, 2, 0]], [[0, 1, 1, 1]]], dtype=np.uint8)
    result = compare_written(tmp_path, [truth], [guess], labels={0: "ground", 1: "cell", 2: "cell"})
    assert result["object_iou"] == pytest.approx(2 / 3)
    assert [(entry["name"], entry["value"]) for entry in result["classes"]] == [("ground", 0), ("cell", 1)]
    assert result["notes"] == ["no firm estimate from 1 image: score 10 or more"]


def test_an_unlabelled_value_that_no_true_mask_holds_is_told(folders):
    notes = compare_folders(*folders, unlabelled=9)["notes"]
    assert notes[0] == "no true mask holds 9, the value of unlabelled pixels: every pixel is scored"


def blobs(n, shift=0):
    """n squares of 4 x 4, numbered from 1."""
    mask = np.zeros((40, 60), dtype=np.uint16)
    for index in range(n):
        row, column = divmod(index, 10)
        mask[6 * row + 1 : 6 * row + 5, 6 * column + shift : 6 * column + shift + 4] = index + 1
    return mask


def compare_written(folder, truths, guesses, **options):
    for name, masks in (("masks", truths), ("predictions", guesses)):
        for index, mask in enumerate(masks):
            if np.issubdtype(mask.dtype, np.floating):
                (folder / name).mkdir(exist_ok=True)
                tifffile.imwrite(folder / name / f"{index}.tif", mask)
            else:
                write_mask(folder / name / f"{index}{'.png' if name == 'masks' else '.tif'}", mask)
    return compare_folders(folder / "predictions", folder / "masks", **options)


OBJECTS = "masks number objects: scored as objects, and by pixels as foreground"


def test_objects_are_scored_beside_pixels(tmp_path):
    truths, guesses = [blobs(12), blobs(5)], [blobs(12, shift=1), blobs(3)]
    result = compare_written(tmp_path, truths, guesses)
    expected = score_objects(truths, guesses)
    objects = result["objects"]
    assert {name: entry["value"] for name, entry in objects["scores"].items()} == pytest.approx(
        expected.values
    )
    assert {name: tuple(entry["interval"]) for name, entry in objects["scores"].items()} == expected.intervals
    assert (objects["n_true"], objects["n_predicted"]) == (17, 15)
    assert [(entry["stem"], entry["ap_50"]) for entry in objects["images"]] == [("0", 1), ("1", 0.6)]
    assert [entry["name"] for entry in result["classes"]] == ["background", "foreground"]
    assert result["images"][0]["object_iou"] == pytest.approx(12 / 20)
    assert f"{OBJECTS}; if each value is a class: --set data.masks=classes" in result["notes"]


@pytest.mark.parametrize(
    "guess",
    [
        np.zeros((40, 60), dtype=np.uint8),
        np.arange(2400, dtype=np.uint32).reshape(40, 60) + 70_000 * (np.indices((40, 60))[1] > 0),
        blobs(4).astype(np.float32),
        blobs(20).astype(np.uint32) * 100_000,
    ],
    ids=["none", "one a pixel", "whole floats", "far apart"],
)
def test_unusual_label_images(tmp_path, guess):
    result = compare_written(tmp_path, [blobs(12)], [guess])
    expected = score_objects([blobs(12)], [guess])
    assert result["objects"]["n_predicted"] == expected.n_predicted[0]
    assert result["objects"]["scores"]["ap_50"]["value"] == expected.values["ap_50"]


@pytest.mark.parametrize("swapped", [False, True])
def test_objects_against_classes_are_scored_as_classes(tmp_path, swapped):
    sides = [blobs(12)], [255 * (blobs(12) > 0).astype(np.uint8)]
    result = compare_written(tmp_path, *(sides[::-1] if swapped else sides))
    assert "objects" not in result
    assert result["object_iou"] == 1
    assert [entry["name"] for entry in result["classes"]] == ["background", "foreground"]
    first, second = ("predictions", "true masks") if swapped else ("true masks", "predictions")
    note = result["notes"][0]
    assert note.startswith(
        f"{first} number objects, {second} hold classes: scored as classes, every value above 0"
    )


def test_objects_against_classes_without_a_background_are_refused(tmp_path):
    classes = 1 + (blobs(12) > 0).astype(np.uint8)
    with pytest.raises(
        InputError, match="true masks number objects, predictions hold 1, 2 and no 0: save both with 0"
    ):
        compare_written(tmp_path, [blobs(12)], [classes])


def test_the_kind_of_masks_may_be_given(tmp_path):
    masks = [blobs(3)], [blobs(3)]
    result = compare_written(tmp_path, *masks, masks_are="instances")
    assert result["objects"]["scores"]["ap_50"]["value"] == 1
    assert result["notes"][0] == OBJECTS
    classes = compare_folders(tmp_path / "predictions", tmp_path / "masks", masks_are="classes")
    assert len(classes["classes"]) == 4
    classes = compare_written(tmp_path, [blobs(12)], [blobs(12)], masks_are="classes")
    assert len(classes["classes"]) == 13


def test_objects_in_several_pieces_are_told_of_each_side(tmp_path):
    numbered = blobs(20)
    result = compare_written(tmp_path, [numbered], [np.where(numbered == 9, 1, numbered)])
    assert [note for note in result["notes"] if "pieces" in note] == [
        "predictions: 1 object in several pieces (0): each is kept as one object"
    ]


def test_other_numbers_of_a_few_objects_change_no_score(tmp_path):
    """Case by case the same pixels: as classes their IoU was 0."""
    truth = blobs(6)
    result = compare_written(tmp_path, [truth], [np.where(truth > 0, 7 - truth, 0)], masks_are="instances")
    assert result["objects"]["scores"]["ap_50"]["value"] == result["object_iou"] == 1
    with pytest.raises(InputError, match="so they may number objects or be classes: say which"):
        compare_folders(tmp_path / "predictions", tmp_path / "masks")


def test_foreground_beside_objects_has_scores_of_pixels(tmp_path):
    result = compare_written(tmp_path, [blobs(6)], [255 * (blobs(6) > 0)], masks_are="instances")
    assert "objects" not in result
    assert result["object_iou"] == 1
    assert result["notes"][0] == (
        "true masks number objects, predictions hold classes: scored as classes, every value above 0 as foreground; for "
        "scores of objects number them in both"
    )


def test_many_values_in_pieces_are_asked_about(tmp_path, rng):
    """As training does: blurred edges make a class of each grey value."""
    blurred = rng.integers(0, 30, (40, 60)).astype(np.uint8)
    with pytest.raises(InputError, match=r"masks hold 30 values .* if edges are blurred"):
        compare_written(tmp_path, [blurred], [blurred])
    assert (
        len(compare_folders(tmp_path / "predictions", tmp_path / "masks", masks_are="classes")["classes"])
        == 30
    )


def test_unlabelled_ground_holds_no_false_objects(tmp_path):
    truth = blobs(12).astype(np.uint8)
    truth[20:] = 255
    guess = blobs(50)
    result = compare_written(tmp_path, [truth], [guess], unlabelled=255)
    objects = result["objects"]
    assert (objects["n_true"], objects["n_predicted"]) == (12, 30)  # rows 0 to 2 of squares lie above it
    # a quarter of each square of row 3 is labelled: pixels count, objects do not
    assert result["images"][0]["object_iou"] == pytest.approx(12 / 32.5)


def test_a_prediction_may_use_the_unlabelled_value_as_a_number(tmp_path):
    truth, guess = blobs(12), np.where(blobs(12) == 3, 255, blobs(12))
    result = compare_written(tmp_path, [truth], [guess], unlabelled=255)
    assert result["objects"]["scores"]["ap_50"]["value"] == 1


def outlines_written(folder, kind, masks):
    """Write masks by name as label images, GeoJSON, ROIs or one COCO file; gives the folder or file."""
    root = folder / kind
    if kind == "coco":
        root.mkdir()
        images = [
            {"id": n, "file_name": f"{stem}.png", "height": 40, "width": 60} for n, stem in enumerate(masks)
        ]
        entries = [
            {"image_id": n, "segmentation": [ring.ravel().tolist() for [ring] in polygons]}
            for n, mask in enumerate(masks.values())
            for polygons in trace(mask.astype(np.int32)).values()
        ]
        path = root / "objects.json"
        path.write_text(json.dumps({"images": images, "annotations": entries}), encoding="utf-8")
        return path
    for stem, mask in masks.items():
        if kind == "geojson":
            write_geojson(root / f"{stem}.geojson", mask)
        elif kind == "rois":
            write_rois(root / f"{stem}_RoiSet.zip", mask)
        else:
            write_labels(root / f"{stem}.png", mask)
    return root


@pytest.mark.parametrize(
    ("truth", "guess"), [("labels", "rois"), ("geojson", "coco"), ("rois", "geojson"), ("coco", "labels")]
)
def test_outlines_are_scored_like_label_images(tmp_path, truth, guess):
    pytest.importorskip("roifile")
    truths, guesses = {"a/x": blobs(5), "b": blobs(12)}, {"a/x": blobs(4), "b": blobs(12)}
    expected = compare_folders(
        outlines_written(tmp_path / "p", "labels", guesses),
        outlines_written(tmp_path / "t", "labels", truths),
    )
    for stem in truths:
        write_image(tmp_path / "images" / f"{stem}.png", np.zeros((40, 60, 3)))
    (tmp_path / "guess").mkdir()
    (tmp_path / "truth").mkdir()
    sides = (
        outlines_written(tmp_path / "guess", guess, guesses),
        outlines_written(tmp_path / "truth", truth, truths),
    )
    found = compare_folders(*sides, images=tmp_path / "images")
    assert found["objects"] == expected["objects"]
    assert found["images"] == expected["images"]


def test_outlines_alone_need_the_images(tmp_path):
    for side in ("guess", "truth"):
        write_geojson(tmp_path / side / "a.geojson", blobs(3))
    sides = tmp_path / "guess", tmp_path / "truth"
    message = re.escape(
        "a.geojson: outlines without the size of their image: give the images (--images DIR, in Python images= or shape=)"
    )
    with pytest.raises(InputError, match=message):
        compare_folders(*sides)
    write_image(tmp_path / "a.png", np.zeros((40, 60, 3)))
    files = sides[0] / "a.geojson", sides[1] / "a.geojson"
    assert compare_folders(*files, images=tmp_path / "a.png")["objects"]["n_true"] == 3
    with pytest.raises(InputError, match="which number objects, expected masks of classes"):
        compare_folders(*files, images=tmp_path / "a.png", masks_are="classes")


def test_the_object_of_an_outline_may_have_the_value_of_unlabelled_pixels(tmp_path):
    write_geojson(tmp_path / "truth" / "a.geojson", blobs(12))
    write_labels(tmp_path / "guess" / "a.png", blobs(12))
    result = compare_folders(tmp_path / "guess", tmp_path / "truth", unlabelled=5)
    assert (result["objects"]["n_true"], result["objects"]["scores"]["ap_50"]["value"]) == (12, 1)


@pytest.mark.parametrize(
    ("values", "rare"), [((7, 1, 1, 1), "7"), ((7, 9, 1, 1), "7, 9"), ((1, 0, 0, 0), None)]
)
def test_a_value_of_one_true_mask_only_is_told_of_three_classes_and_more(tmp_path, values, rare):
    """It counts as a class of its own, and may be a slip."""
    mask = np.resize(np.array([0, 0, 1], dtype=np.uint8), (8, 9))
    notes = compare_written(tmp_path, [value * mask for value in values], [mask] * 4)["notes"]
    told = f"in one of 4 true masks only, and scored as a class: {rare}; mend the mask if it is none"
    assert [note for note in notes if "true masks only" in note] == ([told] if rare else [])


def test_a_folder_of_images_in_place_of_masks_is_a_short_message(tmp_path, rng):
    masks, images = [255 * np.eye(30, dtype=np.uint8)] * 2, rng.integers(1, 255, (2, 30, 30), dtype=np.uint8)
    with pytest.raises(InputError) as error:
        compare_written(tmp_path, masks, images, masks_are="classes")
    assert len(str(error.value)) < 300
