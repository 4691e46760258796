"""The record of an output folder: which files are segkit's own, which are damaged, and what is done."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from segkit.errors import OutputError, SegkitError
from segkit.images.record import (
    HIDDEN,
    Entry,
    ForeignFileError,
    Permissions,
    _is_damaged,
    _read_entry,
    digest_file,
    digest_values,
    key_of,
    record_of,
    results_in,
)


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def made(record, name, text):
    path = record.staging / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Path(name)


@pytest.fixture
def output(tmp_path):
    """A folder with the results of an image, a mask and an overlay."""
    with record_of(tmp_path / "out") as record:
        places = [made(record, "overlay/a.geojson", "{1"), made(record, "a.geojson", "{2")]
        record.put("a", places, source="s", made_by="m", row={"mask": "a.geojson"})
    return tmp_path / "out"


def test_digests_are_sha256(tmp_path):
    (tmp_path / "a").write_text("text")
    assert digest_file(tmp_path / "a") == sha("text")
    assert digest_values({"b": 1, "a": [2]}) == digest_values({"a": [2], "b": 1}) == sha('{"a": [2], "b": 1}')
    assert digest_values({"a": 1}) != digest_values({"a": 2})


def test_hidden_names_are_32_letters_of_a_digest():
    assert key_of("a/b.png") == sha("a/b.png")[:32]
    assert len(key_of("\udcff" * 300)) == 32


def test_results_are_moved_and_recorded(output):
    assert (output / "a.geojson").read_text() == "{2"
    assert (output / "overlay" / "a.geojson").read_text() == "{1"
    assert not (output / HIDDEN / "new").exists()
    entry = _read_entry(output / HIDDEN / "record" / f"{key_of('a')}.json")
    expected = {"overlay/a.geojson": sha("{1"), "a.geojson": sha("{2")}
    assert asdict(entry) == asdict(Entry("a", "s", "m", {"mask": "a.geojson"}, expected, {}))
    with record_of(output) as record:
        assert record.entries == {"a": entry}


@pytest.mark.parametrize(
    ("name", "source", "made_by", "expected"),
    [("a", "s", "m", True), ("a", "other", "m", False), ("a", "s", "other", False), ("b", "s", "m", False)],
)
def test_an_image_is_done_by_its_file_and_what_made_it(output, name, source, made_by, expected):
    with record_of(output) as record:
        assert record.is_done(name, source=source, made_by=made_by) == expected


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("{3")])
@pytest.mark.parametrize("name", ["a.geojson", "overlay/a.geojson"])
def test_an_image_is_done_if_all_results_are_as_they_were_written(output, change, name):
    change(output / name)
    with record_of(output) as record:
        assert not record.is_whole("a")
        assert not record.is_done("a", source="s", made_by="m")


def test_own_files_are_those_of_the_record_even_if_damaged(output):
    (output / "mine.geojson").write_text("{}")
    with record_of(output) as record:
        assert record.is_own(Path("a.geojson"))
        assert not record.is_own(Path("mine.geojson"))
        assert not record.is_own(Path("none.geojson"))
        (output / "a.geojson").write_text("")
        assert record.is_own(Path("a.geojson"))
        (output / "a.geojson").write_text('{"changed": 1}')
        assert not record.is_own(Path("a.geojson"))
        (output / "a.geojson").unlink()
        assert not record.is_own(Path("a.geojson"))


@pytest.mark.parametrize("replaces", [False, True])
def test_files_of_somebody_else_are_refused_unless_all_are_replaced(output, replaces):
    (output / "mine.geojson").write_text("{}")
    (output / "link").symlink_to(output / "nowhere")
    with record_of(output, replaces_foreign=replaces) as record:
        record.refuse_foreign([Path("a.geojson"), Path("none.geojson")])
        for name in ("mine.geojson", "link"):
            if replaces:
                record.refuse_foreign([Path(name)])
            else:
                with pytest.raises(ForeignFileError) as caught:
                    record.refuse_foreign([Path("a.geojson"), Path(name)])
                assert str(caught.value) == f"{output / name} was not written by segkit, or changed since"


def test_outdated_files_are_withdrawn_and_others_stay(output):
    (output / "mine.geojson").write_text("{}")
    with record_of(output) as record:
        record.withdraw(Path("a.geojson"))
        record.withdraw(Path("mine.geojson"))
        record.withdraw(Path("none.geojson"))
    assert not (output / "a.geojson").exists()
    assert (output / "mine.geojson").exists()


@pytest.mark.parametrize("is_taken", [False, True])
def test_results_that_an_image_no_longer_has_are_removed_unless_they_are_of_another_now(output, is_taken):
    with record_of(output) as record:
        if is_taken:
            record.put("b", [made(record, "overlay/a.geojson", "{4")], source="s", made_by="m")
        record.put("a", [made(record, "a.geojson", "{3")], source="s", made_by="m")
        assert record.entries["a"].outputs == {"a.geojson": sha("{3")}
        assert record.owner_of == {"a.geojson": "a", "overlay/a.geojson": "b" if is_taken else "a"}
    assert (output / "a.geojson").read_text() == "{3"
    assert (output / "overlay" / "a.geojson").exists() == is_taken
    stored = json.loads((output / HIDDEN / "record" / f"{key_of('a')}.json").read_text())
    assert stored["replaced"].keys() == {"a.geojson", "overlay/a.geojson"}


def test_a_folder_is_a_result_as_a_file_is(tmp_path):
    output, place = tmp_path / "out", Path("a.zarr")
    for text in ("1", "2"):
        with record_of(output) as record:
            made(record, "a.zarr/0/c", text)
            record.put("a", [place], source=text, made_by="m")
        assert (output / place / "0" / "c").read_text() == text
    with record_of(output) as record:
        assert record.is_done("a", source="2", made_by="m")
        (output / place / "0" / "mine").write_text("")
        assert not record.is_whole("a")
        with pytest.raises(
            OutputError, match=r"a\.zarr was not written by segkit, .*: move it elsewhere, and"
        ):
            record.refuse_changed([place])
        (output / place / "0" / "mine").unlink()
        record.withdraw(place)
    assert not (output / place).exists()


def test_the_same_results_are_not_written_again(output):
    before = (output / "a.geojson").stat().st_ino
    with record_of(output) as record:
        for text, is_kept in (("{2", True), ("{4", False)):
            places = [made(record, "overlay/a.geojson", "{1"), made(record, "a.geojson", text)]
            record.put("a", places, source="s", made_by="m", row={"mask": "a.geojson"})
            assert (record.staging / "a.geojson").exists() == is_kept
            assert ((output / "a.geojson").stat().st_ino == before) == is_kept


def test_while_results_are_moved_the_last_one_is_away(output, monkeypatch):
    """Where the mask is, the other results are those of the mask."""
    seen = []

    def move(source, target):
        seen.append([(output / name).exists() for name in ("overlay/a.geojson", "a.geojson")])
        Path(source).rename(target)

    monkeypatch.setattr("segkit.images.record.shutil.move", move)
    planned = [Path("overlay/a.geojson"), Path("a.geojson")]
    with record_of(output) as record:
        record.put("a", [made(record, place.as_posix(), "{5") for place in planned])
    assert seen == [[True, False], [True, False]]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"name": "a"}',
        "[" * 100_000,
        json.dumps(asdict(Entry("a", "s", "m", {}, {"/etc/x": "0"}))),
        json.dumps(asdict(Entry("a", "s", "m", {}, {"b/../../x": "0"}))),
        json.dumps(asdict(Entry("a", "s", "m", {}, {}, {"../x": "0"}))),
        *(
            json.dumps(asdict(Entry("b", "s", "m", {}, {"x": "0"})) | forged)
            for forged in (
                {"name": 3},
                {"outputs": ["x"]},
                {"outputs": {"x": 1}},
                {"row": None},
                {"row": {"mask": 3}},
                {"row": {"mask": "../x"}},
                {"row": {"mask": "x", "image": "c"}},
            )
        ),
    ],
)
def test_entries_that_are_damaged_or_name_files_elsewhere_are_ignored(output, content):
    (output / HIDDEN / "record" / "other.json").write_text(content)
    with record_of(output) as record:
        assert set(record.entries) == {"a"}
        assert not record.is_own(Path("x"))


def write(path, cut=None):
    """Write a sound file of the kind of its name, and cut its end off."""
    image = np.random.default_rng(0).integers(0, 255, (40, 50), dtype=np.uint8)
    match path.suffix:
        case ".png":
            Image.fromarray(image).save(path)
        case ".tif":
            tifffile.imwrite(path, image, compression="adobe_deflate")
        case ".geojson":
            path.write_text(json.dumps({"features": list(range(99))}))
        case ".npz":
            np.savez(path, a=image)
        case ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("a", image.tobytes())
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])
    return path


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.geojson", "a.npz", "a.zip"])
def test_files_that_lack_their_end_or_are_zeros_are_damaged(tmp_path, name):
    assert not _is_damaged(write(tmp_path / name))
    assert _is_damaged(write(tmp_path / name, cut=200))
    for content in (b"", bytes(16), bytes(500)):
        (tmp_path / name).write_bytes(content)
        assert _is_damaged(tmp_path / name)
    (tmp_path / name).write_text("of another kind, and so of somebody else")
    assert not _is_damaged(tmp_path / name)


def test_a_file_of_any_other_kind_is_not_looked_into(tmp_path):
    (tmp_path / "a.csv").write_text("a,b")
    assert not _is_damaged(tmp_path / "a.csv")


def test_an_archive_whose_contents_are_damaged(tmp_path):
    data = bytearray(write(tmp_path / "a.zip").read_bytes())
    data[500] ^= 1
    (tmp_path / "a.zip").write_bytes(data)
    assert _is_damaged(tmp_path / "a.zip")


def test_compressions_that_are_not_segkits_are_not_called_damaged(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tif", cut=200)
    assert _is_damaged(path)
    monkeypatch.setattr("segkit.images.record._COMPRESSIONS", (tifffile.COMPRESSION.NONE,))
    assert not _is_damaged(path)


def test_pictures_too_large_to_decode_are_not_called_damaged(tmp_path, monkeypatch):
    path = write(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40 * 50 // 2 - 1)
    assert not _is_damaged(path)


def test_an_image_whose_mask_is_another_ones_now_has_no_results(output):
    """The last one counts, whatever the names of the files of the record."""
    for name in ("b", "c", "a", "b"):
        with record_of(output) as record:
            made(record, "a.geojson", f"{{{name}")
            record.put(name, [Path("a.geojson")], source=name, row={"mask": "a.geojson"})
            assert set(record.entries) == {name}
        with record_of(output) as record:
            assert set(record.entries) == {name}
            assert record.owner_of["a.geojson"] == name


def test_links_among_the_hidden_files_are_refused(output, tmp_path):
    """A run would write and remove elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "new").mkdir(parents=True)
    (elsewhere / "new" / "a.geojson").write_text("mine")
    for place in ("new", "large/key", "large/key/tiles", "."):
        link = output / HIDDEN / place
        if place == ".":
            shutil.rmtree(link)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(elsewhere)
        told = "is a link, and segkit makes none there: remove it"
        with pytest.raises(OutputError, match=told), record_of(output):
            raise AssertionError
        link.unlink()
    assert (elsewhere / "new" / "a.geojson").read_text() == "mine"


def forge(output, name, outputs):
    record = output / HIDDEN / "record"
    record.mkdir(parents=True, exist_ok=True)
    (record / f"{name}.json").write_text(json.dumps(asdict(Entry(name, "s", "m", {}, outputs))))


def test_what_a_link_leads_to_is_never_segkits_own(output, tmp_path):
    (tmp_path / "x.geojson").write_text("{1")
    (output / "link").symlink_to(tmp_path)
    (output / "to_file").symlink_to(tmp_path / "x.geojson")
    forged = {place: sha("{1") for place in ("link/x.geojson", "to_file")}
    forge(output, "b", forged)
    with record_of(output) as record:
        assert not record.is_whole("b")
        for place in map(Path, forged):
            record.withdraw(place)
            with pytest.raises(ForeignFileError):
                record.refuse_foreign([place])
        record.put("b", [made(record, "b.geojson", "{2")])
        with pytest.raises(OutputError, match="link: a link, where a folder of results would be"):
            record.put("c", [made(record, "link/new.geojson", "{2")])
    assert (tmp_path / "x.geojson").read_text() == "{1"
    assert not (tmp_path / "new.geojson").exists()
    assert (output / "to_file").is_symlink()


def test_a_pipe_in_the_place_of_a_result_is_not_read(output):
    for place in (Path("a.geojson"), HIDDEN / "record" / "b.json"):
        (output / place).unlink(missing_ok=True)
        os.mkfifo(output / place)
    with record_of(output) as record:
        assert not record.is_own(Path("a.geojson"))
        assert not record.is_whole("a")


PLACES = (
    "a.geojson",
    "mine.geojson",
    "link/x.geojson",
    "to_file",
    "inner/../link",
    "../elsewhere/x.geojson",
    ".segkit/record",
    "",
    "long" * 99,
    "a\0b",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(PLACES),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(PLACES), inner, max_size=3),
    max_leaves=6,
)
WRITTEN = st.dictionaries(st.sampled_from(PLACES), st.just(sha("{1")), max_size=2) | JSON
ENTRIES = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"]), "source": st.just("s"), "made_by": st.just("m")}
    | {"row": st.just({}) | JSON, "outputs": WRITTEN, "replaced": WRITTEN}
)


@given(st.lists(ENTRIES, min_size=1, max_size=3))
def test_a_forged_record_touches_nothing_elsewhere(entries):
    with tempfile.TemporaryDirectory() as folder:
        output, elsewhere = Path(folder) / "out", Path(folder) / "elsewhere"
        for place in (elsewhere / "x.geojson", output / "a.geojson", output / "mine.geojson"):
            place.parent.mkdir(exist_ok=True)
            place.write_text("{1")
        (output / "link").symlink_to(elsewhere)
        (output / "to_file").symlink_to(elsewhere / "x.geojson")
        record_folder = output / HIDDEN / "record"
        record_folder.mkdir(parents=True)
        for number, entry in enumerate(entries):
            (record_folder / f"{number}.json").write_text(json.dumps(entry))
        with record_of(output) as record:
            for name in record.entries:
                record.is_whole(name)
            for place in PLACES:
                record.withdraw(Path(place))
            with contextlib.suppress(SegkitError):
                record.put("a", [made(record, "a.geojson", "{2")])
        assert [path.read_text() for path in elsewhere.iterdir()] == ["{1"]
        assert (output / "link").is_symlink()


def test_a_folder_is_never_left_without_some_of_its_files(tmp_path, monkeypatch):
    """Then segkit would not know it for its own."""
    with record_of(tmp_path) as record:
        made(record, "a.zarr/0/c", "1")
        record.put("a", [Path("a.zarr")])

    def stop(path, **options):
        (Path(path) / "0" / "c").unlink()
        raise KeyboardInterrupt

    with record_of(tmp_path) as record:
        made(record, "a.zarr/0/c", "2")
        with monkeypatch.context() as patched:
            patched.setattr("segkit._common.files.shutil.rmtree", stop)
            with pytest.raises(KeyboardInterrupt):
                record.put("a", [Path("a.zarr")])
    assert not (tmp_path / "a.zarr").exists()
    with record_of(tmp_path) as record:
        made(record, "a.zarr/0/c", "2")
        record.put("a", [Path("a.zarr")])
    assert [path.name for path in tmp_path.iterdir() if path.name != HIDDEN.name] == ["a.zarr"]


@pytest.mark.parametrize("place", ["overlay", "a", "overlay/a", ".segkit/record", ".segkit/new"])
def test_a_file_in_the_place_of_a_folder_is_named_before_the_run(tmp_path, place):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("mine")
    results = [Path("a/1.png"), Path("overlay/a/1.png")]
    allowed = Permissions(overwrite_foreign=True)
    with (
        pytest.raises(OutputError, match="a file, where a folder of results would be") as caught,
        results_in(tmp_path, results, [], allowed),
    ):
        raise AssertionError
    assert str(caught.value).startswith(str(tmp_path / place))
    assert (tmp_path / place).read_text() == "mine"
