"""`segkit predict` as it is seen from outside: exit status, lines, signals."""

import csv
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest

from segkit import Segmenter
from segkit._common.lock import locked_folder
from segkit.cli import terminated_as_by_ctrl_c
from segkit.features import Module, ModuleBank, StackedBank, TunedBank
from segkit.images import LabelMap, read_mask, write_image, write_mask
from segkit.live import Project
from segkit.live.classes import classes_of
from segkit.networks.pyramid import PyramidNetwork
from segkit.segmentation import folders
from tests.cli.test_entry import restore_default_signals

TWICE = np.ones((2, 2), dtype=np.uint8)


def picture(seed):
    rng = np.random.default_rng(seed)
    mask = np.zeros((24, 32), dtype=np.uint8)
    mask[6:18, 8 + seed : 20 + seed] = 255
    return np.clip(0.3 + 0.4 * (mask > 0) + 0.05 * rng.standard_normal(mask.shape), 0, 1), mask


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.segkit"
    bank = ModuleBank((Module(n_scales=2, n_angles=3),))
    segmenter = Segmenter(bank, selection_pixels=200, training_pixels=400)
    segmenter.fit(*zip(*(picture(seed) for seed in range(2)), strict=True)).save(path)
    return path


@pytest.fixture
def line(model, tmp_path):
    """Arguments of a run over three images."""
    for seed in range(3):
        write_image(tmp_path / "images" / f"{seed}.png", picture(seed)[0])
    return ["predict", str(model), str(tmp_path / "images"), "-o", str(tmp_path / "out")]


def statuses(tmp_path):
    with (tmp_path / "out" / "summary.csv").open(newline="", encoding="utf-8") as file:
        return [row["status"] for row in csv.DictReader(file)]


def test_all_good_is_status_0(line, segkit, tmp_path):
    code, out, err = segkit(*line)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"3 written, 0 skipped, 0 failed: see {tmp_path / 'out' / 'summary.csv'}"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A model of networks, one of each of two folds."""
    path = tmp_path_factory.mktemp("tuned") / "m.segkit"
    bank = StackedBank([TunedBank(weights="random", pyramid=(1.0,), n_steps=2)])
    images, masks = zip(*(picture(seed) for seed in range(2)), strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of networks that have learnt nothing yet
        segmenter = Segmenter(bank, selection_pixels=200, training_pixels=400).fit(
            [np.kron(one, np.ones((2, 2))) for one in images], [np.kron(one, TWICE) for one in masks]
        )
    segmenter.save(path)
    return path


def test_a_quick_prediction_takes_one_network_and_is_none_of_all(tuned, line, segkit, monkeypatch):
    runs, run = [], PyramidNetwork.forward
    monkeypatch.setattr(
        PyramidNetwork, "forward", lambda network, images: runs.append(network) or run(network, images)
    )
    line[1] = str(tuned)
    code, out, err = segkit(*line, "--quick")
    assert code == 0, err
    assert "--quick" not in out
    assert len(runs) == 3
    assert "3 images up to date" in segkit(*line, "--quick", "--resume")[1]
    assert len(runs) == 3
    assert "up to date" not in segkit(*line, "--resume")[1]
    assert len(runs) == 3 + 3 * 8


def test_corrections_take_the_place_of_predictions(line, segkit, tmp_path):
    with Project(
        tmp_path / "images", tmp_path / "drawn", classes=classes_of({0: "background", 1: "foreground"})
    ) as drawn:
        drawn.paint("1", (0, 0), TWICE.astype(bool), 1)
        drawn.save("1")
    plain = segkit(*line)[0], read_mask(tmp_path / "out" / "1.png")[0]
    code, _, err = segkit(*line, "--resume", "--corrections", str(tmp_path / "drawn"))
    assert (plain[0], code, err) == (0, 0, "")
    mask = plain[1].copy()
    mask[:2, :2] = 255  # the model's own value of the class
    np.testing.assert_array_equal(read_mask(tmp_path / "out" / "1.png")[0], mask)
    code, _, err = segkit(*line, "--resume", "--corrections", str(tmp_path / "images"))
    assert code == 2
    assert (
        err
        == f"segkit: {tmp_path / 'images'}: no project of segkit annotate: give the folder that it wrote\n"
    )


def test_what_was_trained_is_explained(tuned, segkit):
    code, out, err = segkit("inspect", tuned, "--explain")
    assert (code, err) == (0, "")
    assert (
        "Networks: 3 of mobilenet_v2, 3 at each scale (1), trained for 2 steps in each fold, shared by its scales, "
        "from random weights.\n" in out
    )
    assert "Channels: 1 of 1 kept. Selection left none out. Most are from logits at 1 (1)." in out


def test_a_model_without_networks_has_no_quick_form(line, segkit):
    out = segkit(*line, "--quick")[1].splitlines()
    assert out[0] == "--quick changes nothing: no networks were trained for this model"
    assert out[-1].startswith("3 written")
    assert "3 images up to date" in segkit(*line, "--resume")[1]


def test_masks_that_look_black_are_told(line, segkit, tmp_path):
    """And what their values are called reaches the scores."""
    assert "viewers" not in segkit(*line)[1]
    images, masks = zip(*(picture(seed) for seed in range(2)), strict=True)
    segmenter = Segmenter(
        ModuleBank((Module(n_scales=2, n_angles=3),)), selection_pixels=200, training_pixels=400
    )
    names = LabelMap({0: "ground", 1: "cell", 2: "rim"})
    parts = [mask // 255 + (np.indices(mask.shape)[1] > 25) * (mask == 0) * np.uint8(2) for mask in masks]
    segmenter.fit(images, parts, label_map=names).save(tmp_path / "dark.segkit")
    code, out, err = segkit("predict", tmp_path / "dark.segkit", *line[2:-1], tmp_path / "dark")
    assert (code, err) == (0, "")
    assert (
        "Masks hold 0, 1, 2: viewers show them black; stretch the contrast there, or look at overlays" in out
    )
    for number, mask in enumerate(parts):
        write_mask(tmp_path / "true" / f"{number}.png", mask)
    code, out, err = segkit("evaluate", tmp_path / "dark", tmp_path / "true")
    assert (code, err) == (0, "")
    assert "  cell: IoU" in out


def test_some_failed_is_status_1_and_a_line_for_each(line, segkit, tmp_path):
    for number in range(7):
        (tmp_path / "images" / f"bad{number}.png").write_bytes(b"no picture")
    code, _, err = segkit(*line, "--quiet")
    assert code == 1
    *failed, more, last = err.splitlines()
    assert [text.partition(" cannot be decoded")[0] for text in failed] == [
        f"failed: {tmp_path / 'images' / f'bad{number}.png'}:" for number in range(5)
    ]
    assert more == "failed: 2 more"
    assert last == f"3 written, 0 skipped, 7 failed: see {tmp_path / 'out' / 'summary.csv'}"
    assert statuses(tmp_path).count("failed") == 7


def test_strict_is_status_2_and_stops_there(line, segkit, tmp_path):
    (tmp_path / "images" / "1.bmp").write_bytes(b"no picture")
    code, _, err = segkit(*line, "--strict")
    assert code == 2
    assert err.startswith(f"segkit: {tmp_path / 'images' / '1.bmp'} and ")
    assert err.endswith("(strict: 1 of 4 images written)\n")
    assert err.count("\n") == 1
    assert statuses(tmp_path) == ["written", "skipped", "skipped", "skipped"]


def test_resume_goes_on_and_overwrite_needs_a_second_word_for_other_masks(line, segkit, tmp_path):
    assert segkit(*line)[0] == 0
    code, _, err = segkit(*line)
    assert (code, "--resume" in err) == (2, True)
    code, out, _ = segkit(*line, "--resume")
    assert code == 0
    assert "(3 images up to date)" in out
    write_image(tmp_path / "out" / "0.png", np.zeros((24, 32)))
    code, _, err = segkit(*line, "--overwrite")
    assert (code, "--overwrite-foreign" in err) == (2, True)
    code, out, _ = segkit(*line, "--resume")
    assert code == 0
    assert f"skipped: {tmp_path / 'out' / '0.png'} was not written by segkit, or changed since" in out
    assert statuses(tmp_path) == ["skipped", "written", "written"]
    assert segkit(*line, "--overwrite-foreign")[0] == 0
    assert statuses(tmp_path) == ["written"] * 3


def test_the_second_of_two_runs_is_refused(line, segkit, tmp_path):
    with locked_folder(tmp_path / "out"):
        code, _, err = segkit(*line)
        assert [path.name for path in (tmp_path / "out").rglob("*")] == [".segkit", "lock"]
    assert code == 2
    assert "is in use by another program" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interruption_tells_what_is_done_and_how_to_go_on(line, segkit, tmp_path, monkeypatch):
    def stop_at_the_second(segmenter, job, *arguments, **options):
        if job.name == "1.png":
            raise KeyboardInterrupt
        return make(segmenter, job, *arguments, **options)

    make = folders.make_results
    monkeypatch.setattr(folders, "make_results", stop_at_the_second)
    code, _, err = segkit(*line, "-q")
    assert (code, err) == (
        130, "segkit: interrupted: 1 of 3 images written; the same command with --resume goes on\n",
    )  # fmt: skip
    assert statuses(tmp_path) == ["written", "skipped", "skipped"]


PROGRAM = """
    import os, signal, sys
    from segkit.segmentation import folders

    number, make = int(sys.argv.pop(1)), folders.make_results

    def stop_at_the_second(segmenter, job, *arguments, **options):
        if job.name == "1.png":
            os.kill(os.getpid(), number)
        return make(segmenter, job, *arguments, **options)

    folders.make_results = stop_at_the_second
    from segkit.cli.commands import main
    main()
"""


@pytest.mark.slow(short=True)
@pytest.mark.skipif(os.name == "nt", reason="ends by signal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_say_what_is_done_and_how_to_go_on(line, segkit, tmp_path, number):
    arguments = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(int(number)), *line]
    done = subprocess.run(
        arguments, check=False, capture_output=True, text=True, preexec_fn=restore_default_signals
    )
    assert done.returncode == 130
    assert done.stderr == (
        "segkit: interrupted: 1 of 3 images written; the same command with --resume goes on\n"
    )
    assert statuses(tmp_path) == ["written", "skipped", "skipped"]
    assert not list((tmp_path / "out").rglob("*.part*"))
    code, out, _ = segkit(*line, "--resume")
    assert code == 0
    assert "(1 image up to date)" in out


@pytest.mark.skipif(os.name == "nt", reason="ends by signal")
def test_sigterm_means_ctrl_c_for_as_long_as_a_command_runs():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_as_by_ctrl_c():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_images_that_clash_are_named_once(line, segkit, tmp_path):
    write_image(tmp_path / "images" / "1.bmp", picture(4)[0])
    write_image(tmp_path / "images" / "overlay" / "x.png", picture(5)[0])
    write_image(tmp_path / "images" / "overlay" / "y.png", picture(6)[0])
    status, _, err = segkit(*line)
    assert status == 1
    assert statuses(tmp_path) == ["written", "failed", "failed", "written", "failed", "failed"]
    assert err.count("would both become") == 1
    assert err.count("is a folder called overlay, as results are") == 1


def test_workers_that_make_no_sense_are_one_line(line, segkit, tmp_path):
    code, _, err = segkit(*line, "--workers", "0")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("segkit: 0 workers: expected a whole number from 1 on")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="ends by signal")
def test_ctrl_c_of_a_terminal_reaches_all_workers_and_is_one_line(line, segkit, tmp_path):
    pytest.importorskip("distributed")
    for seed in range(3, 40):
        write_image(tmp_path / "images" / f"{seed}.png", picture(seed % 3)[0])
    with subprocess.Popen(
        [sys.executable, "-m", "segkit", *line, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=restore_default_signals,
    ) as program:
        while not list((tmp_path / "out").glob("*.png")):
            assert program.poll() is None
            time.sleep(0.01)
        os.killpg(program.pid, signal.SIGINT)
        assert re.fullmatch(
            r"segkit: interrupted: \d+ of 40 images written; the same command with --resume goes on\n",
            program.stderr.read(),
        )
    assert program.returncode == 130
    assert segkit(*line, "--resume")[0] == 0
    assert statuses(tmp_path) == ["written"] * 40
