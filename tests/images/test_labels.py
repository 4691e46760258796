"""Label maps: what is inferred, what is refused, and that ids and values are two names of one thing."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from segkit.images import UNLABELLED, LabelMap
from tests.images.conftest import complaint

VALUES = st.lists(st.integers(-1000, 70000), min_size=2, max_size=12, unique=True)


@settings(max_examples=50)
@given(values=VALUES, has_unlabelled=st.booleans(), seed=st.integers(0, 99))
def test_decode_undoes_encode(values, has_unlabelled, seed):
    *classes, last = values
    unlabelled = last if has_unlabelled and len(classes) >= 2 else None
    classes = classes if unlabelled is not None else values
    label_map = LabelMap({value: f"class {value}" for value in classes}, unlabelled)
    mask = np.random.default_rng(seed).choice(values, (4, 5))
    ids = label_map.encode(mask)
    assert ids.dtype == np.uint8
    np.testing.assert_array_equal(label_map.decode(ids), mask)
    np.testing.assert_array_equal(ids == UNLABELLED, mask == unlabelled if unlabelled is not None else False)
    assert LabelMap.from_dict(json.loads(json.dumps(label_map.to_dict()))) == label_map


def test_decode_takes_the_smallest_dtype():
    uint8, uint16, int8, int16 = np.uint8, np.uint16, np.int8, np.int16
    smallest = {(0, 1): uint8, (0, 255): uint8, (0, 256): uint16, (-1, 1): int8, (-1, 255): int16}
    for values, dtype in smallest.items():
        for ids in ([0], [1], [0, 1]):  # whichever classes a prediction happens to hold
            assert LabelMap.infer(values).decode(np.array(ids)).dtype == dtype


def test_two_values_are_background_and_foreground():
    label_map = LabelMap.infer([255, 0])
    assert (label_map.values, label_map.n_classes) == ((0, 255), 2)
    np.testing.assert_array_equal(label_map.encode([[0, 255]]), [[0, 1]])
    assert label_map.describe() == "masks hold 0 and 255: read as background and foreground"


def test_unlabelled_value_is_no_class():
    label_map = LabelMap.infer([0, 1, 255], unlabelled=0)
    assert label_map.values == (1, 255)
    np.testing.assert_array_equal(label_map.encode([0, 1, 255]), [UNLABELLED, 0, 1])
    assert label_map.describe() == (
        "masks hold 1 and 255: read as background and foreground; 0 marks unlabelled pixels"
    )


def test_labels_name_and_order_the_classes():
    label_map = LabelMap.infer([0, 3], labels={3: "cell", 0: "background", 9: "border"})
    assert label_map.describe() == "masks hold 3, 0 and 9: read as cell, background and border"
    np.testing.assert_array_equal(label_map.encode([0, 3, 9]), [1, 0, 2])


def test_what_cannot_be_inferred():
    assert complaint(LabelMap.infer, [0, 128, 255]) == (
        "masks hold 3 values (0, 128 and 255), and which class each is cannot be known: "
        "name them, for example --set data.labels='{0: background, 1: cell, 2: border}', "
        "or --set data.unlabelled=VALUE if one of them marks unlabelled pixels; "
        "if they number objects, --set data.masks=instances"
    )
    assert complaint(LabelMap.infer, range(40)) == (
        "masks hold 40 values (0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 30 more), expected one for each class: "
        "if they number objects, --set data.masks=instances; "
        "if edges are blurred (by JPEG or resizing), threshold them; "
        "if they are classes, name them, --set data.labels='{0: background, 1: cell, ...}'"
    )
    assert complaint(LabelMap.infer, [7]) == (
        "masks hold 7, expected at least two classes: add an image in which another class is annotated"
    )
    assert complaint(LabelMap.infer, [7], unlabelled=7) == (
        "masks hold no labelled pixel, expected at least two classes: "
        "add an image in which another class is annotated"
    )


def test_values_outside_the_map():
    message = (
        "masks hold 2 and 3, but the label map knows 0 and 1 only: "
        "add the missing values to data.labels, or set data.unlabelled=VALUE for unlabelled pixels"
    )
    assert complaint(LabelMap.infer, [0, 1, 2, 3], labels={0: "a", 1: "b"}) == message
    assert complaint(LabelMap({0: "a", 1: "b"}).encode, [0, 3, 2]) == message


def test_ids_outside_the_map():
    label_map = LabelMap({0: "a", 1: "b"})
    assert complaint(label_map.decode, [0, 5, UNLABELLED]) == (
        "class ids 5 and 255 are not among the 0 and 1 of the label map: "
        "use the label map that the ids were made with"
    )


def test_maps_that_are_none():
    assert complaint(LabelMap, {0: "a"}) == (
        "label map of 1 class, expected 2 to 255: name two classes or more in data.labels"
    )
    assert complaint(LabelMap, {0: "a", 1: "b"}, 1) == (
        "label map with values 0, 1 and 1 and names a and b, expected each once: "
        "mend data.labels or data.unlabelled"
    )


def test_values_of_one_name_are_one_class():
    label_map = LabelMap.infer([0, 1, 2, 9], labels={0: "ground", 2: "cell", 9: "rim", 1: "cell"})
    assert (label_map.values, label_map.n_classes) == ((0, 1, 9), 3)
    np.testing.assert_array_equal(label_map.encode([[0, 1], [2, 9]]), [[0, 1], [1, 2]])
    np.testing.assert_array_equal(label_map.decode([[0, 1], [1, 2]]), [[0, 1], [1, 9]])
    assert label_map.describe() == "masks hold 0, 1, 2 and 9: read as ground, cell (1 and 2) and rim"
    assert LabelMap.from_dict(json.loads(json.dumps(label_map.to_dict()))) == label_map


@settings(max_examples=30)
@given(values=VALUES, n_classes=st.integers(2, 4), has_unlabelled=st.booleans(), seed=st.integers(0, 99))
def test_joined_values_are_read_as_the_lowest_of_their_class(values, n_classes, has_unlabelled, seed):
    unlabelled = values[-1] if has_unlabelled and len(values) > 2 else None
    classes = values if unlabelled is None else values[:-1]
    name = {value: f"class {index % n_classes}" for index, value in enumerate(classes)}
    label_map = LabelMap.infer(values, labels=name, unlabelled=unlabelled)
    lowest = {value: min(other for other in classes if name[other] == name[value]) for value in classes}
    mask = np.random.default_rng(seed).choice(values, (4, 5))
    wanted = np.vectorize(lambda value: lowest.get(value, value))(mask)
    np.testing.assert_array_equal(label_map.decode(label_map.encode(mask)), wanted)


def test_maps_of_one_value_a_class_are_stored_as_they_always_were():
    entries = {"values": [0, 255], "names": ["background", "cell"], "unlabelled": None}
    label_map = LabelMap.infer([0, 255], labels={0: "background", 255: "cell"})
    assert label_map.to_dict() == entries
    assert LabelMap.from_dict(entries) == label_map


def test_joined_values_that_leave_no_two_classes():
    assert complaint(LabelMap.infer, [1, 2], labels={0: "ground", 1: "cell", 2: "cell"}) == (
        "masks hold 1 and 2, all of class cell, expected at least two classes: "
        "add an image in which another class is annotated"
    )
    assert complaint(LabelMap.infer, [1, 2], labels={1: "cell", 2: "cell"}).startswith(
        "label map of 1 class,"
    )
    label_map = LabelMap.infer([0, 1, 2], labels={0: "ground", 1: "cell", 2: "cell"})
    assert complaint(label_map.encode, [3]).startswith(
        "masks hold 3, but the label map knows 0, 1 and 2 only"
    )
