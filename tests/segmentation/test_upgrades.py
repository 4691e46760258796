import json

import pytest

from segkit.features import bank_from_dict
from segkit.segmentation.model_file import FORMAT_VERSION
from segkit.segmentation.upgrades import upgrade

OLDEST = {
    "format_version": 1,
    "bank": {"kind": "modules"},
    "kernels": {"gammas": [1.0]},
    "label_map": {"names": ["a", "b", "c"], "values": [0, 1, 2], "unlabelled": None},
    "parameters": {"threshold": "iou"},
    "summary": {},
    "versions": {"segkit": "0.0.1"},
}


def test_the_oldest_format_is_given_what_came_later():
    header = json.loads(json.dumps(OLDEST))
    upgrade(header, "old.segkit")
    assert header["parameters"] == {
        "threshold": "iou",
        "lambdas": None,
        "normalization": "set",
        "smallest_region": 0.0,
    }
    assert header["kernels"] == {"kind": "mixture", "gammas": [1.0]}
    assert header["least_areas"] == [[0, 0]] * 3
    assert (header["otsu_weight"], header["normalization"]) == (0, "set")
    assert (header["objects"], header["settings"]) == (None, None)


def test_kernels_of_the_oldest_formats_are_named_after_their_kind():
    kernels = [{"name": "Gaussian gamma=0.1"}, {"name": "linear order 0"}]
    header = json.loads(json.dumps(OLDEST)) | {"summary": {"kernels": kernels}}
    upgrade(header, "old.segkit")
    assert [kernel["kind"] for kernel in header["summary"]["kernels"]] == ["gaussian", "linear"]


@pytest.mark.parametrize(
    ("old", "new"), [("share", "quantile"), ("share+otsu", "quantile+otsu"), ("iou", "iou")]
)
def test_rules_of_the_threshold_have_their_present_names(old, new):
    parameters = {"threshold": old, "normalization": "image"}
    header = OLDEST | {"format_version": 6, "parameters": parameters, "summary": {"threshold_rule": old}}
    upgrade(header, "old.segkit")
    assert (header["parameters"]["threshold"], header["summary"]["threshold_rule"]) == (new, new)


def test_networks_of_earlier_formats_keep_their_layers():
    """Without named layers they had the outputs of all non-linearities; output strides did not exist."""
    banks = [
        {"kind": "convnet", "layers": None},
        {"kind": "convnet", "layers": ["conv1_1"]},
        {"kind": "position"},
    ]
    for bank in ({"kind": "stacked", "banks": banks}, banks[0]):
        header = json.loads(json.dumps(OLDEST | {"format_version": 8, "bank": bank}))
        upgrade(header, "old.segkit")
        parts = header["bank"].get("banks", [header["bank"]])
        assert [part.get("layers") for part in parts] == [["activations"], ["conv1_1"], None][: len(parts)]
        assert bank_from_dict(parts[0] | {"network": "vgg16"}).output_stride is None


def test_the_present_format_is_left_alone():
    header = {"format_version": FORMAT_VERSION}
    upgrade(header, "new.segkit")
    assert header == {"format_version": FORMAT_VERSION}
