"""Any sequence of strokes, undo and redo gives the labels that full copies of the image give."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from segkit.errors import InputError
from segkit.live import Drawing
from tests.live.conftest import complaint

SHAPE = (5, 7)
PAINT = st.tuples(
    st.just("paint"),
    st.tuples(st.integers(-4, 8), st.integers(-4, 10)),
    st.tuples(st.integers(0, 5), st.integers(0, 5)).flatmap(lambda shape: arrays(np.bool_, shape)),
    st.sampled_from([0, 1, 2, 255]),
    st.sampled_from([None, "a", "b"]),
)
FILL = st.tuples(st.just("fill"), arrays(np.uint8, SHAPE, elements=st.sampled_from([0, 1, 255])))
ACTIONS = st.lists(st.one_of(PAINT, FILL, st.just(("undo",)), st.just(("redo",))), max_size=25)


class Copies:
    """A full copy of the image for each step: the plain way."""

    def __init__(self, labels):
        self.now, self.before, self.after, self.stroke = labels.copy(), [], [], None

    def change(self, new, stroke):
        if (new == self.now).all():
            self.stroke = stroke if stroke == self.stroke else None
            return
        if stroke is None or stroke != self.stroke:
            self.before.append(self.now)
        self.now, self.after, self.stroke = new, [], stroke

    def paint(self, corner, mask, value, stroke):
        new = self.now.copy()
        for row, col in np.argwhere(mask) + np.array(corner):
            if 0 <= row < new.shape[0] and 0 <= col < new.shape[1]:
                new[row, col] = value
        self.change(new, stroke)

    def fill(self, values):
        self.change(np.where(self.now == 255, values, self.now), None)

    def undo(self):
        if self.before:
            self.after.append(self.now)
            self.now, self.stroke = self.before.pop(), None

    def redo(self):
        if self.after:
            self.before.append(self.now)
            self.now, self.stroke = self.after.pop(), None


@settings(max_examples=100)
@given(ACTIONS)
def test_any_sequence_is_that_of_full_copies(actions):
    drawing, copies = Drawing.blank(SHAPE), Copies(np.full(SHAPE, 255, dtype=np.uint8))
    shown, version = drawing.labels.copy(), 0  # what somebody sees who follows the patches
    for name, *arguments in actions:
        if name == "paint":
            *where, stroke = arguments
            patch = drawing.paint(*where, stroke=stroke)
        else:
            patch = getattr(drawing, "fill_unlabelled" if name == "fill" else name)(*arguments)
        changed = shown.copy()
        getattr(copies, name)(*arguments)
        if patch is not None:
            (row, col), (height, width) = patch.corner, patch.values.shape
            changed[row : row + height, col : col + width] = patch.values
        np.testing.assert_array_equal(drawing.labels, copies.now)
        np.testing.assert_array_equal(changed, copies.now)
        assert (drawing.undo_box is not None, drawing.redo_box is not None) == (
            bool(copies.before),
            bool(copies.after),
        )
        assert drawing.version > version or (drawing.version == version and (changed == shown).all())
        shown, version = changed, drawing.version


def test_labels_cannot_be_written_to_and_snapshots_stay():
    drawing = Drawing(np.zeros((2, 2), dtype=np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        drawing.labels[0, 0] = 1
    before, version = drawing.snapshot()
    drawing.paint((0, 0), np.ones((1, 1), dtype=bool), 1)
    assert (before[0, 0], version, drawing.labels[0, 0], drawing.version) == (0, 0, 1, 1)


def test_forget_keeps_labels():
    drawing = Drawing.blank((2, 2))
    drawing.paint((0, 0), np.ones((1, 1), dtype=bool), 1)
    drawing.undo()
    drawing.redo()
    drawing.forget()
    assert (drawing.undo_box, drawing.redo_box, drawing.labels[0, 0]) == (None, None, 1)


def test_a_stroke_takes_memory_of_its_own_size():
    drawing = Drawing.blank((4000, 4000))
    disc = np.hypot(*np.ogrid[-20:21, -20:21]) < 20
    drawing.paint((0, 0), disc, 1)
    tracemalloc.start()
    for place in range(200):
        drawing.paint((19 * place, 19 * place), disc, place % 3)
    used, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 200 * 1500
    assert peak < 1_000_000


def test_bad_input():
    drawing, square = Drawing.blank((3, 3)), np.ones((2, 2), dtype=bool)
    for call, arguments, message in (
        (
            drawing.paint,
            [(0, 0), 1.0 * square, 1],
            "mask of shape (2, 2) and dtype float64, expected (h, w) of bool",
        ),
        (drawing.paint, [(0, 0), square, 256], "value 256: give a mask value from 0 to 254, or 255 to erase"),
        (
            drawing.fill_unlabelled,
            [square.astype(np.uint8)],
            "labels of shape (2, 2) and dtype uint8, expected (3, 3) of uint8",
        ),
        (Drawing, [1.0 * square], "labels of shape (2, 2) and dtype float64, expected (H, W) of uint8"),
    ):
        assert complaint(InputError, call, *arguments) == message
