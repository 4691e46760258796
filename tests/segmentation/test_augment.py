from types import SimpleNamespace

import numpy as np
import pytest
from skimage.transform import AffineTransform

from segkit import Segmenter, load
from segkit.cli.terminal import describe_training
from segkit.errors import ConfigError
from segkit.features import MultiscaleBank
from segkit.images import UNLABELLED
from segkit.segmentation.augment import _keeps_classes, _relight, _similarity, augment


def scene(shape=(60, 72), *, turn=0):
    """A bright bar on a dark ground, horizontal; `turn` quarters turn it."""
    ids = np.zeros(shape, dtype=np.uint8)
    ids[25:35, 15:55] = 1
    ids = np.ascontiguousarray(np.rot90(ids, turn))
    noise = np.random.default_rng(turn).normal(0, 0.02, (*ids.shape, 3))
    return np.clip(0.3 + 0.3 * ids[..., None] + noise, 0, 1).astype(np.float32), ids


def test_copies_are_images_with_the_classes_of_the_original(rng):
    image, ids = scene()
    ids[:5] = UNLABELLED
    images, masks = augment(image, ids, 12, rng)
    assert len(images) == len(masks) == 12
    for copy, mask in zip(images, masks, strict=True):
        assert copy.shape == image.shape
        assert copy.dtype == np.float32
        assert copy.min() >= 0 <= copy.max() <= 1
        assert set(np.unique(mask)) <= {0, 1, UNLABELLED}
        for label in (0, 1):
            assert np.mean(mask == label) >= 0.2 * np.mean(ids == label)
    areas = [np.mean(mask == 1) for mask in masks]
    assert min(areas) < np.mean(ids == 1) < max(areas)  # smaller ones and larger ones


def test_masks_move_with_their_images(rng):
    image, ids = scene()
    for copy, mask in zip(*augment(image, ids, 12, rng), strict=True):
        grey = copy.mean(axis=2)
        assert grey[mask == 1].mean() > grey[mask == 0].mean() + 0.1
        middle = (np.median(grey[mask == 1]) + np.median(grey[mask == 0])) / 2
        assert np.mean((grey > middle) == (mask == 1)) > 0.95


def test_the_same_seed_gives_the_same_copies():
    image, ids = scene()
    first, second, other = (augment(image, ids, 3, np.random.default_rng(seed)) for seed in (0, 0, 1))
    for a, b in zip(first[0] + first[1], second[0] + second[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(first[0], other[0], strict=True))


def test_a_class_is_never_lost_for_long():
    """Few pixels of a class leave some draws: those are drawn again."""
    image, ids = scene()
    ids[:] = 0
    ids[28:32, 33:37] = 1
    masks = augment(image, ids, 20, np.random.default_rng(0))[1]
    assert all((mask == 1).any() for mask in masks)


def segmenter(**options):
    bank = MultiscaleBank(sigma_max=4)
    return Segmenter(bank, selection_pixels=600, training_pixels=2000, **options)


def test_copies_teach_an_image_in_other_light():
    """The bar is brighter than its ground in every copy, by another step each time."""
    image, ids = scene()
    dim, _ = scene(turn=1)
    dim = (0.35 * dim**1.3).astype(np.float32)
    truth = scene(turn=1)[1]
    plain = segmenter(threshold="zero").fit([image], [ids]).score([dim], [truth])
    taught = segmenter(threshold="zero", n_augmented=10).fit([image], [ids]).score([dim], [truth])
    assert taught > plain + 0.05


def test_copies_are_no_images(tmp_path):
    """What is told of the training is told of one image, held out by parts: copies say nothing of other images."""
    image, ids = scene()
    model = segmenter(n_augmented=5).fit([image], [ids])
    plain = segmenter().fit([image], [ids])
    assert model.summary_.n_images == plain.summary_.n_images == 1
    assert (model.held_out_.regions, plain.held_out_.regions) == ("copies", "blocks")
    assert model.held_out_.scores[0]["image"] is None
    told = describe_training(model.summary_, model.label_map_, ["x"], explain=True)
    assert "only copies of it could be held out" in told
    assert "each copy of the image held out in turn" in told
    assert "from copy to copy" in told
    assert model.otsu_weight_ == plain.otsu_weight_ == pytest.approx(2 / 3)
    assert model.alarms_.n_images == 1
    assert plain.alarms_.known is None is model.alarms_.known  # one image does not tell what is usual
    model.save(tmp_path / "m.segkit")
    again = load(tmp_path / "m.segkit")
    assert again.n_augmented == 5
    np.testing.assert_array_equal(again.predict(image), model.predict(image))


def test_two_images_have_no_copies():
    (image, ids), (other, its) = scene(), scene(turn=1)
    plain, asked = (segmenter(n_augmented=n).fit([image, other], [ids, its]) for n in (0, 9))
    np.testing.assert_array_equal(plain.decision_function(image), asked.decision_function(image))


@pytest.mark.parametrize("number", [-1, 2.5, True, "many"])
def test_a_number_of_copies_is_a_whole_number(number):
    image, ids = scene()
    with pytest.raises(ConfigError, match=r"n_augmented=.*: give a number of copies, 0 or more"):
        segmenter(n_augmented=number).fit([image], [ids])


def test_motions_are_similarities_about_the_centre_mirrored_or_not(rng):
    motions = [_similarity((60, 72), rng) for _ in range(60)]
    for motion in motions:
        first, second = np.linalg.svd(motion.params[:2, :2], compute_uv=False)
        assert first == pytest.approx(second)
        assert 0.5 < first < 2
        moved = motion(np.array([[35.5, 29.5]]))[0] - (35.5, 29.5)
        assert (np.abs(moved) < (0.5 * 72, 0.5 * 60)).all()
    n_mirrored = sum(np.linalg.det(motion.params[:2, :2]) < 0 for motion in motions)
    assert 15 < n_mirrored < 45


@pytest.mark.parametrize(("n_left", "keeps"), [(40, True), (10, True), (1, False), (0, False)])
def test_a_copy_keeps_a_share_of_the_pixels_of_each_class(n_left, keeps):
    ids, moved = np.zeros((20, 20), dtype=np.uint8), np.zeros((20, 20), dtype=np.uint8)
    ids.ravel()[:40], moved.ravel()[:n_left] = 1, 1
    ids[-1], moved[-1] = UNLABELLED, 0
    assert _keeps_classes(ids, moved) == keeps


def test_a_copy_keeps_exactly_a_fifth_of_a_class():
    ids = np.zeros((20, 20), dtype=np.uint8)
    for n_left, keeps in ((80, True), (79, False)):
        moved = np.full(ids.shape, UNLABELLED, dtype=np.uint8)
        moved.ravel()[:n_left] = 0
        assert _keeps_classes(ids, moved) == keeps


def drawn(*places, mirror=1):
    """Draws of given places between the ends of each range, in their order, and a given mirror."""
    left = list(places)

    def uniform(low, high, size=None):
        mine = [left.pop(0) for _ in range(size or 1)]
        found = low + (high - low) * np.array(mine)
        return found if size else found[0]

    def choice(given):
        assert sorted(given) == [-1, 1]
        return mirror

    return SimpleNamespace(uniform=uniform, choice=choice)


def test_a_draw_in_the_middle_of_each_range_moves_nothing():
    np.testing.assert_allclose(_similarity((60, 72), drawn(*[0.5] * 4)).params, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("mirror", [-1, 1])
def test_the_largest_motion(mirror):
    """Larger by e^0.5, turned by a quarter, moved by 0.15 of the width and height about the centre."""
    motion = _similarity((61, 73), drawn(1, 0.75, 1, 0, mirror=mirror))
    centre, right, below = motion(np.array([[36, 30], [37, 30], [36, 31]]))
    np.testing.assert_allclose(centre, [36 + 0.15 * 73, 30 - 0.15 * 61])
    np.testing.assert_allclose(right - centre, [0, np.exp(0.5)], atol=1e-12)
    np.testing.assert_allclose(below - centre, [-mirror * np.exp(0.5), 0], atol=1e-12)


def test_light_changes_by_a_gamma_a_gain_and_gains_of_the_channels():
    scales = []

    def normal(mean, scale, size=None):
        scales.append(scale)
        assert mean == 0
        return np.array(scale) if size is None else scale * np.arange(size)

    image = np.array([[[0.25, 0.5, 0.9], [-0.1, 1.2, 0.1]]], dtype=np.float32)
    found = _relight(image, SimpleNamespace(normal=normal))
    assert scales == [(0.2, 0.12), 0.06]
    gains = np.exp(0.12 + 0.06 * np.arange(3))
    expected = gains * np.array([[0.25, 0.5, 0.9], [0, 1, 0.1]]) ** np.exp(0.2)
    np.testing.assert_allclose(found[0], np.minimum(expected, 1), rtol=1e-6)
    assert found.dtype == np.float32


def test_images_are_interpolated_and_ids_are_not(monkeypatch):
    shift = AffineTransform(translation=(0.75, 0))
    monkeypatch.setattr("segkit.segmentation.augment._similarity", lambda shape, rng: shift)
    monkeypatch.setattr("segkit.segmentation.augment._relight", lambda image, rng: image)
    image = np.zeros((5, 6, 1), dtype=np.float32)
    image[:, 3] = 1
    ids = (9 * image[:, :, 0]).astype(np.uint8)
    [copy], [mask] = augment(image, ids, 1, np.random.default_rng(0))
    np.testing.assert_allclose(copy[2, :, 0], [0, 0, 0.75, 0.25, 0, 0], atol=1e-6)
    assert mask[2].tolist() == [0, 0, 9, 0, 0, 0]


def test_a_copy_that_loses_a_class_is_drawn_anew_up_to_ten_times(rng, monkeypatch):
    image, ids = scene()
    answers = [False, False, True]
    calls = []

    def similarity(shape, rng, original=_similarity):
        calls.append(shape)
        return original(shape, rng)

    monkeypatch.setattr("segkit.segmentation.augment._similarity", similarity)
    monkeypatch.setattr("segkit.segmentation.augment._keeps_classes", lambda *_: answers[len(calls) - 1])
    augment(image, ids, 1, rng)
    assert calls == [ids.shape] * 3
    calls.clear()
    answers[:] = [False] * 99
    augment(image, ids, 2, rng)
    assert len(calls) == 20
