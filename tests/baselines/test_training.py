import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone

from segkit.baselines import FCN, UNet
from segkit.baselines.training import _hold_out
from segkit.errors import ConfigError, OutputError
from segkit.images import UNLABELLED


def picture(seed=0, shape=(40, 48), n_channels=1):
    """A bright rectangle on a noisy ground."""
    rng = np.random.default_rng(seed)
    mask = np.zeros(shape, dtype=np.uint8)
    top, left = rng.integers(4, 12, size=2)
    mask[top : top + 20, left : left + 22] = 1
    image = 0.35 + 0.3 * mask[:, :, None] + 0.05 * rng.standard_normal((*shape, n_channels))
    return image.astype(np.float32), mask


def tiny(**options):
    """A network and training small enough for tests."""
    defaults = {
        "n_filters": 4,
        "depth": 2,
        "crop": 32,
        "max_steps": 6,
        "eval_every": 2,
        "learning_rate": 0.01,
    }
    return UNet(**defaults | {"augment": False, "device": "cpu"} | options)


def weights(net):
    return {name: value.cpu().numpy() for name, value in net.network_.state_dict().items()}


def assert_same_weights(net, other):
    for name, value in weights(net).items():
        np.testing.assert_array_equal(value, weights(other)[name], err_msg=name)


def stop_after(n_steps, phase=0):
    """A progress bar that the user interrupts, in one of the runs."""
    begun = []

    def progress(items, description):
        assert description in ("Training", "Training on all pixels")
        begun.append(description)
        if len(begun) != phase + 1:
            yield from items
            return
        for count, item in enumerate(items):
            if count == n_steps:
                raise KeyboardInterrupt
            yield item

    return progress


def test_an_interrupted_run_ends_at_the_weights_of_an_uninterrupted_one(tmp_path):
    images, masks = zip(*(picture(seed) for seed in range(2)), strict=True)
    path = tmp_path / "folder" / "net.pt"
    whole = tiny(augment=True).fit(images, masks)
    with pytest.raises(KeyboardInterrupt):
        tiny(augment=True, checkpoint=path).fit(images, masks, progress=stop_after(3))
    resumed = tiny(augment=True, checkpoint=path).fit(images, masks)
    assert resumed.history_ == whole.history_
    assert_same_weights(resumed, whole)
    assert [item.name for item in path.parent.iterdir()] == ["net.pt"]


RATES = {"learning_rate": [1e-6, 0.01], "retrain": True}


def test_the_learning_rate_is_the_one_that_held_out_pixels_prefer():
    image, mask = picture()
    slow, fast = (tiny(learning_rate=rate, max_steps=16).fit(image, mask) for rate in (1e-6, 0.01))
    assert slow.best_validation_iou_ < fast.best_validation_iou_
    net = tiny(learning_rate=(1e-6, 0.01), max_steps=16).fit(image, mask)
    assert net.learning_rate_ == 0.01
    assert net.history_ == fast.history_
    assert_same_weights(net, fast)


def test_of_rates_that_are_as_good_the_first_is_taken():
    image, mask = picture()
    assert tiny(learning_rate=[1e-30, 1e-31]).fit(image, mask).learning_rate_ == 1e-30


def test_training_anew_takes_the_best_steps_on_all_pixels(monkeypatch):
    """It is a run of as many steps whose held-out pixels are learnt from too."""
    image, mask = picture()
    net = tiny(retrain=True, max_steps=20).fit(image, mask)
    held = tiny(max_steps=20).fit(image, mask)
    assert (net.best_step_, net.history_) == (held.best_step_, held.history_)
    monkeypatch.setattr("segkit.baselines.training._hold_out", lambda ids, *rest, **options: (ids, ids))
    expected = tiny(max_steps=net.best_step_, eval_every=net.best_step_).fit(image, mask)
    assert_same_weights(net, expected)
    assert any((weights(net)[name] != value).any() for name, value in weights(held).items())


def test_training_anew_goes_on_from_the_checkpoint_of_two_runs_before(tmp_path):
    images, masks = zip(*(picture(seed) for seed in range(2)), strict=True)
    options = RATES | {"max_steps": 8, "checkpoint": tmp_path / "net.pt"}
    whole = tiny(**options | {"checkpoint": None}).fit(images, masks)
    assert whole.best_step_ > 3
    with pytest.raises(KeyboardInterrupt):
        tiny(**options).fit(images, masks, progress=stop_after(3, phase=2))
    resumed = tiny(**options).fit(images, masks)
    assert (resumed.history_, resumed.learning_rate_) == (whole.history_, whole.learning_rate_)
    assert_same_weights(resumed, whole)
    again = tiny(**options).fit(images, masks, progress=stop_after(0))
    assert_same_weights(again, whole)


def test_a_checkpoint_of_a_run_that_stopped_early_stays_stopped(tmp_path):
    image, mask = picture()
    net = tiny(learning_rate=1e-30, patience=2, max_steps=50, checkpoint=tmp_path / "net.pt").fit(image, mask)
    assert net.stopped_early_
    assert clone(net).fit(image, mask, progress=stop_after(0)).n_steps_ == net.n_steps_


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    image, mask = picture()
    path = tmp_path / "net.pt"
    tiny(checkpoint=path).fit(image, mask)
    message = "comes from other images, masks or options, or another segkit: repeat that training, or delete the file"
    with pytest.raises(ConfigError, match=message):
        tiny(checkpoint=path, learning_rate=0.1).fit(image, mask)
    with pytest.raises(ConfigError, match=message):
        tiny(checkpoint=path).fit(1 - image, mask)
    with pytest.raises(ConfigError, match=message):
        tiny(checkpoint=path).fit(image, 1 - mask)


@pytest.mark.parametrize("damage", [lambda data: b"no checkpoint", lambda data: data[: len(data) // 2]])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    image, mask = picture()
    path = tmp_path / "net.pt"
    tiny(checkpoint=path).fit(image, mask)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigError, match=r"net.pt cannot be read: delete it to train from the start"):
        tiny(checkpoint=path).fit(image, mask)


def test_a_checkpoint_that_executes_something_is_refused(tmp_path):
    path = tmp_path / "net.pt"
    torch.save({"digest": print}, path)
    with pytest.raises(ConfigError, match="cannot be read"):
        tiny(checkpoint=path).fit(*picture())


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        tiny(checkpoint=tmp_path / "file" / "net.pt").fit(*picture())


def test_fits_repeat_and_leave_the_generators_alone():
    image, mask = picture()
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()  # noqa: NPY002
    first = tiny(augment=True).fit(image, mask)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert torch.get_num_threads() == before[2]
    torch.manual_seed(4)
    assert_same_weights(tiny(augment=True).fit(image, mask), first)
    other = weights(tiny(augment=True, random_state=1).fit(image, mask))
    assert not np.array_equal(other["score.weight"], weights(first)["score.weight"])


def test_the_value_of_unlabelled_pixels_has_no_influence():
    image, mask = picture()
    mask[:, 30:] = UNLABELLED
    net = tiny().fit(image, mask)
    other = tiny(unlabelled=77).fit(image, np.where(mask == UNLABELLED, 77, mask))
    assert other.history_ == net.history_
    assert other.classes_.tolist() == [0, 1]


def test_loss_is_the_mean_cross_entropy_of_labelled_pixels():
    image, mask = picture(shape=(32, 32))
    mask[:, 20:] = UNLABELLED
    net = tiny(max_steps=1, batch_size=1, learning_rate=1e-30).fit(image, mask)
    learnt, _ = _hold_out([mask], 2)
    batch = torch.from_numpy(image - np.float32(0.5)).permute(2, 0, 1)[None]
    with torch.no_grad():
        log_p = net.network_.train()(batch)[0].log_softmax(dim=0).permute(1, 2, 0).numpy()
    rows, cols = np.nonzero(learnt[0] != UNLABELLED)
    expected = -np.mean(log_p[rows, cols, learnt[0][rows, cols]], dtype=np.float64)
    assert net.history_[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_training_stops_when_validation_gets_no_better():
    net = tiny(learning_rate=1e-30, eval_every=2, patience=3, max_steps=100).fit(*picture())
    assert net.n_steps_ == net.best_step_ + 3 * 2
    assert net.stopped_early_


def test_a_run_that_ends_with_its_budget_says_so():
    net = tiny(max_steps=5, eval_every=2, patience=10).fit(*picture())
    assert not net.stopped_early_
    assert [entry["step"] for entry in net.history_] == [2, 4, 5]
    assert net.n_steps_ == 5


def test_the_weights_kept_are_those_of_the_best_validation():
    images, masks = zip(*(picture(seed) for seed in range(5)), strict=True)
    net = tiny(max_steps=12, eval_every=1, learning_rate=0.05).fit(images, masks)
    assert net.best_validation_iou_ == max(entry["validation_iou"] for entry in net.history_)
    assert net.best_step_ < net.n_steps_
    _, held_out = _hold_out(masks, 2)
    validation = [index for index, mask in enumerate(held_out) if (mask != UNLABELLED).any()]
    score = net.score([images[index] for index in validation], [masks[index] for index in validation])
    assert score == pytest.approx(net.best_validation_iou_)
    shorter = tiny(max_steps=net.best_step_, eval_every=1, learning_rate=0.05)
    assert shorter._digest(images, masks) != net._digest(images, masks)
    assert_same_weights(shorter.fit(images, masks), net)


def test_of_five_images_a_fifth_is_held_out_whole():
    ids = [picture(seed)[1] for seed in range(11)]
    learnt, held_out = _hold_out(ids, 2, random_state=1)
    out = [index for index, mask in enumerate(held_out) if (mask != UNLABELLED).any()]
    assert len(out) == 2
    for index, mask in enumerate(ids):
        whole, empty = (held_out, learnt) if index in out else (learnt, held_out)
        np.testing.assert_array_equal(whole[index], mask)
        assert (empty[index] == UNLABELLED).all()
    chosen = {
        tuple(index for index, m in enumerate(_hold_out(ids, 2, random_state=s)[1]) if m[0, 0] == 0)
        for s in range(8)
    }
    assert len(chosen) > 1


def test_of_fewer_images_a_quarter_of_each_is_held_out_by_blocks():
    for n_images in [1, 4]:
        rng = np.random.default_rng(0)
        ids = [rng.integers(0, 2, (40, 80)).astype(np.uint8) for _ in range(n_images)]
        learnt, held_out = _hold_out(ids, 2)
        for mask, ours, theirs in zip(ids, learnt, held_out, strict=True):
            out = theirs != UNLABELLED
            np.testing.assert_array_equal(out, ours == UNLABELLED)
            np.testing.assert_array_equal(np.where(out, theirs, ours), mask)
            blocks = out.reshape(4, 10, 4, 20).transpose(0, 2, 1, 3).reshape(4, 4, -1)
            assert (blocks.all(axis=2) == blocks.any(axis=2)).all()
            assert blocks[:, :, 0].sum(axis=1).tolist() == [1, 1, 1, 1]
            assert blocks[:, :, 0].sum(axis=0).tolist() in ([2, 0, 2, 0], [0, 2, 0, 2])


def test_the_held_out_part_has_all_classes_if_it_can():
    mask = np.zeros((40, 40), dtype=np.uint8)
    mask[2:8, 2:8] = 1
    mask[12:18, 2:18] = 1
    for seed in range(6):
        for part in _hold_out([mask], 2, random_state=seed):
            assert set(np.unique(part[0])) == {0, 1, UNLABELLED}


def test_if_nothing_can_be_held_out_training_says_so():
    mask = np.full((40, 40), UNLABELLED, dtype=np.uint8)
    mask[2:4, 2:4] = 0
    mask[25:27, 2:4] = 1
    image = picture(shape=(40, 40))[0]
    with pytest.warns(UserWarning, match="too few annotated regions to hold any out") as warned:
        net = tiny(max_steps=2).fit(image, mask)
    assert warned[0].filename.endswith("test_training.py")
    assert len(net.history_) == 1


def test_options_that_do_not_fit_are_named():
    for options, message in [
        ({"max_steps": 0}, "max_steps=0: input should be greater than 0"),
        ({"batch_size": 1.5}, "batch_size=1.5: input should be a valid integer"),
        ({"eval_every": True}, "eval_every=True: input should be a valid integer"),
        ({"patience": -1}, "patience=-1: input should be greater than 0"),
        ({"random_state": None}, "random_state=None: input should be a valid integer"),
        ({"learning_rate": 0}, "learning_rate=0: input should be greater than 0"),
        ({"learning_rate": []}, "learning_rate=[]: input should be a valid number"),
        ({"learning_rate": [0.1, -1]}, "learning_rate=[0.1, -1]: input should be greater than 0"),
        ({"learning_rate": "fast"}, "learning_rate='fast': input should be a valid number"),
        ({"crop": 30}, "crop=30: give a multiple of 4 of at least 8 pixels"),
        ({"crop": 4}, "crop=4: give a multiple of 4 of at least 8 pixels"),
        ({"device": "abacus"}, "device='abacus' is not available here: choose 'auto' or 'cpu'"),
    ]:
        with pytest.raises(ConfigError) as raised:
            tiny(**options).fit(*picture())
        assert str(raised.value) == message


def test_what_augmentation_needs_is_told_before_weights_are_looked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "albumentations", None)
    with pytest.raises(ConfigError, match=r"pip install segkit-bio\[tuned\]"):
        FCN(weights="no such file").fit([np.eye(64)], [np.eye(64, dtype=np.uint8)])
