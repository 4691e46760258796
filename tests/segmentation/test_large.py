"""Images read by region: the result is that of the whole image, faults are told, and runs go on."""

import json

import numpy as np
import pytest
import tifffile

from segkit import ScatteringBank, Segmenter, StackedBank, predict_folder
from segkit.errors import ConfigError, InputError, OutputError
from segkit.features import ElongatedBank, MultiscaleBank, PositionBank
from segkit.images import UNLABELLED, write_image
from segkit.images.regions import open_large
from segkit.segmentation.large import segment_large

zarr = pytest.importorskip("zarr")
SHAPE = (430, 520)


def picture(seed, shape=SHAPE, n_spots=30):
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    mask = np.zeros(shape, dtype=np.uint8)
    for _ in range(n_spots):
        mask |= np.hypot(rows - rng.uniform(0, shape[0]), cols - rng.uniform(0, shape[1])) < rng.uniform(
            3, 14
        )
    image = np.clip(0.3 + 0.2 * mask + 0.1 * rng.standard_normal(shape), 0, 1)
    return np.round(255 * image).astype(np.uint8), mask


@pytest.fixture(scope="module")
def fitted():
    pictures = [picture(seed, (120, 140), 8) for seed in range(2)]
    banks = [ScatteringBank(J=2, L=2, angles="averaged"), MultiscaleBank(sigma_max=2), PositionBank()]
    segmenter = Segmenter(StackedBank(banks), selection_pixels=400, training_pixels=800)
    return segmenter.fit([image / 255 for image, _ in pictures], [mask for _, mask in pictures])


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr("segkit.segmentation.large._MOST_ROWS", 100)


def write_tiff(path, image):
    options = {"tile": (64, 64), "photometric": "minisblack"}
    with tifffile.TiffWriter(path) as writer:
        writer.write(image, subifds=1, **options)
        writer.write(image[::2, ::2], subfiletype=1, **options)


def write_zarr(path, image, version="0.5"):
    group = zarr.open_group(str(path), mode="w", zarr_format=2 if version == "0.4" else 3)
    for level in range(2):
        part = image[:: 2**level, :: 2**level][None]
        array = group.create_array(str(level), shape=part.shape, chunks=(1, 100, 100), dtype=part.dtype)
        array[:] = part
    axes = [{"name": name} for name in "cyx"]
    described = {
        "multiscales": [{"axes": axes, "datasets": [{"path": "0"}, {"path": "1"}], "version": version}]
    }
    group.attrs.update(described if version == "0.4" else {"ome": {"version": version, **described}})


def written(kind, folder, image):
    folder.mkdir(exist_ok=True)
    path = folder / f"slide.{'tif' if kind == 'tiff' else 'zarr'}"
    if kind == "tiff":
        write_tiff(path, image)
    else:
        write_zarr(path, image, kind)
    return path


def read_labels(path):
    if path.suffix == ".zarr":
        return np.asarray(zarr.open_group(str(path), mode="r")["labels/segkit/0"])
    return tifffile.imread(path)


@pytest.mark.parametrize("kind", ["tiff", "0.4", "0.5"])
def test_labels_are_those_of_the_whole_image(fitted, tmp_path, monkeypatch, kind):
    image, _ = picture(5)
    expected = fitted.predict(image / np.float32(255))
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    outcome = segment_large(fitted, written(kind, tmp_path, image), tmp_path / "out")
    assert outcome.n_tiles > 4
    assert not outcome.faults
    labels = read_labels(outcome.labels)
    assert labels.dtype == expected.dtype
    assert np.mean(labels != expected) < 1e-4
    assert not list((tmp_path / "out").glob(".*unfinished"))


def test_a_level_of_the_pyramid(fitted, tmp_path):
    image, _ = picture(5)
    path = written("tiff", tmp_path, image)
    outcome = segment_large(fitted, path, tmp_path / "out", level=1)
    expected = fitted.predict(image[::2, ::2] / np.float32(255))
    assert np.mean(read_labels(outcome.labels) != expected) < 1e-4
    with pytest.raises(ConfigError, match="level 2: it has 2 levels, give 0 to 1"):
        open_large(path, 2)


def test_labels_have_a_pyramid(fitted, tmp_path):
    image, _ = picture(5, (600, 700))
    outcome = segment_large(fitted, written("tiff", tmp_path, image), tmp_path / "out")
    with tifffile.TiffFile(outcome.labels) as file:
        levels = [level.asarray() for level in file.series[0].levels]
        assert file.pages[0].is_tiled
    assert [level.shape for level in levels] == [(600, 700), (300, 350)]
    np.testing.assert_array_equal(levels[1], levels[0][::2, ::2])


def test_a_missing_chunk_is_told_and_mended_by_resume(fitted, tmp_path, monkeypatch):
    image, _ = picture(5)
    expected = fitted.predict(image / np.float32(255))
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path = written("0.5", tmp_path, image)
    chunk = path / "0" / "c" / "0" / "2" / "3"
    kept = chunk.read_bytes()
    chunk.unlink()
    outcome = segment_large(fitted, path, tmp_path / "out")
    assert any(f"{path} at row 200, column 300: a chunk is missing" in fault for fault in outcome.faults)
    labels = read_labels(outcome.labels)
    assert (labels[210:290, 310:390] == UNLABELLED).all()
    assert (labels[:100, :100] != UNLABELLED).all()
    with pytest.raises(OutputError, match="--resume goes on"):
        segment_large(fitted, path, tmp_path / "out")
    chunk.write_bytes(kept)
    again = segment_large(fitted, path, tmp_path / "out", resume=True)
    assert not again.faults
    assert np.mean(read_labels(again.labels) != expected) < 1e-4


def test_a_run_that_stops_goes_on(fitted, tmp_path, monkeypatch):
    image, _ = picture(5)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 150**2)
    path = written("tiff", tmp_path, image)

    def stop_at(items, description):
        for number, item in enumerate(items):
            if description == "Tiles" and number == 4:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        segment_large(fitted, path, tmp_path / "out", progress=stop_at)
    monkeypatch.setattr("segkit.features.tiles.PIXELS_AT_ONCE", 2**20)  # tiles stay those of the first run
    outcome = segment_large(fitted, path, tmp_path / "out", resume=True)
    assert outcome.n_kept == 4
    assert outcome.n_tiles > 4
    expected = segment_large(fitted, path, tmp_path / "fresh")
    np.testing.assert_array_equal(read_labels(outcome.labels), read_labels(expected.labels))


def test_another_model_starts_anew(fitted, tmp_path):
    path = written("tiff", tmp_path, picture(5)[0])
    segment_large(fitted, path, tmp_path / "out")
    assert segment_large(fitted, path, tmp_path / "out", resume=True).n_kept == 1
    plan = next((tmp_path / "out").rglob("plan.json"))
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"made_of": "another"}))
    assert segment_large(fitted, path, tmp_path / "out", resume=True).n_kept == 0


def test_a_truncated_pyramid_is_refused_with_its_place(fitted, tmp_path):
    path = written("tiff", tmp_path, picture(5)[0])
    whole = path.read_bytes()
    with tifffile.TiffFile(path) as file:
        end = file.pages[0].dataoffsets[20] + 10
    path.write_bytes(whole[:end])
    with pytest.raises(InputError) as caught:
        segment_large(fitted, path, tmp_path / "out")
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_other_images_are_refused(fitted, tmp_path):
    stack = np.zeros((3, 64, 64), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "stack.ome.tif", stack, metadata={"axes": "ZYX"})
    with pytest.raises(InputError, match="expected one plane with y, x and perhaps c"):
        open_large(tmp_path / "stack.ome.tif")
    zarr.open_group(str(tmp_path / "plain.zarr"), mode="w")
    with pytest.raises(InputError, match="a zarr without multiscales"):
        open_large(tmp_path / "plain.zarr")
    with pytest.raises(InputError, match="no such file or folder"):
        open_large(tmp_path / "absent.svs")
    tifffile.imwrite(tmp_path / "colour.tif", np.zeros((64, 64, 3), dtype=np.uint8), photometric="rgb")
    with pytest.raises(InputError, match="has 3 channels, the model was trained on 1"):
        segment_large(fitted, tmp_path / "colour.tif", tmp_path / "out")


def test_banks_that_need_all_of_the_image_are_refused(fitted, tmp_path):
    path = written("tiff", tmp_path, picture(5)[0])
    image, mask = picture(1, (120, 140), 8)
    banks = StackedBank([MultiscaleBank(sigma_max=2), ElongatedBank(sigmas=[0.5])])
    fine = Segmenter(banks, selection_pixels=400, training_pixels=800)
    fine.fit([image / 255], [mask])
    with pytest.raises(InputError, match="needs the whole image at once"):
        segment_large(fine, path, tmp_path / "out")


@pytest.mark.parametrize("kind", ["tiff", "0.5"])
@pytest.mark.parametrize("asked", ["resume", "overwrite", "overwrite_foreign"])
def test_labels_never_take_the_place_of_their_image(fitted, tmp_path, kind, asked):
    image, _ = picture(5, (100, 120))
    path = written(kind, tmp_path, image)
    with pytest.raises(OutputError, match="would damage the image"):
        segment_large(fitted, path, tmp_path, **{asked: True})
    with open_large(path) as kept:
        assert kept.shape == (100, 120, 1)


def test_labels_are_not_written_into_the_image(fitted, tmp_path):
    path = written("0.5", tmp_path, picture(5, (100, 120))[0])
    with pytest.raises(OutputError, match="would damage the image"):
        segment_large(fitted, path, path / "labels")


@pytest.mark.parametrize("kind", ["tiff", "0.5"])
def test_what_somebody_else_wrote_is_replaced_only_if_asked_for(fitted, tmp_path, kind):
    path = written(kind, tmp_path, picture(5, (100, 120))[0])
    (tmp_path / "out").mkdir()
    theirs = written(kind, tmp_path / "out", picture(6, (30, 40))[0])
    for asked in ("resume", "overwrite"):
        with pytest.raises(OutputError, match="is not of an earlier run here"):
            segment_large(fitted, path, tmp_path / "out", **{asked: True})
        with open_large(theirs) as kept:
            assert kept.shape == (30, 40, 1)
    segment_large(fitted, path, tmp_path / "out", overwrite_foreign=True)
    assert read_labels(theirs).shape == (100, 120)
    segment_large(fitted, path, tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("axes", ["yx", "xy", "cyx", "cxy", "xyc", "tyx"])
def test_pixels_follow_the_names_of_axes(tmp_path, axes):
    image = np.arange(7 * 9, dtype=np.uint8).reshape(7, 9)
    whole = image[..., None, None].transpose(
        ["yxct".index(name) for name in axes]
        + [place for place, name in enumerate("yxct") if name not in axes]
    )
    pixels = whole.reshape(whole.shape[: len(axes)])
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=3)
    group.create_array("0", shape=pixels.shape, chunks=pixels.shape, dtype=pixels.dtype)[...] = pixels
    named = [{"axes": [{"name": name} for name in axes], "datasets": [{"path": "0"}]}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": named}
    with open_large(tmp_path / "a.zarr") as opened:
        found = opened[0:3, 2:8]
    np.testing.assert_array_equal(np.round(found[:, :, 0] * 255), image[0:3, 2:8])


@pytest.mark.parametrize("axes", ["cyx", "yy"])
def test_axes_that_are_not_those_of_the_pixels(tmp_path, axes):
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=3)
    group.create_array("0", shape=(7, 9), chunks=(7, 9), dtype="u1")
    named = [{"axes": [{"name": name} for name in axes], "datasets": [{"path": "0"}]}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": named}
    with pytest.raises(InputError, match="give each axis of the pixels one name"):
        open_large(tmp_path / "a.zarr")


def test_pixels_that_changed_inside_are_seen_by_resume(fitted, tmp_path):
    """Chunks that are written anew change nothing about the folder of the OME-Zarr itself."""
    image, _ = picture(7, (150, 160))
    path = written("0.5", tmp_path, image)
    before = read_labels(segment_large(fitted, path, tmp_path / "out").labels)
    zarr.open_group(str(path), mode="r+")["0"][:] = image[None, ::-1]
    resumed = segment_large(fitted, path, tmp_path / "out", resume=True)
    assert resumed.n_kept == 0
    expected = read_labels(segment_large(fitted, path, tmp_path / "anew").labels)
    np.testing.assert_array_equal(read_labels(resumed.labels), expected)
    assert (expected != before).any()


def test_a_folder_tells_of_images_that_it_leaves_out(fitted, tmp_path):
    (tmp_path / "images").mkdir()
    written("0.5", tmp_path / "images", picture(7, (90, 80))[0])
    write_image(tmp_path / "images" / "a.png", picture(8, (60, 70))[0] / 255)
    with pytest.warns(UserWarning, match=r"1 image of .* is left out \(slide.zarr\): give it by itself"):
        masks = predict_folder(fitted, tmp_path / "images", tmp_path / "out")
    assert [mask.name for mask in masks] == ["a.png"]


def test_labels_of_another_image_of_that_name_are_kept(fitted, tmp_path):
    first, second = (
        written("tiff", tmp_path / name, picture(seed, (90, 80))[0]) for seed, name in enumerate("ab")
    )
    labels = segment_large(fitted, first, tmp_path / "out").labels
    content = labels.read_bytes()
    with pytest.raises(OutputError, match="is of another image"):
        segment_large(fitted, second, tmp_path / "out", resume=True)
    assert labels.read_bytes() == content
    segment_large(fitted, second, tmp_path / "out", overwrite=True)
    assert labels.read_bytes() != content
