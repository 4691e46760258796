"""Label images on disk: what was painted, whole or not at all, and read by `load_pairs` as it was meant."""

import errno
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from segkit.errors import InputError, OutputError
from segkit.images import Reading, load_pairs, read_mask, write_mask
from segkit.images.axes import AxesError
from segkit.live import ImageEntry, LabelClass, Project
from tests.live.conftest import complaint

NOISE = np.random.default_rng(0).integers(0, 255, (3, 10, 12)).astype(np.uint8)
DOT = np.ones((2, 3), dtype=bool)
THREE = [
    LabelClass(0, "background", "#56b4e9"),
    LabelClass(4, "cell", "#f0e442"),
    LabelClass(7, "rim", "#009e73"),
]


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return path


@pytest.fixture
def images(tmp_path):
    for place, stem in enumerate(("a", "sub/b", "c")):
        save(tmp_path / "images" / f"{stem}.png", NOISE[place])
    return tmp_path / "images"


@pytest.fixture
def stack(tmp_path):
    (tmp_path / "images").mkdir()
    tifffile.imwrite(tmp_path / "images" / "s.tif", NOISE, photometric="minisblack", metadata={"axes": "ZYX"})
    return tmp_path / "images"


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out"


def test_labels_of_an_ome_tiff_keep_their_name(images, output):
    tifffile.imwrite(images / "d.ome.tif", NOISE[0])
    with Project(images, output) as project:
        paint(project, "d", 0, corner=(5, 5))
        paint(project, "d")
    assert (output / "masks" / "d.ome.png").is_file()
    with Project(images, output) as project:
        assert project.annotated() == ["d"]
    assert load_pairs(images, output / "masks", only_annotated=True, unlabelled=255).stems == ["d"]


def paint(project, key, value=1, corner=(0, 0), mask=DOT):
    project.labels(key).paint(corner, mask, value)
    return project.save(key)


def test_entries_are_images_in_order(images, output):
    save(images / "a_mask.png", NOISE[0])
    save(images / ".hidden.png", NOISE[0])
    with Project(images, output) as project:
        left_out = "1 hidden image (.hidden.png)"
        told = f"left out of {images}: 1 mask beside the images (a_mask.png), {left_out}"
        assert project.messages == [told]
        assert project.images == [
            ImageEntry("a", images / "a.png", 0, 1),
            ImageEntry("c", images / "c.png", 0, 1),
            ImageEntry("sub/b", images / "sub" / "b.png", 0, 1),
        ]
        assert project.image("c").shape == (10, 12, 1)
        assert [(one.value, one.name) for one in project.classes] == [(0, "background"), (1, "foreground")]
        assert project.annotated() == []
    assert [path.name for path in output.iterdir()] == ["project.json"]


def test_labels_are_on_disk_and_opened_again(images, output):
    with Project(images, output) as project:
        assert paint(project, "a") == 1
        assert paint(project, "sub/b", 0, (8, 10)) == 1
        mask = np.full((10, 12), 255)
        mask[:2, :3] = 1
        np.testing.assert_array_equal(read_mask(output / "masks" / "a.png")[0], mask)
    with Project(images, output) as project:
        assert project.annotated() == ["a", "sub/b"]
        np.testing.assert_array_equal(project.labels("a").labels, mask)
        assert project.save("c") == 0
        project.labels("a").paint((0, 0), DOT, 255)
        assert project.annotated() == ["sub/b"]
        project.save("a")
        assert not (output / "masks" / "a.png").exists()
        project.labels("a").undo()
        project.save("a")
    with Project(images, output) as project:
        assert project.annotated() == ["a", "sub/b"]


@pytest.mark.parametrize("values", [[(1, 0), (0, 1)], [(0,), (1,)]])
def test_load_pairs_reads_what_was_painted(images, output, values):
    with Project(images, output) as project:
        for key, own in zip(("a", "c"), values, strict=True):
            for place, value in enumerate(own):
                paint(project, key, value, (3 * place, 0))
        dataset = load_pairs(images, output / "masks", only_annotated=True, **project.training_options())
        assert dataset.stems == ["a", "c"]
        assert dataset.label_map.names == ("background", "foreground")
        for key, mask in zip(dataset.stems, dataset.masks, strict=True):
            np.testing.assert_array_equal(dataset.label_map.encode(mask), project.labels(key).labels)


def test_pages_of_a_stack_share_a_file(stack, output):
    with Project(stack, output) as project:
        assert [(entry.key, entry.stem) for entry in project.images] == [
            (f"s#{page}", "s") for page in (1, 2, 3)
        ]
        np.testing.assert_array_equal(project.image("s#2")[:, :, 0], NOISE[1] / np.float32(255))
        paint(project, "s#2", 1)
        paint(project, "s#2", 0, (5, 5))
    with Project(stack, output) as project:
        assert project.annotated() == ["s#2"]
        paint(project, "s#3", 0)
        pages = read_mask(output / "masks" / "s.tif")
        assert [np.unique(page).tolist() for page in pages] == [[255], [0, 1, 255], [0, 255]]
        dataset = load_pairs(stack, output / "masks", only_annotated=True, **project.training_options())
        assert dataset.stems == ["s#2", "s#3"]
        project.labels("s#3").undo()
        project.save("s#3")
        paint(project, "s#2", 255, mask=np.ones((10, 12), dtype=bool))
        assert not (output / "masks" / "s.tif").exists()


def test_messages_number_the_pages_of_a_stack_only(stack, output):
    dark = np.zeros_like(NOISE)
    save(stack / "a.png", dark[0])
    tifffile.imwrite(stack / "s.tif", dark, photometric="minisblack", metadata={"axes": "ZYX"})
    with Project(stack, output) as project:
        for key, name in (("a", "a.png"), ("s#2", "s.tif#2")):
            assert complaint(InputError, project.image, key).startswith(f"{stack / name}: ")


def test_images_of_one_name(images, output):
    tifffile.imwrite(images / "a.tif", NOISE[0])
    assert complaint(InputError, Project, images, output) == (
        f"{images / 'a.png'}, {images / 'a.tif'}: images of the same name, expected one: rename or remove the others"
    )
    assert not output.exists()


def test_what_is_not_saved_is_listed(images, output):
    with Project(images, output, classes=THREE) as project:
        project.labels("a").paint((0, 0), DOT, 4)
        assert project.unsaved() == ["a"]
        project.save("a")
        project.labels("a").undo()
        project.labels("c").paint((0, 0), DOT, 7)
        project.set_classes([THREE[0], THREE[2]])  # no file may hold a class that is no more
        assert project.unsaved() == []
    assert [path.name for path in (output / "masks").iterdir()] == ["c.png"]


def test_labels_are_whole_while_another_thread_paints(images, output):
    with Project(images, output) as project:
        drawing = project.labels("a")
        full = np.ones((10, 12), dtype=bool)
        done = threading.Event()

        def paint_on():
            for number in range(300):
                drawing.paint((0, 0), full, number % 2)
            done.set()

        thread = threading.Thread(target=paint_on)
        drawing.paint((0, 0), full, 1)
        thread.start()
        while not done.is_set():
            project.save("a")
            assert len(np.unique(read_mask(output / "masks" / "a.png")[0])) == 1
        thread.join()


def test_pages_of_different_sizes(tmp_path, output):
    (tmp_path / "images").mkdir()
    with tifffile.TiffWriter(tmp_path / "images" / "s.tif") as file:
        for shape in ((4, 5), (6, 4)):
            file.write(NOISE[0, : shape[0], : shape[1]], photometric="minisblack")
    with Project(tmp_path / "images", output) as project:
        paint(project, "s#2")
        assert [page.shape for page in read_mask(output / "masks" / "s.tif")] == [(4, 5), (6, 4)]


def test_accepted_images(images, output):
    ids = np.zeros((10, 12), dtype=np.uint8)
    with Project(images, output) as project:
        paint(project, "a")
        patch = project.accept("a", ids)
        assert (np.unique(patch.values).tolist(), project.accepted("a")) == ([0, 1], True)
        project.save("a")
    with Project(images, output) as project:
        assert (project.accepted("a"), project.accepted("c")) == (True, False)
        project.labels("a").paint((0, 0), DOT, 255)
        assert not project.accepted("a")
        project.save("a")
    with Project(images, output) as project:
        assert not project.accepted("a")
        assert complaint(InputError, project.accept, "c", ids + 9) == (
            "c: predictions hold 9, the classes are 0 (background), 1 (foreground): give mask values of classes"
        )


def test_classes_are_renamed_added_and_removed(images, output):
    with Project(images, output, classes=THREE) as project:
        paint(project, "a", 4)
        paint(project, "c", 7)
        project.labels("c").undo()
        assert complaint(InputError, project.set_classes, [THREE[0], THREE[2]]) == (
            "class cell has labels in 1 image (a): erase them or give them another class, then remove it"
        )
        project.set_classes([LabelClass(4, "nucleus", "#000000"), THREE[0]])
        assert project.labels("c").redo_box is None
    with Project(images, output) as project:
        assert project.classes == [THREE[0], LabelClass(4, "nucleus", "#000000")]
        assert complaint(InputError, project.set_classes, [THREE[0], THREE[2]]) == (
            "class nucleus has labels in 1 image (a): erase them or give them another class, then remove it"
        )
        assert project.training_options() == {"labels": {0: "background", 4: "nucleus"}, "unlabelled": 255}


def test_classes_that_do_not_go_together(images, output):
    for classes, message in (
        (THREE[:1], "1 classes: give 2 to 20"),
        ([LabelClass(n, f"c{n}", "#000000") for n in range(21)], "21 classes: give 2 to 20"),
        ([THREE[0], LabelClass(0, "x", "#000000")], "classes share the value 0: give each class its own"),
        (
            [THREE[1], LabelClass(0, "cell ", "#000000")],
            "classes share the name cell: give each class its own",
        ),
    ):
        assert complaint(InputError, Project, images, output, classes=classes) == message
        with Project(images, output) as project:
            assert complaint(InputError, project.set_classes, classes) == message


def test_classes_that_are_none():
    for arguments, message in (
        ((255, "x", "#000000"), "class value 255: give a whole number from 0 to 254"),
        ((True, "x", "#000000"), "class value True: give a whole number from 0 to 254"),
        ((0, " ", "#000000"), "class name ' ': give 1 to 60 characters"),
        ((0, "x" * 61, "#000000"), f"class name '{'x' * 61}': give 1 to 60 characters"),
        ((0, "a\nb", "#000000"), "class name 'a\\nb' holds a line break or control character: leave it out"),
        ((0, "x", "red"), "class colour 'red': give #rrggbb, for example #56b4e9"),
    ):
        assert complaint(InputError, LabelClass, *arguments) == message


def test_images_that_change(images, output):
    with Project(images, output) as project:
        assert complaint(InputError, project.image, "x") == (
            "x: no image of this name, there are a, c, sub/b: give one of them"
        )
        project.labels("c")
        save(images / "c.png", NOISE[1][:5])  # without labels: another image, no harm
        assert project.image("c").shape == (5, 12, 1)
        assert project.labels("c").shape == (5, 12)
        paint(project, "a")
        former = (images / "a.png").read_bytes()
        (images / "a.png").unlink()
        gone = f"{images / 'a.png'}: the image is gone: put it back; its labels are kept"
        assert complaint(InputError, project.image, "a") == gone
        save(images / "a.png", NOISE[2])
        replaced = (
            f"{images / 'a.png'}: the image was replaced since it was annotated: put the former file back, or move its "
            f"label image {output / 'masks' / 'a.png'} elsewhere and open the folder again; labels are kept"
        )
        assert complaint(InputError, project.image, "a") == replaced
    with Project(images, output) as project:
        assert complaint(InputError, project.labels, "a") == replaced
        assert project.save("a") == 0
        (images / "a.png").write_bytes(former)
        assert project.labels("a").labels[0, 0] == 1
        save(images / "a.png", NOISE[2][:4])
    (output / "masks" / "a.png").rename(output / "moved.png")
    with Project(images, output) as project:
        assert project.labels("a").shape == (4, 12)


def test_a_jpeg_that_another_decoder_reads_is_the_same_image(images, output, monkeypatch):
    path = save(images / "j.jpg", NOISE[0])
    with Project(images, output) as project:
        paint(project, "j")
    read = Reading.read

    def read_otherwise(reading, path):
        stack = read(reading, path)
        return replace(stack, pages=[page ^ 1 for page in stack.pages])

    monkeypatch.setattr(Reading, "read", read_otherwise)
    with Project(images, output) as project:
        assert project.labels("j").labels[0, 0] == 1
        save(path, NOISE[1])
        assert "the image was replaced" in complaint(InputError, project.image, "j")


def test_label_images_without_their_image(images, output):
    with Project(images, output) as project:
        paint(project, "a")
    content = (output / "masks" / "a.png").read_bytes()
    (images / "a.png").rename(images / "z.png")
    assert complaint(InputError, Project, images, output) == (
        f"1 label image in {output / 'masks'} without image in {images} (a.png): put the image back, or move the label "
        f"image elsewhere"
    )
    tifffile.imwrite(images / "a.tif", NOISE, photometric="minisblack", metadata={"axes": "ZYX"})
    assert complaint(InputError, Project, images, output) == (
        f"{output / 'masks' / 'a.png'}: label image of an image with another number of pages: put the former image back, "
        f"or move the label image elsewhere"
    )
    assert (output / "masks" / "a.png").read_bytes() == content


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:40]),
            "{mask}: the label image is damaged (cannot be decoded (",
        ),
        (
            lambda path: write_mask(path, np.zeros((4, 4), dtype=np.uint8)),
            "{image}: image of 10 x 12 pixels, label image of 4 x 4, expected one size: put the former image back, or "
            "move {mask} elsewhere and open the folder again; labels are kept",
        ),
        (
            lambda path: write_mask(path, np.full((10, 12), 9, dtype=np.uint8)),
            "{mask}: holds 9, the classes are 0 (background), 1 (foreground): add classes of these values, or move the "
            "file elsewhere",
        ),
    ],
)
def test_damaged_label_images_are_kept(images, output, damage, message):
    with Project(images, output) as project:
        paint(project, "a")
    path = output / "masks" / "a.png"
    damage(path)
    content = path.read_bytes()
    with Project(images, output) as project:
        told = complaint(InputError, project.labels, "a")
        assert told.startswith(message.format(mask=path, image=images / "a.png"))
        assert project.save("a") == 0
        paint(project, "c")
    assert path.read_bytes() == content


@pytest.mark.parametrize("text", ["[]", '{"format": 1, "images": "../images", "classes": [], "sha256": {}}'])
def test_a_damaged_project_is_kept(images, output, text):
    output.mkdir()
    (output / "project.json").write_text(text)
    told = complaint(InputError, Project, images, output)
    assert told.startswith(f"{output / 'project.json'}: damaged (")
    assert told.endswith(
        f"): restore it from a copy, or give another output folder and take the masks over "
        f"(--masks {output / 'masks'}; masks= in Python)"
    )
    assert (output / "project.json").read_text() == text
    assert [path.name for path in output.iterdir()] == ["project.json"]


def test_a_later_format(images, output):
    with Project(images, output):
        pass
    entries = json.loads((output / "project.json").read_text())
    (output / "project.json").write_text(json.dumps(entries | {"format": 2}))
    assert complaint(InputError, Project, images, output) == (
        f"{output / 'project.json'}: format 2, this version of segkit reads 1: update segkit"
    )


def test_other_folders_are_refused(images, output, tmp_path):
    with Project(images, output):
        pass
    other = save(tmp_path / "other" / "a.png", NOISE[0]).parent
    assert complaint(InputError, Project, other, output) == (
        f"{output} holds annotations of {images}, not of {other}: give these images, or another output folder"
    )
    assert "is the input folder" in complaint(OutputError, Project, images, images / "out")
    (images / "linked").symlink_to(other)
    assert "is the input folder" in complaint(OutputError, Project, images, other / "out")
    (images / "linked").unlink()
    save(tmp_path / "data" / "masks" / "a.png", NOISE[0])
    assert complaint(OutputError, Project, images, tmp_path / "data") == (
        f"{tmp_path / 'data' / 'masks'} holds masks (a.png) and project.json is not there: give another output folder; "
        f"to take these masks over, give --masks {tmp_path / 'data' / 'masks'} (masks= in Python)"
    )


@pytest.mark.parametrize("folder", ["masks", "checked", "network", "results"])
def test_a_link_in_the_place_of_a_folder_of_the_project_is_refused(images, output, tmp_path, folder):
    """Labels would be written, and networks removed, elsewhere."""
    output.mkdir()
    (output / folder).symlink_to(tmp_path)
    assert complaint(OutputError, Project, images, output) == (
        f"{output / folder}: a link, where a folder of results would be: move it elsewhere, or choose another folder"
    )


def test_both_folders_can_be_moved(images, output, tmp_path):
    with Project(images, output) as project:
        paint(project, "a")
    (tmp_path / "new").mkdir()
    images.rename(tmp_path / "new" / "images")
    output.rename(tmp_path / "new" / "out")
    with Project(tmp_path / "new" / "images", tmp_path / "new" / "out") as project:
        assert project.labels("a").labels[0, 0] == 1


def test_a_full_disk_keeps_the_former_file(images, output, monkeypatch):
    with Project(images, output) as project:
        paint(project, "a")
        content = (output / "masks" / "a.png").read_bytes()

        def full(handle):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as context:
            context.setattr(os, "fsync", full)
            path = output / "masks" / "a.png"
            assert complaint(OutputError, paint, project, "a", 0) == (
                f"{path}: the disk is full: nothing is lost as long as this program runs; free some space, and it is "
                f"saved with the next change"
            )
            more = [*project.classes, LabelClass(2, "more", "#000000")]
            assert complaint(OutputError, project.set_classes, more) == (
                f"{output / 'project.json'}: the disk is full: nothing is lost as long as this program runs; free some "
                f"space, and try again"
            )
            assert len(project.classes) == 2
        assert path.read_bytes() == content
        assert [file.name for file in (output / "masks").iterdir()] == ["a.png"]
        assert project.save("a") == 2
        assert read_mask(path)[0][0, 0] == 0


def test_one_program_at_a_time(images, output):
    project = Project(images, output)
    assert complaint(InputError, Project, images, output) == (
        f"{output} is in use by another program: close that one, or give another output folder"
    )
    project.close()
    project.close()
    with Project(images, output):
        pass
    assert not (output / ".lock").exists()


@pytest.mark.slow(short=True)
def test_a_program_killed_at_any_time_leaves_whole_files(images, output):
    script = """
import sys
import numpy as np
from segkit.live import Project

project = Project(*sys.argv[1:])
drawing = project.labels("sub/b")
print("ready", flush=True)
for number in range(10**6):
    drawing.paint((0, 0), np.random.default_rng(number).random((10, 12)) < 0.5, number % 2)
    project.save("sub/b")
"""
    for _ in range(3):
        program = subprocess.Popen(
            [sys.executable, "-c", script, str(images), str(output)],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
        )
        with program:
            assert program.stdout.readline() == b"ready\n"
            while not (output / "masks" / "sub" / "b.png").exists():
                pass
            program.kill()
        with Project(images, output) as project:
            assert project.annotated() == ["sub/b"]
            assert set(np.unique(project.labels("sub/b").labels)) <= {0, 1, 255}
        assert [path.name for path in output.rglob(".*")] == []


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        ([0, 255], None, [0, 1]),
        ([0, 1, 255], None, [0, 1, 255]),
        ([3, 5, 9], None, [3, 5, 9]),
        ([0, 255], THREE[:2], [0, 4]),
        ([0, 255], THREE, [0, 255]),
        ([1, 255], None, [1, 255]),
        ([0, 65535], THREE[:2], [0, 4]),
    ],
)
def test_existing_masks_are_taken_over(images, output, tmp_path, values, classes, expected):
    mask = np.resize(values, (10, 12)).astype(np.uint8 if max(values) < 256 else np.uint16)
    save(tmp_path / "masks" / "a_mask.png", mask)
    with Project(images, tmp_path / "new", classes=classes, masks=tmp_path / "masks") as project:
        table = dict(zip(values, expected, strict=True))
        taken = np.vectorize(table.get)(mask)
        np.testing.assert_array_equal(project.labels("a").labels, taken)
        assert project.labels("a").undo_box is None
        assert project.annotated() == ["a"]
        assert {one.value for one in project.classes} >= set(expected) - {255}
        assert project.messages == ["1 of 3 images has a mask; the others are left out"]
        paint(project, "a", expected[0], mask=np.ones((10, 12), dtype=bool))
    with Project(images, tmp_path / "new", masks=tmp_path / "masks") as project:
        assert np.unique(project.labels("a").labels).tolist() == [expected[0]]


def test_existing_masks_that_do_not_fit(images, output, tmp_path):
    masks = save(tmp_path / "masks" / "a.png", np.resize([0, 1, 9], (10, 12)).astype(np.uint8)).parent
    assert complaint(InputError, Project, images, output, classes=THREE, masks=masks) == (
        f"{masks}: the masks hold 1, 9, the classes are 0 (background), 4 (cell), 7 (rim): add a class for each value"
    )
    save(masks / "a.png", np.arange(120, dtype=np.uint8).reshape(10, 12))
    assert complaint(InputError, Project, images, output, masks=masks) == (
        f"{masks}: the masks hold 120 values from 0 to 119, expected at most 20 from 0 to 254, one for each class: save "
        f"them anew"
    )
    numbered = np.kron(np.arange(20, dtype=np.uint8).reshape(4, 5), np.ones((2, 2), dtype=np.uint8))
    save(masks / "a.png", numbered)
    assert "label image of 8 x 10" not in complaint(InputError, Project, images, output, masks=masks)
    save(masks / "a.png", np.pad(numbered, 1))
    save(images / "a.png", np.pad(NOISE[0], 1)[:10, :12])
    assert complaint(InputError, Project, images, output, masks=masks) == (
        f"{masks}: the masks number objects, expected masks of classes: save a value for each class"
    )
    assert not (output / "project.json").exists()


def test_existing_masks_of_a_few_objects_are_no_classes(images, output, tmp_path):
    numbered = np.kron(np.array([[0, 1, 0], [2, 0, 3]]), np.ones((5, 4))).astype(np.uint8)
    masks = save(tmp_path / "masks" / "a.png", numbered).parent
    assert complaint(InputError, Project, images, output, masks=masks).startswith(
        "masks hold 4 values (0, 1, 2, 3), most in one piece, so they may number objects or be classes: if they are "
        "classes, name them (--classes background,NAME,...; in Python classes=)"
    )
    four = [
        *THREE,
        LabelClass(1, "a", "#00ff00"),
        LabelClass(2, "b", "#ff0000"),
        LabelClass(3, "c", "#0000ff"),
    ]
    with Project(images, output, masks=masks, classes=four) as project:
        np.testing.assert_array_equal(project.labels("a").labels, numbered)


def test_existing_masks_of_negative_values_are_refused(images, output, tmp_path):
    (tmp_path / "masks").mkdir()
    tifffile.imwrite(tmp_path / "masks" / "a.tif", np.resize([-1, 0, 1], (10, 12)).astype(np.int16))
    told = complaint(InputError, Project, images, output, masks=tmp_path / "masks")
    assert "the masks hold 3 values from -1 to 1, expected at most 20 from 0 to 254" in told


@pytest.mark.parametrize("is_there", [False, True])
def test_labels_that_another_program_writes_are_not_overwritten(images, output, is_there):
    with Project(images, output) as project:
        key = project.images[0].key
        path = project.label_path(key)
        drawing = project.labels(key)
        drawing.paint((0, 0), DOT, 1)
        if is_there:
            project.save(key)
        foreign = save(path, np.ones(drawing.shape, dtype=np.uint8)).read_bytes()
        drawing.paint((4, 4), DOT, 0)
        told = complaint(OutputError, project.save, key)
        assert "changed by another program since segkit read it: move that file" in told
        assert path.read_bytes() == foreign
        assert project.unsaved() == [key]
        path.rename(path.with_name("aside.txt"))
        assert project.save(key) == drawing.version
        np.testing.assert_array_equal(read_mask(path)[0], drawing.labels)
        drawing.undo()
        project.save(key)  # our own writing is no change of others


@pytest.fixture
def plain(tmp_path):
    """Three pages that nobody named, and a stack that names its planes."""
    (tmp_path / "images").mkdir()
    for name, metadata in (("plain", None), ("z", {"axes": "ZYX"})):
        tifffile.imwrite(
            tmp_path / "images" / f"{name}.tif", NOISE, photometric="minisblack", metadata=metadata
        )
    return tmp_path / "images"


Z = [f"z#{page}" for page in (1, 2, 3)]


@pytest.mark.parametrize(
    ("axes", "keys", "shape"),
    [("zyx", ["plain#1", "plain#2", "plain#3"], (10, 12, 1)), ("CYX", ["plain"], (10, 12, 3))],
)
def test_axes_that_files_do_not_name_can_be_named_and_are_kept(plain, output, axes, keys, shape):
    with Project(plain, output) as project:
        assert [entry.key for entry in project.images] == ["plain", *Z]
        with pytest.raises(AxesError) as caught:
            project.image("plain")
        assert (caught.value.shape, list(caught.value.choices)) == (NOISE.shape, ["ZYX", "CYX"])
        project.set_axes(axes)
        assert [entry.key for entry in project.images] == [*keys, *Z]  # files that name their axes keep them
        assert project.image(keys[0]).shape == shape
        paint(project, keys[0])
    with Project(plain, output) as project:
        assert project.annotated() == [keys[0]]
        assert project.image(keys[-1]).shape == shape
        other = {"zyx": "CYX", "CYX": "ZYX"}[axes]
        told = complaint(InputError, project.set_axes, other)
        assert f"1 image with labels would have other pages ({keys[0]}): erase these labels first" in told
        assert [entry.key for entry in project.images] == [*keys, *Z]
        assert "X comes before Y" in complaint(InputError, project.set_axes, "XYC")


def test_axes_given_for_files_of_another_number_of_axes_leave_room_for_an_answer(plain, output):
    with Project(plain, output, reading=Reading(axes="TZYX")) as project:
        with pytest.raises(AxesError):
            project.image("plain")
        project.set_axes("ZYX")
        assert project.image("plain#2").shape == (10, 12, 1)


def test_pages_that_cannot_be_read_are_rescued_as_far_as_they_are_known(tmp_path, output, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "pages").mkdir()
    with tifffile.TiffWriter(tmp_path / "pages" / "s.tif") as file:
        for page in NOISE[:2]:
            file.write(page)
    with Project(tmp_path / "pages", output) as project:
        paint(project, "s#1")
        paint(project, "s#2")
        output.joinpath("masks", "s.tif").write_bytes(b"damaged")
        assert project.rescue(["s#1"]).parent == home
        [rescued] = home.glob("out-rescued-*/masks/s.tif")
        for page, key in zip(read_mask(rescued), ("s#1", "s#2"), strict=True):
            np.testing.assert_array_equal(page, project.labels(key).labels)
        monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "nowhere"))
        assert complaint(OutputError, project.rescue, ["s#1"]).startswith(
            "labels could not be written anywhere: "
        )
