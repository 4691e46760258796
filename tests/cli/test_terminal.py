from types import SimpleNamespace

import pytest

import segkit.cli.terminal
from segkit.cli.benchmark import describe_benchmark
from segkit.cli.evaluate import describe_scores
from segkit.cli.terminal import QUIET, echo, progress_bars, say, show_warning, warn


@pytest.fixture(autouse=True)
def _no_colours(monkeypatch):
    """With them rich takes any stream for a terminal."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    QUIET.set(False)


def test_a_log_has_a_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(segkit.cli.terminal, "SECONDS_BETWEEN_LINES", -1)
    with progress_bars() as follow:
        assert list(follow("ab", "Segmenting")) == ["a", "b"]
    assert capsys.readouterr().err == "Segmenting: 1 of 2\nSegmenting: 2 of 2\n"
    QUIET.set(True)
    with progress_bars() as follow:
        list(follow("ab", "Segmenting"))
    assert capsys.readouterr().err == ""


def test_what_begins_in_a_log_ends_there(capsys, monkeypatch):
    seconds = iter([0, 31, 32, 33, 34, 35, 36])
    monkeypatch.setattr(segkit.cli.terminal, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with progress_bars() as follow:
        list(follow("abcd", "Segmenting"))
    assert capsys.readouterr().err == "Segmenting: 1 of 4\nSegmenting: 4 of 4\n"


def test_a_log_is_not_filled(capsys):
    with progress_bars() as follow:
        list(follow(range(1000), "Segmenting"))
    assert capsys.readouterr().err == ""


def test_runs_that_fail_alike_are_told_once():
    failures = [
        {"method": method, "n_train": 1, "seed": seed, "error": error}
        for method, seed, error in [
            ("unet", 0, "no albumentations"),
            ("fcn", 0, "no weights"),
            ("unet", 1, "no albumentations"),
        ]
    ]
    assert describe_benchmark({"records": [], "failures": failures}).splitlines() == [
        "failed: unet, n=1, seed 0 and 1 more run: no albumentations",
        "failed: fcn, n=1, seed 0: no weights",
    ]


SCORES = {
    "mean_iou": 0.5, "interval": [0.4, 0.6], "object_iou": None, "object_iou_interval": None, "object_dice": None,
    "object_dice_interval": None, "n_images": 3, "classes": [], "notes": [],
}  # fmt: skip


def test_one_file_gives_no_interval():
    scores = SCORES | {"object_iou": 0.3, "object_iou_interval": [0.2, 0.4]}
    assert describe_scores(scores).splitlines() == [
        "Object IoU 0.300 (95 % interval 0.200 to 0.400)",
        "Object Dice undefined",
        "Mean IoU over classes 0.500 (95 % interval 0.400 to 0.600)",
        "Scored on 3 images.",
    ]
    assert "Mean IoU over classes 0.500\n" in describe_scores(scores | {"interval": [0.5, 0.5]})


def test_scores_of_objects_stand_above_those_of_pixels():
    score = {"value": 0.5, "interval": [0.4, 0.6]}
    names = ("ap_50", "mean_ap", "panoptic_quality", "aggregated_jaccard")
    objects = {
        "n_true": 12, "n_predicted": 9, "n_undefined": 1, "thresholds": [0.5, 0.6, 0.7, 0.8, 0.9],
        "scores": dict.fromkeys(names, score) | {
            "count_error": {"value": -1.5, "interval": [-2, 0.25]},
            "absolute_count_error": {"value": 2.5, "interval": [1, 4]},
        },
    }  # fmt: skip
    span = "0.500 (95 % interval 0.400 to 0.600)"
    assert describe_scores(SCORES | {"objects": objects}).splitlines() == [
        "Objects: 12 true, 9 predicted",
        f"  AP at IoU 0.5: {span}",
        f"  Mean AP at IoU 0.5 to 0.9: {span}",
        f"  Panoptic quality: {span}",
        f"  Aggregated Jaccard index: {span}",
        "  Predicted minus true, mean of images: -1.5 (95 % interval -2.0 to +0.2)",
        "  Absolute difference, mean of images: 2.5 (95 % interval 1.0 to 4.0)",
        "  1 image without objects, true or predicted",
        "Pixels, all objects as foreground:",
        *describe_scores(SCORES).splitlines(),
    ]


@pytest.mark.parametrize("logs", [True, False])
def test_progress_within_progress(capsys, monkeypatch, logs):
    """The tiles of each image are followed, and their bars make room for the next image's."""
    monkeypatch.setattr(segkit.cli.terminal, "SECONDS_BETWEEN_LINES", -1 if logs else 1000)
    with progress_bars() as follow:
        bars = follow.__self__._bars
        for _ in follow("ab", "Segmenting"):
            assert list(follow(range(2), "Tiles")) == [0, 1]
            assert [task.description for task in bars.tasks] == ["Segmenting"]
    lines = capsys.readouterr().err.splitlines()
    tiles = ["Tiles: 1 of 2", "Tiles: 2 of 2"]
    assert lines == ([*tiles, "Segmenting: 1 of 2", *tiles, "Segmenting: 2 of 2"] if logs else [])


def test_control_characters_of_names_do_not_reach_the_terminal(capsys):
    echo("images\x1b[2J/a\udcff.png\n1 fault")
    show_warning("a\x07.png: dark", UserWarning, "segkit/images/read.py")
    told = capsys.readouterr()
    assert told.out == "images\\x1b[2J/a\\xff.png\n1 fault\n"
    assert told.err == "note: a\\x07.png: dark\n"


def test_names_make_no_further_lines(capsys):
    say("lowest a\nnote: all is well", "2 written")
    warn("note: b\n3 written")
    told = capsys.readouterr()
    assert told.out == "lowest a\\nnote: all is well\n2 written\n"
    assert told.err == "note: b\\n3 written\n"


def test_warnings_of_readers_are_left_out(capsys):
    """They name no file; segkit tells of it itself."""
    show_warning("Truncated File Read", UserWarning, "/somewhere/site-packages/PIL/TiffImagePlugin.py")
    show_warning("Truncated File Read", RuntimeWarning, "segkit/images/read.py")
    assert capsys.readouterr().err == ""
