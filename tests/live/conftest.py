import time

import numpy as np
import pytest

from segkit.images import write_image
from segkit.live import FeatureCache, LiveSession, Project
from segkit.segmentation.segmenter import Segmenter


def blobs(shape, seed):
    """A noisy image of bright discs on a dark ground, and the mask of the discs."""
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    mask = np.zeros(shape, dtype=np.uint8)
    for _ in range(6):
        r, c, radius = rng.integers(0, shape[0]), rng.integers(0, shape[1]), rng.integers(6, 12)
        mask[(rows - r) ** 2 + (cols - c) ** 2 < radius**2] = 1
    image = 0.3 + 0.35 * mask + 0.08 * rng.standard_normal(shape)
    return image.clip(0, 1), mask


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch):
    """Let sessions evaluate, and try to save again, after a moment."""
    monkeypatch.setattr("segkit.live.session.QUIET_TO_EVALUATE", 0.1)
    monkeypatch.setattr("segkit.live.saving.SECONDS_TO_SAVE_AGAIN", 0.1)


@pytest.fixture(scope="session")
def model():
    """A trained model of background and foreground."""
    images, masks = zip(*(blobs((64, 80), seed) for seed in range(2)), strict=True)
    return Segmenter(training_pixels=2000, selection_pixels=500).fit(
        [image.astype(np.float32) for image in images], masks
    )


@pytest.fixture
def truth():
    return {name: blobs((64, 80), seed)[1] for seed, name in enumerate("abc")}


@pytest.fixture
def folder(tmp_path):
    for seed, name in enumerate("abc"):
        write_image(tmp_path / "images" / f"{name}.png", blobs((64, 80), seed)[0])
    return tmp_path


@pytest.fixture
def project(folder):
    with Project(folder / "images", folder / "out") as opened:
        yield opened


@pytest.fixture
def cache(folder):
    return FeatureCache(folder / "cache")


PATIENCE = 180  # seconds


class Heard(list):
    """Events, in order."""

    def of(self, kind):
        return [event for event in self if isinstance(event, kind)]

    def wait_for(self, kind, condition=lambda event: True):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for event in self.of(kind):
                if condition(event):
                    return event
            time.sleep(0.01)
        raise AssertionError(f"no {kind.__name__}: {[type(event).__name__ for event in self]}")


@pytest.fixture
def session(project, cache):
    with LiveSession(project, cache=cache) as running:
        yield running


def listen(session):
    """Events of a session from now on."""
    events = Heard()
    session.subscribe(events.append)
    return events


@pytest.fixture
def heard(session):
    return listen(session)


def complaint(error, call, *args, **kwargs):
    """What is said against a call, in one line."""
    with pytest.raises(error) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def draw(session, key, truth, *, value=None):
    """Draw two strokes, one within each class."""
    rows = slice(10, 50)
    for label in (0, 1) if value is None else (value,):
        mask = np.zeros(truth.shape, dtype=bool)
        mask[rows] = truth[rows] == label
        session.paint(key, (0, 0), mask, label)


def learn(session, truth):
    """Open the first image, draw on it, and wait until all is done."""
    session.open("a")
    draw(session, "a", truth["a"])
    assert session.wait(PATIENCE)


def rebuilt(events, shape):
    """The image that blocks of the last generation give, and how often each pixel was sent finely."""
    last = max(event.generation for event in events)
    values, times = np.full(shape, 255, dtype=np.uint8), np.zeros(shape, dtype=int)
    for event in events:
        if event.generation == last and event.stride == 1:
            (row, col), (height, width) = event.corner, event.values.shape
            values[row : row + height, col : col + width] = event.values
            times[row : row + height, col : col + width] += 1
    return values, times


def once(before, work):
    """The same function, which does something else first when it is called for the first time."""
    todo = [before]

    def wrapped(*args, **options):
        if todo:
            todo.pop()()
        return work(*args, **options)

    return wrapped
