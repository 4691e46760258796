import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from segkit.annotate.messages import LIMIT, FramingError, Stroke, pack, read_message, split, unpack_mask
from segkit.errors import InputError

STROKE = {
    "op": "stroke", "image": "a", "seq": 1, "stroke": "s", "corner": [1, 2], "shape": [3, 4], "value": 1,
}  # fmt: skip
VALID = [
    {"op": "open", "image": "a"},
    {"op": "view", "image": "a", "box": [0, 0, 5, 5]},
    {"op": "undo", "image": "a", "seq": 1},
    {"op": "redo", "image": "a", "seq": 2},
    {"op": "accept", "image": "a", "seq": 3},
    {"op": "suggest", "image": "a"},
    {"op": "classes", "classes": [{"value": 0, "name": "background", "colour": "#56b4e9"}]},
    {"op": "settings", "live": True, "source": "model"},
    {"op": "accept_objects", "image": "a", "seq": 4},
    {"op": "delete_object", "image": "a", "seq": 5, "points": [[3, 4]]},
    {"op": "split_objects", "image": "a", "seq": 6, "points": [[-3, 4], [5, 2000]]},
    {"op": "draw_object", "image": "a", "seq": 7, "corner": [1, 2], "shape": [3, 4], "value": 2},
    {"op": "grow_object", "image": "a", "seq": 8, "at": [3, 4], "reach": 9.5, "value": None},
    {"op": "classify_object", "image": "a", "seq": 9, "at": [3, 4], "value": 2},
    {"op": "segment", "images": None, "output": "there", "retrain": False},
    {"op": "cancel_run"},
    {"op": "check_labels"},
    {"op": "object_settings", "depth": 0.1, "smallest": None, "fill_holes": True},
    {"op": "train_network"},
    {"op": "cancel_network"},
    {"op": "export"},
]


def test_what_the_page_sends_is_read():
    for header in VALID:
        message, payload = read_message(pack(header))
        assert message.model_dump(mode="json") == header
        assert payload == b""


@settings(max_examples=40)
@given(st.binary(max_size=50), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_framing_there_and_back(payload, header):
    text, rest = split(pack(header, payload))
    assert json.loads(text) == header
    assert rest == payload


@given(npst.arrays(np.bool_, npst.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=20)))
def test_masks_there_and_back(mask):
    stroke = Stroke.model_validate_json(json.dumps({**STROKE, "corner": [0, 0], "shape": list(mask.shape)}))
    np.testing.assert_array_equal(unpack_mask(stroke, np.packbits(mask).tobytes(), (20, 20)), mask)


def test_wrong_fields_are_named():
    for change in (
        {"image": 3}, {"image": ""}, {"image": "x" * 5000}, {"seq": -1}, {"seq": 1.5}, {"seq": True},
        {"corner": [0]}, {"corner": [-1, 0]}, {"corner": ["0", 0]}, {"shape": [0, 4]}, {"shape": [3, 2**40]},
        {"value": 256}, {"value": -1}, {"value": None}, {"stroke": ""}, {"extra": 1}, {"op": "paint"}, {"op": None},
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"message of the page: .*: reload the page and try again"):
            read_message(pack({**STROKE, **change}, bytes(2)))
    line = {"op": "split_objects", "image": "a", "seq": 1, "points": [[1, 2]]}
    grow = {"op": "grow_object", "image": "a", "seq": 1, "at": [1, 2], "reach": None, "value": None}
    segment = {"op": "segment", "images": None, "output": None, "retrain": True}
    settings = {"op": "object_settings", "depth": None, "smallest": None, "fill_holes": None}
    for header, change in (
        (line, {"points": []}), (line, {"points": [[1]]}), (line, {"points": [[1, 2**31]]}), (line, {"points": [[0.5, 1]]}),
        (line, {"points": [[0, 0]] * 2001}), (line, {"op": "cut"}), (settings, {"depth": -0.1}),
        (grow, {"reach": 0}), (grow, {"reach": "far"}), (grow, {"at": [1]}), (segment, {"images": ""}),
        (segment, {"retrain": 1}), (segment, {"output": "x" * 5000}), (settings, {"smallest": "many"}),
        (settings, {"fill_holes": 1}), (settings, {"radius": 2}),
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"message of the page: .*: reload the page and try again"):
            read_message(pack({**header, **change}))


def test_classes_are_checked():
    for change in ({"value": 255}, {"name": ""}, {"colour": "red"}, {"colour": "#000000;x"}):
        entry = {"value": 0, "name": "a", "colour": "#000000"} | change
        with pytest.raises(InputError, match=r"classes\.0"):
            read_message(pack({"op": "classes", "classes": [entry]}))


def test_frames_that_no_page_sends():
    for frame, reason in (
        (b"", "without a header"),
        (b"\x01\x00", "without a header"),
        (struct.pack("<I", 9) + b"{}", "header of 9 bytes in a message of 6"),
        (struct.pack("<I", 2**32 - 1) + b"{}", "header of"),
        (struct.pack("<I", 2) + b"{]", "not JSON"),
        (struct.pack("<I", 2) + b"\xff\xfe", "not JSON"),
        (bytes(LIMIT + 1), "at most"),
    ):
        with pytest.raises(FramingError, match=reason):
            read_message(frame)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
NAMES = st.sampled_from(["op", "image", "seq", "box", "value"])
CONTENT = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner), max_leaves=8
)


@settings(max_examples=60)
@given(st.binary(max_size=80) | CONTENT.map(pack))
def test_what_is_no_message_is_refused_in_one_line(frame):
    with pytest.raises((FramingError, InputError)) as refused:
        read_message(frame)
    assert "\n" not in str(refused.value)


def test_bytes_behind_other_messages():
    with pytest.raises(InputError, match="open with 3 bytes behind it"):
        read_message(pack({"op": "open", "image": "a"}, b"abc"))


def test_masks_of_another_length():
    for n_bytes in [0, 1, 3]:
        stroke, payload = read_message(pack(STROKE, bytes(n_bytes)))
        with pytest.raises(InputError, match=f"3 x 4 pixels with {n_bytes} bytes, expected 2"):
            unpack_mask(stroke, payload, (10, 10))


@pytest.mark.parametrize("size", [(3, 10), (10, 5)])
def test_strokes_beyond_the_image(size):
    stroke, payload = read_message(pack(STROKE, bytes(2)))
    with pytest.raises(InputError, match=f"of an image of {size[0]} x {size[1]} pixels"):
        unpack_mask(stroke, payload, size)
