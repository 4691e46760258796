from pathlib import Path

import pytest

from segkit.benchmark import load_methods
from segkit.cli.phantom import make_demo_set
from segkit.images import write_image, write_mask


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Images and masks of nine made-up pictures."""
    root = tmp_path_factory.mktemp("made-up")
    for index, (image, mask) in enumerate(zip(*make_demo_set(9, shape=(64, 64)), strict=True)):
        write_image(root / "images" / f"{index}.png", image)
        write_mask(root / "masks" / f"{index}.png", 255 * mask)
    return root


@pytest.fixture(scope="session")
def small_segkit(tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "methods.yaml"
    file.write_text(
        "small: {bank: {name: multiscale, sigma_max: 4}, selection: {n_features: 8, pixels: 300}, "
        "training: {pixels: 600}, kernel: {family: gaussian, n_components: 64}}\n"
    )
    return load_methods(["small"], file)[0]


@pytest.fixture(scope="session")
def small_forest():
    return load_methods(["forest"], None, ["forest.n_estimators=5", "forest.training_pixels=500"])[0]
