"""A network that a session trains: in its place where the training takes long, a quick kernel machine of other options."""

import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
import tifffile

from segkit.config.schema import Config
from segkit.errors import InputError
from segkit.features import TunedBank
from segkit.features.tuned import _before_pass, interruptible
from segkit.images import load_pairs
from segkit.live import Checked, Expected, Failed, LiveSession, Network, Objects, Prediction, Project
from segkit.live.background import Reporter
from segkit.live.canvas import OpenedModel
from segkit.live.network import NetworkTrainer
from segkit.segmentation.segmenter import Segmenter, load
from tests.live.conftest import PATIENCE, blobs, complaint, draw, listen, rebuilt

TINY = Config.from_options(
    {
        "bank": {
            "name": "tuned",
            "weights": "random",
            "pyramid": [1.0],
            "n_folds": 2,
            "n_steps": 2,
            "symmetries": False,
        }
    }
)
QUICK = Config.load(None, ["training.pixels=2000", "selection.pixels=500"])


def start_at_once(trainer, labels, segmenter, **training_set):
    quick = Segmenter(training_pixels=300, selection_pixels=300, threshold="zero", alphas=None)
    trainer._folder.mkdir(exist_ok=True)
    quick.fit(**training_set).save(trainer.path_of(labels))
    trainer.trained = labels
    trainer._changed()


@pytest.fixture
def at_once(monkeypatch):
    """Train something quick in place of a network, without a process."""
    monkeypatch.setattr(NetworkTrainer, "train", start_at_once)


def opened(project, cache, **options):
    return LiveSession(project, cache=cache, config=QUICK, **options)


def train(session, truth, keys="ab"):
    """Draw on some images and show the first; train a network and wait until it is shown. Returns the network."""
    for key in keys:
        draw(session, key, truth[key])
    session.open("a")
    assert session.wait(PATIENCE)
    session.train_network()
    heard = listen(session)
    if session.network.shown != "network":
        heard.wait_for(Network, lambda event: event.shown == "network")
    assert session.wait(PATIENCE)
    return load(session._trainer.path_of(session._trainer.trained))


def test_a_network_answers_until_labels_change(project, cache, truth, at_once):
    with opened(project, cache) as session:
        assert session.network == Network("none", "kernel machine", "No network yet")
        heard = listen(session)
        network = train(session, truth)
        image = project.image("a")
        told = Network("current", "network", "Network of the labels as they are")
        assert session.network == replace(told, object_iou=network.held_out_.object_iou)
        ids, probabilities = session.predict("a")
        np.testing.assert_array_equal(ids, network.predict(image))
        np.testing.assert_allclose(probabilities, network.predict_proba(image), atol=1e-6)
        np.testing.assert_array_equal(session.predict("c")[0], network.predict(project.image("c")))
        np.testing.assert_array_equal(rebuilt(heard.of(Prediction), ids.shape)[0], ids)
        assert heard.of(Expected)[-1].points[-1].object_iou == network.held_out_.object_iou
        assert heard.of(Checked)[-1].object_iou <= network.held_out_.object_iou
        found = network.segment(image, objects=True)
        # pixels that were labelled as background belong to no object
        is_free = session.project.labels("a").labels != 0
        np.testing.assert_array_equal(heard.of(Objects)[-1].labels > 0, (found.objects > 0) & is_free)
        assert heard.of(Objects)[-1].rule == network.objects_.rule

        session.paint("a", (0, 0), np.ones((3, 3), dtype=bool), 1)
        assert session.network.shown == "kernel machine"
        assert session.wait(PATIENCE)
        told = Network("earlier", "kernel machine", "Network of earlier labels: train it again")
        assert session.network == told == heard.of(Network)[-1]
        assert session.export().shown == "kernel machine"
        session.undo("a")
        assert session.wait(PATIENCE)
        assert session.network.shown == "network"
        np.testing.assert_array_equal(session.predict("a")[0], ids)
        assert heard.of(Failed) == []


def test_an_export_writes_the_network_that_is_shown(project, cache, truth, at_once):
    with opened(project, cache, network=TINY) as session:
        network = train(session, truth)
        done = session.export()
        exported = load(done.model)
        pairs = load_pairs(project.source, done.masks, only_annotated=True, **project.training_options())
        assert done.shown == "network"
        assert done.objects == network.objects_.rule
        np.testing.assert_array_equal(exported.predict(pairs.images[0]), network.predict(project.image("a")))
        # the command trains on what the network was trained on
        digest = Segmenter().digest_training_set(pairs.images, pairs.masks, label_map=pairs.label_map)
        assert exported.summary_.training_set_sha256 == digest
        assert Config.load(done.options).bank == TINY.bank
        assert exported.settings_["bank"]["n_steps"] == 2


def test_pages_of_a_file_are_held_out_together(tmp_path, cache, truth, at_once):
    """By the network, by the exported model, and by what a session expects."""
    (tmp_path / "stacks").mkdir()
    for place, name in enumerate("st"):
        pages = np.stack([np.uint8(255 * blobs((64, 80), 2 * place + page)[0]) for page in range(2)])
        tifffile.imwrite(tmp_path / "stacks" / f"{name}.tif", pages, metadata={"axes": "ZYX"}, imagej=True)
    masks = {
        f"{name}#{page + 1}": blobs((64, 80), 2 * place + page)[1]
        for place, name in enumerate("st")
        for page in range(2)
    }
    with Project(tmp_path / "stacks", tmp_path / "out") as project, opened(project, cache) as session:
        for key, mask in masks.items():
            draw(session, key, mask)
        session.train_network()
        network = load(session._trainer.path_of(session._trainer.trained))
        assert network.summary_.held_out.n_groups == 2
        assert session.wait(PATIENCE)
        assert session._learner._drawn.image_groups.tolist() == [0, 0, 1, 1]
        exported = load(session.export().model)
        assert exported.summary_.held_out.n_groups == 2


def test_a_session_that_is_opened_again_has_its_network(project, cache, truth, at_once):
    with opened(project, cache) as session:
        train(session, truth)
        ids, _ = session.predict("a")
    with opened(project, cache) as session:
        heard = listen(session)
        session.open("a")
        heard.wait_for(Network, lambda event: event.shown == "network")
        assert session.wait(PATIENCE)
        np.testing.assert_array_equal(session.predict("a")[0], ids)
        told = complaint(InputError, session.train_network)
        assert told == "the network knows all labels: draw where it errs, then train it again"
    with opened(project, cache, network=TINY) as session:  # of other options
        assert session.wait(PATIENCE)
        assert session.network.state == "earlier"


def test_strokes_do_not_wait_for_a_network(project, cache, truth, at_once, monkeypatch):
    with opened(project, cache) as session:
        train(session, truth)
        paint = OpenedModel.paint

        def paint_for_ever(self, image, generation, *, key):
            while key == "b":
                _before_pass.get()()
                time.sleep(0.01)
            return paint(self, image, generation, key=key)

        monkeypatch.setattr(OpenedModel, "paint", paint_for_ever)
        heard = listen(session)
        session.open("b")
        assert heard.wait_for(Prediction).key == "b"  # of the kernel machine, which is at hand
        session.open("a")
        heard.wait_for(Prediction, lambda event: event.key == "a")
        session.open("b")
        session.paint("b", (0, 0), np.ones((3, 3), dtype=bool), 1)
        assert session.wait(PATIENCE)
        assert session.network.shown == "kernel machine"
        assert heard.of(Prediction)[-1].key == "b"
        assert heard.of(Failed) == []


def test_a_pause_hides_the_network_of_other_labels(project, cache, truth, at_once):
    with opened(project, cache) as session:
        before = None
        for key in "ab":
            draw(session, key, truth[key])
        before, _ = session.predict("a")
        train(session, truth, keys="")
        session.live = False
        session.paint("a", (0, 0), np.ones((3, 3), dtype=bool), 1)
        assert session.wait(PATIENCE)
        assert session.network.state == "earlier"
        assert np.mean(session.predict("a")[0] == before) > 0.99


def test_a_damaged_network_is_told_and_trained_again(project, cache, truth, at_once):
    with opened(project, cache) as session:
        train(session, truth)
        path = session._trainer.path_of(session._trainer.trained)
    path.write_bytes(path.read_bytes()[:100])
    with opened(project, cache) as session:
        heard = listen(session)
        session.open("a")
        assert str(path) in heard.wait_for(Failed).message
        assert session.wait(PATIENCE)
        assert session.network.state == "none"
        session.train_network()


def test_other_names_of_classes_are_other_labels(project, cache, truth, at_once):
    with opened(project, cache) as session:
        train(session, truth)
        session.set_classes([replace(one, name=f"{one.name}s") for one in project.classes])
        assert session.wait(PATIENCE)
        assert session.network.state == "earlier"


def test_one_class_trains_no_network(session, truth):
    draw(session, "a", truth["a"], value=0)
    told = complaint(InputError, session.train_network)
    assert told == "too little is labelled yet: draw strokes of two classes or more, then train"


def test_loops_inside_loops_are_one_share(monkeypatch):
    monkeypatch.setattr("segkit.live.background._BETWEEN_REPORTS", 0)
    reports = []
    follow = Reporter(reports.append)
    for name in follow("ab", "Networks"):
        for _ in follow(range(2), f"Network {name}"):
            pass
    for _ in follow(range(2), "Held-out images"):
        pass
    texts, shares, seconds = zip(*reports, strict=True)
    assert texts[:3] == ("Networks", "Network a", "Network a")
    assert shares == (0, 0, 0.25, 0.5, 0.5, 0.75, 0.75, 0.75)
    assert [left is not None for left in seconds] == [False, False, True, True, False, True, False, False]


def test_maps_of_networks_can_be_interrupted():
    mask = np.zeros((64, 64), dtype=np.uint8)
    mask[16:48, 16:48] = 1
    image = np.float32(0.3 + 0.4 * mask)
    bank = TunedBank(weights="random", pyramid=(1.0,), n_folds=2, n_steps=1, symmetries=False)
    bank.fit([image], [mask])
    passes = []

    def check():
        passes.append(1)
        if len(passes) == 2:
            raise KeyError

    with pytest.raises(KeyError), interruptible(check):
        bank.maps(image)
    bank.maps(image)
    assert len(passes) == 2


@pytest.mark.slow(short=True)
def test_a_network_is_trained_in_a_process_of_its_own(project, cache, truth):
    with opened(project, cache, network=TINY) as session:
        heard = listen(session)
        network = train(session, truth)
        events = [event for event in heard.of(Network) if event.state == "training"]
        assert "Training 3 networks" in {event.text for event in events}
        shares = [event.done for event in events]
        assert shares == sorted(shares)
        np.testing.assert_array_equal(session.predict("a")[0], network.predict(project.image("a")))
        assert isinstance(network.bank_, TunedBank)
        assert [path.suffix for path in session._trainer._folder.iterdir()] == [".segkit"]
        assert heard.of(Failed) == []


@pytest.mark.slow
def test_a_training_that_was_killed_or_cancelled_goes_on(project, cache, truth):
    long = Config.from_options({"bank": TINY.bank.model_dump() | {"n_steps": 60}})
    with opened(project, cache, network=long) as session:
        for key in "ab":
            draw(session, key, truth[key])
        session.train_network()
        told = complaint(InputError, session.train_network)
        assert told == "the training of a network goes on already: wait for its end, or cancel it"
        heard = listen(session)
        heard.wait_for(Network, lambda event: event.done > 51 / 60)
        for child in psutil.Process().children():
            if "--multiprocessing-fork" in child.cmdline():
                child.kill()
        assert "the training of a network was ended from outside" in heard.wait_for(Failed).message
        heard.wait_for(Network, lambda event: event.state == "none")

        session.train_network()
        listen(session).wait_for(Network, lambda event: event.text == "Training 3 networks")
        start = time.monotonic()
        session.cancel_network()
        assert time.monotonic() - start < 2
        assert session.network.state == "none"
        assert (session.predict("a")[0] == truth["a"]).mean() > 0.9
        heard = listen(session)
        train(session, truth, keys="")
        left = [3 * event.done for event in heard.of(Network) if event.text == "Training 3 networks"]
        assert left == pytest.approx([*map(round, left)])  # shares of the last twelve steps, four at once
        assert heard.of(Failed) == []


@pytest.mark.slow
def test_what_is_missing_is_told_in_one_line(project, cache, truth):
    without = Config.from_options({"bank": TINY.bank.model_dump() | {"weights": "missing.npz"}})
    with opened(project, cache, network=without) as session:
        for key in "ab":
            draw(session, key, truth[key])
        heard = listen(session)
        session.train_network()
        message = heard.wait_for(Failed).message
        assert "missing.npz" in message
        assert "\n" not in message
        heard.wait_for(Network, lambda event: event.state == "none")
        assert session.wait(PATIENCE)


@pytest.mark.slow
def test_a_training_ends_with_its_parent(project, cache, folder, truth):
    project.close()
    script = folder / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import numpy as np, time
            from segkit.live import FeatureCache, LiveSession, Network, Project
            from tests.live.conftest import blobs, draw
            from tests.live.test_network import TINY, Config

            if __name__ == "__main__":
                long = Config.from_options({{"bank": TINY.bank.model_dump() | {{"n_steps": 1000}}}})
                with Project({str(folder / "images")!r}, {str(folder / "out")!r}) as project:
                    session = LiveSession(project, cache=FeatureCache({str(folder / "cache")!r}), network=long)
                    for seed, key in enumerate("ab"):
                        draw(session, key, blobs((64, 80), seed)[1])
                    session.subscribe(lambda event: isinstance(event, Network) and print(event.text, flush=True))
                    session.train_network()
                    time.sleep(1000)
            """
        ),
        encoding="utf-8",
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        while not parent.stdout.readline().startswith("Training 3"):
            assert parent.poll() is None
        children = psutil.Process(parent.pid).children(recursive=True)
        assert children
        parent.kill()
        _, alive = psutil.wait_procs(children, timeout=5)
        assert not alive
