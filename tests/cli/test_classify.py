import numpy as np

from segkit.objects import measure
from segkit.objects.tables import ImageObjects, write_objects


def test_objects_are_classified_from_a_few_names(tmp_path, segkit):
    labels = np.zeros((40, 120), dtype=int)
    for number in range(12):
        side = 4 + 3 * (number % 2)
        labels[10 : 10 + side, 10 * number : 10 * number + side] = number + 1
    objects, names = tmp_path / "objects.csv", tmp_path / "names.csv"
    write_objects(objects, [ImageObjects("a", labels.shape, measure(labels))])
    names.write_text("image,label,class\na,1,small\na,2,large\na,3,small\na,4,large\n", encoding="utf-8")
    code, out, err = segkit("classify", objects, "--labels", names, "-o", tmp_path / "out")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "12 objects: large 6 (50%), small 6 (50%)",
        "Of 4 named objects held out, 4 (100%, 95 % interval 51% to 100%) got their class.",
        "Decided by area, perimeter, axis_major_length, axis_minor_length, nearest_distance.",
        f"Tables: {tmp_path / 'out' / 'objects.csv'}, {tmp_path / 'out' / 'images.csv'}",
    ]
    code, _, err = segkit("classify", objects, "--labels", names, "-o", "")
    assert (code, err.count("\n")) == (2, 1)
    code, out, err = segkit("classify", objects, "--labels", objects, "-o", tmp_path / "other")
    assert (code, out) == (2, "")
    assert "the table of named objects has no column class" in err
    assert err.count("\n") == 1
