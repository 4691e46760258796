"""Numbers and pictures of folders of masks and of benchmarks."""

import numpy as np
import pytest
import tifffile

from segkit.benchmark import Benchmark, load_methods
from segkit.cli.phantom import make_demo_set
from segkit.errors import InputError
from segkit.evaluation.read_masks import read_folders
from segkit.images import write_image, write_mask, write_probability
from segkit.report.sources import pictures_of_benchmark, result_of_folders

TRUTH = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 1, 1]], dtype=np.uint8)


def one_hot(mask, values):
    return (mask == np.reshape(values, (-1, 1, 1))).astype(np.float32)


def result_of(predictions, masks, images=None, masks_are="classes"):
    found = read_folders(predictions, masks, masks_are=masks_are, skip=("probability",))
    return result_of_folders(found, predictions, masks, images)


@pytest.fixture
def evaluated(tmp_path):
    """Score masks, perfectly predicted as they are, with the probability maps given."""

    def evaluate(masks, probability, **options):
        for name, mask in masks.items():
            suffix = ".tif" if mask.ndim == 3 else ".png"
            write_mask(tmp_path / "masks" / f"{name}{suffix}", mask)
            write_mask(tmp_path / "predictions" / f"{name}{suffix}", mask)
        for name, maps in probability.items():
            file = tmp_path / "predictions" / "probability" / f"{name}.tif"
            file.parent.mkdir(exist_ok=True)
            tifffile.imwrite(file, maps, photometric="minisblack")
        return result_of(tmp_path / "predictions", tmp_path / "masks", **options)

    return evaluate


def test_maps_are_those_of_the_classes(evaluated):
    result, picture = evaluated({"a": TRUTH}, {"a": one_hot(TRUTH, [0, 1, 2])})
    assert result["records"][0]["brier"] == 0
    np.testing.assert_array_equal(
        picture("predictions", None, None, "a").probability, np.moveaxis(one_hot(TRUTH, [0, 1, 2]), 0, 2)
    )


def test_a_single_map_is_the_foregrounds(evaluated):
    mask = 255 * (TRUTH == 1).astype(np.uint8)
    result, picture = evaluated({"a": mask}, {"a": np.where(mask, 0.9, 0.2).astype(np.float32)})
    assert result["records"][0]["brier"] == pytest.approx(np.mean(np.where(mask, 0.1, 0.2) ** 2))
    found = picture("predictions", None, None, "a").probability
    np.testing.assert_allclose(found[:, :, 1], np.where(mask, 0.9, 0.2), rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=2), 1)


@pytest.mark.parametrize(
    ("mask", "maps", "message"),
    [
        (np.where(TRUTH == 1, 2, TRUTH), one_hot(TRUTH, [0, 1, 2]),
         r"3 maps for 1 masks of 2 classes \(the values 0, 2\), expected one for each class .* move that folder away"),
        (TRUTH, np.float32(TRUTH == 1), r"1 maps for 1 masks of 3 classes \(the values 0, 1, 2\)"),
        (np.minimum(TRUTH, 1), np.where(TRUTH, 255, 0).astype(np.uint8), "map of uint8 from 0 to 255, expected floats"),
        (np.minimum(TRUTH, 1), np.full((3, 4), np.nan, np.float32), "map of float32 from nan to nan, expected floats"),
        (np.minimum(TRUTH, 1), np.full((3, 4), -0.5, np.float32), "map of float32 from -0.5 to -0.5, expected floats"),
        (np.minimum(TRUTH, 1), np.full((3, 4), 80, np.float32), "map of float32 from 80 to 80, expected floats"),
        (np.minimum(TRUTH, 1), np.zeros((4, 4), np.float32), r"map of shape \(4, 4\) for a mask of shape \(3, 4\)"),
    ],
)  # fmt: skip
def test_maps_that_do_not_fit_are_refused_with_their_name(evaluated, mask, maps, message):
    with pytest.raises(InputError, match=rf"probability/a\.tif: {message}"):
        evaluated({"a": mask}, {"a": maps})


@pytest.mark.parametrize("n_classes", [2, 3])
def test_stacks_have_their_maps_images_and_group(evaluated, tmp_path, rng, n_classes):
    """In the layout of `segkit predict`, under a name that looks like a page's."""
    mask = (rng.random((3, 5, 6)) * n_classes).astype(np.uint8)
    maps = np.stack([one_hot(page, range(n_classes)) for page in mask])
    name = "stack#x"
    single = TRUTH % n_classes
    (tmp_path / "images").mkdir()
    image = rng.integers(0, 255, (3, 5, 6)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "images" / f"{name}.tif", image, photometric="minisblack")
    write_image(tmp_path / "images" / "one#1.png", np.eye(3, 4))
    probability = {name: maps[:, 1] if n_classes == 2 else maps}
    result, picture = evaluated({name: mask, "one#1": single}, probability, images=tmp_path / "images")
    found = {record["image"]: (record["brier"], record["group"]) for record in result["records"]}
    assert found == {"one#1": (None, None)} | {f"{name}#{page}": (0, name) for page in (1, 2, 3)}
    shown = picture("predictions", None, None, f"{name}#2")
    np.testing.assert_allclose(shown.image[:, :, 0], image[1] / 255, rtol=1e-6)
    np.testing.assert_array_equal(shown.truth, mask[1])
    np.testing.assert_array_equal(shown.probability, np.moveaxis(maps[1], 0, 2))
    np.testing.assert_array_equal(picture("predictions", None, None, "one#1").image[:, :, 0], np.eye(3, 4))


def test_images_of_other_sizes_or_fewer_pages_are_not_shown(evaluated, tmp_path):
    write_image(tmp_path / "images" / "a.png", np.eye(4))
    write_image(tmp_path / "images" / "b.png", np.eye(3, 4))
    _, picture = evaluated({"a": TRUTH, "b": np.stack([TRUTH, TRUTH])}, {}, images=tmp_path / "images")
    for name, page in (("a", 1), ("b#2", 2)):
        with pytest.warns(UserWarning, match=rf"{name[0]}\.png: no image of 3 x 4 on page {page}"):
            shown = picture("predictions", None, None, name)
        assert (shown.image == 0.5).all()


def test_single_files_show_their_image(tmp_path):
    write_image(tmp_path / "image.png", np.eye(3, 4))
    for name in ("mask", "guess"):
        write_mask(tmp_path / f"{name}.png", TRUTH)
    files = [tmp_path / f"{name}.png" for name in ("guess", "mask", "image")]
    result, picture = result_of(*files)
    [record] = result["records"]
    shown = picture("predictions", None, None, record["image"])
    np.testing.assert_array_equal(shown.image[:, :, 0], np.eye(3, 4))


def test_data_are_called_by_their_folder(tmp_path):
    for folder in ("guesses", "liver/masks", "kidney"):
        write_mask(tmp_path / folder / "a.png", TRUTH)
    names = [
        result_of(tmp_path / "guesses", tmp_path / folder)[0]["name"] for folder in ("liver/masks", "kidney")
    ]
    assert names == [f"{tmp_path.name}/liver", "kidney"]


def test_masks_that_number_objects_give_their_scores_and_pictures(tmp_path):
    truth = np.kron(np.arange(1, 13).reshape(3, 4), np.pad(np.ones((4, 4), int), 1)).astype(np.uint16)
    guess = np.where(truth == 3, 0, truth)
    write_mask(tmp_path / "cells" / "instances" / "a.png", truth)
    write_mask(tmp_path / "guesses" / "a.tif", guess)
    result, picture = result_of(tmp_path / "guesses", tmp_path / "cells" / "instances", masks_are=None)
    assert result["objects"]["scores"]["ap_50"]["value"] == pytest.approx(11 / 12)
    assert result["records"][0]["iou"] == pytest.approx([(432 - 192) / (432 - 192 + 16), 11 / 12])
    assert result["name"] == f"{tmp_path.name}/cells"
    shown = picture("predictions", None, None, "a")
    np.testing.assert_array_equal(shown.objects, (truth, guess))
    assert shown.truth.max() == 1


def test_one_image_is_shown_beside_masks_in_sub_folders(tmp_path):
    write_image(tmp_path / "a.png", np.eye(3, 4))
    for folder in ("masks", "guesses"):
        for name in ("a", "b"):
            write_mask(tmp_path / folder / "day1" / f"{name}.png", TRUTH)
    _, picture = result_of(tmp_path / "guesses", tmp_path / "masks", tmp_path / "a.png")
    images = [picture("predictions", None, None, f"day1/{name}").image for name in ("a", "b")]
    np.testing.assert_array_equal(images[0][:, :, 0], np.eye(3, 4))
    assert (images[1] == 0.5).all()


def test_a_benchmark_shows_the_run_it_kept_and_no_other(tmp_path):
    images, masks = make_demo_set(4, shape=(64, 64))
    for index, (image, mask) in enumerate(zip(images, masks, strict=True)):
        write_image(tmp_path / "images" / f"{index}.png", image)
        write_mask(tmp_path / "masks" / f"{index}.png", 255 * mask)
    benchmark = Benchmark(
        tmp_path / "images",
        tmp_path / "masks",
        tmp_path / "out",
        methods=load_methods(["forest"]),
        train_sizes=[1, 2],
        seeds=[3, 4],
    )
    picture = pictures_of_benchmark(benchmark)
    assert picture("forest", 2, 3, "2") is None
    mask_file, probability_file = benchmark.picture_files("forest", "2")
    write_mask(mask_file, 255 * np.roll(masks[2], 3, axis=0))
    given = np.where(np.roll(masks[2], 3, axis=0), 0.75, 0.25)
    write_probability(probability_file, np.stack([1 - given, given]))
    shown = picture("forest", 2, 3, "2")
    np.testing.assert_array_equal(shown.truth, masks[2])
    np.testing.assert_array_equal(shown.prediction, np.roll(masks[2], 3, axis=0))
    np.testing.assert_array_equal(shown.probability[:, :, 1], given)
    assert picture("forest", 1, 3, "2") is None
    assert picture("forest", 2, 4, "2") is None
