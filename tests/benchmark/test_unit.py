import shutil

import numpy as np
import pytest
import tifffile

from segkit.benchmark import load_methods
from segkit.benchmark.choices import choices
from segkit.benchmark.machine import machine
from segkit.benchmark.object_splitting import read_annotated
from segkit.benchmark.unit import run_unit
from segkit.errors import InputError
from segkit.evaluation.folders import score_image
from segkit.images import LabelMap, load_pairs, read_image, read_mask, write_mask
from segkit.images.sampling import draw_pixels
from segkit.networks.training import Trainings


def job(folder, method, **changes):
    return {
        "images": str(folder / "images"),
        "masks": str(folder / "masks"),
        "label_map": LabelMap.infer([0, 255]).to_dict(),
        "name": method.name,
        "method": method.to_dict(),
        "n_train": 2,
        "seed": 3,
        "train": ["0", "4"],
        "test": ["1", "7"],
        "tolerance": 2.0,
        **dict.fromkeys(("groups", "pictures", "checkpoint")),
    } | changes


def test_a_unit_is_fit_predict_and_score(folder, small_forest):
    found = run_unit(job(folder, small_forest))
    images = {
        one.stem: one.image
        for one in read_annotated(folder / "images", folder / "masks", ["0", "1", "4", "7"])
    }
    masks = {stem: read_mask(folder / "masks" / f"{stem}.png")[0] for stem in images}
    forest = small_forest.build(3).fit([images["0"], images["4"]], [masks["0"], masks["4"]])
    for record, stem in zip(found["records"], ["1", "7"], strict=True):
        predicted = forest.segment(images[stem])
        expected = score_image(masks[stem] // 255, predicted.labels // 255, predicted.probability, 2)
        assert {key: record[key] for key in expected} == expected
        own = [record[name] for name in ("method", "n_train", "seed", "image")]
        assert own == ["forest", 2, 3, stem]
    unit = found["unit"]
    assert unit["train"] == ["0", "4"]
    assert unit["fit_seconds"] > 0
    assert unit["peak_memory_mib"] > 10
    assert unit["machine"] == machine()
    assert (unit["device"], unit["budget_limited"], unit["explain"]) == ("cpu", None, None)


def test_kept_predictions_are_what_was_scored(folder, small_forest, tmp_path):
    data, kept_in = tmp_path / "data", tmp_path / "kept"
    shutil.copytree(folder, data)
    for kind in ("images", "masks"):  # a name that is also that of a folder of results
        (data / kind / "probability").mkdir()
        (data / kind / "7.png").rename(data / kind / "probability" / "1.png")
    found = run_unit(job(data, small_forest, test=["1", "probability/1"], pictures=str(kept_in)))
    for record in found["records"]:
        kept = read_mask(kept_in / "masks" / f"{record['image']}.tif")[0]
        truth = read_mask(data / "masks" / f"{record['image']}.png")[0]
        maps = np.stack(read_image(kept_in / "probability" / f"{record['image']}.tif"), axis=-1)[:, :, 0]
        again = score_image(truth // 255, kept // 255, maps, 2)
        assert again["confusion"] == record["confusion"]
        assert again["brier"] == pytest.approx(record["brier"])


def test_groups_and_budget_are_recorded(folder):
    options = ["unet.max_steps=1", "unet.n_filters=2", "unet.depth=1", "unet.crop=16", "unet.augment=false"]
    [unet] = load_methods(["unet"], None, options)
    found = run_unit(job(folder, unet, groups={"1": "p1", "7": "p2"}))
    assert [record["group"] for record in found["records"]] == ["p1", "p2"]
    assert found["unit"]["budget_limited"] is True


def test_pages_of_a_file_are_held_out_together(tmp_path, monkeypatch, rng):
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
        for name in "ab":
            pages = 255 * rng.integers(0, 2, (2, 20, 24)).astype(np.uint8)
            tifffile.imwrite(tmp_path / kind / f"{name}.tif", pages, metadata={"axes": "ZYX"}, imagej=True)
    given = {}

    def fit(self, *pairs, **options):
        given.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr("segkit.segmentation.segmenter.Segmenter.fit", fit)
    [method] = load_methods(["segkit-no-networks"], None, [])
    with pytest.raises(KeyboardInterrupt):
        run_unit(job(tmp_path, method, train=["b#2", "a#1", "b#1"], test=["a#2"]))
    assert given["groups"] == ["b", "a", "b"]


def test_seconds_of_a_resumed_training_are_marked(folder, tmp_path):
    [unet] = load_methods(
        ["unet"], None, ["unet={kind: unet, max_steps: 2, n_filters: 2, depth: 1, crop: 16}"]
    )
    units = [run_unit(job(folder, unet, checkpoint=str(tmp_path / "training.pt")))["unit"] for _ in range(2)]
    marked = [any("from a checkpoint" in note for note in unit["notes"]) for unit in units]
    assert marked == [False, True]


def test_a_killed_training_of_tuned_networks_goes_on(folder, tmp_path, monkeypatch):
    options = ["bank={name: tuned, weights: random, pyramid: [1], n_steps: 2}", "training.pixels=200"]
    [tuned] = load_methods(["segkit-tuned"], None, [f"segkit-tuned.{option}" for option in options])
    steps = []
    take = Trainings.step

    def killed(trainings, n_steps):
        steps.append(trainings.n_steps)
        if len(steps) == 2:
            raise KeyboardInterrupt
        take(trainings, n_steps)

    monkeypatch.setattr(Trainings, "step", killed)
    monkeypatch.setattr("segkit.features.tuned._SAVE_EVERY", 1)
    monkeypatch.setattr("segkit.features.tuned._STEPS_AT_ONCE", 1)
    given = job(folder, tuned, checkpoint=str(tmp_path / "training.pt"))
    with pytest.raises(KeyboardInterrupt):
        run_unit(given)
    notes = run_unit(given)["unit"]["notes"]
    assert steps == [0, 1, 1]
    assert any("from a checkpoint" in note for note in notes)


def test_segkit_explains_itself(folder, small_segkit, tmp_path, monkeypatch):
    monkeypatch.setattr("segkit.benchmark.choices._N_EMBEDDED", 60)
    found = run_unit(job(folder, small_segkit, pictures=str(tmp_path)))["unit"]["explain"]
    assert sum(found["kept_channels"].values()) == 8
    assert found["n_channels"] == 36
    assert found["words"][0].startswith("Channels: 8 of 36 kept")
    assert sum(kernel["weight"] for kernel in found["kernels"]) == pytest.approx(1)
    scores = {kernel["gamma"]: kernel["score"] for kernel in found["kernels"]}
    high, low = found["embedding"]
    assert scores[high["gamma"]] == max(scores.values())
    assert scores[low["gamma"]] == min(scores.values())
    assert len(high["xy"]) == len(high["label"]) == 60
    assert set(high["label"]) == {0, 1}


@pytest.mark.parametrize(
    "bank", ["{name: multiscale, sigma_max: 4}", "{name: orbit, stride: 2, n_templates: 4, n_angles: 4}"]
)
def test_default_kernels_are_explained(folder, tmp_path, monkeypatch, bank):
    monkeypatch.setattr("segkit.benchmark.choices._plane", lambda *_: [])
    file = tmp_path / "methods.yaml"
    options = "selection: {n_features: 8, pixels: 300}, training: {pixels: 600}, kernel: {n_components: 24}"
    file.write_text(f"small: {{bank: {bank}, {options}}}\n")
    method = load_methods(["small"], file)[0]
    found = run_unit(job(folder, method, pictures=str(tmp_path / "pictures")))["unit"]["explain"]
    kinds = [kernel["kind"] for kernel in found["kernels"]]
    assert sum(kernel["weight"] for kernel in found["kernels"]) == pytest.approx(1)
    assert found["words"][1].startswith("Kernels: ")
    # Gaussians see no channel on a grid of every second pixel
    assert kinds.count("gaussian") == (6 if "multiscale" in bank else 0)
    assert (found["embedding"] is None) == ("orbit" in bank)


def test_scores_outlive_what_cannot_be_explained(folder, small_segkit, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("segkit.benchmark.unit.choices", fail)
    found = run_unit(job(folder, small_segkit))
    assert len(found["records"]) == 2
    assert found["unit"]["explain"] is None
    told = found["unit"]["notes"][-1]
    assert told == "the choices of the method cannot be shown: ZeroDivisionError: two lines"


def test_embedded_pixels_have_the_features_that_training_saw(folder, small_segkit):
    read = read_annotated(folder / "images", folder / "masks", ["0", "4"])
    images = [one.image for one in read]
    ids = [one.mask // 255 for one in read]
    segmenter = small_segkit.build(0).fit(images, ids)
    drawn = draw_pixels(ids, 2, 50, np.random.default_rng(0))
    part = drawn.of_image(0)
    X = segmenter.pixel_features(images[0], drawn.row[part], drawn.col[part])
    kernels, svm = segmenter.classifier_.kernels_, segmenter.classifier_.svm_
    decisions = kernels.dot(X, svm.coef_)[:, 0] + svm.intercept_
    expected = segmenter.decision_function(images[0])[drawn.row[part], drawn.col[part]]
    np.testing.assert_allclose(decisions, expected, atol=1e-4)
    told = choices(segmenter)
    assert told["embedding"] is None
    assert told["bank"] == segmenter.bank_.label


def test_pages_have_names_of_their_own(tmp_path, rng):
    pages = (255 * rng.random((3, 8, 9))).astype(np.uint8)
    for kind in ("images", "masks"):
        write_mask(tmp_path / kind / "stack.tif", pages)
    found = read_annotated(tmp_path / "images", tmp_path / "masks", ["stack#3", "stack#1"])
    assert [one.stem for one in found] == ["stack#1", "stack#3"]
    np.testing.assert_array_equal(found[1].mask, pages[2])
    with pytest.raises(InputError, match="stack#4: no such images"):
        read_annotated(tmp_path / "images", tmp_path / "masks", ["stack#4"])


@pytest.mark.parametrize(
    ("stem", "pages", "as_files"), [("stack", 3, True), ("night #2", 3, False), ("night #2", 1, True)]
)
def test_images_are_found_by_the_names_they_were_loaded_by(tmp_path, stem, pages, as_files):
    stack = np.random.default_rng(0).integers(0, 2, (pages, 8, 9)).astype(np.uint8)
    places = [tmp_path / kind for kind in ("images", "masks")]
    for place in places:
        write_mask(place / f"{stem}.tif", 255 * stack)
    if as_files:
        places = [place / f"{stem}.tif" for place in places]
    dataset = load_pairs(*places)
    found = read_annotated(*places, dataset.stems)
    assert [one.stem for one in found] == dataset.stems
    np.testing.assert_array_equal([one.mask for one in found], 255 * stack)
