"""Every message that the page of errors quotes is what the program says."""

import errno
import os
import platform
import re
import shutil
import socket
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.errors import InputError, SegkitError
from segkit.images import read_image, read_mask, read_pages, write_geojson, write_image, write_mask

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
QUOTED = dict(
    re.findall(r"<!-- case: ([\w-]+) -->\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
)
TRAIN = "segkit train images/ masks/ -o new.segkit"
PREDICT = "segkit predict model.segkit new_images/ -o out/"


@pytest.fixture(scope="module")
def trained(folders, tmp_path_factory):
    """The folders of the pages, and a model."""
    from segkit import ModuleBank, Segmenter
    from segkit.images import load_pairs

    place = tmp_path_factory.mktemp("errors") / "trained"
    shutil.copytree(folders, place)
    data = load_pairs(place / "images", place / "masks")
    segmenter = Segmenter(
        ModuleBank(({"n_scales": 2, "n_angles": 3},)), training_pixels=400, selection_pixels=200
    )
    segmenter.fit(data.images[:2], data.masks[:2], label_map=data.label_map).save(place / "model.segkit")
    return place


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    place = tmp_path / "here"
    shutil.copytree(trained, place)
    monkeypatch.chdir(place)
    return place


def change_mask(number, change):
    [mask] = read_mask(f"masks/{number}.png")
    write_mask(f"masks/{number}.png", change(mask))


def change_masks(change):
    for number in range(1, 6):
        change_mask(number, change)


def no_mask():
    Path("masks/5.png").unlink()
    return TRAIN


def other_size():
    change_mask(3, lambda mask: mask[:32, :32])
    return TRAIN


def numbered_objects():
    change_masks(lambda mask: (np.arange(mask.size).reshape(mask.shape) % 50).astype(np.uint8))
    return TRAIN


def not_numbered():
    def dots(mask):
        rows, cols = np.indices(mask.shape) % 16
        return np.where((rows < 8) & (cols < 8), 255, 0).astype(np.uint8)

    change_masks(dots)
    return f"{TRAIN} --set data.masks=instances"


def no_roifile(monkeypatch):
    Path("masks/1.png").unlink()
    Path("masks/1.zip").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "roifile", None)
    return TRAIN


def outlines_as_classes():
    for number in range(1, 6):
        [mask] = read_mask(f"masks/{number}.png")
        Path(f"masks/{number}.png").unlink()
        write_geojson(f"masks/{number}.geojson", mask)
    return f"{TRAIN} --set data.masks=classes"


def three_values():
    return "segkit train images/ class_masks/ -o new.segkit"


def one_odd_mask():
    change_mask(2, lambda mask: mask // 255)
    return TRAIN


def coloured_mask():
    [mask] = read_mask("masks/1.png")
    Image.fromarray(np.stack([mask, 0 * mask, 0 * mask], axis=-1).astype(np.uint8)).save("masks/1.png")
    return TRAIN


def jpeg_mask():
    Path("masks/1.png").unlink()
    shutil.copy("images/1.png", "grey.png")
    Image.open("grey.png").convert("L").save("masks/1.jpg")
    return TRAIN


def one_class():
    change_masks(np.zeros_like)
    return TRAIN


def float_range():
    Path("images/1.png").unlink()
    tifffile.imwrite("images/1.tif", np.linspace(0, 4095, 64 * 64, dtype=np.float32).reshape(64, 64))
    return TRAIN


def int32():
    Path("images/1.png").unlink()
    tifffile.imwrite("images/1.tif", np.arange(64 * 64, dtype=np.int32).reshape(64, 64))
    return TRAIN


def blank():
    write_image("images/1.png", np.zeros((64, 64), dtype=np.float32))
    return TRAIN


def damaged():
    path = Path("images/1.png")
    path.write_bytes(path.read_bytes()[:200])
    return TRAIN


def other_scale():
    [pixels] = read_pages("images/1.png")
    Path("images/1.png").unlink()
    tifffile.imwrite("images/1.tif", pixels.astype(np.uint16))
    return TRAIN


def too_small():
    write_image("images/1.png", np.eye(3))
    write_mask("masks/1.png", np.eye(3, dtype=np.uint8))
    return TRAIN


def bomb():
    content = bytearray(Path("images/1.png").read_bytes())
    content[16:24] = (50_000).to_bytes(4, "big") * 2
    content[25] = 0
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    Path("images/1.png").write_bytes(content)
    return TRAIN


def other_format():
    tifffile.imwrite("images/1.png", np.eye(64, dtype=np.uint8))
    return TRAIN


def dangling():
    Path("images/1.png").unlink()
    try:
        Path("images/1.png").symlink_to("gone.png")
    except OSError:
        pytest.skip("this system makes no links")
    return TRAIN


def turned():
    exif = Image.Exif()
    exif[274] = 6
    Image.open("images/1.png").save("images/1.jpg", exif=exif)
    Path("images/1.png").unlink()
    return TRAIN.replace("train", "inspect").partition(" -o")[0]


def no_parent():
    return "segkit train images/ masks/ -o hoem/results/m.segkit"


def extension():
    return "segkit train images/ masks/ -o model.pt"


def bound():
    return f"{TRAIN} --set bank.name=scattering --set bank.L=1000"


def key_twice():
    Path("mine.yaml").write_text("seed: 1\nsvm: {C: 1}\nseed: 2\n", encoding="utf-8")
    return f"{TRAIN} --config mine.yaml"


def unlabelled():
    return "segkit train images/ class_masks/ -o new.segkit --set data.unlabelled=300"


def unnamed():
    return "segkit predict model.segkit new_stacks/ -o out/"


def odd_axes():
    return f"{TRAIN} --set data.axes=ZZYX"


def number_of_axes():
    return "segkit predict model.segkit new_stacks/ -o out/ --set data.axes=TZYX"


def outside_range():
    values = np.linspace(0, 4095, 64 * 64, dtype=np.float32)
    tifffile.imwrite("images/1.tif", values.reshape(64, 64))
    Path("images/1.png").unlink()
    return f"{TRAIN} --set data.range=0..255"


def odd_range():
    return f"{TRAIN} --set data.range=9..1"


def context():
    return f"{TRAIN} --set data.context=1"


def reader(monkeypatch):
    Path("scans").mkdir()
    Path("scans/1.nd2").write_bytes(b"anything")
    monkeypatch.setattr(
        "segkit.images.microscopy.find_spec", lambda name: None if name == "bioio_nd2" else True
    )
    return "segkit predict model.segkit scans/ -o out/"


def pages():
    stack = tifffile.imread("stacks/a.tif")
    tifffile.imwrite("stacks/a.tif", stack, photometric="minisblack", metadata={"axes": "ZYX"})
    tifffile.imwrite("stack_masks/a.tif", tifffile.imread("stack_masks/a.tif")[:2], photometric="minisblack")
    return "segkit train stacks/ stack_masks/ -o new.segkit"


def other_files():
    Path("scans").mkdir()
    Path("scans/1.psd").write_bytes(b"")
    return "segkit train scans/ masks/ -o new.segkit"


def no_folder():
    return "segkit train imgaes/ masks/ -o new.segkit"


def overwrite():
    return "segkit train images/ masks/ -o model.segkit"


def output_inside():
    return "segkit predict model.segkit new_images/ -o new_images/out/"


def leftovers():
    Path("out/overlay").mkdir(parents=True)
    for number in (6, 7):
        shutil.copy(f"new_images/{number}.png", f"out/overlay/{number}.png")
    return f"{PREDICT} --overwrite"


def earlier_results():
    from segkit.segmentation import load, predict_folder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of images unlike the training images
        predict_folder(load("model.segkit"), "new_images", "out")
    return PREDICT


def foreign():
    shutil.copytree("new_masks", "out")
    return f"{PREDICT} --overwrite"


def no_such_part():
    return f"{PREDICT} --part 5/4"


def no_scheduler():
    pytest.importorskip("distributed")
    return f"{PREDICT} --scheduler tcp://127.0.0.1:1"


def in_use():
    Path("out/.segkit").mkdir(parents=True)
    Path("out/.segkit/lock").write_text(f"{os.getppid()} {platform.node()}\n", encoding="utf-8")
    return PREDICT


def at_the_second_image(monkeypatch, act):
    """Let something happen once the second image is to be segmented."""
    from segkit.segmentation import folders

    make = folders.make_results

    def make_results(segmenter, job, *arguments, **options):
        if job.name == "7.png":
            act()
        return make(segmenter, job, *arguments, **options)

    monkeypatch.setattr(folders, "make_results", make_results)


def predict_full(monkeypatch):
    def fill_the_disk():
        def full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("segkit._files.write._sync", full)

    at_the_second_image(monkeypatch, fill_the_disk)
    return PREDICT


def some_failed():
    Path("new_images/6.png").write_bytes(b"no picture")
    return PREDICT


def strict(monkeypatch):
    from segkit.segmentation import folders

    digest = folders.digest_file

    def gone(path):
        if path.name == "7.png":
            path.unlink()
        return digest(path)

    monkeypatch.setattr(folders, "digest_file", gone)
    return f"{PREDICT} --strict"


def interrupted(monkeypatch):
    def press_ctrl_c():
        raise KeyboardInterrupt

    at_the_second_image(monkeypatch, press_ctrl_c)
    return PREDICT


def other_channels():
    for number in (6, 7):
        Path(f"new_images/{number}.png").unlink()
        planes = np.random.default_rng(number).random((2, 64, 64), dtype=np.float32)
        tifffile.imwrite(f"new_images/{number}.tif", planes, imagej=True, metadata={"axes": "CYX"})
    return PREDICT


def darker():
    for number in (6, 7):
        [image] = read_image(f"new_images/{number}.png")
        write_image(f"new_images/{number}.png", image / 16)
    return PREDICT


def no_model():
    return "segkit predict modle.segkit new_images/ -o out/"


def not_a_model():
    shutil.copy("images/1.png", "model.segkit")
    return PREDICT


def damaged_model():
    content = bytearray(Path("model.segkit").read_bytes())
    content[-1] ^= 1
    Path("model.segkit").write_bytes(content)
    return PREDICT


def from_other_images(segkit):
    segkit(f"{TRAIN.replace('new', 'cells')} --set bank.name=position --set training.pixels=100")
    change_mask(1, np.flipud)
    return f"{TRAIN} --from cells.segkit"


def no_settings():
    return f"{TRAIN} --from model.segkit"


def no_objects():
    shutil.copy(PAGE.parents[1] / "tests" / "segmentation" / "golden" / "version-7.segkit", "old.segkit")
    return "segkit predict old.segkit new_images/ -o out/ --objects"


def unknown_key():
    return f"{TRAIN} --set training.treshold=zero"


def no_configuration():
    return f"{TRAIN} --config two-network.yaml"


def no_weights():
    return f"{TRAIN} --set bank.name=squeezenet1_0 --set bank.weights=squeezenet.pth"


def no_download(monkeypatch):
    from urllib.error import URLError

    def unreachable(*_, **__):
        raise URLError("Network is unreachable")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", unreachable)
    return f"{TRAIN} --set bank.name=squeezenet1_0"


def out_of_memory(monkeypatch):
    def exhausted(*_, **__):
        raise MemoryError

    monkeypatch.setattr("segkit.images.load_pairs", exhausted)
    return TRAIN


def not_predicted():
    shutil.copytree("new_masks", "out")
    Path("out/7.png").unlink()
    return "segkit evaluate out/ new_masks/"


def too_few():
    return "segkit benchmark images/ masks/ -o comparison/ --methods segkit-no-networks --train-sizes 5,15"


def pages_of_one_file():
    return "segkit benchmark stacks/ stack_masks/ -o comparison/ --methods segkit-no-networks --train-sizes 1"


def finished():
    Path("comparison").mkdir()
    Path("comparison/results.json").write_text("{}", encoding="utf-8")
    return "segkit benchmark images/ masks/ -o comparison/ --methods segkit-no-networks --train-sizes 1"


ANNOTATE = "segkit annotate images/ --no-browser"


def annotated():
    """Label the first image, as on the page of `segkit annotate`."""
    from segkit.live import Project

    with Project("images", "images-annotations") as project:
        project.labels("1").paint((2, 2), np.ones((3, 3), dtype=bool), 1)
        project.save("1")


def annotate_packages(monkeypatch):
    monkeypatch.setattr("segkit.cli.annotate.find_spec", lambda _: None)
    return ANNOTATE


def annotate_other_images():
    annotated()
    return "segkit annotate new_images/ -o images-annotations/ --no-browser"


def annotate_in_use():
    Path("images-annotations").mkdir()
    Path("images-annotations/.lock").write_text(f"{os.getppid()} {platform.node()}\n", encoding="utf-8")
    return ANNOTATE


def annotate_masks():
    shutil.copytree("masks", "images-annotations/masks")
    return ANNOTATE


def annotate_numbered():
    def squares(mask):
        rows, cols = np.indices(mask.shape)
        inside = (rows % 16 < 8) & (cols % 16 < 8)
        return np.where(inside, 1 + rows // 16 * 4 + cols // 16, 0).astype(np.uint8)

    change_masks(squares)
    return f"{ANNOTATE} --masks masks"


def annotate_model():
    return f"{ANNOTATE} --model model.segkit --classes background,cell"


def annotate_port(request):
    listener = socket.socket()
    request.addfinalizer(listener.close)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return f"{ANNOTATE} --port {listener.getsockname()[1]}"


def annotate_gone():
    annotated()
    Path("images/1.png").unlink()
    return ANNOTATE


def annotate_replaced():
    from segkit.live import Project

    annotated()
    shutil.copy("images/2.png", "images/1.png")
    with Project("images", "images-annotations") as project:
        project.labels("1")


def annotate_channels():
    from segkit.live import FeatureCache, LiveSession, Project

    planes = np.random.default_rng(0).random((2, 64, 64), dtype=np.float32)
    tifffile.imwrite("images/6.tif", planes, imagej=True, metadata={"axes": "CYX"})
    with (
        Project("images", "images-annotations") as project,
        LiveSession(project, cache=FeatureCache("cache")) as session,
    ):
        session._features_of("1")
        session._features_of("6")


def annotate_full(monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    from segkit.live import Project

    with Project("images", "images-annotations") as project:
        project.labels("1").paint((2, 2), np.ones((3, 3), dtype=bool), 1)
        monkeypatch.setattr("os.fsync", full)
        project.save("1")


def annotate_nothing():
    from segkit.live import FeatureCache, LiveSession, Project

    with (
        Project("images", "images-annotations") as project,
        LiveSession(project, cache=FeatureCache("cache")) as session,
    ):
        session.export()


def annotate_address():
    from segkit.annotate.guard import Guard

    fault = Guard(None, token="secret", port=8765)._fault("http", {"host": "127.0.0.1:8765"}, "")
    raise InputError(fault)


def unscaled():
    from segkit import Segmenter

    ramp = np.arange(256.0).reshape(16, 16)
    Segmenter().fit([ramp], [(ramp > 99).astype(int)])


# Messages on the page of `segkit annotate`: the case raises what the page shows.
ON_THE_PAGE = {
    function.__name__.replace("_", "-"): function
    for function in (
        annotate_replaced, annotate_channels, annotate_full, annotate_nothing, annotate_address,
        unscaled,
    )
}  # fmt: skip
CASES = {
    function.__name__.replace("_", "-"): function
    for function in (
        no_mask, other_size, numbered_objects, not_numbered, outlines_as_classes, no_roifile, three_values,
        one_odd_mask, coloured_mask, jpeg_mask, one_class,
        float_range, int32, blank, damaged, pages, other_files, no_folder, overwrite, output_inside, leftovers,
        earlier_results, foreign, in_use, no_such_part, no_scheduler, predict_full, some_failed, strict, interrupted,
        other_channels, darker, no_model, not_a_model, damaged_model, from_other_images, no_settings, no_objects,
        unknown_key, no_configuration, no_weights, no_download,
        out_of_memory, not_predicted, too_few, pages_of_one_file, finished,
        annotate_packages, annotate_other_images, annotate_in_use, annotate_masks, annotate_numbered, annotate_model,
        annotate_port, annotate_gone,
        other_scale, too_small, bomb, other_format, dangling, turned, no_parent, extension, bound, key_twice, unlabelled,
        unnamed, odd_axes, number_of_axes, outside_range, odd_range, context, reader,
    )
}  # fmt: skip

# Exit status of the cases that do not end with 2. A note is no error: the command goes on.
STATUS = {"darker": 0, "not-predicted": 1, "turned": 0, "some-failed": 1, "interrupted": 130}


def test_the_page_quotes_the_messages_that_are_tested():
    assert set(QUOTED) == {*CASES, *ON_THE_PAGE}


def call(make, request):
    """Make a case, with the fixtures that it takes."""
    taken = make.__code__.co_varnames[: make.__code__.co_argcount]
    return make(*map(request.getfixturevalue, taken))


@pytest.mark.parametrize("case", ON_THE_PAGE)
@pytest.mark.usefixtures("here")
def test_the_page_of_annotate_shows_what_the_page_quotes(case, says, request):
    with pytest.raises(SegkitError) as shown:
        call(ON_THE_PAGE[case], request)
    assert says(" ".join(str(shown.value).split()), QUOTED.get(case, "")), shown.value


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("default:(new_)?images:UserWarning")
@pytest.mark.usefixtures("here")
def test_the_program_says_what_the_page_quotes(case, segkit, says, request):
    code, _, err = segkit(call(CASES[case], request))
    assert code == STATUS.get(case, 2)
    # the small model of these tests finds nothing in some images
    err = "".join(line for line in err.splitlines(keepends=True) if "everywhere" not in line)
    assert says(err, QUOTED.get(case, "")), err
