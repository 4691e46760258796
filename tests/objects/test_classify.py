import csv
import json

import numpy as np
import pandas as pd
import pytest

from segkit.errors import InputError, OutputError
from segkit.images import write_geojson
from segkit.objects import measure
from segkit.objects.classify import classify_objects, classify_table
from segkit.objects.tables import ImageObjects, write_objects


def scene(seed, n=24, shape=(120, 160)):
    """Small bright discs and larger dark ones on a grid: label image, image, and the class of each."""
    rng = np.random.default_rng(seed)
    rows, cols = np.indices(shape)
    labels, image, names = np.zeros(shape, dtype=int), np.full(shape, 0.1), {}
    for number in range(1, n + 1):
        row, col = 15 + 30 * ((number - 1) // 5 % 4), 15 + 30 * ((number - 1) % 5)
        if number > 20:
            break
        is_small = rng.random() < 0.5
        disc = np.hypot(rows - row, cols - col) < (6 if is_small else 9) + rng.random()
        labels[disc], image[disc] = number, (0.8 if is_small else 0.4) + 0.02 * rng.random()
        names[number] = "lymphocyte" if is_small else "tumour"
    return labels, image, names


@pytest.fixture
def tables(tmp_path):
    """objects.csv of three images, and the true classes by image and label."""
    entries, truth = [], {}
    for seed, image in enumerate(("a", "b", "=c")):
        labels, pixels, names = scene(seed)
        entries.append(ImageObjects(image, labels.shape, measure(labels, pixels)))
        truth |= {(image if image != "=c" else "'=c", str(label)): name for label, name in names.items()}
    write_objects(tmp_path / "objects.csv", entries)
    return tmp_path / "objects.csv", truth


def write_named(path, named, header="image,label,class"):
    lines = [f"{image},{label},{name}" for (image, label), name in named.items()]
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def some(truth, n_each, images=("a", "b", "'=c")):
    """The first objects of each class of each image."""
    found = {}
    for image in images:
        for name in ("lymphocyte", "tumour"):
            own = [key for key, its in truth.items() if key[0] == image and its == name]
            found |= dict.fromkeys(own[:n_each], name)
    return found


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_object_gets_the_class_of_its_like(tables, tmp_path):
    objects, truth = tables
    found = classify_table(objects, write_named(tmp_path / "named.csv", some(truth, 2)), tmp_path / "out")
    rows = read(tmp_path / "out" / "objects.csv")
    assert {(row["image"], row["label"]): row["class"] for row in rows} == truth
    assert all(0.5 < float(row["class_probability"]) <= 1 for row in rows)
    for row, old in zip(rows, read(objects), strict=True):
        assert {name: row[name] for name in old} == old
    assert list(rows[0])[:4] == ["image", "label", "class", "class_probability"]
    counts = read(tmp_path / "out" / "images.csv")
    assert [row["image"] for row in counts] == ["a", "b", "'=c"]
    for row in counts:
        own = [name for (image, _), name in truth.items() if image == row["image"]]
        assert row == {
            "image": row["image"],
            "count": "20",
            "count_lymphocyte": str(own.count("lymphocyte")),
            "count_tumour": str(own.count("tumour")),
        }
    assert (found.n_named, found.n_right, found.by) == ({"lymphocyte": 6, "tumour": 6}, 12, "images")
    first, second = found.describe()
    assert first.startswith("60 objects: lymphocyte ")
    assert second == (
        "Of 12 named objects in images held out, 12 (100%, 95 % interval 76% to 100%) got their class."
    )


def test_places_and_numbers_of_objects_decide_nothing(tables):
    objects, _ = tables
    table = pd.read_csv(objects)
    named = table.iloc[::7][["image", "label"]].assign(**{"class": ["x", "y"] * 4 + ["x"]})
    features = classify_objects(table, named).features
    assert {"area", "solidity", "intensity_mean"} <= set(features)
    assert not {"label", "centroid-0", "bbox-1", "touches_border"} & set(features)
    physical = table.assign(area_um2=table["area"] / 4, perimeter_um=table["perimeter"] / 2)
    features = classify_objects(physical, named).features
    assert {"area_um2", "perimeter_um"} <= set(features)
    assert not {"area", "perimeter", "axis_major_length", "nearest_distance"} & set(features)
    unknown = classify_objects(physical.assign(area_um2=np.nan), named).features
    assert "area" in unknown
    assert "area_um2" not in unknown


def test_one_image_is_held_out_object_by_object(tables):
    objects, truth = tables
    named = some(truth, 3, images=("a",))
    rows = [(*key, name) for key, name in named.items()]
    found = classify_objects(pd.read_csv(objects), pd.DataFrame(rows, columns=["image", "label", "class"]))
    assert (found.by, found.n_right) == ("objects", 6)
    assert "Of 6 named objects held out, 6 (" in found.describe()[1]


def test_of_a_class_with_one_object_nothing_can_be_held_out(tables, tmp_path):
    objects, truth = tables
    named = write_named(tmp_path / "named.csv", some(truth, 1, images=("a",)))
    found = classify_table(objects, named, tmp_path / "out")
    assert found.n_right is None
    assert found.describe()[1] == "How many are right is not known: name two objects of each class or more."
    rows = read(tmp_path / "out" / "objects.csv")
    assert {row["class_probability"] for row in rows} == {""}
    assert {row["class"] for row in rows} == {"lymphocyte", "tumour"}


def test_objects_that_a_person_checked_are_named_by_their_table(tables, tmp_path):
    objects, truth = tables
    table = pd.read_csv(objects, dtype={"image": str, "label": str})
    keys = list(zip(table["image"], table["label"], strict=True))
    named = some(truth, 2)
    table["class"] = [named.get(key, "tumour") for key in keys]  # that of the pixels, where nobody has looked
    table["checked"] = [
        (" Yes", "TRUE")[place % 2] if key in named else "no" for place, key in enumerate(keys)
    ]
    table.to_csv(tmp_path / "session.csv", index=False)
    found = classify_table(tmp_path / "session.csv", tmp_path / "session.csv", tmp_path / "out")
    assert found.n_named == {"lymphocyte": 6, "tumour": 6}
    rows = read(tmp_path / "out" / "objects.csv")
    assert {(row["image"], row["label"]): row["class"] for row in rows} == truth
    assert [row["pixel_class"] for row in rows] == table["class"].tolist()
    assert "checked" not in found.features
    table.assign(checked="no").to_csv(tmp_path / "none.csv", index=False)
    with pytest.raises(
        InputError, match="no object has yes in the column checked, so none is named: write yes"
    ):
        classify_table(tmp_path / "session.csv", tmp_path / "none.csv", tmp_path / "out", overwrite=True)


def test_noise_is_not_told_apart(rng):
    table = pd.DataFrame(
        {"image": "a", "label": range(200), "area": rng.random(200), "solidity": rng.random(200)}
    )
    named = table[["image", "label"]].assign(**{"class": rng.choice(["x", "y"], 200)})
    found = classify_objects(table, named)
    assert 60 < found.n_right < 140
    assert found.table["class_probability"].mean() < 0.7
    # so many measurements that the named objects themselves are told apart without a mistake
    wide = pd.DataFrame({"image": "a", "label": range(40)} | {f"m{k}": rng.random(40) for k in range(80)})
    named = wide[["image", "label"]].assign(**{"class": ["x", "y"] * 20})
    found = classify_objects(wide, named)
    assert (found.table["class"] == named["class"]).all()
    assert 8 < found.n_right < 32


def test_what_is_the_same_within_an_image_tells_nothing_of_other_images(rng):
    images = np.repeat(list("abcdefghij"), 8)
    brightness = np.repeat(rng.random(10), 8)
    names = np.where(rng.random(80) < np.repeat([0.2, 0.8] * 5, 8), "x", "y")
    table = pd.DataFrame({"image": images, "label": range(80), "intensity_mean": brightness})
    found = classify_objects(table, table[["image", "label"]].assign(**{"class": names}))
    assert found.by == "images"
    assert found.n_right < 60


def test_classes_are_those_of_the_machine_whose_errors_are_told(rng):
    """Few named objects of a kind that is rare do not vanish among many of the other."""
    named = np.concatenate([rng.normal(1.5, 1, 20), rng.normal(0, 1, 200)])
    names = ["rare"] * 20 + ["common"] * 200
    # each of them has a like without a name
    table = pd.DataFrame(
        {"image": ["a"] * 220 + ["b"] * 220, "label": [*range(220)] * 2, "area": [*named] * 2}
    )
    found = classify_objects(table, table[:220][["image", "label"]].assign(**{"class": names}))
    assert found.table["class"][:220].tolist() == names  # those are not overruled
    likes = found.table[220:].reset_index(drop=True)
    n_alike = int((likes["class"] == names).sum())
    assert abs(n_alike - found.n_right) < 15
    assert 30 < (likes["class"] == "rare").sum() < 110
    sure = likes["class_probability"][[named.argmin(), np.abs(named - 0.75).argmin()]]
    assert sure.iloc[0] > sure.iloc[1]
    # it tells how many are right, of the rare class fewer than half
    is_rare = likes["class"] == "rare"
    likely, right = likes["class_probability"], (likes["class"] == names)
    assert likely[is_rare].mean() == pytest.approx(right[is_rare].mean(), abs=0.1)
    assert likely[~is_rare].mean() == pytest.approx(right[~is_rare].mean(), abs=0.1)


def test_odd_cells_are_missing_or_refused(tables, tmp_path):
    objects, truth = tables
    named = write_named(tmp_path / "named.csv", some(truth, 3))
    table = pd.read_csv(objects, dtype=str)
    table["notes"] = "good"
    table.loc[[3, 4, 5], "area"] = ["nan", "inf", ""]
    table.to_csv(tmp_path / "odd.csv")  # with a column of row numbers
    found = classify_table(tmp_path / "odd.csv", named, tmp_path / "out")
    assert {"area", "solidity"} <= set(found.features)
    assert not {"notes", "Unnamed: 0"} & set(found.features)
    assert {
        (row["image"], row["label"]): row["class"] for row in read(tmp_path / "out" / "objects.csv")
    } == truth
    table.loc[6, "area"] = "3,5"
    table.to_csv(tmp_path / "comma.csv")
    with pytest.raises(InputError, match="column area of the table of objects holds 3,5, which is no number"):
        classify_table(tmp_path / "comma.csv", named, tmp_path / "other")
    with (tmp_path / "blank.csv").open("w", encoding="utf-8") as file:
        file.write(objects.read_text(encoding="utf-8") + "\n,,,\n")
    assert len(classify_table(tmp_path / "blank.csv", named, tmp_path / "blank").table) == len(truth)
    same = pd.read_csv(objects)[["image", "label"]].assign(area=3.0)
    with pytest.raises(InputError, match="no measurements that differ between named objects"):
        classify_objects(same, pd.read_csv(named))


def test_objects_without_a_name_in_a_table_of_all_are_not_named(tables):
    objects, truth = tables
    table = pd.read_csv(objects)
    chosen = some(truth, 2)
    names = [
        chosen.get((image, str(label))) for image, label in zip(table["image"], table["label"], strict=True)
    ]
    found = classify_objects(
        table, table[["image"]].assign(label=table["label"].astype(float), **{"class": names})
    )
    assert sum(found.n_named.values()) == len(chosen)


def test_the_class_of_pixels_is_kept_beside(tables, tmp_path):
    objects, truth = tables
    table = pd.read_csv(objects, dtype=str)
    table.insert(2, "class", ["cell", "=nucleus"] * 30)
    table.to_csv(tmp_path / "classes.csv", index=False)
    named = write_named(tmp_path / "named.csv", some(truth, 2))
    classify_table(tmp_path / "classes.csv", named, tmp_path / "out")
    rows = read(tmp_path / "out" / "objects.csv")
    assert [row["pixel_class"] for row in rows] == ["cell", "=nucleus"] * 30
    # a second time with the result: the classes before make room
    classify_table(tmp_path / "out" / "objects.csv", named, tmp_path / "again")
    assert (tmp_path / "again" / "objects.csv").read_bytes() == (
        tmp_path / "out" / "objects.csv"
    ).read_bytes()


@pytest.fixture
def in_qupath(tables, tmp_path):
    """The table with the class of pixels, and GeoJSON of each image in which two objects of each class have a class."""
    objects, truth = tables
    table = pd.read_csv(objects, dtype=str)
    table.insert(2, "class", "cell")
    table.to_csv(tmp_path / "classes.csv", index=False)
    named = some(truth, 2, images=("a", "b"))
    for seed, image in enumerate("ab"):
        own = {int(label): name for (its, label), name in named.items() if its == image}
        classes = dict.fromkeys(range(1, 21), "cell") | own
        write_geojson(tmp_path / "qupath" / f"{image}.geojson", scene(seed)[0], classes)
    return tmp_path / "classes.csv", tmp_path / "qupath", named


def test_classes_may_be_given_in_qupath(in_qupath, tmp_path):
    objects, folder, named = in_qupath
    found = classify_table(objects, folder, tmp_path / "out")
    classify_table(objects, write_named(tmp_path / "named.csv", named), tmp_path / "expected")
    assert sum(found.n_named.values()) == len(named) == 8
    result = (tmp_path / "out" / "objects.csv").read_bytes()
    assert result == (tmp_path / "expected" / "objects.csv").read_bytes()
    one = classify_table(objects, folder / "a.geojson", tmp_path / "one")
    assert one.n_named == {"lymphocyte": 2, "tumour": 2}
    # classes of a first run are no pixel classes
    again = classify_table(tmp_path / "out" / "objects.csv", folder, tmp_path / "again")
    assert again.n_named == found.n_named


def test_geojson_that_names_nothing_is_told(in_qupath, tmp_path):
    objects, folder, _ = in_qupath
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no GeoJSON: give a folder of NAME\.geojson, or a CSV file"):
        classify_table(objects, tmp_path / "empty", tmp_path / "out")
    file = folder / "a.geojson"
    content = json.loads(file.read_text())
    for feature in content["features"][:3]:
        del feature["properties"]["name"]
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"3 objects without a name, expected its number in objects\.csv"):
        classify_table(objects, folder, tmp_path / "out")
    file.write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    with pytest.raises(InputError, match="is no GeoJSON: export the objects from QuPath"):
        classify_table(objects, file, tmp_path / "out")


@pytest.mark.parametrize(
    ("named", "header", "message"),
    [
        ({("a", "1"): "x"}, "image,label,class", "of 1 class: x; name some of two classes or more"),
        ({}, "image,label,class", "of 0 classes; name some"),
        (
            {("a", "1"): "x"},
            "image,label,kind",
            "has no column class: give image, label, class in its first line",
        ),
        (
            {("a", "99"): "x", ("z", "1"): "y"},
            "image,label,class",
            "not in the table of objects: 99 of a, 1 of z",
        ),
        (
            {("a", "1"): "Tumour", ("a", "2"): "tumour"},
            "image,label,class",
            "classes Tumour and tumour differ in capital letters only: write both alike",
        ),
        ({("a", "1"): "x\na,1,y"}, "image,label,class", "object 1 of a is named x and y: leave one out"),
    ],
)
def test_names_that_do_not_fit_are_told(named, header, message, tables, tmp_path):
    path = write_named(tmp_path / "named.csv", named, header)
    with pytest.raises(InputError) as error:
        classify_table(tables[0], path, tmp_path / "out")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_files_that_do_not_fit_are_told(tables, tmp_path):
    objects, truth = tables
    named = write_named(tmp_path / "named.csv", some(truth, 2))
    with pytest.raises(InputError, match="would be replaced: give another folder"):
        classify_table(objects, named, objects.parent, overwrite=True)
    (tmp_path / "out").mkdir()
    write_named(tmp_path / "out" / "images.csv", some(truth, 2))
    with pytest.raises(InputError, match=r"images.csv would be replaced"):
        classify_table(objects, tmp_path / "out" / "images.csv", tmp_path / "out", overwrite=True)
    (tmp_path / "out" / "images.csv").unlink()
    classify_table(objects, named, tmp_path / "out")
    with pytest.raises(OutputError, match="would be overwritten"):
        classify_table(objects, named, tmp_path / "out")
    classify_table(objects, named, tmp_path / "out", overwrite=True)
    (tmp_path / "out" / "objects.csv").write_text("mine")
    with pytest.raises(
        OutputError, match=r"objects\.csv was not written by segkit, or changed since: move it"
    ):
        classify_table(objects, named, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "objects.csv").read_text() == "mine"
    for name, content in (
        ("binary", b"\xff\xfe\x00"),
        ("empty", b""),
        ("ragged", b"image,label\n1,2\n1,2,3,4\n"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="is no table"):
            classify_table(tmp_path / name, named, tmp_path / "other")
    (tmp_path / "bare.csv").write_text("image,label\na,1\na,2\n", encoding="utf-8")
    bare = write_named(tmp_path / "bare_names.csv", {("a", "1"): "x", ("a", "2"): "y"})
    with pytest.raises(InputError, match="has no measurements"):
        classify_table(tmp_path / "bare.csv", bare, tmp_path / "other")
    (tmp_path / "twice.csv").write_text("image,label,area\na,1,3\na,1,4\n", encoding="utf-8")
    with pytest.raises(InputError, match="object 1 of a is in the table of objects twice"):
        classify_table(tmp_path / "twice.csv", bare, tmp_path / "other")
