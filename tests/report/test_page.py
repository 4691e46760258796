import base64
import copy
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import label as label_with_count

from segkit.evaluation.folders import objects_to_dict
from segkit.evaluation.object_scores import score_objects
from segkit.report import page, write_report
from segkit.report.summary import compare_methods, summarise


class Page(HTMLParser):
    """What a browser would make of the page: elements, their attributes, and text."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.text, self.scripts, self._inside = [], [], [], None
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        (self.scripts if self._inside == "script" else self.text).append(data)

    def attributes(self, name):
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    def sections(self):
        return [attributes["id"] for tag, attributes in self.elements if tag == "section"]

    def __contains__(self, text):
        return text in " ".join(" ".join(self.text).split())


def write(folder, result, pictures=None, **options):
    """Write a report, and read it."""
    write_report(result, folder / "index.html", pictures, **options)
    return Page(folder / "index.html")


def part_of(result, *methods, sizes=(1, 5)):
    """Two methods of a benchmark, on some numbers of images."""
    records = [
        record for record in result["records"] if record["method"] in methods and record["n_train"] in sizes
    ]
    kept = {method: result["methods"][method] for method in methods}
    return result | {"methods": kept, "records": records, "units": [], "failures": []}


@pytest.fixture(scope="module", autouse=True)
def _quick(few_resamples):
    with few_resamples():
        yield


@pytest.fixture(scope="module")
def parsed(report):
    return Page(report)


@pytest.fixture(scope="module")
def hostile(hostile_report):
    return Page(hostile_report)


def test_all_sections_are_there_in_order_and_in_the_contents(parsed):
    sections = [name for name in page._SECTIONS if name != "objects"]
    assert parsed.sections() == ["reading", *sections]
    anchors = [href for href in parsed.attributes("href") if href[1:] in page._SECTIONS]
    assert anchors == [f"#{name}" for name in sections]


def test_page_is_light_and_loads_nothing(report, parsed):
    assert report.stat().st_size < 10_000_000
    for address in [*parsed.attributes("src"), *parsed.attributes("href")]:
        assert address.startswith(("data:", "#")) or address == "results.csv"
    assert "@import" not in parsed.source
    assert "url(http" not in parsed.source


def test_policy_allows_the_one_script_only(parsed):
    (policy,) = [attributes["content"] for _, attributes in parsed.elements if "http-equiv" in attributes]
    (script,) = parsed.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}';" in policy


@pytest.mark.parametrize("which", ["parsed", "hostile"])
def test_ids_are_unique_headings_in_order_and_pictures_described(which, request):
    n_methods = 5 if which == "parsed" else 2
    parsed = request.getfixturevalue(which)
    ids = parsed.attributes("id")
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    images = [attributes for tag, attributes in parsed.elements if tag == "img"]
    assert len(images) == 3 * (2 + 4 * n_methods)
    assert all(attributes["alt"] for attributes in images)
    tables = [tag for tag, _ in parsed.elements if tag == "table"]
    captions = [tag for tag, _ in parsed.elements if tag == "caption"]
    assert len(captions) == len(tables)


@pytest.fixture(scope="module")
def single(evaluation, pictures, tmp_path_factory):
    """Report of a single method, with probability maps."""
    return write(tmp_path_factory.mktemp("single"), evaluation, pictures, scores_file="scores.csv")


def tables(parsed):
    """Headings of the columns of each table, without line breaks."""
    heads = re.findall("<thead>(.*?)</thead>", parsed.source, re.DOTALL)
    cells = [re.findall("<th scope=[^>]*>(.*?)</th>", head, re.DOTALL) for head in heads]
    return [[re.sub("<[^>]*>", " ", cell).strip() for cell in row] for row in cells]


@pytest.mark.parametrize("which", ["parsed", "single"])
def test_a_table_calls_one_column_iou_and_names_the_others(which, request):
    heads = tables(request.getfixturevalue(which))
    for head in heads:
        assert len(head) == len(set(head))
        assert sum(name == "IoU" for name in head) <= 1
    of_scores = [[name for name in head if "IoU" in name or "Object" in name] for head in heads]
    assert ["Object IoU", "Object Dice", "Mean IoU over classes"] in of_scores
    assert ["IoU in images that show it", "IoU of pooled pixels"] in of_scores


def test_the_page_says_what_its_intervals_are_about(parsed, single, result, tmp_path):
    assert "with another draw of annotated images and other test images of the same kind" in parsed
    assert "With several splits it is at least that of the interval" in parsed
    assert "could move with other test images of the same kind" in single
    some = part_of(result, "fcn", "forest", sizes=[5])
    one = write(tmp_path, some | {"records": [record for record in some["records"] if record["seed"] == 0]})
    assert "1 split: images only. With other annotated images, scores could move further." in one
    assert "another draw" not in one


def test_a_method_of_one_split_is_marked_beside_others(result, tmp_path):
    some = part_of(result, "fcn", "forest")
    records = [record for record in some["records"] if record["method"] != "forest" or record["seed"] == 0]
    text = write(tmp_path, some | {"records": records}).source
    mark = '<br><span class="muted">1 split: images only</span>'
    n_alone = sum(row.n_seeds == 1 for row in summarise(records))
    pairs = [
        pair for size in {record["n_train"] for record in records} for pair in compare_methods(records, size)
    ]
    assert text.count(mark) == n_alone + sum(pair.comparison.n_seeds == (1,) for pair in pairs)
    assert n_alone


def test_object_scores_stand_beside_mean_iou_at_every_size(parsed, result):
    text = parsed.source
    grid = text[text.index("Scores with their 95 % intervals") :].split("</table>")[0]
    for row in summarise(result["records"]):
        for score, (low, high) in (
            (row.mean_iou, row.mean_iou_interval),
            (row.object_iou, row.object_iou_interval),
            (row.object_dice, row.object_dice_interval),
        ):
            assert f'{score:.3f}<br><span class="muted">{low:.3f} to {high:.3f}</span>' in grid


def test_errors_come_first_and_probabilities_are_folded(parsed, single):
    for text, kinds in (
        (parsed.source, ["True outlines", *["Outlines"] * 5, "Test image", *["Errors"] * 5]),
        (single.source, ["True outlines", "Outlines", "Errors"]),
    ):
        case = text[text.index("<h3>Best image") : text.index("<h3>Median image")]
        seen, folded = case.split("<details>")
        assert [
            alt.startswith(kind) for alt, kind in zip(re.findall('alt="([^"]*)"', seen), kinds, strict=True)
        ] == [True] * len(kinds)
        assert "Probability map" not in seen
        assert "Distance of the probability map" in folded
    assert "rgb(240, 228, 66)" not in text  # of two classes none is found as another


def test_methods_peoples_parts_are_folded(parsed):
    text = parsed.source
    section = text[text.index('<section id="methods"') :]
    assert (
        section.index("<details")
        < section.index("Calibration of the probabilities")
        < section.index("</section>")
    )
    before = re.sub(
        '"data:[^"]*"', "", text[text.index("<main") : text.index('<section id="methods"')]
    ).lower()
    for word in ("brier", "kernel", "mmd", "residual"):
        assert word not in before, word


def test_a_single_method_has_no_marker(parsed, single):
    key = '<span class="key"><svg'
    assert key in parsed.source
    assert key not in single.source
    assert tables(single)[1][1:] == ["IoU", "Dice", "Precision", "Recall", "Boundary F"]
    assert "Methods 1" not in single


def test_the_table_of_scores_is_linked_where_there_is_one(single, evaluation, tmp_path):
    assert '<a href="scores.csv">' in single.source
    assert ".csv" not in write(tmp_path, evaluation).source


def headings(parsed):
    """The title, twice."""
    found = re.search("<title>(.*): segmentation report</title>.*<h1>(.*)</h1>", parsed.source, re.DOTALL)
    return found.groups()


def test_the_title_is_given_or_that_of_the_folder(evaluation, tmp_path, monkeypatch):
    folder = tmp_path / "study" / "report"
    assert headings(write(folder, evaluation)) == ("study/report",) * 2
    monkeypatch.chdir(folder)
    assert headings(write(Path(), evaluation)) == ("study/report",) * 2
    titled = write(tmp_path, evaluation, title="Mouse liver, <2024>")
    assert headings(titled) == ("Mouse liver, &lt;2024&gt;",) * 2
    assert page.folder_title(Path("/")) == "report"


def test_hostile_names_are_text(hostile, hostile_names):
    assert [tag for tag, _ in hostile.elements].count("script") == 1
    assert not [name for _, attributes in hostile.elements for name in attributes if name.startswith("on")]
    for name in hostile_names:
        shown = name.replace("\udcff", "\\udcff")
        assert f"{shown}.png" in hostile
    assert "<script>alert(1)</script>: segmentation report" in hostile


def test_numbers_and_words_a_reader_looks_for(parsed):
    for words in (
        "reaches object IoU 0.",
        "above the runner-up's",
        "30 annotated images: 40 images leave only 26 to train on",
        "U-Net, 15 annotated images, split 1: CUDA out of memory",
        "Best image of split 0: case-",
        "Median image of split 0: case-",
        "Worst image of split 0: case-",
        "128 of 1408 feature channels kept; decision threshold 0.12",
        "lowest MMD, gamma = ",
        "within 2 pixels",
        "VGG19 weights reach to conv3_4",
        "1 of 3",
        "more steps may raise the score: ",
        "U-Net (2 of 8 runs)",
        "Calling every pixel background would give a mean IoU of",
        "0123456789abcdef",
    ):
        assert words in parsed, words


def test_evaluation_leaves_out_what_it_cannot_show(evaluation, pictures, tmp_path):
    def hard(*run):
        return dataclasses.replace(pictures(*run), probability=None)

    parsed = write(tmp_path, evaluation, hard)
    sections = "reading examples scores spread confusions images definitions methods manifest"
    assert parsed.sections() == sections.split()
    assert len([tag for tag, _ in parsed.elements if tag == "img"]) == 3 * 3
    for word in ("annotated image", "split", "brier"):
        assert word not in " ".join(parsed.text).lower()


@pytest.fixture(scope="module")
def counted(evaluation, pictures):
    """The result of masks that number objects."""
    stems = [record["image"] for record in evaluation["records"]]
    truths, guesses = [], []
    for stem in stems:
        picture = pictures("forest", None, None, stem)
        truths.append(label_with_count(picture.truth)[0])
        guesses.append(label_with_count(picture.prediction)[0])
    objects = objects_to_dict(score_objects(truths, guesses), stems)
    drawn = dict(zip(stems, zip(truths, guesses, strict=True), strict=True))

    def picture(method, n_train, seed, image):
        return dataclasses.replace(
            pictures(method, n_train, seed, image), probability=None, objects=drawn[image]
        )

    return evaluation | {"objects": objects}, picture


def test_objects_have_a_section_of_scores_pictures_and_images(counted, tmp_path):
    result, picture = counted
    parsed = write(tmp_path, result, picture)
    assert parsed.sections()[:3] == ["reading", "objects", "examples"]
    objects = result["objects"]
    for words in (
        f"The masks number {objects['n_true']} true and {objects['n_predicted']} predicted objects.",
        f"the truth {objects['n_true']}: their AP at IoU 0.5 is {objects['scores']['ap_50']['value']:.3f} (95 %",
        "Scores of the predictions by pixels on 8 test images",
        f"Objects {objects['n_true']} true, {objects['n_predicted']} predicted",
        f"Panoptic quality {objects['scores']['panoptic_quality']['value']:.3f}",
        "Mean AP, IoU 0.5 to 0.9",
        "Predicted minus true, mean of images",
        "Worst image by AP: case-",
        "Best image by AP: case-",
        "Kirillov et al., 2019",
    ):
        assert words in parsed, words
    head = ["Image", "True objects", "Predicted objects", "AP at IoU 0.5", "Panoptic quality"]
    assert head in tables(parsed)
    pictured = [alt for alt in parsed.attributes("alt") if "objects of case-" in alt]
    assert len(pictured) == 4
    text = parsed.source
    rows = text[text.index("Number and scores of the objects") :].split("</table>")[0]
    assert rows.count('<th scope="row"') == len(objects["images"])


def test_objects_without_pictures_or_any_object(counted, tmp_path):
    result, _ = counted
    assert "Worst image by AP" not in write(tmp_path, result)
    stems = [record["image"] for record in result["records"]]
    empty = [np.zeros((4, 4), int)] * len(stems)
    none = result | {"objects": objects_to_dict(score_objects(empty, empty), stems)}
    parsed = write(tmp_path, none, counted[1])
    assert "The masks number 0 true and 0 predicted objects." in parsed
    assert "8 images without any object, true or predicted: no score (a dash)." in parsed
    assert "their AP" not in parsed


def test_a_single_image_of_objects_has_no_interval(counted, tmp_path):
    result, picture = counted
    one = result["objects"]["images"][0]["stem"]
    true, guess = picture("forest", None, None, one).objects
    objects = objects_to_dict(score_objects([true], [guess]), [one])
    alone = result | {"objects": objects, "records": result["records"][:1]}
    assert f"Only image by AP: {one}" in write(tmp_path, alone, picture)


def test_numbers_as_text():
    for kind, expected in (
        ("signed_count", {None: "–", -1.25: "−1.2", 0.04: "0.0", 3: "+3.0"}),
        ("plain_count", {None: "–", -1.25: "-1.2", 0.04: "0.0", 3: "3.0"}),
        ("percentage", {None: "–", -1.25: "-125.0 %", 0.04: "4.0 %", 3: "300.0 %"}),
        ("quantity", {None: "–", 0.0316: "0.0316", 12.345: "12.3", 99.96: "100", 1234.5: "1,234"}),
        ("p_value", {0.0004: "< 0.001", 0.0312: "0.031", 1.0: "1.000"}),
    ):
        assert {value: page._NUMBERS[kind](value) for value in expected} == expected


def test_no_pictures_no_section(evaluation, tmp_path):
    for pictures in (None, lambda *run: None):
        assert "examples" not in write(tmp_path, evaluation, pictures).sections()


def test_nothing_finished(evaluation, tmp_path):
    failures = [{"method": "gone", "n_train": 5, "seed": 0, "error": "no weights"}]
    parsed = write(tmp_path, evaluation | {"records": [], "failures": failures})
    assert parsed.sections() == ["reading", "gaps", "manifest"]
    assert "gone, 5 annotated images, split 0: no weights" in parsed


def test_groups_are_told(evaluation, tmp_path):
    records = [
        record | {"group": f"patient {index % 2}"} for index, record in enumerate(evaluation["records"])
    ]
    parsed = write(tmp_path, evaluation | {"records": records})
    assert "Groups of images 2" in parsed
    assert "in whole groups (such as all images of a patient)" in parsed


def test_a_long_table_of_images_shows_the_headline_only(result, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_MOST_ROWS", 50)
    some = part_of(result, "fcn", "forest")
    text = write(tmp_path, some, scores_file="results.csv").source
    rows = text[text.index('id="image-table"') :].split("</table>")[0].count("<tr data-method=")
    assert rows == 2 * len({record["image"] for record in some["records"]})
    assert f"Of {2 * rows} rows only those of 5 annotated images are listed." in text


def test_multiclass_with_undefined_classes(evaluation, tmp_path):
    names = ["background", "cell", "border"]
    records = [
        record
        | {name: [*record[name], None] for name in ("iou", "dice", "precision", "recall", "boundary_f")}
        | {"confusion": [[5, 1, 0], [1, 5, 0], [0, 0, 0]]}
        for record in evaluation["records"]
    ]
    label_map = {"values": [0, 1, 2], "names": names, "unlabelled": None}
    parsed = write(tmp_path, evaluation | {"records": records, "label_map": label_map})
    assert "border in 8 of 8 predictions" in parsed
    named = {name for head in tables(parsed) for name in head}
    assert {"IoU of background", "IoU of cell", "IoU of border"} <= named
    assert "83.3 %" in parsed


def test_result_is_left_as_it_was(evaluation, pictures, tmp_path):
    before = copy.deepcopy(evaluation)
    write_report(evaluation, tmp_path / "index.html", pictures)
    assert evaluation == before


def test_an_old_report_outlives_a_failure(evaluation, tmp_path):
    path = tmp_path / "index.html"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_report(evaluation, path, lambda *run: 1 / 0)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_benchmark_of_objects_has_a_table_for_each_size(result, tmp_path):
    def counted(record):
        tp = [len(record["image"]) % 3 + 2, 2, 1, 1, 0]
        objects = {
            "components": {"n_true": 4, "n_predicted": 6, "tp": [2, 1, 1, 0, 0]},
            "watershed": {"n_true": 4, "n_predicted": 5, "tp": tp},
        }
        if record["method"].startswith("segkit"):
            objects["learnt"] = {"n_true": 4, "n_predicted": 4, "tp": [4, 4, 3, 2, 1]}
        if record["image"] == "case-08":
            objects = {name: {"n_true": 0, "n_predicted": 0, "tp": [0] * 5} for name in objects}
        return record | {"objects": objects}

    some = part_of(result, "segkit-no-networks", "forest", sizes=[1, 5, 15])
    records = [counted(record) for record in some["records"]]
    thresholds = [0.5, 0.6, 0.7, 0.8, 0.9]
    parsed = write(tmp_path, some | {"records": records, "object_thresholds": thresholds})
    assert "objects" in parsed.sections()
    n_empty = sum(record["image"] == "case-08" for record in records)
    for words in (
        "Scores of objects after training on 1 annotated image: means over test images",
        "Scores of objects after training on 15 annotated images: means over test images",
        "segkit, no networks + watershed",
        "Pixel forest + components",
        f"{n_empty} predictions of images without any object, true or predicted: no AP.",
        "with counts of objects of an image, mean over images",
        "Mean AP is the mean over the thresholds 0.5 to 0.9.",
    ):
        assert words in parsed, words
    assert "Panoptic quality" not in parsed
    start = "Scores of objects after training on 5 annotated images: means"
    rows = parsed.source[parsed.source.index(start) :].split("</table>")[0]
    assert rows.count('<th scope="row"') == 3 + 2
    assert "1.000" in rows  # AP of what segkit has learnt
    assert "+1.9" in rows or "+1.8" in rows  # components: two objects too many, but for the empty image
