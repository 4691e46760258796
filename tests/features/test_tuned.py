import pickle
import sys
from copy import copy

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn.base import clone
from threadpoolctl import threadpool_limits
from torchvision.models import mobilenet_v2

from segkit import Segmenter, load
from segkit._common import pass_on
from segkit.errors import ConfigError, InputError, ModelFileError, WeightsError
from segkit.features import (
    OrbitAveraged,
    ScatteringBank,
    StackedBank,
    TunedBank,
    bank_from_dict,
    bank_to_dict,
)
from segkit.features import tiles as tiles_module
from segkit.features import tuned as tuned_module
from segkit.features.weights import read_weights
from segkit.images import UNLABELLED
from segkit.networks.crops import CropSampler
from segkit.networks.pyramid import build, levels_of
from segkit.networks.training import cross_entropy_and_dice, soft_cross_entropy_and_dice
from segkit.objects.choose import choose
from segkit.segmentation.model_file import describe, write_model

FEW_STEPS = pytest.mark.filterwarnings(
    "ignore:none of the 1 kernels separates the classes", "ignore:the model gives .* everywhere"
)
OPTIONS = {"weights": "random", "pyramid": (1.0,), "n_steps": 1, "symmetries": False}


def picture(seed, shape, *, n_classes=2, n_channels=3, width=4):
    """An image of noise on stripes, and the stripes."""
    rng = np.random.default_rng(seed)
    mask = np.broadcast_to(np.arange(shape[1]) // width % n_classes, shape).astype(np.uint8)
    noise = rng.random((*shape, n_channels), dtype=np.float32)
    return np.float32(0.5 * noise + 0.5 * mask[..., None] / n_classes), mask


def pictures(n, shape=(40, 48), **options):
    return map(list, zip(*(picture(seed, shape, **options) for seed in range(n)), strict=True))


def fit_and_record(bank, images, ids, **options):
    """Fit a bank; returns it, and the images and class ids that each of its networks was given."""
    given = []

    class Recorder(CropSampler):
        def __init__(self, images, ids, **options):
            given.append((images, ids))
            super().__init__(images, ids, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("segkit.networks.crops.CropSampler", Recorder)
        bank.fit(images, ids, **options)
    return bank, given


def alone(bank, part):
    """A bank of a single network of another, such as "1/0": that of scale 1 and the first fold."""
    weights = bank.weights_used(np.arange(bank.n_channels()), 3)
    mine = clone(bank)
    mine.use_weights({name: value for name, value in weights.items() if name.startswith(f"{part}/")})
    return mine


@pytest.fixture(scope="module")
def several():
    """Three images, of which two hold a third class, their masks, the bank, and what its networks were given."""
    images, masks = pictures(3)
    for mask in masks[:2]:
        mask[:9] = 2
    return images, masks, *fit_and_record(TunedBank(**OPTIONS), images, masks)


@pytest.fixture(scope="module")
def single():
    """One image, its mask, the bank of two scales, and what its networks were given."""
    image, mask = picture(0, (128, 192), width=32)
    bank = TunedBank(**OPTIONS | {"pyramid": (0.25, 1.0, 0.5)})
    return image, mask, *fit_and_record(bank, [image], [mask])


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "initial.pth"
    torch.save(mobilenet_v2(weights=None).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def segmenter():
    """A model that keeps a logit: networks of one step know little, so that it takes some seeds to find one."""
    images, masks = pictures(2)
    bank = StackedBank([ScatteringBank(J=1, L=2), TunedBank(**OPTIONS)])
    for seed in range(20):
        model = Segmenter(bank, training_pixels=400, selection_pixels=200, random_state=seed)
        if any("logit" in name for name, _ in model.fit(images, masks).channels_):
            return model
    pytest.fail("no model keeps a logit")


def test_of_more_classes_each_has_a_channel_less_their_mean(several):
    images, _, bank, _ = several
    assert [name for name, _ in bank.channels()] == ["logit/0@1", "logit/1@1", "logit/2@1"]
    assert (bank.n_channels(), bank.n_classes_) == (3, 3)
    maps = bank.dense(images[0])
    assert maps.shape == (3, 40, 48)
    np.testing.assert_allclose(maps.sum(axis=0), 0, atol=1e-5)
    assert not bank.centred().any()


def with_parts(masks):
    """Inside and rim of stripes: every other row is rim."""
    parts = [np.where(mask > 0, 1 + np.arange(len(mask))[:, None] % 2, 0).astype(np.uint8) for mask in masks]
    for mask, own in zip(masks, parts, strict=True):
        own[mask == UNLABELLED] = UNLABELLED
    return parts


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_depth_in_objects_has_a_channel_of_its_own(n_classes):
    images, masks = pictures(2, n_classes=n_classes)
    masks[0][:3] = UNLABELLED
    parts = with_parts(masks)
    bank, given = fit_and_record(TunedBank(**OPTIONS), images, masks, parts=parts)
    own = ["logit/1@1"] if n_classes == 2 else ["logit/0@1", "logit/1@1", "logit/2@1"]
    assert [name for name, _ in bank.channels()] == [*own, "depth@1"]
    assert bank.channels()[-1].group == "depth in objects at 1"
    maps = bank.dense(images[0])
    assert maps.shape == (len(own) + 1, 40, 48)
    assert bank.describe_training()[0].endswith(" Beside the classes they learnt the depth in objects.")
    # crops are varied with classes and parts in one number
    assert [len(targets) for _, targets in given] == [1, 1, 2]
    for target in (target for _, targets in given for target in targets):
        place = 0 if (target == UNLABELLED).any() else 1
        known = target != UNLABELLED
        np.testing.assert_array_equal(known, masks[place] != UNLABELLED)
        np.testing.assert_array_equal(target[known] // 4, masks[place][known])
        np.testing.assert_array_equal(target[known] % 4, parts[place][known])
    # also from the weights alone
    again = TunedBank(**OPTIONS)
    again.use_weights(bank.weights_used(np.arange(bank.n_channels()), 3))
    assert (again.n_classes_, again.knows_depth_) == (n_classes, True)
    np.testing.assert_allclose(again.dense(images[0]), maps, atol=1e-6)


def test_the_loss_of_the_depth_is_added_to_that_of_classes(rng):
    """The depth is the share of the core that a part has: 0, 1/2 and 1 of three parts, and the fourth stands for unknown."""
    ids, parts = rng.integers(0, 2, (2, 4, 5)), rng.integers(0, 4, (2, 4, 5))
    nothing = rng.random(ids.shape) < 0.3
    scores = torch.from_numpy(rng.standard_normal((2, 3, 4, 5)))
    pair = torch.from_numpy(np.where(nothing, UNLABELLED, 4 * ids + parts))
    by_class = cross_entropy_and_dice(scores[:, :2], torch.from_numpy(np.where(nothing, UNLABELLED, ids)))
    depth = torch.from_numpy(parts / 2)
    by_depth = soft_cross_entropy_and_dice(scores[:, 2:], depth, torch.from_numpy(~nothing & (parts < 3)))
    assert tuned_module._loss(scores, pair, n_parts=3).item() == pytest.approx(
        (by_class + 2 * by_depth).item(), rel=1e-6
    )


def test_parts_reach_a_bank_among_others():
    images, masks = pictures(2)
    stacked = StackedBank([ScatteringBank(J=1, L=2), TunedBank(**OPTIONS)]).fit(
        images, masks, parts=with_parts(masks)
    )
    assert stacked.channels(3)[-1].name == "depth@1"


@pytest.mark.parametrize("parts", ["none", "all alike"])
def test_parts_that_tell_no_more_than_classes_are_not_learnt(parts):
    """Such as objects that lie in unlabelled pixels, or of a pixel each."""
    images, masks = pictures(2)
    given = [0 * mask if parts == "none" else mask for mask in masks]
    assert not TunedBank(**OPTIONS).fit(images, masks, parts=given).knows_depth_


def test_parts_of_more_classes_than_a_byte_holds_are_not_learnt():
    images, masks = pictures(2, (40, 192), n_classes=86, width=1)
    bank = TunedBank(**OPTIONS).fit(images, masks, parts=with_parts(masks))
    assert (bank.n_classes_, bank.knows_depth_) == (86, False)
    assert "depth" not in bank.describe_training()[0]


@FEW_STEPS
def test_objects_are_told_apart_by_what_the_networks_know_of_their_depth(tmp_path, monkeypatch):
    """The model file brings the depth along."""
    images, masks = pictures(3, (48, 64), width=8)
    objects = [8 * (np.arange(64) // 16).astype(np.int32) * mask + mask for mask in masks]
    told = []

    def choose_as_told(*given, **options):
        told.append(options["is_smooth"])
        return choose(*given, **options)

    monkeypatch.setattr("segkit.segmentation.object_model.choose", choose_as_told)
    model = Segmenter(TunedBank(**OPTIONS), training_pixels=600, selection_pixels=300, random_state=0)
    model.fit(images, masks, instances=objects)
    assert told == [True]
    assert model.bank_.knows_depth_
    model.save(tmp_path / "m.segkit")
    again = load(tmp_path / "m.segkit")
    found = [one.segment(images[0], objects=True) for one in (model, again)]
    np.testing.assert_array_equal(found[0].objects, found[1].objects)
    np.testing.assert_allclose(found[0].probability, found[1].probability, atol=1e-3)


def test_of_two_classes_a_scale_has_one_channel_and_small_scales_are_left_out(single):
    image, _, bank, given = single
    assert bank.channels() == (("logit/1@1", "logits at 1"), ("logit/1@0.5", "logits at 0.5"))
    assert bank.strides().tolist() == [2, 4]
    assert [stack.values.shape for stack in bank.maps(image)] == [(1, 64, 96), (1, 32, 48)]
    shapes = [images[0].shape for images, _ in given]
    assert shapes == [(128, 192, 3)] * 3 + [(64, 96, 3)] * 3


@pytest.mark.parametrize(("pyramid", "n_steps"), [((1.0,), 5), ((1.0, 0.5), 2)])
def test_scales_share_the_steps(pyramid, n_steps, monkeypatch):
    monkeypatch.setattr(tuned_module, "_STEPS_AT_ONCE", 1)
    images, masks = pictures(2, (128, 130), width=32)
    planned = []

    def plan(items, description):
        planned.append((description, len(items)))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TunedBank(**OPTIONS | {"pyramid": pyramid, "n_steps": 5}).fit(images, masks, progress=plan)
    assert planned == [(f"Training {3 * len(pyramid)} networks", n_steps)]


def test_the_coarse_scale_sees_means_of_pixels(single):
    image, mask, _, given = single
    [small], [ids] = given[3]
    np.testing.assert_allclose(small, image.reshape(64, 2, 96, 2, 3).mean(axis=(1, 3)), atol=1e-6)
    np.testing.assert_array_equal(ids[ids != UNLABELLED], mask[1::2, 1::2][ids != UNLABELLED])


def test_maps_of_a_training_image_come_from_the_network_that_did_not_see_it(several):
    images, _, bank, given = several
    assert len(given) == 3
    for index, image in enumerate(images):
        [fold] = [fold for fold, (seen, _) in enumerate(given) if not any(one is image for one in seen)]
        held_out = bank.cross_fitted(index)
        np.testing.assert_array_equal(held_out.dense(image), alone(bank, f"1/{fold}").dense(image))
    mean = np.mean([alone(bank, f"1/{fold}").dense(images[0]) for fold in range(3)], axis=0)
    np.testing.assert_allclose(bank.dense(images[0]), mean, atol=1e-5)


def test_maps_of_a_training_image_come_from_the_network_that_saw_none_of_its_group():
    images, masks = pictures(4)
    _, given = fit_and_record(TunedBank(**OPTIONS), images, masks, groups=np.array([0, 1, 0, 1]))
    places = [
        {place for place, image in enumerate(images) if any(np.array_equal(image, one) for one in learnt)}
        for learnt, _ in given[:3]
    ]
    assert places == [{1, 3}, {0, 2}, {0, 1, 2, 3}]


def test_maps_of_a_single_image_come_from_networks_that_did_not_see_those_blocks(single):
    image, mask, bank, given = single
    learnt = [ids[0] for _, ids in given[:2]]
    seen = [ids != UNLABELLED for ids in learnt]
    guard = ~(seen[0] | seen[1])
    assert not (seen[0] & seen[1]).any()
    assert 0.05 < guard.mean() < 0.5
    for ids in learnt:
        np.testing.assert_array_equal(ids[ids != UNLABELLED], mask[ids != UNLABELLED])
    held_out = bank.cross_fitted(0).dense(image)[0]
    for fold in (0, 1):
        own = alone(bank, f"1/{fold}").dense(image)[0]
        # what the other network learnt from, but for neighbouring cells, is held out here
        inside = seen[1 - fold]
        np.testing.assert_array_equal(held_out[inside], own[inside])
        assert (held_out[seen[fold]] != own[seen[fold]]).mean() > 0.99


def test_maps_of_images_of_one_class_each_come_from_networks_that_did_not_see_that_half():
    images, _ = pictures(2, (96, 96))
    masks = [np.full((96, 96), label, dtype=np.uint8) for label in (0, 1)]
    bank, given = fit_and_record(TunedBank(**OPTIONS), images, masks)
    assert [[set(np.unique(mask)) - {UNLABELLED} for mask in ids] for _, ids in given] == [[{0}, {1}]] * 3
    for index, image in enumerate(images):
        held_out = bank.cross_fitted(index).dense(image)[0]
        for fold in (0, 1):
            seen_by_other = given[1 - fold][1][index] != UNLABELLED
            own = alone(bank, f"1/{fold}").dense(image)[0]
            np.testing.assert_array_equal(held_out[seen_by_other], own[seen_by_other])


def test_maps_of_a_training_image_by_tiles_are_those_of_the_whole(single, monkeypatch):
    image, _, bank, _ = single
    rows, cols = np.random.default_rng(0).uniform(0, 128, (2, 300))
    held_out = bank.cross_fitted(0)
    expected = held_out.sample(image, rows, cols)
    monkeypatch.setattr(tiles_module, "PIXELS_AT_ONCE", 60**2)
    tiles = tiles_module.cut(image.shape, 0, 16)
    assert len(tiles) > 1
    monkeypatch.setattr(type(held_out), "tiles", lambda *_: tiles)
    np.testing.assert_allclose(held_out.sample(image, rows, cols), expected, atol=1e-5)


def test_tiles_of_a_large_image_hardly_show(shared, rng, monkeypatch):
    """Of a network that knows ImageNet; its head is random, and half of the pixels are on either side of the threshold."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        state = read_weights(shared / "weights" / "mobilenet_v2_rgb_f32.npz")
        weights = build("mobilenet_v2", state, 3, 2).state_dict()
    bank = TunedBank(symmetries=False)
    bank.use_weights({f"1/0/{name}": value.half().numpy() for name, value in weights.items()})
    noise = rng.standard_normal((3, 300, 1500, 3))
    image = sum(
        size * ndimage.gaussian_filter(one, (size, size, 0))
        for size, one in zip((1, 4, 16), noise, strict=True)
    )
    image = np.float32((image - image.min()) / np.ptp(image))
    expected = bank.dense(image)[0]
    rows, cols = np.indices(expected.shape)
    monkeypatch.setattr(tiles_module, "PIXELS_AT_ONCE", 2**14)
    assert len(bank.tiles(image.shape)) > 2
    found = bank.sample(image, rows.ravel(), cols.ravel()).reshape(expected.shape)
    assert abs(found - expected).max() < 0.05 * expected.std()
    threshold = np.median(expected)
    assert ((found > threshold) == (expected > threshold)).mean() > 0.999


def test_maps_are_a_mean_over_turned_images_each_seen_by_a_network_in_turn(single):
    image, _, bank, _ = single
    both = copy(bank).set_params(symmetries=True)
    networks = [alone(bank, part) for part in ("1/0", "1/1", "1/all")]
    turned = []
    for swap in (False, True):
        for step in (slice(None), slice(None, None, -1)):
            for across in (slice(None), slice(None, None, -1)):
                seen = image[step, across]
                seen = seen.swapaxes(0, 1) if swap else seen
                [found] = networks[len(turned) % 3].dense(seen)
                turned.append((found.T if swap else found)[step, across])
    np.testing.assert_allclose(both.dense(image)[0], np.mean(turned, axis=0), atol=1e-5)
    np.testing.assert_allclose(
        bank.dense(image)[0], np.mean([one.dense(image)[0] for one in networks], axis=0), atol=1e-5
    )


def test_maps_of_one_network_turn_with_the_image(single):
    image, _, bank, _ = single
    one = alone(bank, "1/0")
    both = copy(one).set_params(symmetries=True)
    maps = both.dense(image).transpose(1, 2, 0)
    for turn in (np.rot90, np.fliplr, lambda a: a.swapaxes(0, 1)):
        np.testing.assert_allclose(both.dense(turn(image)).transpose(1, 2, 0), turn(maps), atol=1e-4)
    assert abs(np.fliplr(one.dense(image)[0]) - one.dense(np.fliplr(image))[0]).max() > 1e-3


def test_maps_of_a_training_image_are_not_averaged_over_a_group(several):
    images, masks, _, _ = several
    bank = StackedBank([ScatteringBank(J=1, L=2), OrbitAveraged(StackedBank([TunedBank()]))])
    with pytest.raises(ConfigError, match="leave OrbitAveraged out"):
        Segmenter(bank).fit(images, masks)


def test_quick_is_one_network_of_each_scale_without_symmetries(single):
    image, _, bank, _ = single
    one = clone(bank)
    weights = bank.weights_used(np.arange(2), 3)
    one.use_weights({name: value for name, value in weights.items() if name.split("/")[1] == "all"})
    bank = copy(bank).set_params(symmetries=True)
    np.testing.assert_array_equal(bank.quick().dense(image), one.dense(image))
    assert bank.symmetries
    stacked = StackedBank([TunedBank(), ScatteringBank(J=1, L=2)])
    stacked.banks_ = [bank, stacked.banks[1]]
    np.testing.assert_array_equal(stacked.quick().dense(image)[:2], one.dense(image))


def test_wanted_channels_and_sampled_pixels_are_those_of_all_maps(single):
    image, _, bank, _ = single
    everything = bank.dense(image)
    np.testing.assert_array_equal(bank.dense(image, [1]), everything[[1]])
    np.testing.assert_array_equal(bank.dense(image, [1, 0]), everything[[1, 0]])
    rows, cols = np.random.default_rng(0).integers(128, size=(2, 50))
    np.testing.assert_array_equal(bank.sample(image, rows, cols, [1, 0]), everything[[1, 0]][:, rows, cols].T)
    for channels in ([2], [0, -1], [1, 1]):
        with pytest.raises(InputError, match="give indices from 0 to 1, each once"):
            bank.dense(image, channels)


def test_logits_are_clipped(several, monkeypatch):
    images, _, bank, _ = several
    [before] = alone(bank, "1/0").maps(images[0])
    most = np.abs(before.values).max() / 4
    monkeypatch.setattr(tuned_module, "MOST_LOGIT", most)
    [maps] = alone(bank, "1/0").maps(images[0])
    np.testing.assert_array_equal(maps.values, np.clip(before.values, -most, most))


def test_the_same_seed_gives_the_same_bank_and_leaves_the_generators_alone(several):
    images, masks, bank, _ = several
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    again = clone(bank).fit(images, masks)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    np.testing.assert_array_equal(again.dense(images[0]), bank.dense(images[0]))


def test_weights_of_a_bank_make_the_same_bank(single):
    image, _, bank, _ = single
    torch.manual_seed(5)
    before = torch.get_rng_state()
    weights = bank.weights_used(np.arange(2), 3)
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float16)}
    again = clone(bank)
    again.use_weights(weights)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(again.dense(image), bank.dense(image))
    coarse = clone(bank)
    coarse.use_weights(bank.weights_used(np.array([1]), 3))
    assert coarse.channels() == bank.channels()[1:]
    np.testing.assert_array_equal(coarse.dense(image)[0], bank.dense(image)[1])


def test_weights_of_an_encoder_of_stride_4_make_the_same_bank():
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    images, masks = pictures(2)
    bank = TunedBank("test_convnext", **OPTIONS).fit(images, masks)
    again = clone(bank)
    again.use_weights(bank.weights_used(np.arange(1), 3))
    assert (again.n_classes_, set(again.strides())) == (2, {4})
    np.testing.assert_array_equal(again.dense(images[0]), bank.dense(images[0]))


def test_what_weights_lack_is_told_apart(monkeypatch):
    weights = {"1/0/score.bias": np.zeros(8, dtype=np.float16)}
    with pytest.raises(
        InputError, match="its weights are not those of a network on mobilenet_v2; copy it anew"
    ):
        TunedBank().use_weights(weights)
    levels_of.cache_clear()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match="network resnet18 needs timm, which is not installed"):
        TunedBank("resnet18").use_weights(weights)


def test_copies_and_clones(single):
    image, _, bank, _ = single
    again = pickle.loads(pickle.dumps(bank))
    np.testing.assert_array_equal(again.dense(image), bank.dense(image))
    np.testing.assert_array_equal(again.cross_fitted(0).dense(image), bank.cross_fitted(0).dense(image))
    assert clone(bank).get_params() == bank.get_params()
    assert not hasattr(clone(bank), "scales_")
    assert bank_to_dict(bank_from_dict(bank_to_dict(bank))) == bank_to_dict(bank)


def test_a_model_file_gives_the_same_decisions(segmenter, tmp_path):
    image, _ = picture(7, (50, 70))
    segmenter.save(tmp_path / "model.segkit")
    again = load(tmp_path / "model.segkit")
    np.testing.assert_array_equal(again.predict_proba(image), segmenter.predict_proba(image))
    assert any("logit" in name for name, _ in segmenter.channels_)


@pytest.mark.parametrize("lost", ["weights.", "weights.1/1/0/score.bias", "weights.1/1/1/"])
def test_a_model_file_without_weights_is_refused(lost, segmenter, tmp_path):
    header, arrays = describe(segmenter, embed_weights=False)
    kept = {name: array for name, array in arrays.items() if not name.startswith(lost)}
    assert len(kept) < len(arrays)
    write_model(tmp_path / "model.segkit", header, kept)
    with pytest.raises(ModelFileError, match=r"copy it anew,? or train again") as caught:
        load(tmp_path / "model.segkit")
    assert "\n" not in str(caught.value)


def test_a_fitted_segmenter_holds_no_maps_of_its_training_images(segmenter):
    tuned = segmenter.bank_.banks_[1]
    assert not hasattr(tuned, "_cross_fitted")
    image, _ = picture(7, (50, 70))
    again = pickle.loads(pickle.dumps(segmenter))
    np.testing.assert_array_equal(again.predict_proba(image), segmenter.predict_proba(image))


@FEW_STEPS
@pytest.mark.slow
def test_banks_of_other_processes_bring_the_maps_of_the_training_images(tmp_path, monkeypatch):
    """Channels are read after the banks came back, if memory is short."""
    monkeypatch.setattr("segkit.segmentation.fit.MEMORY_LIMIT", 0)

    def workers(function, items):
        for item in items:
            found = pickle.loads(pickle.dumps(function(item)))
            yield item, lambda found=found: found

    images, masks = pictures(2)
    segmenter = Segmenter(
        [TunedBank(**OPTIONS), TunedBank(**OPTIONS, random_state=1)],
        training_pixels=400,
        selection_pixels=200,
        random_state=0,
    )
    segmenter.fit(images, masks, n_jobs=workers, checkpoint=tmp_path / "model.pt")
    assert not list(tmp_path.iterdir())
    assert not hasattr(segmenter.bank_, "_cross_fitted")
    assert segmenter.predict(images[0]).shape == (40, 48)


def stop_at(network, n_steps):
    """Progress that is interrupted in a network, after some steps."""

    def progress(items, description):
        for count, item in enumerate(items):
            if description.startswith(network) and count == n_steps:
                raise KeyboardInterrupt
            yield item

    return progress


def test_an_interrupted_training_goes_on(weights_file, tmp_path, monkeypatch):
    """Where the initial weights lie, and how maps are read, has no influence."""
    monkeypatch.setattr(tuned_module, "_SAVE_EVERY", 1)
    monkeypatch.setattr(tuned_module, "_STEPS_AT_ONCE", 1)
    images, masks = pictures(2)
    options = {"pyramid": (1.0,), "n_steps": 2, "symmetries": False}
    whole = TunedBank(weights=weights_file, **options).fit(images, masks)
    path, moved = tmp_path / "folder" / "bank.pt", tmp_path / "moved.pth"
    moved.write_bytes(weights_file.read_bytes())
    with pytest.raises(KeyboardInterrupt):
        TunedBank(weights=weights_file, **options).fit(
            images, masks, checkpoint=path, progress=stop_at("Training 3 networks", 1)
        )
    steps = []

    def count(items, description):
        for item in items:
            steps.append((description, item))
            yield item

    resumed = TunedBank(weights=str(moved), **options | {"symmetries": True}).fit(
        images, masks, checkpoint=path, progress=count
    )
    assert steps == [("Training 3 networks", 1)]
    theirs = whole.weights_used(np.arange(1), 3)
    for name, value in resumed.weights_used(np.arange(1), 3).items():
        np.testing.assert_array_equal(value, theirs[name])


def test_networks_end_alike_on_any_number_of_threads():
    images, masks = pictures(3)
    found = []
    for n_threads in (1, 3):
        with threadpool_limits(n_threads):
            bank = TunedBank(**OPTIONS | {"n_steps": 2}).fit(images, masks)
        found.append(bank.weights_used(np.arange(1), 3))
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name])


def test_portions_of_steps_end_as_single_steps_do(weights_file, tmp_path, monkeypatch):
    """All steps are taken, also those beyond the last whole portion, and after a stop between portions."""
    images, masks = pictures(2)
    options = {"weights": weights_file, "pyramid": (1.0,), "n_steps": 5, "symmetries": False}
    path = tmp_path / "bank.pt"
    monkeypatch.setattr(tuned_module, "_STEPS_AT_ONCE", 1)
    expected = TunedBank(**options).fit(images, masks).weights_used(np.arange(1), 3)
    monkeypatch.setattr(tuned_module, "_STEPS_AT_ONCE", 2)
    monkeypatch.setattr(tuned_module, "_SAVE_EVERY", 3)
    with pytest.raises(KeyboardInterrupt):
        TunedBank(**options).fit(images, masks, checkpoint=path, progress=stop_at("Training", 2))
    assert path.exists()  # after four steps, in the first portion that ends beyond three
    found = TunedBank(**options).fit(images, masks, checkpoint=path).weights_used(np.arange(1), 3)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_the_first_blocks_of_given_weights_are_not_trained(weights_file):
    """Neither by the loss nor by the decay of weights; the last ones are."""
    images, masks = pictures(2)
    bank = TunedBank(**OPTIONS | {"weights": weights_file, "n_steps": 2}).fit(images, masks)
    given = {
        name: value.half() for name, value in bank._build(3, bank._initial_weights()).state_dict().items()
    }
    places: dict[int, set[bool]] = {}
    for name, value in bank.weights_used(np.arange(1), 3).items():
        if "encoder.features." in name:
            own = name[name.index("encoder.features.") :]
            same = bool(np.array_equal(value, given[own].numpy()))
            places.setdefault(int(own.split(".")[2]), set()).add(same)
    assert all(places[block] == {True} for block in range(4))
    assert all(False in places[block] for block in range(4, 18))


def test_a_checkpoint_of_something_else_is_refused(tmp_path, weights_file, monkeypatch):
    monkeypatch.setattr(tuned_module, "_SAVE_EVERY", 1)
    monkeypatch.setattr(tuned_module, "_STEPS_AT_ONCE", 1)
    path = tmp_path / "bank.pt"
    images, masks = pictures(2)
    options = OPTIONS | {"weights": weights_file, "n_steps": 2}
    with pytest.raises(KeyboardInterrupt):
        TunedBank(**options).fit(images, masks, checkpoint=path, progress=stop_at("Training", 1))
    for other, *given in (
        ({}, [images[0], 1 - images[1]], masks),
        ({}, images, [masks[0], 1 - masks[1]]),
        ({"n_steps": 3}, images, masks),
        ({"random_state": 1}, images, masks),
        ({"weights": "random"}, images, masks),
    ):
        with pytest.raises(
            ConfigError, match="comes from other images, masks or options, or another segkit: repeat that"
        ):
            TunedBank(**options | other).fit(*given, checkpoint=path)
    monkeypatch.setattr("segkit.networks.pyramid._FINEST_MIXED", 1)
    with pytest.raises(ConfigError, match="or another segkit"):
        TunedBank(**options).fit(images, masks, checkpoint=path)
    assert path.exists()


@FEW_STEPS
def test_a_segmenter_keeps_its_checkpoint_until_it_is_fitted(tmp_path):
    path = tmp_path / "model.pt"
    images, masks = pictures(2)
    segmenter = Segmenter(TunedBank(**OPTIONS), training_pixels=400, selection_pixels=200, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        segmenter.fit(images, masks, checkpoint=path, progress=stop_at("Filter bank", 1))
    described = []

    def note(items, description):
        described.append((description, len(list(items)) if description.startswith("Training") else None))
        return pass_on(items, description)

    segmenter.fit(images, masks, checkpoint=path, progress=note)
    assert not any(description.startswith("Training") for description, _ in described)
    assert not path.exists()


@pytest.mark.parametrize(("shape", "n_channels"), [((1, 1), 1), ((20, 7), 5)])
def test_images_may_be_smaller_than_a_crop(shape, n_channels):
    images, masks = pictures(4, shape, n_channels=n_channels)
    for index, mask in enumerate(masks):
        mask[:1] = index % 2
    bank = TunedBank(**OPTIONS).fit(images, masks)
    maps = bank.dense(images[0])
    assert maps.shape == (1, *shape)
    assert np.isfinite(maps).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"network": ""}, ConfigError, "network=''"),
        ({"network": "nosuch18"}, ConfigError, "network 'nosuch18': give mobilenet_v2, or a model of timm"),
        (
            {"pyramid": (2.0,)},
            ConfigError,
            "pyramid [2.0]: networks are trained at scales 1, 1/2, 1/3 and so on",
        ),
        ({"pyramid": (0.7,)}, ConfigError, "pyramid=(0.7,): scales should be 1, 1/2, 1/3 and so on"),
        ({"pyramid": ()}, ConfigError, "pyramid=()"),
        ({"n_folds": 1}, ConfigError, "n_folds=1: input should be greater than or equal to 2"),
        ({"n_steps": 0}, ConfigError, "n_steps=0: input should be greater than 0"),
        ({"n_steps": 1.5}, ConfigError, "n_steps=1.5"),
        ({"weights": "nowhere.pth"}, WeightsError, "weights nowhere.pth: no such file"),
    ],
)
def test_bad_options_are_one_line(options, error, message):
    images, masks = pictures(2)
    if "nosuch18" in options.values():
        pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    with pytest.raises(error) as caught:
        TunedBank(**OPTIONS | options).fit(images, masks)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_masks_are_needed():
    images, _ = pictures(2)
    bank = TunedBank(**OPTIONS)
    with pytest.raises(InputError, match=r"TunedBank learns from masks: give the class ids"):
        bank.fit(images)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            "mobilenet_v2",
            "weights of another network: .* such as features.0.0.weight: give a file of mobilenet_v2",
        ),
        ("test_resnet", "give the weights of test_resnet, by timm's names"),
    ],
)
def test_weights_of_another_network_are_refused(network, message, tmp_path):
    if network != "mobilenet_v2":
        pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    torch.save(mobilenet_v2(weights=None, width_mult=0.5).state_dict(), tmp_path / "other.pth")
    with pytest.raises(WeightsError, match=message) as caught:
        TunedBank(network, **OPTIONS | {"weights": tmp_path / "other.pth"}).fit(*pictures(2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", r"weights of another network: 1 of .* such as features\.0\.1\.bias: give a file"),
        ([1.0], "weights of another network: 1 of"),
        (torch.full((32,), torch.nan), r"odd\.pth: features\.0\.1\.bias holds values that are not finite"),
    ],
)
def test_weights_that_are_no_numbers_are_refused(value, message, tmp_path):
    state = mobilenet_v2(weights=None).state_dict() | {"features.0.1.bias": value}
    torch.save(state, tmp_path / "odd.pth")
    with pytest.raises(WeightsError, match=message) as caught:
        TunedBank(**OPTIONS | {"weights": tmp_path / "odd.pth"}).fit(*pictures(2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("network", ["no/such", "hf_hub:no/such"])
def test_networks_that_nobody_has_are_refused(network, monkeypatch):
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=f"network '{network}': give mobilenet_v2") as caught:
        TunedBank(network, **OPTIONS).fit(*pictures(2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "network", "cure"),
    [
        ("albumentations", "mobilenet_v2", r"pip install segkit-bio\[tuned\]"),
        ("timm", "resnet18", r"pip install segkit-bio\[foundation\], or leave it out"),
    ],
)
def test_missing_packages_are_named(package, network, cure, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=cure) as caught:
        TunedBank(network, **OPTIONS).fit(*pictures(2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda weights: {name: value for name, value in weights.items() if "score" not in name},
        lambda weights: weights | {"1/0/score.bias": np.zeros(7, np.float16)},
        lambda weights: weights | {"x/0/score.bias": np.zeros(2, np.float16)},
        lambda weights: weights | {"1/0/more": np.zeros(2, np.float16)},
        lambda weights: weights | {"0/0/more": np.zeros(2, np.float16)},
    ],
)
def test_damaged_weights_are_refused(damage, several):
    _, _, bank, _ = several
    weights = bank.weights_used(np.arange(3), 3)
    with pytest.raises(InputError, match="copy it anew or train again") as caught:
        clone(bank).use_weights(damage(weights))
    assert "\n" not in str(caught.value)


def test_a_bank_without_networks_is_its_own_quick_form():
    bank = TunedBank()
    assert bank.quick() is bank


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ("random", "random weights"),
        (
            "imagenet",
            "weights of https://download.pytorch.org/models/mobilenet_v2-b0353104.pth (licence BSD-3-Clause)",
        ),
        ("own.npz", "weights of own.npz (licence unknown)"),
    ],
)
def test_training_is_described(single, weights, told):
    bank = copy(single[2])
    bank.weights = weights
    assert bank.describe_training() == [
        "Networks: 6 of mobilenet_v2, 3 at each scale (1, 0.5), trained for 1 step in each fold, shared by its scales, "
        f"from {told}."
    ]
    assert TunedBank(weights=weights).describe_training() == []


@pytest.mark.parametrize("n_steps", [1, 10])
def test_few_steps_have_a_schedule_too(n_steps):
    images, masks = pictures(2)
    bank = TunedBank(**OPTIONS | {"n_steps": n_steps}).fit(images, masks)
    assert np.isfinite(bank.dense(images[0])).all()


def test_networks_are_in_the_order_of_training_whatever_the_order_of_their_weights():
    images, masks = pictures(12, (40, 48))
    bank = TunedBank(**OPTIONS | {"n_folds": 12, "n_steps": 1}).fit(images, masks)
    weights = bank.weights_used(np.arange(1), 3)
    again = clone(bank)
    again.use_weights({name: weights[name] for name in sorted(weights)})
    assert list(again._networks) == list(bank._networks)
    np.testing.assert_allclose(again.quick().dense(images[0]), bank.quick().dense(images[0]), atol=1e-2)


def test_folds_with_a_network_that_sees_all_are_not_taken_for_three(tmp_path):
    images, masks = pictures(3, (40, 48))
    path = tmp_path / "bank.pt"
    TunedBank(**OPTIONS | {"n_folds": 2}).fit(images, masks, checkpoint=path)
    with pytest.raises(ConfigError, match="comes from other images, masks or options"):
        TunedBank(**OPTIONS | {"n_folds": 3}).fit(images, masks, checkpoint=path)


def test_the_memory_of_a_network_grows_with_the_maps_of_its_encoder():
    pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")

    def on_the_way(network, **options):
        bank = TunedBank(network, **options)
        return bank.bytes_per_pixel(3) - bank.bytes_of_maps(3)

    found = {network: on_the_way(network) for network in ("mobilenet_v2", "resnet18", "vgg11")}
    n_values = 64 + 128 / 2**2 + 256 / 4**2 + 512 / 8**2 + 512 / 16**2 + 512 / 32**2  # of vgg11, a pixel
    assert found == pytest.approx({"mobilenet_v2": 300, "resnet18": 600, "vgg11": 13 * n_values})
    assert on_the_way("resnet18", pyramid=(0.5, 0.25)) == pytest.approx(600 / 4)


def test_training_stays_below_the_memory_limit(monkeypatch):
    """Networks are kept whole; each thread needs memory for its step, and fewer work if it is short."""
    bank = TunedBank(**OPTIONS)
    of_network = 6 * sum(value.nbytes for value in bank._build(3, None).state_dict().values())
    images, masks = pictures(2, (70, 200))
    of_thread = 4 * 300 * 4 * 64**2
    for n_threads in (1, 2, 3):
        enough = 2 * of_network + n_threads * of_thread
        for name in ("segkit.features.tuned.bytes_left", "segkit._common.memory.bytes_left"):
            monkeypatch.setattr(name, lambda enough=enough: enough)
        assert bank._most_threads(2, images) == n_threads
    monkeypatch.setattr("segkit._common.memory.bytes_left", lambda: 2 * of_network)
    with pytest.raises(
        InputError, match=r"training of 3 networks: needs .* raise --memory-limit .* train fewer"
    ):
        bank.fit(images, masks)

    def stop(_trainings, most_threads):
        raise KeyboardInterrupt(most_threads)

    monkeypatch.setattr("segkit.networks.training.Trainings", stop)
    monkeypatch.setattr(bank, "_most_threads", lambda *_: 7)
    with pytest.raises(KeyboardInterrupt, match="7"):
        bank.fit(images, masks)
