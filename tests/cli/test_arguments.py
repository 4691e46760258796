"""Any words on the command line: an exit status that is documented, one line about what is wrong, never a traceback."""

import sys
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from segkit import Segmenter
from segkit.cli import commands as cli
from segkit.errors import InputError
from segkit.features import ModuleBank
from segkit.images import load_pairs, write_image, write_mask

OPTIONS = [
    "-o", "--output", "--overwrite", "-q", "--quiet", "--config", "--set", "--workers", "--device", "--explain",
    "--probability", "--overlay", "--objects", "--images", "--memory-limit", "--", "--methods",
    "--train-sizes", "--seeds", "--groups", "--test", "--resume", "--classes", "--masks", "--model", "--port",
    "--no-browser", "--version", "--help", "-h", "--labels", "-x",
]  # fmt: skip
PLACES = [
    "images", "masks", "m.segkit", "images/a.png", "masks/a.png", "notes.txt", "empty", "gone", "bad.yaml", "out",
]  # fmt: skip
VALUES = [
    *("0", "1", "-1", "1,2", "1e9", "nan", "9" * 30, "data.unlabelled=300", "data.masks=instances", "seed=x", "a=b=c"),
    *("data.labels={0: a, 1: b}", "bank.L=1000", "bank=[", "data={", "=", "svm.C.x=1", "training.pixels=10000000000000"),
    *("a.segkit", "out/deep/er", "segkit-vgg", "forest", "vgg16", "0.5,0.5", "a,a", ""),
]  # fmt: skip
# Neither slashes, which could lead out of the folder, nor a null character, which no system passes on.
TEXT = st.text(st.characters(exclude_categories=[], exclude_characters="/\\\0~"), max_size=12).map(
    lambda text: text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
)
WORD = st.one_of(*map(st.sampled_from, (OPTIONS, PLACES, VALUES)), TEXT)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with images, masks, a model, and files that are none of these."""
    folder = tmp_path_factory.mktemp("arguments")
    rng = np.random.default_rng(0)
    for name in "ab":
        mask = np.kron(np.eye(2, dtype=np.uint8), np.ones((12, 12), dtype=np.uint8))
        write_mask(folder / "masks" / f"{name}.png", 255 * mask)
        write_image(folder / "images" / f"{name}.png", 0.3 + 0.4 * mask + 0.1 * rng.random(mask.shape))
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("no picture")
    (folder / "bad.yaml").write_text("seed: 1\nseed: 2\n")
    data = load_pairs(folder / "images", folder / "masks")
    bank = ModuleBank(({"n_scales": 2, "n_angles": 3},))
    Segmenter(bank, training_pixels=200, selection_pixels=100).fit(
        data.images, data.masks, label_map=data.label_map
    ).save(folder / "m.segkit")
    return folder


@pytest.fixture
def segkit(prepared, monkeypatch, capsys):
    """Run the command line but for what takes time: training, benchmarks, the demo, the server."""

    def stop(*_, **__):
        raise InputError("stopped by the test")

    monkeypatch.chdir(prepared)
    for place in (
        "segkit.segmentation.segmenter.Segmenter._fit", "segkit.benchmark.Benchmark.run", "segkit.cli.demo._draw",
        "segkit.annotate.serve", "segkit.annotate.serve_start",
    ):  # fmt: skip
        monkeypatch.setattr(place, stop)

    def run(words):
        monkeypatch.setattr(sys, "argv", ["segkit", *words])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(SystemExit) as stopped:
                cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=st.sampled_from(cli.COMMANDS), words=st.lists(WORD, max_size=8))
@example(command="annotate", words=[])
@example(command="train", words=["images", "masks", "-o", "new.segkit"])
@example(command="predict", words=["m.segkit", "images", "-o", "\udcff\x1b[2J"])
@example(command="inspect", words=["images", "masks", "--set", "seed"])
@example(command="evaluate", words=["masks", "masks", "--set", "\udcff", "-o", "report"])
@example(command="benchmark", words=["images", "masks", "-o", "b", "--train-sizes", "9" * 5000])
def test_any_words(segkit, command, words):
    code, out, err = segkit([command, *words])
    assert code in (0, 1, 2, 130)
    assert "Traceback" not in out + err
    if code == 2 and err.startswith("segkit: "):
        assert err.splitlines()[-1].startswith("segkit: ")
        assert "\x1b" not in err


def test_words_without_a_command(segkit):
    for words in ([], ["--version"], ["nothing"], ["\udcff"], ["--debug"], ["-"]):
        code, out, err = segkit(words)
        assert code in (0, 2)
        assert "Traceback" not in out + err
