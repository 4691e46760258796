import json
from dataclasses import asdict

import pytest

from segkit.errors import ModelFileError
from segkit.segmentation.header import check_header
from segkit.segmentation.summary import HeldOutScores

OBJECTS = {
    "splitter": {
        "landscape": "distance",
        "smoothing": 100.0,
        "depth": 0.0,
        "radius": 1e5,
        "least_area": 0.0,
        "fills_holes": True,
    },
    "source": "regions",
    "scores": None,
    "rim": None,
}

SUMMARY = {
    "n_images": 1,
    "n_channels": 9,
    "kept_channels": {"order 0": 1},
    "kernels": [{"kind": "linear", "name": "linear order 0", "gamma": None, "weight": 1.0, "score": 1.0}],
    "training_iou": [1.0, 0.5],
    "training_mean_iou": 0.75,
    "training_set_sha256": "0",
    "n_training_pixels": 1,
    "criterion": "mmd",
    "selector": "MMDSelector",
    "threshold": 0.1,
    "threshold_rule": "zero",
    "otsu_weight": 0.5,
    "least_areas": [],
    "held_out": None,
    "peaks": [0.5, 1.0],
    "annotated": 1.0,
    "n_banks": 1,
    "lambda": None,
}
HEADER = {
    "bank": {"kind": "modules"},
    "weights_sha256": None,
    "weights_origin": [],
    "channels": [["c0 o0", "order 0"]],
    "n_image_channels": 1,
    "normalization": "image",
    "label_map": {"values": [0, 255], "names": ["a", "b"], "unlabelled": None, "others": []},
    "threshold": 0.1,
    "otsu_weight": 0.5,
    "least_areas": [[0.0, 0.0], [1.0, 2.0]],
    "kernels": {"kind": "linear"},
    "objects": OBJECTS,
    "alarms": {
        "n_only": [0, 1],
        "n_images": 1,
        "expected": False,
        "known": False,
        "dtypes": [],
        "pixel_sizes": [],
    },
    "reading": {
        "axes": None,
        "range": None,
        "context": 0,
        "unnamed": None,
        "is_learnt": False,
        "channels": [],
    },
    "parameters": {
        "lambdas": [0.1],
        "normalization": "image",
        "selection_pixels": 1,
        "training_pixels": 1,
        "threshold": "zero",
        "smallest_region": 0.5,
        "probability": "raw",
        "unlabelled": 255,
        "random_state": 0,
    },
    "summary": SUMMARY,
    "settings": None,
    "versions": {"segkit": "1", "numpy": "2"},
}


def changed(key, value):
    header = json.loads(json.dumps(HEADER))
    *parents, last = key.split(".")
    inner = header
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    return header


def test_a_sound_header_passes_and_parts_may_be_added():
    check_header(HEADER, "m")
    check_header(HEADER | {"a part of later": {"of": ["any", "kind"]}}, "m")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_image_channels", True),
        ("n_image_channels", "1"),
        ("channels", []),
        ("channels", [["c0 o0"]]),
        ("normalization", "neither"),
        ("threshold", "0.1"),
        ("threshold", float("inf")),
        ("least_areas", [[0.0, 0.0], [-1.0, 0.0]]),
        ("label_map.values", [0, 2**64]),
        ("label_map.values", [0]),
        ("label_map.names", ["a", 2]),
        ("kernels", []),
        ("objects", {}),
        ("parameters.random_state", -1),
        ("parameters.another", 1),
        ("summary.training_mean_iou", None),
        ("summary.kernels", [{"name": "linear"}]),
        ("summary.criterion", "none"),
        ("settings", {"config": []}),
        ("versions", {"numpy": "2"}),
        ("versions.numpy", 2),
    ],
)
def test_types_and_ranges_of_entries_are_checked(key, value):
    with pytest.raises(ModelFileError) as caught:
        check_header(changed(key, value), "m.segkit")
    message = str(caught.value)
    assert message.startswith(f"m.segkit: header entry {key.split('.')[0]}")
    assert message.endswith("copy it anew or train again")
    assert "\n" not in message


def test_each_entry_is_needed():
    for key in HEADER:
        with pytest.raises(ModelFileError, match=f"header entry {key}: field required"):
            check_header({name: value for name, value in HEADER.items() if name != key}, "m")


@pytest.mark.parametrize(
    ("key", "value"),
    [("summary.training_iou", [1.0]), ("label_map.names", ["a", "b", "c"]), ("least_areas", [[0.0, 0.0]])],
)
def test_there_is_an_entry_for_each_class(key, value):
    with pytest.raises(ModelFileError, match="header: entries of a class are missing"):
        check_header(changed(key, value), "m")


def with_objects(part, key, value):
    return changed(
        "objects", OBJECTS | {part: OBJECTS[part] | {key: value}} if key else OBJECTS | {part: value}
    )


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (changed("n_image_channels", 10_000), changed("n_image_channels", 10_001)),
        (changed("n_image_channels", 1), changed("n_image_channels", 0)),
        (changed("summary.n_images", 2**63 - 1), changed("summary.n_images", 2**63)),
        (changed("summary.n_images", 0), changed("summary.n_images", -1)),
        (changed("label_map.values", [-(2**63), 2**63 - 1]), changed("label_map.values", [-(2**63) - 1, 0])),
        (changed("label_map.values", [0, 2**63 - 1]), changed("label_map.values", [0, 2**63])),
        (changed("otsu_weight", 1.0), changed("otsu_weight", 1.0001)),
        (changed("otsu_weight", 0.0), changed("otsu_weight", -1e-9)),
        (
            changed("bank", {"kind": "stacked", "banks": [{}] * 16}),
            changed("bank", {"kind": "stacked", "banks": [{}] * 17}),
        ),
        (changed("summary.peaks", [0.1, 0.2]), changed("summary.peaks", [0.1])),
        (changed("summary.peaks", [0.1, 0.2]), changed("summary.peaks", [0.1, 0.2, 0.3])),
        (changed("channels", [["a", "b"]]), changed("channels", [["a", "b", "c"]])),
        (HEADER, with_objects("splitter", "smoothing", 100.1)),
        (with_objects("splitter", "smoothing", 0.0), with_objects("splitter", "smoothing", -0.1)),
        (with_objects("splitter", "radius", 1e-9), with_objects("splitter", "radius", 0.0)),
        (with_objects("splitter", "radius", 0.5), with_objects("splitter", "radius", 1e5 + 1)),
        (with_objects("splitter", "depth", 9.0), with_objects("splitter", "another", 1)),
        (
            with_objects("rim", None, {"kernels": {}, "channels": ["a"]}),
            with_objects("rim", None, {"kernels": {}, "channels": []}),
        ),
    ],
)  # fmt: skip
def test_limits_of_entries_are_the_last_that_pass(good, bad):
    check_header(good, "m")
    with pytest.raises(ModelFileError):
        check_header(bad, "m")


@pytest.mark.parametrize("n_classes", [255, 256])
def test_masks_have_up_to_255_classes(n_classes):
    header = changed(
        "label_map",
        {"values": list(range(n_classes)), "names": ["a"] * n_classes, "unlabelled": None, "others": []},
    )
    header["alarms"]["n_only"] = [0] * n_classes
    header["least_areas"] = [[0.0, 0.0]] * n_classes
    header["summary"]["training_iou"] = [1.0] * n_classes
    if n_classes == 255:
        check_header(header, "m")
    else:
        with pytest.raises(ModelFileError):
            check_header(header, "m")


@pytest.mark.parametrize(
    ("chosen", "is_good"), [((True, False), True), ((True, True), False), ((False, False), False), ((), True)]
)
def test_just_one_of_the_banks_is_chosen(chosen, is_good):
    banks = [{"bank": "a", "mean_iou": 0.5, "chosen": one} for one in chosen]
    held_out = asdict(HeldOutScores("images", 2, 0.5, usual=1e-3, by_bank=banks))
    header = changed("summary.held_out", held_out)
    if is_good:
        check_header(header, "m")
    else:
        with pytest.raises(ModelFileError, match="one of by_bank must be chosen"):
            check_header(header, "m")
