"""A network, from the tab that asks for it to the exported model."""

import numpy as np
import pytest

from segkit.features import TunedBank
from segkit.images import write_image
from segkit.live import FeatureCache, LiveSession, Project
from segkit.segmentation.segmenter import load
from tests.annotate.conftest import two_halves
from tests.live.test_network import TINY


@pytest.fixture
def project(tmp_path):
    for seed, name in enumerate("ab"):
        write_image(tmp_path / "images" / f"{name}.png", two_halves(seed=seed))
    with Project(tmp_path / "images", tmp_path / "out") as project:
        yield project


@pytest.fixture
def session(project, tmp_path):
    with LiveSession(project, cache=FeatureCache(tmp_path / "cache"), network=TINY) as session:
        yield session


@pytest.mark.slow
def test_a_tab_trains_a_network_sees_it_and_exports_it(tab, project):
    strokes = [("a", 5, 0), ("a", 60, 1), ("b", 5, 0), ("b", 60, 1)]
    for seq, (image, column, value) in enumerate(strokes, start=1):
        tab.stroke(image, np.ones((50, 15), dtype=bool), value, seq, corner=(5, column), stroke=str(seq))
    tab.until("applied", seq=len(strokes))
    tab.open("a")
    tab.send({"op": "train_network"})
    tab.until("network", state="training")
    tab.until("network", shown="network")
    header, payload = tab.until("prediction", stride=1)
    ids = np.frombuffer(payload[: 60 * 80], dtype=np.uint8).reshape(header["shape"])
    tab.send({"op": "export"})
    exported, _ = tab.until("exported")
    assert exported["shown"] == "network"
    network = load(exported["model"])
    assert isinstance(network.bank_, TunedBank)
    np.testing.assert_array_equal(network.predict(project.image("a")), ids)
    tab.send({"op": "undo", "image": "a", "seq": len(strokes) + 1})
    tab.until("network", state="earlier", shown="kernel machine")
