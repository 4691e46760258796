"""The same seed, images and versions: equal models and masks on one machine, whatever else is done there."""

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import segkit
from segkit.images import write_image, write_mask

# Decisions of models trained with other numbers of threads, in units of the margin: docs/trust.md promises it.
TOLERANCE = 1e-4
pytestmark = pytest.mark.slow
TRAIN_AND_PREDICT = """
import sys
from segkit.cli.commands import app

for command in (["train", "images", "masks", "-o"], ["predict", "{0}.segkit", "images", "-o"]):
    output = sys.argv[1] + ".segkit" * (command[0] == "train")
    app([word.format(sys.argv[1]) for word in command] + [output, "-q"], standalone_mode=False)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three images, and models of the default recipe trained with 1, 1 and 2 threads."""
    folder = tmp_path_factory.mktemp("trained")
    rows, cols = np.indices((64, 80))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        mask = (np.hypot(rows - rng.uniform(20, 44), cols - rng.uniform(20, 60)) < 12).astype(np.uint8)
        image = np.clip(0.4 + 0.15 * mask + 0.1 * rng.standard_normal(mask.shape), 0, 1).astype(np.float32)
        write_image(folder / "images" / f"{seed}.png", image)
        write_mask(folder / "masks" / f"{seed}.png", mask)
    for name, threads in (("one", 1), ("again", 1), ("two", 2)):
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        command = [sys.executable, "-c", TRAIN_AND_PREDICT, name]
        subprocess.run(command, cwd=folder, env=os.environ | limits, check=True, capture_output=True)
    return folder


def test_equal_trainings_are_equal_bytes(trained):
    assert (trained / "one.segkit").read_bytes() == (trained / "again.segkit").read_bytes()


def test_masks_do_not_depend_on_the_number_of_threads(trained):
    for path in sorted((trained / "one").glob("*.png")):
        masks = {(trained / name / path.name).read_bytes() for name in ("one", "again", "two")}
        assert len(masks) == 1


def test_models_of_one_and_two_threads_differ_little(trained):
    one, two = (segkit.load(trained / f"{name}.segkit") for name in ("one", "two"))
    for path in sorted((trained / "images").glob("*.png")):
        image = np.asarray(Image.open(path), dtype=np.float32) / 255
        np.testing.assert_allclose(
            one.decision_function(image), two.decision_function(image), rtol=0, atol=TOLERANCE
        )
