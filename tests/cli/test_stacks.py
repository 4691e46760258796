"""Axes, ranges, context and 3-D banks on the command line."""

import numpy as np
import pytest
import tifffile

from segkit import load
from segkit.config.schema import Config
from segkit.errors import ConfigError
from segkit.images import write_image, write_mask

FAST = [
    *("--set", "training.pixels=400", "--set", "selection.pixels=200", "--set", "bank.name=multiscale"),
    *("--set", "bank.sigma_max=2"),
]


@pytest.fixture
def stacks(tmp_path, rng):
    """A stack of int32 with two planes annotated, in micrometres, and another one."""
    mask = np.zeros((4, 24, 28), dtype=np.uint8)
    mask[:, 6:16, 8:20] = 1
    for folder in ("images", "masks", "new"):
        (tmp_path / folder).mkdir()
    sizes = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 2.0}
    for place in ("images/v.ome.tif", "new/w.ome.tif"):
        volume = rng.integers(0, 1000, mask.shape).astype(np.int32) + 2000 * mask.astype(np.int32)
        tifffile.imwrite(tmp_path / place, volume, ome=True, metadata={"axes": "ZYX", **sizes})
    drawn = mask.copy()
    drawn[[0, 3]] = 9
    tifffile.imwrite(tmp_path / "masks" / "v.ome.tif", drawn, ome=True, metadata={"axes": "ZYX"})
    return tmp_path


def test_a_volume_of_a_few_planes(stacks, segkit):
    options = ("data.context=2", "data.range=0..4095", "data.unlabelled=9", "bank={name: volume}")
    words = [word for option in options for word in ("--set", option)]
    model, out = stacks / "m.segkit", stacks / "out"
    code, told, err = segkit("train", stacks / "images", stacks / "masks", "-o", model, *FAST, *words)
    assert code == 0, err
    assert "2 masks without a labelled pixel left out (v#1, v#4)" in told
    assert "One file holds nearly all of a class, so images were held out one by one" in told
    assert "of another file, expect less." in told
    bank = load(model).bank_
    assert (bank.n_planes, bank.z_spacing) == (5, 4.0)
    assert segkit("predict", model, stacks / "new", "-o", out)[0] == 0
    with tifffile.TiffFile(out / "w.ome.tif") as file:
        assert (file.series[0].axes, file.series[0].shape) == ("ZYX", (4, 24, 28))
        assert 'PhysicalSizeZ="2.0"' in file.ome_metadata
    told = segkit("inspect", model)[1]
    assert "Values       0..4095" in told
    assert "Context      2 planes on either side" in told
    # the options are recorded: a second training repeats the first
    again = segkit(
        "train", stacks / "images", stacks / "masks", "--config", model, "-o", stacks / "again.segkit"
    )
    assert again[0] == 0, again[2]
    assert load(stacks / "again.segkit").reading_ == load(model).reading_


def test_planes_of_a_stack_are_held_out_together(tmp_path, segkit, rng):
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    mask = np.zeros((2, 24, 28), dtype=np.uint8)
    mask[:, 6:16, 8:20] = 1
    for name in "abc":
        volume = (rng.integers(0, 1000, mask.shape) + 2000 * (mask > 0)).astype(np.uint16)
        for folder, planes in (("images", volume), ("masks", mask)):
            tifffile.imwrite(
                tmp_path / folder / f"{name}.ome.tif", planes, ome=True, metadata={"axes": "ZYX"}
            )
    model = tmp_path / "m.segkit"
    code, told, err = segkit("train", tmp_path / "images", tmp_path / "masks", "-o", model, *FAST)
    assert code == 0, err
    held_out = load(model).summary_.held_out
    assert (held_out.n_regions, held_out.n_groups) == (6, 3)
    assert "(measured on 3 groups of images only, too few to rely on)" in told
    assert "held out one by one" not in told


def test_images_of_a_patient_are_held_out_together(tmp_path, rng, segkit):
    mask = np.zeros((24, 28), dtype=np.uint8)
    mask[6:16, 8:20] = 1
    for name in "abcdef":
        write_image(tmp_path / "images" / f"{name}.png", 0.4 * (rng.random(mask.shape) + mask))
        write_mask(tmp_path / "masks" / f"{name}.png", mask)
    file, model = tmp_path / "groups.csv", tmp_path / "m.segkit"
    train = ("train", tmp_path / "images", tmp_path / "masks", "-o", model, *FAST, "--groups", file)
    file.write_text("stem,group\na,p\nb,p\nc,q\nd,q\ne,r\n")
    code, told, err = segkit(*train)
    assert (code, model.exists()) == (2, False)
    assert f"groups {file} lacks f: give a line stem,group for every image" in err
    file.write_text("a,p\nb,p\nc,q\nd,q\ne,r\nf,r\n")
    code, told, err = segkit(*train)
    assert code == 0, err
    fitted = load(model)
    assert (fitted.summary_.held_out.n_regions, fitted.summary_.held_out.n_groups) == (6, 3)
    # of three patients no interval is known, as of three images
    assert fitted.alarms_.expected.groups.tolist() == [0, 0, 1, 1, 2, 2]
    assert "Expected object IoU" not in told
    again = (*train[:4], tmp_path / "again.segkit", "--config", model, "--overwrite")
    note = (
        f"not the images and masks that {model} was trained on (6 images; some of them, or --groups, differ)"
    )
    code, _, err = segkit(*again, "--groups", file)
    assert (code, note in err) == (0, False)
    file.write_text("a,x\nb,y\nc,z\nd,x\ne,y\nf,z\n")
    for groups in ((), ("--groups", file)):
        code, _, err = segkit(*again, *groups)
        assert (code, note in err) == (0, True)
    file.write_text("".join(f"{name},p\n" for name in "abcdef"))
    code, told, err = segkit(*train, "--overwrite")
    assert code == 0, err
    assert "One group holds nearly all of a class, so images were held out one by one" in told
    assert "Expected object IoU of a new image is within" in told


def test_planes_that_nobody_annotated_are_not_scored(stacks, segkit):
    words = ["--set", "data.context=1", "--set", "data.range=0..4095", "--set", "data.unlabelled=9"]
    model, out = stacks / "m.segkit", stacks / "out"
    code, told, err = segkit("train", stacks / "images", stacks / "masks", "-o", model, *FAST, *words)
    assert code == 0, err
    assert "every pixel counts as annotated" not in told
    assert segkit("predict", model, stacks / "images", "-o", out, "--probability")[0] == 0
    score = ("evaluate", out, stacks / "masks", "--set", "data.unlabelled=9", "-o", stacks / "report")
    code, told, err = segkit(*score)
    assert code == 0, err
    assert "Scored on 2 images" in told
    assert "2 planes of true masks without a labelled pixel not scored (v#1, v#4)" in told


def test_what_predict_and_annotate_know(stacks, segkit):
    words = ["--set", "data.context=1", "--set", "data.range=0..4095", "--set", "data.unlabelled=9"]
    model = stacks / "m.segkit"
    assert segkit("train", stacks / "images", stacks / "masks", "-o", model, *FAST, *words)[0] == 0
    code, _, err = segkit("predict", model, stacks / "new", "-o", stacks / "o", "--set", "data.range=0..9")
    assert code == 2
    assert "data.range: only axes, pixel_size, level of data can be given here" in err
    code, _, err = segkit("predict", model, stacks / "new", "-o", stacks / "o", "--set", "data.axes=ZZYX")
    assert code == 2
    assert "axes ZZYX: Z comes twice" in err
    for options in (["--model", model], ["--set", "data.context=1"]):
        code, _, err = segkit("annotate", stacks / "images", "-o", stacks / "drawn", *options)
        assert code == 2
        assert "data.context=1: planes are annotated one by one here" in err
    code, _, err = segkit("annotate", stacks / "images", "--set", "data.range=percentiles 1..99")
    assert code == 2
    assert "percentiles are those of training images" in err
    code, _, err = segkit("evaluate", stacks / "masks", stacks / "masks", "--set", "data.context=1")
    assert code == 2
    assert "data.context: only axes, labels, unlabelled, masks of data can be given here" in err


@pytest.fixture
def unnamed(tmp_path, rng):
    """Masks of two times and three depths that name no axes, and images of one channel more."""
    masks = (rng.random((2, 3, 12, 14)) > 0.5).astype(np.uint8)
    images = rng.integers(0, 255, (2, 3, 2, 12, 14)).astype(np.uint8)
    for folder, stacks in (("images", images), ("masks", masks), ("guesses", np.where(masks, 0, 1))):
        (tmp_path / folder).mkdir()
        stored = stacks.astype(np.uint8)
        with tifffile.TiffWriter(tmp_path / folder / "v.tif") as file:
            file.write(stored, photometric="minisblack", metadata={"axes": "Q" * (stored.ndim - 2) + "YX"})
    return tmp_path


def test_axes_of_masks_that_are_scored_or_measured(unnamed, segkit):
    score = ["evaluate", unnamed / "guesses", unnamed / "masks", "--images", unnamed / "images"]
    count = ["measure", unnamed / "masks", "--images", unnamed / "images", "-o", unnamed / "tables"]
    count += ["--overlay", "--set", "data.masks=classes"]
    for line in (score, count):
        code, _, err = segkit(*line)
        assert (code, err.count("\n")) == (2, 1)
        assert "--set data.axes=TZYX" in err
    axes = ["--set", "data.axes=TZCYX"]
    code, told, err = segkit(*score, *axes, "-o", unnamed / "report")
    assert (code, err) == (0, "")
    assert "Scored on 6 images" in told
    code, told, err = segkit(*count, *axes)
    assert (code, err) == (0, "")
    assert len((unnamed / "tables" / "images.csv").read_text().splitlines()) == 7
    assert len(list((unnamed / "tables" / "overlay").iterdir())) == 6


def test_inspect_asks_and_is_told(tmp_path, segkit, rng):
    (tmp_path / "images").mkdir()
    pages = rng.integers(0, 255, (5, 24, 28)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "images" / "a.tif", pages, photometric="minisblack")
    code, out, _ = segkit("inspect", tmp_path / "images")
    assert code == 2
    assert "the file does not say what its axes are: give --set data.axes=ZYX (planes) or CYX" in out
    code, out, _ = segkit("inspect", tmp_path / "images", "--set", "data.axes=CYX")
    assert code == 0
    assert "5 channels" in out


def test_a_3d_bank_needs_planes_and_their_distance():
    options = ["bank.name=volume"]
    with pytest.raises(ConfigError, match=r"needs the planes around each: add data\.context=k"):
        Config.load(None, options).build()
    with pytest.raises(ConfigError, match="do not tell how far planes are apart"):
        Config.load(None, [*options, "data.context=1"]).build()
    assert Config.load(None, [*options, "data.context=1"]).build(z_spacing=3).bank.z_spacing == 3
    given = Config.load(None, [*options, "data.context=1", "bank.z_spacing=2"])
    assert given.build(z_spacing=3).bank.get_params()["z_spacing"] == 2
