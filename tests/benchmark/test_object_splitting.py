"""Objects in a benchmark: a folder of touching discs, whose masks number them."""

import csv
import json

import numpy as np
import pytest
from scipy import ndimage

from segkit.benchmark import Benchmark
from segkit.benchmark.object_splitting import (
    connected_components,
    count_matches,
    fixed_watershed,
    image_ap,
    read_annotated,
)
from segkit.benchmark.results import write_csv
from segkit.benchmark.unit import run_unit
from segkit.errors import InputError, OutputError
from segkit.evaluation import score_objects
from segkit.evaluation.statistics import bootstrap_interval
from segkit.images import LabelMap, load_pairs, write_image, write_mask
from segkit.report.summary import summarise_objects
from tests.benchmark.test_unit import job as unit_job

UNLABELLED = 65_000

pytestmark = pytest.mark.usefixtures("units_here")


def draw_discs(seed):
    """Draw a grey image and a label image of two pairs of touching discs and a lone one."""
    rng = np.random.default_rng(seed)
    rows, cols = np.indices((64, 64))
    labels = np.zeros((64, 64), dtype=np.uint16)
    down, right = rng.integers(0, 4, 2)
    for number, (row, col) in enumerate([(14, 14), (14, 27), (42, 20), (42, 33), (46, 52)], 1):
        labels[(np.hypot(rows - row - down, cols - col - right) < 7) & (labels == 0)] = number
    image = 0.25 + 0.5 * (labels > 0) + rng.normal(0, 0.03, labels.shape)
    return np.clip(image, 0, 1), labels


@pytest.fixture(scope="session")
def discs(tmp_path_factory):
    root = tmp_path_factory.mktemp("discs")
    for seed in range(6):
        image, labels = draw_discs(seed)
        write_image(root / "images" / f"{seed}.png", image)
        write_mask(root / "masks" / f"{seed}.png", labels)
        write_mask(root / "classes" / f"{seed}.png", 255 * (labels > 0).astype(np.uint8))
        labels[:2] = UNLABELLED
        write_mask(root / "partly" / f"{seed}.png", labels)
    return root


def job(folder, method, *, masks="masks", unlabelled=None):
    places = folder / "images", folder / masks
    label_map = load_pairs(*places, masks_are="instances", unlabelled=unlabelled).label_map.to_dict()
    options = {
        "masks": str(places[1]),
        "label_map": label_map,
        "seed": 0,
        "train": ["0", "1"],
        "test": ["2", "3"],
    }
    return unit_job(folder, method, **options, objects={"unlabelled": unlabelled})


def benchmark(folder, output, methods, *, masks="masks", **options):
    known = {"masks_are": "instances"} | options
    return Benchmark(folder / "images", folder / masks, output, methods, [2], [0], **known)


@pytest.fixture(scope="module")
def learnt(discs, small_segkit):
    """A run of segkit, in this process."""
    return run_unit(job(discs, small_segkit))


@pytest.fixture(scope="module")
def finished(discs, small_forest, units_here, tmp_path_factory):
    run = benchmark(discs, tmp_path_factory.mktemp("out"), [small_forest])
    return run, run.run(notify=pytest.fail)


def test_annotated_images_are_read_as_for_training(discs):
    loaded = load_pairs(discs / "images", discs / "partly", masks_are="instances", unlabelled=UNLABELLED)
    found = read_annotated(
        discs / "images", discs / "partly", ["3", "1"], objects=True, unlabelled=UNLABELLED
    )
    assert [item.stem for item in found] == ["1", "3"]
    for item in found:
        index = loaded.stems.index(item.stem)
        np.testing.assert_array_equal(item.image, loaded.images[index])
        np.testing.assert_array_equal(item.mask, loaded.masks[index])
        np.testing.assert_array_equal(item.instances, loaded.instances[index])
    with pytest.raises(InputError, match="9: no such images in"):
        read_annotated(discs / "images", discs / "masks", ["9"])


def test_counts_are_those_of_the_scores_of_objects():
    _, labels = draw_discs(0)
    labelled = np.ones(labels.shape, dtype=bool)
    labelled[:16] = False
    mask, learnt = labels > 0, np.where(labels == 5, 0, labels).astype(np.int32)
    found = count_matches(labels.astype(np.int32), mask, learnt, radius=7, labelled=labelled)
    for splitting, predicted in {
        "learnt": learnt,
        "components": connected_components(mask),
        "watershed": fixed_watershed(ndimage.binary_fill_holes(mask), 7),
    }.items():
        expected = score_objects([labels], [predicted], labelled=[labelled])
        assert found[splitting] == {
            "n_true": expected.n_true[0],
            "n_predicted": expected.n_predicted[0],
            "tp": expected.tp[0].tolist(),
        }
        assert image_ap(found[splitting]) == expected.image_ap[0].tolist()
    assert list(count_matches(labels, mask, None, radius=7, labelled=labelled)) == ["components", "watershed"]
    assert image_ap({"n_true": 0, "n_predicted": 0, "tp": [0] * 5}) is None


def test_a_unit_scores_the_objects_that_segkit_learnt(discs, small_segkit, learnt):
    items = read_annotated(discs / "images", discs / "masks", ["0", "1", "2", "3"], objects=True)
    train, test = items[:2], items[2:]
    segmenter = small_segkit.build(0).fit(
        [item.image for item in train],
        [item.mask for item in train],
        instances=[item.instances for item in train],
        label_map=LabelMap.infer([0, 255]),
    )
    for record, item in zip(learnt["records"], test, strict=True):
        found = segmenter.segment(item.image, objects=True)
        expected = count_matches(
            item.instances,
            found.labels > 0,
            found.objects,
            radius=segmenter.objects_.splitter.radius,
            labelled=np.ones(found.labels.shape, dtype=bool),
        )
        assert record["objects"] == expected
        assert record["objects"]["learnt"]["tp"][0] == 5
        assert record["objects"]["components"]["n_predicted"] == 3
    assert learnt["unit"]["objects"] is True


def test_pixels_without_annotation_do_not_count(discs, small_forest):
    found = run_unit(job(discs, small_forest, masks="partly", unlabelled=UNLABELLED))
    for record in found["records"]:
        assert list(record["objects"]) == ["components", "watershed"]
        assert record["objects"]["watershed"]["n_true"] == 5
        assert np.sum(record["confusion"]) == 62 * 64


def test_results_hold_the_objects_of_every_record(finished, learnt, tmp_path):
    run, result = finished
    assert result["object_thresholds"] == [0.5, 0.6, 0.7, 0.8, 0.9]
    written = (run.output / "results.csv").read_text(encoding="utf-8")
    write_csv(tmp_path / "forest.csv", result["records"], run.label_map)
    assert written == (tmp_path / "forest.csv").read_text(encoding="utf-8")
    records = [*result["records"], *learnt["records"]]
    write_csv(tmp_path / "all.csv", records, run.label_map)
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text(encoding="utf-8").splitlines()))
    for row, record in zip(rows, records, strict=True):
        counts = record["objects"]["watershed"]
        assert row["n_true"] == str(counts["n_true"])
        assert row["n_predicted watershed"] == str(counts["n_predicted"])
        assert float(row["ap_50 watershed"]) == image_ap(counts)[0]
        assert float(row["mean_ap watershed"]) == pytest.approx(np.mean(image_ap(counts)))
        assert (row["ap_50 learnt"] == "") == (record["method"] == "forest")


def test_undefined_scores_of_objects_are_empty_cells(finished, tmp_path):
    run, result = finished
    none = {"components": {"n_true": 0, "n_predicted": 0, "tp": [0] * 5}}
    write_csv(tmp_path / "table.csv", [result["records"][0] | {"objects": none}], run.label_map)
    [row] = csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines())
    assert (row["n_true"], row["n_predicted components"], row["ap_50 components"]) == ("0", "0", "")


def test_scores_of_objects_are_means_over_images(finished, learnt):
    _, result = finished
    rows = summarise_objects([*learnt["records"], *result["records"]])
    names = [
        f"{method} + {splitting}"
        for method in ("small", "forest")
        for splitting in ("components", "watershed")
    ]
    assert [row.method + row.suffix for row in rows] == ["small", *names]
    counts = [record["objects"]["components"] for record in learnt["records"]]
    more = [one["n_predicted"] - one["n_true"] for one in counts]
    assert rows[1].ap_50 == pytest.approx(np.mean([image_ap(one)[0] for one in counts]))
    assert rows[1].mean_ap == pytest.approx(np.mean([image_ap(one) for one in counts]))
    assert (rows[1].count_error, rows[1].absolute_count_error) == (np.mean(more), np.mean(np.abs(more)))
    assert rows[1].ap_50_interval[0] <= rows[1].ap_50 <= rows[1].ap_50_interval[1]
    assert rows[0].ap_50 > rows[1].ap_50


def test_images_without_objects_have_no_ap():
    own = {"method": "forest", "n_train": 1, "seed": 0, "group": None}
    none = {"components": {"n_true": 0, "n_predicted": 0, "tp": [0] * 5}}
    one = {"components": {"n_true": 2, "n_predicted": 1, "tp": [1, 1, 0, 0, 0]}}
    [row] = summarise_objects([own | {"image": "a", "objects": none}])
    assert np.isnan(row.ap_50)
    assert (row.mean_ap_interval, row.count_error) == (None, 0)
    [row] = summarise_objects([own | {"image": "a", "objects": none}, own | {"image": "b", "objects": one}])
    assert (row.ap_50, row.mean_ap, row.count_error) == (0.5, pytest.approx(0.2), -0.5)
    assert summarise_objects([own | {"image": "a"}]) == []


def test_intervals_of_objects_are_over_images_and_splits(rng):
    tested = [(seed, image) for seed in range(3) for image in range(8) if (seed + image) % 3]
    own = {"method": "forest", "n_train": 1}
    records = [
        own | {"seed": seed, "group": f"group {image}", "image": f"image {image}"} for seed, image in tested
    ]
    for index, record in enumerate(records):
        n_predicted, *tp = rng.integers([9, 0, 0, 0, 0, 0], 10).tolist()
        counts = {"n_true": 9, "n_predicted": n_predicted + index % 2, "tp": tp}
        record["objects"] = {"components": counts}
    seeds, images = np.array(tested).T
    groups = np.array(list(dict.fromkeys(images.tolist()))).argsort()[images]  # numbered as they come
    [row] = summarise_objects(records)
    counts = [record["objects"]["components"] for record in records]
    for found, values in (
        (row.ap_50_interval, [image_ap(one)[0] for one in counts]),
        (row.mean_ap_interval, [np.mean(image_ap(one)) for one in counts]),
        (row.count_error_interval, [one["n_predicted"] - one["n_true"] for one in counts]),
    ):
        assert found == pytest.approx(bootstrap_interval(values, groups, seeds))
        assert found != pytest.approx(bootstrap_interval(values, groups))


def test_finished_runs_are_kept_and_not_mixed(finished, discs, small_forest, monkeypatch, tmp_path):
    run, result = finished
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a unit ran again"))
    again = benchmark(discs, run.output, [small_forest])
    again.check_output(resume=True)
    assert len(again.run(notify=pytest.fail)["records"]) == len(result["records"])
    without = benchmark(discs, run.output, [small_forest], masks="classes", masks_are="classes")
    with pytest.raises(OutputError, match=r"with scores of objects: add --set data\.masks=inst"):
        without.check_output(resume=True)
    [path, *_] = (run.output / "units").glob("forest*.json")
    content = json.loads(path.read_text())
    del content["unit"]["objects"]
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / path.name).write_text(json.dumps(content))
    with pytest.raises(OutputError, match=r"without scores of objects: leave out --set data\.masks=inst"):
        benchmark(discs, tmp_path, [small_forest]).check_output(resume=True)


def test_without_objects_no_run_knows_of_them(discs, small_forest, tmp_path):
    run = benchmark(discs, tmp_path, [small_forest], masks="classes", masks_are="classes")
    options = run._options(run.units[0])
    assert "objects" not in options
    assert "object_thresholds" not in run.run(notify=pytest.fail)
    with pytest.raises(InputError, match="pieces: one value for all objects"):
        benchmark(discs, tmp_path, [small_forest], masks="classes")


def touching_discs(distance):
    """Two discs of radius 8, their centres some pixels apart."""
    rows, cols = np.indices((24, 48))
    return (np.hypot(rows - 12, cols - 12) < 8) | (np.hypot(rows - 12, cols - 12 - distance) < 8)


def test_components_hang_together_by_sides():
    labels = connected_components([[1, 1, 0], [0, 0, 1], [0, 0, 2]])
    assert labels.dtype == np.int32
    assert labels.tolist() == [[1, 1, 0], [0, 0, 2], [0, 0, 2]]


def test_the_watershed_tells_touching_discs_apart():
    mask = touching_discs(13)
    assert connected_components(mask).max() == 1
    labels = fixed_watershed(mask, 4)
    assert labels.dtype == np.int32
    np.testing.assert_array_equal(labels > 0, mask)
    areas = np.bincount(labels.ravel())[1:]
    assert areas.size == 2
    assert abs(areas[0] - areas[1]) < 20


def test_seeds_further_apart_are_fewer():
    assert fixed_watershed(touching_discs(13), 20).max() == 1
    assert fixed_watershed(touching_discs(13), 0).max() >= 2
    assert fixed_watershed(np.zeros((5, 6), dtype=bool), 3).max() == 0


def test_bad_input_is_refused():
    with pytest.raises(InputError, match=r"mask of shape \(3,\): give \(H, W\)"):
        connected_components([1, 0, 1])
    with pytest.raises(InputError, match="seeds -1 pixels apart: give a number from 0"):
        fixed_watershed(np.ones((3, 3)), -1)
