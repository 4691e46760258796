import errno
import time
from threading import Semaphore

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from segkit.errors import ConfigError, OutputError
from segkit.images import UNLABELLED
from segkit.networks.training import (
    Checkpoint,
    Training,
    Trainings,
    cross_entropy,
    cross_entropy_and_dice,
    enlarge,
    seeded,
    soft_cross_entropy_and_dice,
)

N_STEPS = 6


class Sampler:
    """Random crops; the classes are those of bright and dark pixels."""

    def draw(self, n_crops, rng):
        images = rng.random((n_crops, 6, 8, 2), dtype=np.float32)
        return images, (images[..., 0] > 0.5).astype(np.uint8)


def training(*, seed=0, average=0.0, network=None):
    """A network of two convolutions, whose optimiser has a state and a schedule."""
    if network is None:
        with seeded(0, torch.device("cpu")):
            network = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    return Training(
        network,
        optimiser,
        Sampler(),
        cross_entropy_and_dice,
        lambda images: torch.from_numpy(images).permute(0, 3, 1, 2),
        batch_size=3,
        seed=seed,
        schedule=torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.05, N_STEPS, cycle_momentum=False),
        average=average,
    )


def damage(path):
    """Write a checkpoint, and change a byte in the middle, which is one of a weight."""
    Checkpoint(path, "digest").save(trained(1))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def trained(n_steps=N_STEPS, **options):
    mine = training(**options)
    for _ in range(n_steps):
        mine.step()
    return mine


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def some_scores(rng, n_classes, *, labelled=0.5):
    scores = rng.standard_normal((2, n_classes, 5, 4))
    ids = rng.integers(0, n_classes, (2, 5, 4))
    ids[rng.random(ids.shape) > labelled] = UNLABELLED
    return scores, ids


def naive_loss(scores, ids):
    """Cross-entropy and half of one minus Dice, pixel by pixel; returns both."""
    n_classes = scores.shape[1]
    entropy, n_labelled = 0.0, 0
    shared, sizes = np.zeros(n_classes), np.zeros(n_classes)
    for image, row, col in np.ndindex(ids.shape):
        label = ids[image, row, col]
        if label == UNLABELLED:
            continue
        p = np.exp(scores[image, :, row, col])
        p /= p.sum()
        entropy -= np.log(p[label])
        n_labelled += 1
        shared[label] += p[label]
        sizes += p
        sizes[label] += 1
    return entropy / max(n_labelled, 1), 0.5 * (1 - np.mean((2 * shared + 1) / (sizes + 1)))


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_loss_is_cross_entropy_and_dice_of_labelled_pixels(n_classes, rng):
    scores, ids = some_scores(rng, n_classes)
    entropy, dice = naive_loss(scores, ids)
    given = torch.from_numpy(scores), torch.from_numpy(ids)
    assert cross_entropy(*given).item() == pytest.approx(entropy, rel=1e-12)
    assert cross_entropy_and_dice(*given).item() == pytest.approx(entropy + dice, rel=1e-12)


@pytest.mark.parametrize("labelled", [0.5, -1])
def test_the_soft_loss_is_that_of_a_share_of_a_class(labelled, rng):
    """A share s is s times a pixel of the class and 1 - s times one of the rest; without labels nothing is learnt."""
    logits, share = rng.standard_normal((2, 1, 5, 4)), rng.random((2, 5, 4))
    known = rng.random(share.shape) < labelled
    p = 1 / (1 + np.exp(-logits[:, 0]))
    entropy = -(share * np.log(p) + (1 - share) * np.log(1 - p))[known].sum() / max(known.sum(), 1)
    dice = (2 * (p * share)[known].sum() + 1) / ((p + share)[known].sum() + 1)
    given = torch.tensor(logits, requires_grad=True)
    loss = soft_cross_entropy_and_dice(given, torch.from_numpy(share), torch.from_numpy(known))
    assert loss.item() == pytest.approx(entropy + 0.5 * (1 - dice), rel=1e-12)
    loss.backward()
    np.testing.assert_array_equal(given.grad.numpy()[:, 0] != 0, known)


@pytest.mark.parametrize("loss", [cross_entropy, cross_entropy_and_dice])
def test_unlabelled_pixels_have_no_part_in_the_loss_or_its_slope(loss, rng):
    scores, ids = some_scores(rng, 3)
    unlabelled = np.broadcast_to((ids == UNLABELLED)[:, None], scores.shape)
    found = []
    for other in (scores, np.where(unlabelled, 50 * rng.standard_normal(scores.shape), scores)):
        values = torch.tensor(other, requires_grad=True)
        value = loss(values, torch.from_numpy(ids))
        value.backward()
        assert (values.grad.numpy()[unlabelled] == 0).all()
        assert (values.grad.numpy()[~unlabelled] != 0).all()
        found.append((value.item(), values.grad.numpy()[~unlabelled]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9)


@pytest.mark.parametrize("loss", [cross_entropy, cross_entropy_and_dice])
def test_a_batch_without_labels_teaches_nothing(loss, rng):
    scores, ids = some_scores(rng, 3, labelled=-1)
    values = torch.tensor(scores, requires_grad=True)
    value = loss(values, torch.from_numpy(ids))
    value.backward()
    assert value.item() == 0
    assert not values.grad.any()


def test_a_perfect_guess_costs_nothing():
    ids = torch.tensor([[[0, 1], [1, UNLABELLED]]])
    scores = 200.0 * torch.stack([ids == 0, ids == 1], dim=1)
    assert cross_entropy_and_dice(scores, ids).item() == pytest.approx(0, abs=1e-6)


def test_scores_are_interpolated_to_pixels(rng):
    """A ramp stays a ramp, but for the pixels beyond the centres of the outermost cells."""
    cells = torch.arange(4.0).expand(1, 1, 3, 4)
    found = enlarge(cells, (6, 8))[0, 0]
    np.testing.assert_allclose(found[:, 1:-1], np.tile(np.arange(1, 7) / 2 - 0.25, (6, 1)), atol=1e-6)
    assert enlarge(cells, (3, 4)) is cells


def test_weights_are_their_running_mean():
    plain, mean = training(), training(average=0.9)
    expected = None
    for _ in range(4):
        plain.step()
        mean.step()
        now = plain.weights
        expected = (
            now
            if expected is None
            else {name: 0.9 * value + 0.1 * now[name] for name, value in expected.items()}
        )
    assert_same(plain.weights, training_weights(mean))
    for name, value in mean.weights.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7)


def training_weights(mine):
    return {name: value.clone() for name, value in mine.network.state_dict().items()}


def test_a_step_without_memory_is_told():
    greedy = training(network=nn.Conv2d(2, 2, 1))
    greedy.network.register_forward_hook(lambda *_: torch.empty(2**50))
    with pytest.raises(MemoryError):
        greedy.step()


def test_weights_are_copies():
    mine = trained(1)
    before = mine.weights
    copies = {name: value.clone() for name, value in before.items()}
    mine.step()
    assert_same(before, copies)


def test_trainings_repeat_with_their_seed_and_leave_the_generators_alone():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = trained().weights
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    assert_same(trained().weights, first)
    other = trained(seed=1).weights
    assert not any(torch.equal(other[name], value) for name, value in first.items())


def test_a_step_moves_the_schedule():
    mine = training()
    rates = []
    for _ in range(N_STEPS):
        rates.append(mine.optimiser.param_groups[0]["lr"])
        mine.step()
    assert np.argmax(rates) in range(1, N_STEPS - 1)
    assert max(rates) == pytest.approx(0.05, rel=0.3)


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_training_that_goes_on_ends_with_equal_weights(average, tmp_path):
    path = tmp_path / "folder" / "net.pt"
    first = Checkpoint(path, "digest")
    first.finished.append({"a": torch.ones(2)})
    half = trained(3, average=average)
    half.notes = {"history": [0.5, 1]}
    first.save(half)
    again = Checkpoint(path, "digest")
    assert_same(again.finished[0], {"a": torch.ones(2)})
    mine = training(average=average)
    again.restore(mine)
    assert (mine.n_steps, mine.notes) == (3, {"history": [0.5, 1]})
    while mine.n_steps < N_STEPS:
        mine.step()
    whole = trained(average=average)
    assert_same(mine.weights, whole.weights)
    assert_same(training_weights(mine), training_weights(whole))
    # a state is taken over once: the next training begins at its start
    other = training(average=average)
    again.restore(other)
    assert other.n_steps == 0
    assert [item.name for item in path.parent.iterdir()] == ["net.pt"]


@pytest.mark.parametrize(("n_threads", "at_once"), [(1, 2), (2, 1), (2, 4), (3, 3), (5, 4)])
def test_trainings_side_by_side_end_as_each_alone(n_threads, at_once, tmp_path):
    """Also if they go on from a file, and whatever the number of torch's threads."""
    path = tmp_path / "nets.pt"
    with threadpool_limits(4, "openmp"), threadpool_limits(n_threads, "blas"):
        half = Trainings([training(seed=seed) for seed in range(3)])
        half.step()
        Checkpoint(path, "digest").save(half)
        rest = Trainings([training(seed=seed) for seed in range(3)])
        Checkpoint(path, "digest").restore(rest)
        assert rest.n_steps == 1
        while rest.n_steps < N_STEPS:
            rest.step(min(at_once, N_STEPS - rest.n_steps))
        assert torch.get_num_threads() == 4
    with threadpool_limits(1):
        alone = [trained(seed=seed).weights for seed in range(3)]
    for found, expected in zip(rest.weights, alone, strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_an_error_in_one_of_several_trainings_ends_all(n_threads, monkeypatch):
    """Threads that wait for it meanwhile end, too, and it is not tried again."""
    trainings, calls = [training(seed=seed) for seed in range(3)], []

    def fail():
        calls.append(1)
        time.sleep(0.3)
        raise ZeroDivisionError

    monkeypatch.setattr(trainings[1], "step", fail)
    with threadpool_limits(n_threads, "blas"), pytest.raises(ZeroDivisionError):
        Trainings(trainings).step(3)
    assert calls == [1]


def test_what_is_finished_ends_the_state_of_its_training(tmp_path):
    saved = Checkpoint(tmp_path / "net.pt", "digest")
    saved.save(trained(3))
    saved.finished.append(1)
    saved.save()
    again = Checkpoint(tmp_path / "net.pt", "digest")
    mine = training()
    again.restore(mine)
    assert (again.finished, mine.n_steps) == ([1], 0)


def test_without_a_file_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved = Checkpoint(None, "digest")
    saved.save(trained(1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda path: torch.save({"digest": "other", "finished": [], "training": None}, path),
            "comes from other images, masks or options, or another segkit: repeat that training, or delete the file",
        ),
        (lambda path: torch.save([1], path), "comes from other images, masks or options"),
        (
            lambda path: torch.save({"digest": print}, path),
            "cannot be read: delete it to train from the start",
        ),
        (lambda path: path.write_bytes(b"no checkpoint"), "cannot be read"),
        (lambda path: path.write_bytes(b"hello\n"), "cannot be read"),
        (lambda path: damage(path), "cannot be read"),
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (lambda path: path.mkdir(), "cannot be read"),
    ],
)
def test_another_file_is_refused_in_one_line_and_left(write, message, tmp_path):
    path = tmp_path / "net.pt"
    write(path)
    with pytest.raises(ConfigError) as caught:
        Checkpoint(path, "digest")
    assert message in str(caught.value)
    assert "net.pt" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.exists()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_no_more_threads_work_than_fit(n_threads):
    """Of four threads that may work."""
    at_once, most = Semaphore(n_threads), []

    def step(self):
        most.append(at_once.acquire(blocking=False))
        time.sleep(0.005)
        at_once.release()
        self.n_steps += 1

    with threadpool_limits(4, "blas"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "step", step)
        Trainings([training(seed=seed) for seed in range(4)], n_threads).step(3)
    assert len(most) == 12
    assert all(most)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:858] . PytorchStreamWriter failed\nframe #0"),
    ],
)
def test_a_full_disk_is_told_in_one_line_and_loses_nothing(error, tmp_path, monkeypatch):
    path = tmp_path / "net.pt"
    Checkpoint(path, "digest").save(trained(3))
    mine = trained(4)

    def fill(content, place):
        place.write_bytes(b"a part")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("torch.save", fill)
        with pytest.raises(OutputError) as caught:
            Checkpoint(path, "digest").save(mine)
    assert "\n" not in str(caught.value)
    assert "net.pt" in str(caught.value)
    assert [item.name for item in tmp_path.iterdir()] == ["net.pt"]
    again = training()
    Checkpoint(path, "digest").restore(again)
    assert again.n_steps == 3
