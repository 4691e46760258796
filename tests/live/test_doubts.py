"""Labels that were made wrong are found, and right ones are not doubted."""

import numpy as np
import pytest

from segkit.errors import InputError
from segkit.images import UNLABELLED
from segkit.live import ArrayProject, LiveSession
from segkit.live.doubts import cut_into_pieces, rank_doubts
from tests.live.conftest import PATIENCE, blobs, complaint

SHAPE = (64, 80)


def test_pieces_cover_all_labels_but_crumbs():
    rng = np.random.default_rng(0)
    labels = rng.choice(np.array([0, 1, 7, UNLABELLED], np.uint8), (9, 12), p=[0.3, 0.3, 0.1, 0.3])
    labels = np.kron(labels, np.ones((5, 5), np.uint8))
    pieces = cut_into_pieces(labels)
    covered = np.zeros(labels.shape, dtype=int)
    for place, (top, left, bottom, right) in enumerate(pieces.boxes):
        assert max(bottom - top, right - left) <= 8
        own = pieces.piece == place
        rows, cols = pieces.rows[own], pieces.cols[own]
        assert (labels[rows, cols] == pieces.values[place]).all()
        assert (rows.min(), cols.min(), rows.max() + 1, cols.max() + 1) >= (top, left, 0, 0)
        covered[rows, cols] += 1
    assert covered.max() == 1
    assert pieces.areas.sum() == covered.sum()  # each piece has fewer than 64 pixels
    left_out = (covered == 0) & (labels != UNLABELLED)
    assert left_out.sum() < 0.2 * (labels != UNLABELLED).sum()


def test_a_large_piece_is_checked_by_some_of_its_pixels():
    pieces = cut_into_pieces(np.zeros((120, 120), np.uint8))
    assert len(pieces.boxes) == 36
    assert set(np.bincount(pieces.piece)) == {64}
    assert set(pieces.areas) == {400}


def test_an_image_without_labels_has_no_pieces():
    pieces = cut_into_pieces(np.full(SHAPE, UNLABELLED, np.uint8))
    assert pieces.boxes == []
    assert pieces.rows.size == 0
    assert rank_doubts({"a": pieces}, [np.empty((0, 2))], np.array([0, 1], np.uint8)) == ()


def test_doubts_against_a_loop(rng):
    values = np.array([0, 3, 9], np.uint8)
    labels = np.kron(rng.choice(values, (6, 7)), np.ones((9, 9), np.uint8))
    pieces = cut_into_pieces(labels)
    probabilities = rng.dirichlet(np.ones(3), pieces.rows.size)
    probabilities[pieces.piece == 0] = np.nan
    expected = []
    for place in range(1, len(pieces.boxes)):
        mean = probabilities[pieces.piece == place].mean(axis=0)
        own = values.tolist().index(pieces.values[place])
        wrong = 1 - mean[own]
        if wrong > 0.5:
            other = max((i for i in range(3) if i != own), key=lambda i: mean[i])
            expected.append(
                (np.log(pieces.areas[place]) * (wrong - 0.5), pieces.boxes[place], values[other], wrong)
            )
    expected = sorted(expected, key=lambda one: -one[0])[:30]
    found = rank_doubts({"a": pieces}, [probabilities], values)
    assert [(one.key, one.box, one.predicted) for one in found] == [
        ("a", box, other) for _, box, other, _ in expected
    ]
    np.testing.assert_allclose([one.share for one in found], [one[3] for one in expected])


def test_where_no_label_can_be_checked_it_is_told(cache):
    """Each class has labels in one image only: held out, nothing knows it."""
    scenes = {key: blobs((128, 160), seed)[0] for seed, key in enumerate("ab")}
    with LiveSession(ArrayProject(scenes), cache=cache) as session:
        for value, key in enumerate("ab"):
            session.paint(key, (0, 0), np.ones((40, 40), dtype=bool), value)
        told = complaint(InputError, session.check_labels)
        assert told.startswith(
            "no label can be checked yet: draw strokes of each class in two images or more"
        )


@pytest.mark.parametrize("keys", ["a", "abcdefg"])
def test_labels_made_wrong_come_first(cache, keys):
    """Of one image blocks are held out, of several whole images."""
    scenes = {key: blobs((128, 160), seed) for seed, key in enumerate(keys)}
    wrong = np.zeros((128, 160), dtype=bool)
    wrong[40:52, 60:72] = True
    with LiveSession(
        ArrayProject({key: image for key, (image, _) in scenes.items()}), cache=cache
    ) as session:
        assert "nothing is learnt yet" in complaint(InputError, session.check_labels)
        for key, (_, mask) in scenes.items():
            drawn = np.where(wrong, 1 - mask, mask) if key == "a" else mask
            for value in (0, 1):
                session.paint(key, (0, 0), drawn == value, value)
        session.open("a")
        assert session.wait(PATIENCE)
        first = session.check_labels()[0]
        assert first.key == "a"
        top, left, bottom, right = first.box
        assert wrong[top:bottom, left:right].any()
        assert first.share > 0.6
        assert first.predicted == 1 - first.value
        session.paint("a", (40, 60), scenes["a"][1][40:52, 60:72] == 0, 0)
        session.paint("a", (40, 60), scenes["a"][1][40:52, 60:72] == 1, 1)
        doubts = session.check_labels()
        assert not any(
            wrong[d.box[0] : d.box[2], d.box[1] : d.box[3]].mean() > 0.5 for d in doubts if d.key == "a"
        )
