"""Tables as a spreadsheet reads them: columns, units, empty cells, nothing half written."""

import csv

import numpy as np
import pytest

from segkit.objects import measure
from segkit.objects.tables import ImageObjects, describe_counts, read_sizes, write_images, write_objects


def entry(name, n_objects=2, *, image=None, pixel_size=None, **options):
    """An image with squares of 4, 9, 16, ... pixels below each other; the first touches the border."""
    labels = np.zeros((50, 40), dtype=np.uint8)
    row = 0
    for number in range(1, n_objects + 1):
        labels[row : row + number + 1, 2 : number + 3] = number
        row += number + 2
    shown = None if image is None else np.broadcast_to(np.array(image, dtype=float), (50, 40, len(image)))
    return ImageObjects(name, (50, 40), measure(labels, shown, pixel_size=pixel_size, **options), pixel_size)


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(tmp_path, *entries, **options):
    """Write both tables and read them."""
    summaries = write_objects(tmp_path / "new" / "objects.csv", entries)
    write_images(tmp_path / "new" / "images.csv", summaries, **options)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["images.csv", "objects.csv"]
    return read(tmp_path / "new" / "objects.csv"), read(tmp_path / "new" / "images.csv")


def test_a_row_for_each_object_and_each_image(tmp_path):
    objects, images = write(tmp_path, entry("é/a"), entry("b", 1))
    assert [(row["image"], row["label"]) for row in objects] == [("é/a", "1"), ("é/a", "2"), ("b", "1")]
    assert objects[1] == {
        "image": "é/a", "label": "2", "area": "9", "centroid-0": "4", "centroid-1": "3",
        "bbox-0": "3", "bbox-1": "2", "bbox-2": "6", "bbox-3": "5", "perimeter": "8",
        "axis_major_length": "3.266", "axis_minor_length": "3.266", "eccentricity": "0", "circularity": "1", "solidity": "1",
        "nearest_distance": "3.536", "touches_border": "no",
    }  # fmt: skip
    assert objects[0]["touches_border"] == "yes"
    assert images[0] == {
        "image": "é/a", "height_px": "50", "width_px": "40", "count": "2", "covered_share": "0.0065",
        "objects_per_megapixel": "1000", "mean_area_px": "6.5", "touching_border": "1",
    }  # fmt: skip


def test_an_image_without_objects_has_zeros_and_no_mean(tmp_path):
    objects, images = write(tmp_path, entry("empty", 0), entry("full", 1))
    assert [row["image"] for row in objects] == ["full"]
    assert images[0] == {
        "image": "empty", "height_px": "50", "width_px": "40", "count": "0", "covered_share": "0",
        "objects_per_megapixel": "0", "mean_area_px": "", "touching_border": "0",
    }  # fmt: skip


def test_no_object_at_all_gives_a_header(tmp_path):
    write(tmp_path, entry("empty", 0))
    [line] = (tmp_path / "new" / "objects.csv").read_text(encoding="utf-8").splitlines()
    assert line.startswith("image,label,area,")


@pytest.mark.parametrize(
    ("image", "names", "channels"),
    [
        ([1, 2, 3], [], ["-0", "-1", "-2"]),
        ([1, 2], ["DAPI", "Cy5 (red)"], ["_DAPI", "_Cy5 (red)"]),
        ([1, 2], ["DAPI"], ["-0", "-1"]),
        ([1, 2], ["DAPI", "DAPI"], ["-0", "-1"]),
        ([1, 2], ["DAPI", ""], ["-0", "-1"]),
    ],
)
def test_channels_have_names(tmp_path, image, names, channels):
    objects, _ = write(tmp_path, entry("a", image=image, channels=names))
    header = list(objects[0])
    start = header.index("solidity") + 1
    names = [f"intensity_{kind}{channel}" for kind in ("mean", "std") for channel in channels]
    assert header[start : start + len(names)] == names
    assert [objects[0][name] for name in names] == [*map(str, image), *(["0"] * len(image))]


def test_counts_have_an_interval_if_it_is_known(tmp_path):
    _, images = write(tmp_path, entry("a"), entry("b", 0), interval=lambda n: (n // 2, 2 * n + 1))
    found = [(row["count"], row["count_low_80"], row["count_high_80"]) for row in images]
    assert found == [("2", "1", "5"), ("0", "0", "1")]
    assert "count_low_80" not in write(tmp_path, entry("a"))[1][0]
    _, images = write(
        tmp_path, entry("a")._replace(is_alike=False), entry("b"), interval=lambda n: (n // 2, 2 * n + 1)
    )
    assert [row["count_low_80"] for row in images] == ["", "1"]


def test_the_first_counts_with_an_interval_are_told(tmp_path):
    entries = [entry("none")._replace(is_alike=False), *(entry(name) for name in "abcd")]
    write(tmp_path, *entries, interval=lambda n: (n // 2, 2 * n + 1))
    assert describe_counts(tmp_path / "new" / "images.csv") == [
        "10 objects in 5 images",
        *(f"{name}: 2 objects (80 % interval 1 to 5)" for name in "abc"),
    ]
    write(tmp_path, entry("a", 0))
    assert describe_counts(tmp_path / "new" / "images.csv") == ["0 objects in 1 image"]


def test_columns_that_only_some_images_have_are_empty_elsewhere(tmp_path):
    probability = np.full((50, 40), 0.75)
    objects, images = write(
        tmp_path,
        entry("a"),
        entry("b", pixel_size=(0.5, 2.0), image=[5], probability=probability),
        entry("c", image=[1, 2, 3]),
    )
    by_image = {row["image"]: row for row in objects}
    assert by_image["b"]["area_um2"] == "9"
    assert by_image["b"]["perimeter_um"] == ""  # pixels are not square
    assert by_image["b"]["probability"] == "0.75"
    assert (
        by_image["a"]["area_um2"]
        == by_image["b"]["intensity_mean-1"]
        == by_image["a"]["intensity_mean-0"]
        == ""
    )
    assert by_image["c"]["intensity_mean-2"] == "3"
    header = list(objects[0])
    order = ["image", "label", "solidity", "intensity_mean-0", "intensity_mean-2"]
    order += ["probability", "touches_border", "area_um2"]
    assert sorted(order, key=header.index) == order
    assert [row["mean_area_um2"] for row in images] == ["", "6.5", ""]
    assert images[1]["objects_per_mm2"] == "1000"
    assert (images[1]["pixel_height_um"], images[1]["pixel_width_um"]) == ("0.5", "2")


def test_sizes_of_pixels_are_read_back(tmp_path):
    some = [entry("a"), entry("b", pixel_size=(0.5, 2.0))._replace(size_source="OME metadata")]
    write(tmp_path, *some)
    assert read_sizes(tmp_path / "new" / "images.csv") == [((0.5, 2.0), "OME metadata")]
    write(tmp_path, some[0])
    assert read_sizes(tmp_path / "new" / "images.csv") == []


def test_classes_are_counted_where_there_are_several(tmp_path):
    one = entry("a", classes={1: "cell", 2: "cell"})
    _, images = write(tmp_path, one)
    assert "count_cell" not in images[0]
    _, images = write(tmp_path, one, entry("b", classes={1: "debris", 2: "cell"}), classes=["ghost", "cell"])
    assert list(images[0])[3:7] == ["count", "count_ghost", "count_cell", "count_debris"]
    assert [row["count_cell"] for row in images] == ["2", "1"]
    assert [row["count_ghost"] for row in images] == ["0", "0"]


def test_no_cell_is_a_formula(tmp_path):
    objects, images = write(tmp_path, entry("=1+1", 1, classes={1: "@cell"}), entry("-b", 1), entry("+c", 0))
    assert [(row["image"], row["class"]) for row in objects] == [("'=1+1", "'@cell"), ("'-b", "")]
    assert [row["image"] for row in images] == ["'=1+1", "'-b", "'+c"]


def test_rows_are_taken_one_image_at_a_time(tmp_path):
    taken = []

    def rows():
        for number in range(3):
            taken.append(number)
            temporary = next(iter(tmp_path.glob(".objects*")))
            assert len(temporary.read_text(encoding="utf-8").splitlines()) == 1 + 2 * number
            yield entry(str(number))

    write_objects(tmp_path / "objects.csv", rows())
    assert taken == [0, 1, 2]


def test_a_failure_leaves_the_old_table(tmp_path):
    path = tmp_path / "objects.csv"
    path.write_text("old")

    def rows():
        yield entry("a")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_objects(path, rows())
    assert [file.name for file in tmp_path.iterdir()] == ["objects.csv"]
    assert path.read_text() == "old"


def test_names_that_are_no_valid_text_are_escaped(tmp_path):
    objects, images = write(tmp_path, entry("x\udcff", 1))
    assert objects[0]["image"] == images[0]["image"] == "x\\udcff"
