import numpy as np
import pytest

from segkit.images import write_image
from segkit.live import FeatureCache, Project


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
