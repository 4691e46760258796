import json
import struct

import numpy as np
import pytest

from segkit.annotate.messages import pack
from segkit.annotate.shared_session import TabQueue
from segkit.live import Drawing, ExpectedPoint, Prediction

SIZE = (64, 64)


def take_all(queue):
    frames = []
    while queue._changed.is_set():
        queue._changed.clear()
        frames += queue.take(None)
    return frames


def headers(frames):
    return [json.loads(frame[4 : 4 + struct.unpack_from("<I", frame)[0]]) for frame in frames]


def block(generation, stride=1, corner=(0, 0), key="a"):
    cells = np.zeros((8, 8), dtype=np.uint8)
    return Prediction(key, generation, stride, corner, cells, np.stack([cells] * 2), cells, (0, 1))


@pytest.fixture
def queue():
    queue = TabQueue()
    queue.show("a", b"\x02\x00\x00\x00{}", SIZE)
    list(queue.take(Drawing.blank(SIZE)))
    return queue


def test_a_slow_tab_waits_for_one_box_of_labels(queue):
    drawing = Drawing.blank(SIZE)
    for place in range(2, 40):
        drawing.paint((place, place), np.ones((2, 2), dtype=bool), 1)
        queue.mark_changed("a", (place, place, place + 2, place + 2))
    frames = list(queue.take(drawing))
    assert len(frames) == 1
    assert headers(frames)[0]["corner"] == [2, 2]
    assert frames[0].endswith(drawing.labels[2:41, 2:41].tobytes())
    assert list(queue.take(drawing)) == []


def test_a_slow_tab_gets_only_the_newest_prediction(queue):
    for generation in range(50):
        queue.add_prediction(block(generation, stride=8))
        for corner in ((0, 0), (0, 8)):
            queue.add_prediction(block(generation, corner=corner))
    queue.add_prediction(block(3))
    queue.add_prediction(block(60, key="b"))
    found = headers(take_all(queue))
    assert [(one["generation"], one["stride"], one["corner"]) for one in found] == [
        (49, 8, [0, 0]), (49, 1, [0, 0]), (49, 1, [0, 8]),
    ]  # fmt: skip


def test_newest_status_every_state_last_failures(queue):
    for number in range(100):
        queue.send("status", {"op": "status", "text": str(number)})
        image = f"image {number % 3}"
        queue.send(f"state {image}", {"op": "states", "images": {image: "some"}})
        queue.send_error(f"fault {number}")
    found = headers(queue.take(None))
    assert [one["text"] for one in found if one["op"] == "status"] == ["99"]
    states = [one["images"] for one in found if one["op"] == "states"]
    assert states == [{f"image {n}": "some"} for n in range(3)]
    assert [one["message"] for one in found if one["op"] == "failed"] == [
        f"fault {n}" for n in range(80, 100)
    ]


def test_another_image_forgets_the_former(queue):
    queue.add_prediction(block(1))
    queue.send("objects", {"op": "objects"})
    queue.show("b", b"\x02\x00\x00\x00{}", SIZE)
    assert [one.get("op") for one in headers(queue.take(Drawing.blank(SIZE)))] == [None, "labels"]


def test_labels_of_one_image_are_not_sent_for_the_next(queue):
    queue.send("hello", {"op": "hello"})
    frames = queue.take(Drawing.blank(SIZE))
    next(frames)
    queue.show("b", b"\x02\x00\x00\x00{}", SIZE)
    assert "labels" not in [one.get("op") for one in headers(frames)]
    labels = [one for one in headers(queue.take(Drawing.blank(SIZE))) if one.get("op") == "labels"]
    assert [one["image"] for one in labels] == ["b"]


def test_what_json_knows():
    point = ExpectedPoint(3, 1, float("nan"), np.float32(0.5), None, 0.75)
    known = {"n_strokes": 3, "n_images": 1, "object_iou": None, "low": 0.5, "high": None, "mean_iou": 0.75}
    assert headers([pack({"points": (point,)})]) == [{"points": [known]}]
