import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit import __version__
from segkit.cli.commands import app, main
from segkit.config.recorded import read_training
from segkit.config.schema import Config
from segkit.errors import InputError
from segkit.images import read_mask, write_image, write_labels, write_mask
from segkit.segmentation.model_file import FORMAT_VERSION, read_model, write_model

FAST = [
    flag
    for option in (
        "bank.name=modules", "bank.modules=[{n_scales: 2, n_angles: 3}]", "selection.n_features=6",
        "selection.pixels=200", "training.pixels=400",
    )
    for flag in ("--set", option)
]  # fmt: skip


def picture(seed, shape=(40, 48)):
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    mask = (np.hypot(rows - rng.uniform(10, 30), cols - rng.uniform(10, 38)) < 8).astype(np.uint8)
    image = np.clip(0.35 + 0.3 * mask + 0.04 * rng.standard_normal(shape), 0, 1).astype(np.float32)
    return image, mask


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Three annotated images in a tree, masks of 0 and 255, and a model of them."""
    place = tmp_path_factory.mktemp("trained")
    for seed, name in enumerate(("a/one", "a/two words", "b/drei-ü")):
        image, mask = picture(seed)
        write_image(place / "images" / f"{name}.png", image)
        write_mask(place / "masks" / f"{name}.png", 255 * mask)
    words = ["train", place / "images", place / "masks", "-o", place / "m.segkit", *FAST, "--quiet"]
    app(list(map(str, words)), standalone_mode=False)
    return place


@pytest.fixture
def folder(trained, tmp_path):
    for kind in ("images", "masks"):
        shutil.copytree(trained / kind, tmp_path / kind)
    return tmp_path


@pytest.fixture
def model(folder, trained):
    return Path(shutil.copy(trained / "m.segkit", folder / "m.segkit"))


def files_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def results_below(folder):
    """All but the hidden record of what segkit wrote."""
    return [path for path in files_below(folder) if not path.startswith(".segkit/")]


def test_train_says_three_lines_and_where_the_model_is(folder, segkit):
    code, out, _ = segkit(
        "train", folder / "images", folder / "masks", "-o", folder / "m.segkit", *FAST, "--set", "seed=3"
    )
    assert code == 0
    meaning, learnt, expected, following, where = out.splitlines()
    assert meaning == "masks hold 0 and 255: read as background and foreground"
    assert learnt.startswith("Learnt background and foreground from 3 images, every pixel annotated, in ")
    scores = read_model(folder / "m.segkit")[0]["summary"]["held_out"]
    assert f"object IoU {scores['object_iou']:.2f} (95 % interval " in expected
    assert f"Dice {scores['object_dice']:.2f} (95 %" in expected
    worst = min(scores["scores"], key=lambda entry: entry["mean_iou"])
    name = ["a/one", "b/drei-ü", "b/two"][worst["image"]]
    assert following.startswith(f"Next: annotate another image like {name}: held out, it did worst")
    assert where.startswith(f"Model: {folder / 'm.segkit'} (")
    assert not any(word in out for word in ("kernel", "channel", "lambda", "penalty"))


def repeat(folder, segkit, model, output, *options):
    arguments = ("train", folder / "images", folder / "masks", "--config", model, "-o", output, *options)
    return segkit(*arguments)


def test_a_training_repeated_from_its_model_gives_equal_bytes(folder, segkit):
    options = (
        *FAST,
        "--set",
        "seed=5",
        "--set",
        "svm.alphas=[0.01, 0.001]",
        "--set",
        "kernel.n_components=64",
    )
    (folder / "masks" / "b" / "drei-ü.png").unlink()
    train = ("train", folder / "images", folder / "masks", "-o", folder / "m.segkit")
    assert segkit(*train, *options, "--set", "data.only_annotated=true")[0] == 0
    settings = read_model(folder / "m.segkit")[0]["settings"]
    assert settings["data"]["only_annotated"]
    assert settings["seed"] == 5
    # what was not given is recorded too
    assert settings["training"]["threshold"] == "quantile+otsu"
    code, _, err = repeat(folder, segkit, folder / "m.segkit", folder / "again.segkit")
    assert (code, err) == (0, "")
    assert (folder / "again.segkit").read_bytes() == (folder / "m.segkit").read_bytes()
    assert repeat(folder, segkit, folder / "m.segkit", folder / "seed.segkit", "--set", "seed=6")[0] == 0
    assert (folder / "seed.segkit").read_bytes() != (folder / "m.segkit").read_bytes()


def test_other_images_are_told(folder, model, segkit):
    image, mask = picture(9)
    write_image(folder / "images" / "new.png", image)
    write_mask(folder / "masks" / "new.png", 255 * mask)
    code, _, err = repeat(folder, segkit, model, folder / "new.segkit")
    assert code == 0
    told = f"note: not the images and masks that {model} was trained on (3 images; now there are 4): "
    assert err.startswith(told)
    assert read_model(folder / "new.segkit")[0]["settings"] == read_model(model)[0]["settings"]
    (folder / "images" / "new.png").unlink()
    (folder / "masks" / "new.png").unlink()
    write_mask(folder / "masks" / "a" / "one.png", 255 * np.roll(picture(0)[1], 1))
    assert (
        "(3 images; some of them, or --groups, differ)"
        in repeat(folder, segkit, model, folder / "x.segkit")[2]
    )


def test_a_fast_model_records_its_recipe(folder, segkit):
    smaller = ["--set", "training.pixels=500", "--set", "selection.pixels=100"]
    train = ("train", folder / "images", folder / "masks", "-o", folder / "fast.segkit")
    assert segkit(*train, "--config", "fast", *smaller)[0] == 0
    settings = read_training(folder / "fast.segkit").configure([])
    assert settings.kernel == Config.load(Path("fast")).kernel
    assert settings.bank == Config.load(Path("fast")).bank
    assert settings.bank != Config().bank


def test_trainings_that_cannot_be_repeated(folder, model, segkit):
    train = ("train", folder / "images", folder / "masks", "-o", folder / "x.segkit")
    header, arrays = read_model(model)
    del header["format_version"]
    write_model(folder / "by-python.segkit", header | {"settings": None}, arrays)
    told = repeat(folder, segkit, folder / "by-python.segkit", folder / "x.segkit")[2]
    assert "records no settings of its training" in told
    header["settings"]["another"] = 1
    header["versions"]["numpy"] = "1.0"
    write_model(folder / "later.segkit", header, arrays)
    assert "unknown key another" in refused(segkit, folder, *train, "--config", folder / "later.segkit")
    del header["settings"]["another"]
    write_model(folder / "later.segkit", header, arrays)
    code, _, err = repeat(folder, segkit, folder / "later.segkit", folder / "x.segkit")
    assert code == 0
    assert (
        f"note: other versions, so the model may differ a little: numpy 1.0 then, {np.__version__} now" in err
    )


@pytest.mark.parametrize("embed", ["true", "false"])
def test_the_weights_of_the_chosen_bank_are_stored_or_left_out(folder, segkit, embed):
    """Of two equal banks the first is chosen."""
    bank = {"name": "squeezenet1_0", "weights": "random", "layers": ["conv1"]}
    code, _, err = segkit(
        *("train", folder / "images", folder / "masks", "-o", folder / "m.segkit", *FAST[4:]),
        *("--set", f"bank={json.dumps([bank, bank])}", "--set", f"training.embed_weights={embed}"),
    )
    assert code == 0, err
    code, out, err = segkit("inspect", folder / "m.segkit", "--explain")
    assert code == 0, err
    assert (
        "Bank: squeezenet1_0 to conv1 (bank 1 of 2). Its mean IoU over held-out images is the highest: "
        in out
    )
    stored = any(name.startswith("weights.") for name in read_model(folder / "m.segkit")[1])
    assert stored == (embed == "true")


def test_main_job_from_train_to_scores(folder, model, segkit):
    code, out, _ = segkit(
        "predict", model, folder / "images", "-o", folder / "out", "--probability", "--overlay"
    )
    assert code == 0
    assert "3 mask files in" in out
    assert results_below(folder / "out") == sorted(
        ["summary.csv", *(f"{name}.png" for name in ("a/one", "a/two words", "b/drei-ü"))]
        + [f"overlay/{name}.png" for name in ("a/one", "a/two words", "b/drei-ü")]
        + [f"probability/{name}.tif" for name in ("a/one", "a/two words", "b/drei-ü")]
    )
    with Image.open(folder / "out" / "a" / "one.png") as image:
        prediction = np.asarray(image)
    assert prediction.dtype == np.uint8
    assert set(np.unique(prediction)) == {0, 255}
    probability = tifffile.imread(folder / "out" / "probability" / "a" / "one.tif")
    assert probability.dtype == np.float32
    assert probability[prediction == 255].min() > probability[prediction == 0].max() - 1e-6
    code, out, _ = segkit("evaluate", folder / "out", folder / "masks", "-o", folder / "report")
    assert code == 0
    scores = json.loads((folder / "report" / "scores.json").read_text())
    assert f"Mean IoU over classes {scores['mean_iou']:.3f}" in out
    assert f"Object IoU {scores['object_iou']:.3f}" in out
    assert f"Object Dice {scores['object_dice']:.3f}" in out
    assert "no firm estimate" in out
    assert scores["mean_iou"] > 0.8


def test_a_model_is_not_written_anywhere(folder, segkit):
    """Neither under another extension nor into folders that a mistyped path would make."""
    train = ["train", folder / "images", folder / "masks", "-o"]
    err = refused(segkit, folder, *train, folder / "model.pt")
    assert (
        f"{folder / 'model.pt'}: expected a name that ends in .segkit: give {folder / 'model.pt'}.segkit"
        in err
    )
    for output in (folder / "hoem" / "x" / "m.segkit", folder / "m.segkit" / "x" / "m.segkit"):
        assert f"there is no folder {output.parents[1]}: check the path" in refused(
            segkit, folder, *train, output
        )


@pytest.mark.parametrize("command", ["demo", "annotate"])
def test_folders_of_a_mistyped_path_are_not_made(folder, segkit, command):
    images = [folder / "images"] if command == "annotate" else []
    err = refused(segkit, folder, command, *images, "-o", folder / "hoem" / "x")
    assert f"there is no folder {folder / 'hoem'}: check the path, or make that folder first" in err


def test_explain_says_in_words_what_was_chosen_and_why(folder, segkit):
    assert segkit(*train_arguments(folder))[0] == 0
    status, text, _ = segkit("inspect", folder / "new.segkit", "--explain")
    assert status == 0
    for told in (
        r"Channels: 6 of 7 kept\. They differ most between the classes, consistently from image",
        "Kernels: ",
        r"Penalty: lambda = \S+, the usual one for 3 images\. No other is significantly better",
        r"On the training pixels: mean IoU 0\.",
        "Objects: ",
        "Expected object IoU: ",
    ):
        assert re.search(rf"^ *{told}", text, re.MULTILINE)


def test_explain_tells_banks_that_stay_as_they_are(folder, segkit):
    stack = "bank={name: stacked, normalization: set, banks: [{name: multiscale, sigma_max: 2}, {name: position}]}"
    assert segkit(*train_arguments(folder), "--set", stack)[0] == 0
    text = segkit("inspect", folder / "new.segkit", "--explain")[1]
    assert "position: normalization set\n" in text
    assert "multiscale: sigma_max 2.0, sigma_min 1.0, normalization set\n" in text


def test_quiet_says_nothing(folder, segkit):
    model = folder / "new.segkit"
    assert segkit(*train_arguments(folder), "--quiet") == (0, "", "")
    assert segkit("predict", model, folder / "images", "-o", folder / "out", "--quiet") == (0, "", "")


def test_full_memory_is_one_line(folder, segkit, monkeypatch):
    def exhausted(*_, **__):
        raise MemoryError

    monkeypatch.setattr("segkit.config.schema.load_pairs", exhausted)
    code, _, err = segkit(*train_arguments(folder))
    assert code == 2
    assert err == (
        "segkit: out of memory: use smaller images, fewer training.pixels or kernel.n_components, or a smaller bank\n"
    )


def test_a_file_that_is_missing_or_a_folder_is_told(folder, segkit, tmp_path):
    gone, out = tmp_path / "gone.csv", tmp_path / "out"
    told = f"segkit: {gone}: there is no such file or folder: check the path\n"
    assert segkit("classify", gone, "--labels", gone, "-o", out)[::2] == (2, told)
    told = f"segkit: {folder}: a folder, expected a file: check the path\n"
    assert segkit("classify", folder, "--labels", gone, "-o", out)[::2] == (2, told)
    status, _, err = segkit("predict", folder, folder, "-o", out)
    assert (status, "a folder, expected a file written by segkit train" in err) == (2, True)
    assert not out.exists()


def test_a_library_that_cannot_be_loaded_is_one_line(folder, segkit, monkeypatch):
    def broken(*_, **__):
        raise ImportError("libx.so: failed to map segment from shared object")

    monkeypatch.setattr("segkit.config.schema.load_pairs", broken)
    told = "segkit: libx.so: failed to map segment from shared object (--debug shows where this came from)\n"
    assert segkit(*train_arguments(folder))[::2] == (2, told)


def test_inspect_model_and_folders(folder, model, segkit):
    code, out, _ = segkit("inspect", model)
    assert code == 0
    assert out.splitlines()[1] == "Images       grey (1 channel)"
    for text in (
        "Classes      masks hold 0 and 255",
        "Learnt from  3 images",
        "Features     modules",
        "object IoU ",
    ):
        assert text in out
    assert f"Written by   segkit {__version__}, model format {FORMAT_VERSION}" in out
    assert "{" not in out
    code, out, _ = segkit("inspect", model, "--explain")
    assert code == 0
    assert not set("{}[]") & set(out)
    for text in (
        "Training set  sha256 ",
        "modules: frequency_decreasing True, modules n_scales 2, n_angles 3",
        "Channels: 6 of 7 kept",
        "Penalty: lambda",
    ):
        assert text in out
    code, out, _ = segkit("inspect", folder / "images", folder / "masks")
    assert code == 0
    assert "3 annotated images" in out
    named = ("--set", "data.labels={0: rest, 255: cell}")
    code, out, _ = segkit("inspect", folder / "images", folder / "masks", *named)
    assert code == 0
    assert "cell" in out
    assert "no such file or folder" in refused(segkit, folder, "inspect", folder / "gone")
    code, out, _ = segkit("inspect", folder / "images")
    assert code == 0
    assert out.splitlines()[:2] == ["3 images", "  height x width  40 x 48"]
    code, out, _ = segkit("inspect", folder / "images" / "a" / "one.png")
    assert code == 0
    assert out.startswith("1 image\n")
    (folder / "masks" / "a" / "one.png").unlink()
    code, out, err = segkit("inspect", folder / "images", folder / "masks")
    assert code == 2
    assert "fault: 1 image without mask of the same name (a/one)" in out
    assert err == "segkit: 1 fault above: to be mended before training\n"


def test_three_classes_and_scribbles_by_label_map(tmp_path, segkit):
    for seed in range(2):
        image, mask = picture(seed)
        values = np.where(mask, 7, 3).astype(np.uint8)
        image[:, -10:], values[:, -10:] = 0.9, 200
        values[::2] = 0
        write_image(tmp_path / "images" / f"{seed}.png", image)
        write_mask(tmp_path / "masks" / f"{seed}.png", values)
    arguments = ["train", tmp_path / "images", tmp_path / "masks", "-o", tmp_path / "m.segkit", *FAST]
    code, _, err = segkit(*arguments)
    assert code == 2
    assert "masks hold 4 values (0, 3, 7 and 200)" in err
    labels = ["--set", "data.labels={3: ground, 7: cell, 200: edge}", "--set", "data.unlabelled=0"]
    code, out, err = segkit(*arguments, *labels)
    assert code == 0, err
    assert "read as ground, cell and edge; 0 marks unlabelled pixels" in out
    assert segkit("predict", tmp_path / "m.segkit", tmp_path / "images", "-o", tmp_path / "out")[0] == 0
    assert set(np.unique(read_mask(tmp_path / "out" / "0.png")[0])) == {3, 7, 200}
    code, out, _ = segkit("evaluate", tmp_path / "out", tmp_path / "masks", "--set", "data.unlabelled=0")
    assert code == 0
    assert "edge: IoU" in out
    report = ["-o", tmp_path / "report", "--images", tmp_path / "images"]
    code, out, err = segkit("evaluate", tmp_path / "out", tmp_path / "masks", *labels, *report)
    assert code == 0, err
    assert "  edge: IoU" in out
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert all(f"</span>{name}</li>" in page for name in ("cell", "edge"))
    wrong = ["--set", "data.labels={3: ground, 7: cell}", "--set", "data.unlabelled=0"]
    code, _, err = segkit("evaluate", tmp_path / "out", tmp_path / "masks", *wrong)
    assert code == 2
    assert "200" in err
    code, _, err = segkit("evaluate", tmp_path / "out", tmp_path / "masks", "--set", "seed=3")
    assert code == 2
    assert (
        "--set seed=3: only options of data are known here (data.axes, data.labels, data.unlabelled, data.masks): "
        in err
    )


def numbered(n, shift=0):
    """n squares of 4 x 4, numbered from 1."""
    mask = np.zeros((40, 60), dtype=np.uint16)
    for index in range(n):
        row, column = divmod(index, 10)
        mask[6 * row + 1 : 6 * row + 5, 6 * column + shift : 6 * column + shift + 4] = index + 1
    return mask


def test_instance_masks_are_scored_by_objects(tmp_path, segkit):
    for name, n_true, n_found in (("a", 12, 12), ("b", 5, 3), ("empty", 0, 0)):
        write_mask(tmp_path / "masks" / f"{name}.png", numbered(n_true))
        write_mask(tmp_path / "out" / f"{name}.tif", numbered(n_found, 1).astype(np.uint32))
        write_image(tmp_path / "images" / f"{name}.png", np.linspace(0, 1, 2400).reshape(40, 60))
    arguments = ["evaluate", tmp_path / "out", tmp_path / "masks"]
    report = ["-o", tmp_path / "report", "--images", tmp_path / "images"]
    code, out, err = segkit(*arguments, *report)
    assert code == 0, err
    objects = json.loads((tmp_path / "report" / "scores.json").read_text())["objects"]
    assert out.startswith(
        f"Objects: 17 true, 15 predicted\n  AP at IoU 0.5: {objects['scores']['ap_50']['value']:.3f}"
    )
    assert objects["scores"]["ap_50"]["value"] == pytest.approx(15 / 17)
    assert "masks number objects: scored as objects" in out
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert '<section id="objects"' in page
    assert "Worst image by AP: b" in page
    assert "Best image by AP: a" in page
    header, first, *_ = (tmp_path / "report" / "scores.csv").read_text(encoding="utf-8").splitlines()
    assert header.endswith("n_true,n_predicted,ap_50,panoptic_quality,aggregated_jaccard")
    assert ",12,12,1.0,0.59" in first
    code, out, _ = segkit(*arguments, "--set", "data.masks=classes")
    assert code == 0
    assert "Objects:" not in out
    assert "  12: IoU" in out


def refused(segkit, folder, *arguments):
    """Run what must be refused: status 2, one line, no file added, changed or lost."""
    before = {path: (folder / path).read_bytes() for path in files_below(folder)}
    code, _, err = segkit(*arguments)
    assert code == 2
    assert err.startswith("segkit: ")
    assert err.count("\n") == 1
    assert {path: (folder / path).read_bytes() for path in files_below(folder)} == before
    return err


def train_arguments(folder):
    return ["train", folder / "images", folder / "masks", "-o", folder / "new.segkit", *FAST]


def test_images_without_a_mask_are_left_out_if_asked_for(folder, segkit):
    (folder / "masks" / "b" / "drei-ü.png").unlink()
    err = refused(segkit, folder, *train_arguments(folder))
    assert "or train without such images (--set data.only_annotated=true" in err
    n_images = sum(path.is_file() for path in (folder / "images").rglob("*"))
    note = f"{n_images - 1} of {n_images} images have a mask; the others are left out"
    only = ("--set", "data.only_annotated=true")
    code, out, err = segkit(*train_arguments(folder), *only)
    assert code == 0, err
    assert note in out
    assert f"Learnt background and foreground from {n_images - 1} images" in out
    assert note in segkit("inspect", folder / "images", folder / "masks", *only)[1]


def test_absent_weights(folder, segkit):
    train = [*train_arguments(folder)[:5], "--set", "bank.name=vgg16"]
    err = refused(segkit, folder, *train, "--set", "bank.weights=w.npz")
    assert "weights w.npz: no such file" in err


def test_nothing_is_overwritten_unless_asked(folder, model, segkit):
    assert "would be overwritten" in refused(segkit, folder, *train_arguments(folder)[:4], model, *FAST)
    arguments = ["predict", model, folder / "images", "-o", folder / "out"]
    assert segkit(*arguments)[0] == 0
    assert "and 3 more would be overwritten" in refused(segkit, folder, *arguments)
    assert segkit(*arguments, "--overwrite")[0] == 0


HEAVY = {"torch", "torchvision", "kymatio", "sklearn", "scipy", "skimage", "matplotlib", "pydantic", "PIL"}


@pytest.mark.slow(short=True)
def test_importing_the_package_loads_nothing_heavy():
    program = f"import sys, segkit; print(*({HEAVY} | {{'numpy'}}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


HELP = """
import sys
from segkit.cli.commands import main

sys.argv[0] = "segkit"
try:
    main()
except SystemExit as stop:
    assert not stop.code
print(*sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["predict", "--help"]])
def test_help_loads_nothing_heavy(words):
    command = [sys.executable, "-c", HELP, *words]
    *told, loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert HEAVY & set(loaded.split()) <= ({"pydantic"} if words[1:] else set())
    if words == ["--help"]:
        for name in ("train", "predict", "evaluate", "inspect", "demo"):
            assert name in "\n".join(told)


@pytest.mark.slow
def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "segkit", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("segkit 0.")


def test_debug_shows_where_an_error_came_from(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["segkit", "--debug", "inspect", str(tmp_path / "none.segkit")])
    monkeypatch.setattr("warnings.showwarning", None)
    with pytest.raises(InputError, match="no such file or folder"):
        main()


def test_an_output_without_a_name_is_refused(folder, model, segkit):
    """As where the variable of a script has no value."""
    err = refused(segkit, folder, "predict", model, folder / "images", "-o", "")
    assert "the path of the output is empty: give a folder" in err


@pytest.mark.parametrize("output", ["m.segkit/x.segkit", "folder.segkit"])
def test_outputs_that_cannot_be_written_are_found_out_first(folder, model, segkit, output):
    (folder / "folder.segkit").mkdir()
    arguments = train_arguments(folder)
    arguments[4] = folder / output
    assert "cannot be written" in refused(segkit, folder, *arguments, "--overwrite")
    (folder / "r" / "scores.json").mkdir(parents=True)
    arguments = ["evaluate", folder / "masks", folder / "masks", "-o", folder / "r", "--overwrite"]
    assert "cannot be written" in refused(segkit, folder, *arguments)


def test_inspect_restores_a_model_and_finds_what_makes_it_useless(folder, model, segkit):
    header, arrays = read_model(model)
    del header["format_version"]
    for name, factor, message in (
        ("svm.coef", 0, "says one class everywhere: train it anew"),
        ("scaler.scale", 0, "do not fit the rest: scaler.scale"),
    ):
        write_model(folder / "bad.segkit", header, arrays | {name: factor * arrays[name]})
        code, _, err = segkit("inspect", folder / "bad.segkit")
        assert code == 2
        assert message in err
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    (folder / "bad.segkit").write_bytes(data)
    for command, *others in (["inspect"], ["predict", folder / "images", "-o", folder / "out"]):
        assert "differs from its sha256" in refused(segkit, folder, command, folder / "bad.segkit", *others)


@pytest.mark.parametrize(
    ("change", "message", "predicts"),
    [
        ({"objects": {"splitter": {"landscape": "inside"}}}, "which it has no classifier for", False),
        (
            {"objects": {"splitter": {"landscape": "distance+inside"}}},
            "which it has no classifier for",
            False,
        ),
        ({"reading": {"range": "percentiles: 1..99"}}, "was not learnt from images; train again", False),
        ({"threshold": 1e308}, "its threshold 1e+308 is beyond all decisions, so it says one class", True),
        ({"threshold": -1e6}, "its threshold -1e+06 is beyond all decisions", True),
    ],
)
def test_inspect_approves_no_model_that_does_not_predict(folder, model, segkit, change, message, predicts):
    header, arrays = read_model(model)
    del header["format_version"]
    for entry, value in change.items():
        header[entry] = _changed(header[entry], value)
    write_model(folder / "bad.segkit", header, arrays)
    assert message in refused(segkit, folder, "inspect", folder / "bad.segkit")
    if not predicts:
        run = ("predict", folder / "bad.segkit", folder / "images", "-o", folder / "out")
        assert message in refused(segkit, folder, *run)


def _changed(entry, value):
    """Change some values of an entry of a header."""
    if not isinstance(value, dict):
        return value
    return entry | {name: _changed(entry[name], one) for name, one in value.items()}


def test_names_in_a_model_do_not_steer_the_terminal(folder, model, segkit):
    header, arrays = read_model(model)
    del header["format_version"]
    header["label_map"]["names"][1] = "cell\x1b[2J\n"
    write_model(folder / "odd.segkit", header, arrays)
    code, out, _ = segkit("inspect", folder / "odd.segkit")
    assert code == 0
    assert "read as background and cell\\x1b[2J\\n" in out
    assert "\x1b" not in out


@pytest.fixture
def two_images(tmp_path):
    """Two images whose masks number twelve objects each."""
    rng = np.random.default_rng(0)
    labels = np.kron(np.arange(1, 13).reshape(3, 4), np.ones((12, 12), dtype=int))
    labels[(np.indices(labels.shape) % 12 > 8).any(axis=0)] = 0
    for name in "ab":
        image = np.clip(0.3 + 0.4 * (labels > 0) + 0.04 * rng.standard_normal(labels.shape), 0, 1)
        write_image(tmp_path / "images" / f"{name}.png", image)
        write_labels(tmp_path / "numbers" / f"{name}.png", labels)
        write_mask(tmp_path / "masks" / f"{name}.png", np.where(labels > 0, 255, 0).astype(np.uint8))
    return tmp_path


def test_train_and_inspect_tell_of_objects(two_images, segkit):
    images, numbers, model = two_images / "images", two_images / "numbers", two_images / "m.segkit"
    code, out, err = segkit("train", images, numbers, "-o", model, *FAST)
    assert code == 0, err
    assert out.splitlines()[0] == "masks number objects: 24 objects in 2 masks"
    assert "Learnt background and object from 2 images" in out
    told = "Classes      background and object, objects numbered or checked one by one"
    assert told in segkit("inspect", model)[1].splitlines()
    code, out, _ = segkit("inspect", images, numbers)
    assert code == 0
    assert out.splitlines()[-2:] == [
        "  objects         24, median area 81 pixels, 12 at the border",
        "masks number objects: 24 objects in 2 masks",
    ]
    code, _, err = segkit("inspect", images, numbers, "--set", "data.masks=classes")
    assert code == 2
    code, out, _ = segkit("inspect", images, two_images / "masks", "--set", f"data.instances={numbers}")
    assert code == 0
    assert "  objects         24, median area 81 pixels, 12 at the border" in out.splitlines()
    code, out, _ = segkit("inspect", images, two_images / "masks", "--set", "data.masks=instances")
    assert code == 2
    assert "value 255 is in 24 pieces: one value for all objects" in out
    options = [*FAST, "--set", f"data.instances={numbers}", "--overwrite"]
    code, out, _ = segkit("train", images, two_images / "masks", "-o", model, *options)
    assert (code, out.splitlines()[0]) == (0, "masks hold 0 and 255: read as background and foreground")


def test_objects_beside_masks_are_for_training(two_images, segkit):
    images, masks, out = two_images / "images", two_images / "masks", two_images / "out"
    for command in (
        ["evaluate", masks, masks],
        ["measure", masks, "-o", out],
        ["benchmark", images, masks, "-o", out],
    ):
        code, _, err = segkit(*command, "--set", "data.instances=numbers")
        assert code == 2
        assert err.startswith("segkit: data.instances: only ")
        assert err.endswith(" of data can be given here: leave it out\n")


def test_objects_from_masks_that_number_them_to_tables(tmp_path, segkit):
    rng = np.random.default_rng(0)
    rows, cols = np.indices((64, 80))
    for name in ("one", "two"):
        labels = np.zeros((64, 80), dtype=np.uint16)
        places = [(row, col) for row in (10, 32, 54) for col in (10, 22, 50, 62)]
        for number, (row, col) in enumerate(places, start=1):
            labels[np.hypot(rows - row, cols - col) < 7] = number
        image = 0.3 + 0.4 * (labels > 0) + 0.02 * rng.random((64, 80))
        write_image(tmp_path / "images" / f"{name}.png", image)
        write_mask(tmp_path / "masks" / f"{name}.png", labels)
    images, model = tmp_path / "images", tmp_path / "m.segkit"
    code, out, err = segkit("train", images, tmp_path / "masks", "-o", model, *FAST)
    assert code == 0, err
    assert "masks number objects: 24 objects in 2 masks" in out
    assert "Objects: learnt from 24 annotated objects (typical diameter 1" in out
    assert "watershed" not in out
    code, out, err = segkit(
        "predict", model, images, "-o", tmp_path / "out", "--objects", "--set", "data.pixel_size=0.5"
    )
    assert code == 0, err
    assert f"Tables: {tmp_path / 'out' / 'objects.csv'}" in out
    found = tifffile.imread(tmp_path / "out" / "objects" / "one.tif")
    assert found.max() == 12
    assert "area_um2" in (tmp_path / "out" / "objects.csv").read_text(encoding="utf-8")
    code, out, err = segkit("evaluate", tmp_path / "out" / "objects", tmp_path / "masks")
    assert code == 0, err
    assert "AP at IoU 0.5: 1.000" in out
    assert "24 objects in 2 images" in segkit("predict", model, images, "-o", tmp_path / "o3", "--objects")[1]
    changed = ["predict", model, images, "-o", tmp_path / "o3", "--objects", "--resume", "--split", "LESS"]
    code, out, err = segkit(*changed, "--set", "objects.smallest=1000", "--set", "objects.fill_holes=false")
    assert code == 0, err
    assert "0 objects in 2 images" in out
    assert "changed by hand: how far the count is off is not known" in out
    for given, told in (
        (
            ["--split", "some"],
            "split 'some': give more, less, or the depth of the valley between two objects",
        ),
        (["--split", "-1"], "split '-1': give more, less, or the depth"),
        (["--split", "more", "--set", "objects.depth=1"], "are two depths: leave one out"),
        (["--set", "objects.depth=deep"], "objects.depth='deep'"),
        (
            ["--set", "objects.deep=1"],
            "unknown key objects.deep: there are depth, smallest, fill_holes, least_probability",
        ),
    ):
        assert told in refused(
            segkit, tmp_path, "predict", model, images, "-o", tmp_path / "o2", "--objects", *given
        )
    assert "--split is about objects: give --objects too" in refused(
        segkit, tmp_path, "predict", model, images, "-o", tmp_path / "o2", "--split", "more"
    )
    wrong = ("-o", tmp_path / "o2", "--objects", "--set", "data.pixel_size=-1")
    assert "pixel size -1" in refused(segkit, tmp_path, "predict", model, images, *wrong)


def test_objects_of_class_masks_are_told_apart_by_shape_and_that_is_said(folder, model, segkit):
    code, out, err = segkit("predict", model, folder / "images", "-o", folder / "out", "--objects")
    assert code == 0, err
    assert "Objects: none are annotated one by one, so those that touch are told apart by their shape" in out
