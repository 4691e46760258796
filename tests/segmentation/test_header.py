"""Type and range of each entry in the header of a model file."""

import json
from dataclasses import asdict

import pytest

from segkit.errors import ModelFileError
from segkit.objects.choose import SplitScores
from segkit.segmentation.header import check_header
from segkit.segmentation.model_file import describe
from segkit.segmentation.summary import HeldOutScores


@pytest.fixture(scope="module")
def header(cell_segmenter):
    return json.loads(json.dumps(describe(cell_segmenter, embed_weights=True)[0]))


@pytest.fixture
def changed(header):
    """The header with another value of an entry, whose key leads through the mappings around it."""

    def change(key, value):
        copy = json.loads(json.dumps(header))
        *parents, last = key.split(".")
        inner = copy
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
        return copy

    return change


def test_a_sound_header_passes_and_parts_may_be_added(header):
    check_header(header, "m")
    check_header(header | {"a part of later": {"of": ["any", "kind"]}}, "m")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_image_channels", True),
        ("n_image_channels", "1"),
        ("channels", []),
        ("channels", [["c0 o0"]]),
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
        ("settings", []),
        ("versions", {"numpy": "2"}),
        ("versions.numpy", 2),
    ],
)
def test_types_and_ranges_of_entries_are_checked(changed, key, value):
    with pytest.raises(ModelFileError) as caught:
        check_header(changed(key, value), "m.segkit")
    message = str(caught.value)
    assert message.startswith(f"m.segkit: header entry {key.split('.')[0]}")
    assert message.endswith("copy it anew or train again")
    assert "\n" not in message


def test_each_entry_is_needed(header):
    for key in header:
        with pytest.raises(ModelFileError, match=f"header entry {key}: field required"):
            check_header({name: value for name, value in header.items() if name != key}, "m")


@pytest.mark.parametrize(
    ("key", "value"),
    [("summary.training_iou", [1.0]), ("label_map.names", ["a", "b", "c"]), ("least_areas", [[0.0, 0.0]])],
)
def test_there_is_an_entry_for_each_class(changed, key, value):
    with pytest.raises(ModelFileError, match="header: entries of a class are missing"):
        check_header(changed(key, value), "m")


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("n_image_channels", 10_000, 10_001),
        ("n_image_channels", 1, 0),
        ("summary.n_images", 2**63 - 1, 2**63),
        ("summary.n_images", 0, -1),
        ("label_map.values", [-(2**63), 2**63 - 1], [-(2**63) - 1, 0]),
        ("label_map.values", [0, 2**63 - 1], [0, 2**63]),
        ("otsu_weight", 1.0, 1.0001),
        ("otsu_weight", 0.0, -1e-9),
        ("bank", {"kind": "stacked", "banks": [{}] * 16}, {"kind": "stacked", "banks": [{}] * 17}),
        ("summary.peaks", [0.1, 0.2], [0.1]),
        ("summary.peaks", [0.1, 0.2], [0.1, 0.2, 0.3]),
        ("channels", [["a", "b"]], [["a", "b", "c"]]),
        ("objects.splitter.smoothing", 100.0, 100.1),
        ("objects.splitter.smoothing", 0.0, -0.1),
        ("objects.splitter.radius", 1e-9, 0.0),
        ("objects.splitter.radius", 1e5, 1e5 + 1),
        ("objects.parts", {"kernels": {}, "channels": ["a"]}, {"kernels": {}, "channels": []}),
    ],
)
def test_limits_of_entries_are_the_last_that_pass(changed, key, good, bad):
    check_header(changed(key, good), "m")
    with pytest.raises(ModelFileError):
        check_header(changed(key, bad), "m")


@pytest.mark.parametrize(
    ("counts", "is_good"),
    [
        ([[2**31 - 1, 0]], True),
        ([[2**31, 0]], False),
        ([[0, -1]], False),
        ([[1]], False),
        ([[1, 2, 3]], False),
    ],
)
def test_counts_are_pairs_of_numbers(changed, counts, is_good):
    scores = asdict(SplitScores("images", 2, 9, 0.8, 0.7, 0.6, {}, 5, counts))
    if is_good:
        check_header(changed("objects.scores", scores), "m")
    else:
        with pytest.raises(ModelFileError, match=r"objects\.scores\.counts"):
            check_header(changed("objects.scores", scores), "m")


def test_each_count_has_a_group_or_none_has(changed):
    scores = asdict(SplitScores("images", 2, 9, 0.8, 0.7, 0.6, {}, 5, [[4, 3], [2, 2]]))
    check_header(changed("objects.scores", scores | {"groups": [1, 1]}), "m")
    with pytest.raises(ModelFileError, match="groups must have a number for each of counts"):
        check_header(changed("objects.scores", scores | {"groups": [1]}), "m")


@pytest.mark.parametrize("n_classes", [255, 256])
def test_masks_have_up_to_255_classes(changed, n_classes):
    names = {"values": list(range(n_classes)), "names": ["a"] * n_classes, "unlabelled": None, "others": []}
    many = changed("label_map", names)
    many["alarms"]["n_only"] = [0] * n_classes
    many["least_areas"] = [[0.0, 0.0]] * n_classes
    many["summary"] |= {"training_iou": [1.0] * n_classes, "held_out": None}
    if n_classes == 255:
        check_header(many, "m")
    else:
        with pytest.raises(ModelFileError):
            check_header(many, "m")


@pytest.mark.parametrize(
    ("chosen", "is_good"), [((True, False), True), ((True, True), False), ((False, False), False), ((), True)]
)
def test_just_one_of_the_banks_is_chosen(changed, chosen, is_good):
    banks = [{"bank": "a", "mean_iou": 0.5, "chosen": one} for one in chosen]
    held_out = asdict(HeldOutScores("images", 2, 0.5, usual=1e-3, by_bank=banks))
    if is_good:
        check_header(changed("summary.held_out", held_out), "m")
    else:
        with pytest.raises(ModelFileError, match="one of by_bank must be chosen"):
            check_header(changed("summary.held_out", held_out), "m")
