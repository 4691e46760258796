import json

import pytest

from benchmarks.fusion import fusion


def run(method, seed, scores):
    """A run whose images have a mean IoU of so much: both classes have the same."""
    images = {}
    for image, score in scores.items():
        # of 2 n pixels, half of each class: IoU = right / (2 n - right) for both
        n = 1_000_000
        right = round(2 * n * score / (1 + score))
        images[image] = [right, n - right, n - right, right, 0.0, 0.0, 0.0]
    return {"method": method, "n_train": 1, "seed": seed, "images": images}


@pytest.fixture
def known(tmp_path):
    (tmp_path / "first-look").mkdir()
    for path, scores in (("segmentation-a.json", {"x": 0.5, "y": 0.6}), ("first-look/b.json", {"x": 0.7})):
        runs = [run("segkit-networks", 0, scores), run("forest", 0, {"x": 0.1})]
        (tmp_path / path).write_text(json.dumps({"machines": [], "runs": runs}))
    return tmp_path


def cells(table, start):
    [line] = [line for line in table.splitlines() if line.startswith(f"| 1 | {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_gains_are_those_of_the_same_seeds_and_images(known):
    first = {"name": "fusion-a", "runs": [run("late", 0, {"x": 0.6, "y": 0.8}), run("late", 1, {"x": 0.2})]}
    second = {
        "name": "fusion-b",
        "runs": [run("late", 0, {"x": 0.6}), run("early", 0, {"x": 0.65})],
    }
    table = fusion([first, second], known)
    a, b, pooled = cells(table, "a "), cells(table, "b "), cells(table, "all")
    assert a[2] == "0.533"  # of all its runs
    assert a[3].startswith("+0.150 ")
    assert a[4] == ""
    assert (a[5], b[5]) == ("2", "1")
    assert b[3].startswith("-0.100 ")
    assert b[4].startswith("-0.050 ")
    assert pooled[3].startswith("+0.025 ")
    # a is chosen for by b alone, which loses; b by a alone, which gains
    assert cells(table, "chosen by the other sets")[3] == "-0.050; 0 of 2 sets gain"
