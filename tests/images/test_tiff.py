"""Files of a set of OME-TIFF files are read each by itself, whatever became of the others."""

import json
import os
import shutil
import struct
import sys
import uuid

import numpy as np
import pytest
import tifffile

from segkit.images import list_images, read_pages, read_pixel_size, tiff
from segkit.images.large_image import open_large
from segkit.images.pixel_size import read_z_step
from segkit.images.read import count_pages, read_stack
from tests.images.conftest import complaint

SIZES = {"Z": 2, "C": 2, "T": 3}
SIDE = 16
NAMES = ("DAPI", "GFP")


def write_set(folder, along, *, order="XYZCT", n_positions=1, root_uuid=True, by_plane=False, master=None):
    """Write a set of which each file holds one place along an axis; the value of a plane is 100 T + 10 Z + C + 1000 P."""
    axes = list(order[:1:-1])
    places = list(np.ndindex(*(SIZES[axis] for axis in axes)))
    files: dict[str, list] = {}
    for position in range(n_positions):
        for place in places:
            at = dict(zip(axes, place, strict=True)) | {"P": position}
            key = "_".join(f"{axis}{at[axis]}" for axis in along)
            files.setdefault(f"s_{key}.ome.tif", []).append(at)
    id_of = {name: f"urn:uuid:{uuid.UUID(int=number + 1)}" for number, name in enumerate(files)}
    images = []
    for position in range(n_positions):
        data = []
        for name, planes in files.items():
            for number, at in enumerate(planes):
                if at["P"] == position and (by_plane or number == 0 or planes[number - 1]["P"] != position):
                    length = 1 if by_plane else sum(one["P"] == position for one in planes)
                    first = " ".join(f'First{axis}="{at[axis]}"' for axis in "ZCT")
                    data.append(
                        f'<TiffData {first} IFD="{number}" PlaneCount="{length}"><UUID FileName="{name}">{id_of[name]}'
                        "</UUID></TiffData>"
                    )
        sizes = " ".join(f'Size{axis}="{size}"' for axis, size in SIZES.items())
        channels = "".join(
            f'<Channel ID="C:{i}" Name="{name}" SamplesPerPixel="1"/>' for i, name in enumerate(NAMES)
        )
        images.append(
            f'<Image ID="Image:{position}" Name="p{position}"><Pixels ID="Pixels:{position}" DimensionOrder="{order}" '
            f'Type="uint16" SizeX="{SIDE}" SizeY="{SIDE}" {sizes} PhysicalSizeX="0.5" PhysicalSizeY="0.5" '
            f'PhysicalSizeZ="2">{channels}{"".join(data)}</Pixels></Image>'
        )
    start = (
        '<?xml version="1.0" encoding="UTF-8"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"'
    )
    whole = f"{''.join(images)}</OME>"
    if master is not None and master.endswith(".ome"):
        (folder / master).write_text(f"{start}>{whole}")
    for name, planes in files.items():
        text = f'{start} UUID="{id_of[name]}">{whole}' if root_uuid else f"{start}>{whole}"
        if master not in (None, name):
            text = (
                f'{start} UUID="{id_of[name]}"><BinaryOnly MetadataFile="{master}" UUID="urn:uuid:9"/></OME>'
            )
        values = [1000 * at["P"] + 100 * at["T"] + 10 * at["Z"] + at["C"] for at in planes]
        array = np.zeros((len(values), SIDE, SIDE), np.uint16) + np.uint16(values)[:, None, None]
        tifffile.imwrite(folder / name, array, description=text, metadata=None, photometric="minisblack")
    return folder


def values(path, **options):
    return [page[0, 0].tolist() for page in read_pages(path, **options)]


ALONG = {
    "T": {"s_T1.ome.tif": [[100, 101], [110, 111]], "s_T2.ome.tif": [[200, 201], [210, 211]]},
    "Z": {"s_Z1.ome.tif": [[10, 11], [110, 111], [210, 211]]},
    "C": {"s_C1.ome.tif": [1, 11, 101, 111, 201, 211]},
    "P": {
        "s_P1.ome.tif": [
            [1000 + 100 * t + 10 * z, 1001 + 100 * t + 10 * z] for t in range(3) for z in range(2)
        ]
    },
    "TZC": {"s_T2_Z0_C1.ome.tif": [201]},
}


@pytest.mark.filterwarnings("ignore:.*files of an OME-TIFF set")
@pytest.mark.parametrize("along", list(ALONG))
@pytest.mark.parametrize("order", ["XYZCT", "XYCTZ"])
@pytest.mark.parametrize("fate", ["whole", "alone", "renamed", "copied"])
def test_each_file_of_a_set_gives_its_own_planes(tmp_path, along, order, fate):
    by_plane = along != "P" and (along, order) != ("T", "XYZCT")  # others follow each other
    write_set(tmp_path, along, order=order, n_positions=2 if along == "P" else 1, by_plane=by_plane)
    for name, expected in ALONG[along].items():
        path = tmp_path / name
        if fate == "alone":
            path = tmp_path / "alone" / name
            path.parent.mkdir()
        elif fate == "renamed":
            path = tmp_path / "other.tif"
        if path.name != name or path.parent != tmp_path:
            shutil.copy(tmp_path / name, path)
        if fate == "copied":  # to a place where others have the names of the set
            shutil.copy(tmp_path / name, tmp_path / "s_T0.ome.tif")
        assert values(path) == expected
        assert count_pages(path) == len(expected)
        assert read_pixel_size(path) == (0.5, 0.5)
        assert read_z_step(path) == 2
        channels = read_stack(path).layout.channels
        assert channels == (NAMES[1:] if "C" in along else NAMES)[: len(channels)]
        shutil.rmtree(path.parent) if fate == "alone" else None


def test_a_note_tells_that_there_are_others(tmp_path):
    write_set(tmp_path, "T")
    with pytest.warns(
        UserWarning, match="s_T0.ome.tif: one of 3 files of an OME-TIFF set: each gives its own planes$"
    ):
        read_pages(tmp_path / "s_T0.ome.tif")
    read_pages(tmp_path / "s_T1.ome.tif")  # it was told of the first
    (tmp_path / "s_T0.ome.tif").unlink()
    with pytest.warns(UserWarning, match="s_T1.ome.tif: one of 3 files"):
        read_pages(tmp_path / "s_T1.ome.tif")
    assert len(list_images(tmp_path)) == 2


@pytest.mark.filterwarnings("ignore:.*files of an OME-TIFF set")
def test_a_renamed_file_whose_number_is_not_told(tmp_path):
    write_set(tmp_path, "T", root_uuid=False)
    path = (tmp_path / "s_T2.ome.tif").rename(tmp_path / "mine.ome.tif")
    assert values(path) == [[200, 201], [210, 211]]
    assert read_pixel_size(path) == (0.5, 0.5)
    write_set(tmp_path, "TZC", root_uuid=False)
    path = (tmp_path / "s_T2_Z1_C0.ome.tif").rename(tmp_path / "mine.ome.tif")
    assert values(path) == [210]
    assert read_stack(path).layout.channels == ()  # which one is not known


def test_a_single_file_may_be_renamed(tmp_path):
    write_set(tmp_path, "", root_uuid=False)
    path = (tmp_path / "s_.ome.tif").rename(tmp_path / "mine.ome.tif")
    assert values(path)[1] == [10, 11]
    assert len(values(path)) == 6


@pytest.mark.filterwarnings("ignore:.*files of an OME-TIFF set")
@pytest.mark.parametrize("master", ["s.companion.ome", "s_T0.ome.tif"])
def test_metadata_in_another_file(tmp_path, master):
    write_set(tmp_path, "T", master=master)
    assert values(tmp_path / "s_T1.ome.tif") == [[100, 101], [110, 111]]
    (tmp_path / master).unlink()
    with pytest.warns(
        UserWarning, match=f"its metadata are in {master}, which cannot be read: they are not used"
    ):
        assert values(tmp_path / "s_T1.ome.tif", axes="ZYX") == [100, 110, 101, 111]


@pytest.mark.filterwarnings("ignore:.*files of an OME-TIFF set")
def test_a_file_that_was_full_before_the_stack_was(tmp_path):
    write_set(tmp_path, "T", by_plane=True)
    path = tmp_path / "s_T0.ome.tif"
    with tifffile.TiffFile(path) as file:
        text = file.ome_metadata
    first = text.index("<TiffData")
    kept = text[:first] + text[text.index("<TiffData", first + 1) :]  # without the first of its planes
    array = np.uint16([10, 1, 11])[:, None, None] + np.zeros((3, SIDE, SIDE), np.uint16)
    for number in (1, 2, 3):
        kept = kept.replace(f'FirstT="0" IFD="{number}"', f'FirstT="0" IFD="{number - 1}"', 1)
    tifffile.imwrite(path, array, description=kept, metadata=None, photometric="minisblack")
    assert "the channels of a plane are in several files" in complaint(read_pages, path)
    tifffile.imwrite(path, array[:1], description=kept, metadata=None, photometric="minisblack")
    assert "pages are missing" in complaint(read_pages, path)


@pytest.mark.filterwarnings("ignore:.*files of an OME-TIFF set")
def test_regions_are_those_of_the_file(tmp_path):
    pytest.importorskip("zarr")
    write_set(tmp_path, "TZC")
    with open_large(tmp_path / "s_T1_Z1_C0.ome.tif") as image:
        assert image[0:2, 0:2].max() == np.float32(110 / 65535)


def test_thumbnails_are_no_images(tmp_path):
    """As LSM has them after each plane."""
    with tifffile.TiffWriter(tmp_path / "a.lsm") as file:
        for value in (3, 4):
            plane = np.full((SIDE, SIDE), value, np.uint8)
            file.write(plane, metadata=None, photometric="minisblack", contiguous=False)
            small = np.dstack([plane[:4, :4]] * 3)
            file.write(small, metadata=None, photometric="rgb", subfiletype=1, contiguous=False)
    assert values(tmp_path / "a.lsm", axes="ZYX") == [3, 4]
    assert count_pages(tmp_path / "a.lsm", axes="ZYX") == 2


def one_page(path, value, description=None):
    pixels = np.full((SIDE, SIDE), value, np.uint8)
    tifffile.imwrite(path, pixels, description=description, metadata=None, photometric="minisblack")
    return path


def ome(inside, *, start="", **attributes):
    told = {"SizeX": SIDE, "SizeY": SIDE, "SizeZ": 1, "SizeC": 1, "SizeT": 1} | attributes
    pixels = " ".join(f'{name}="{value}"' for name, value in told.items())
    return (
        f'<?xml version="1.0"?>{start}<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        f'<Image ID="Image:0"><Pixels ID="P:0" DimensionOrder="XYZCT" Type="uint8" {pixels}>{inside}</Pixels></Image></OME>'
    )


@pytest.mark.filterwarnings("ignore:.*files of an OME-TIFF set")
@pytest.mark.parametrize("is_hidden", [False, True])
def test_no_other_file_is_read(tmp_path, is_hidden):
    (tmp_path / "other").mkdir()
    other = one_page(tmp_path / "other" / "secret.tif", 9)
    planes = "".join(
        f"<TiffData FirstT='{time}' IFD='0' PlaneCount='1'><UUID FileName='{name}'>urn:uuid:{time}</UUID></TiffData>"
        for time, name in enumerate(["a.ome.tif", other])
    )
    text = ome(planes, SizeT=2)
    if is_hidden:  # the letters of an entity may be told by their numbers
        entity = planes.replace("FileName", "&#70;ileName")
        text = ome("&planes;", SizeT=2, start=f'<!DOCTYPE OME [<!ENTITY planes "{entity}">]>')
    path = one_page(tmp_path / "a.ome.tif", 7, text)
    assert values(path) == [7]
    assert count_pages(path) == 1


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="other systems have no pipes or links in folders"
)
@pytest.mark.parametrize("name", ["a.companion.ome", "b.ome.tif"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_metadata_in_pipes_and_links_are_not_read(tmp_path, name, kind):
    write_set(tmp_path, "T", master=name)
    (tmp_path / "elsewhere").mkdir()
    if kind == "pipe":
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
    else:
        text = ome("<Channel SamplesPerPixel='1' Name='secret'/>")
        (tmp_path / "elsewhere" / name).write_text(text)
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(tmp_path / "elsewhere" / name)
    with pytest.warns(
        UserWarning, match=f"its metadata are in {name}, which cannot be read: they are not used"
    ):
        assert values(tmp_path / "s_T1.ome.tif", axes="ZYX") == [100, 110, 101, 111]


MODULO = (
    '<StructuredAnnotations><XMLAnnotation ID="A:0" Namespace="openmicroscopy.org/omero/dimension/modulo"><Value><Modulo>'
    '<ModuloAlongT Type="lifetime" Start="0" End="1e9"/></Modulo></Value></XMLAnnotation></StructuredAnnotations>'
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ome("<TiffData/>", SizeT=10**9), "1,000,000,000"),
        (ome("<TiffData/>", SizeY=SIDE * 10**9), "1,000,000,000"),
        (ome('<TiffData IFD="0" PlaneCount="1000000000"/>'), "1,000,000,000"),
        (ome("<TiffData PlaneCount='1'/>" * 100_001), "100,001"),
        (ome("<TiffData/>").replace("</OME>", f"{MODULO}</OME>"), "1,000,000,001"),
    ],
    ids=["size", "side", "count", "entries", "modulo"],
)
def test_metadata_of_more_planes_than_files_have_are_refused(tmp_path, text, told):
    path = one_page(tmp_path / "a.ome.tif", 7, text)
    reason = f"cannot be decoded (its metadata tell of {told} planes, it has 1)"
    assert reason in complaint(read_pages, path)


def test_a_small_image_may_lie_before_a_large_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tiff, "MOST_PAGES", 100)
    with tifffile.TiffWriter(tmp_path / "a.ome.tif", ome=True) as file:
        for side in (4, 64):
            file.write(np.zeros((side, side), dtype=np.uint8), metadata={"axes": "YX"})
    assert [page.shape for page in read_pages(tmp_path / "a.ome.tif")] == [(4, 4), (64, 64)]


def test_more_pages_than_files_have_are_refused(tmp_path):
    """Pages without tags: two bytes for their number, four for the place of the next."""
    path = tmp_path / "a.tif"
    path.write_bytes(b"II*\0" + b"".join(struct.pack("<IH", 8 + 6 * page, 0) for page in range(100_002)))
    assert "cannot be decoded (more than 100,000 pages: save it as several files)" in complaint(
        read_pages, path
    )


def micro_manager(value, n_frames):
    """A file of Micro-Manager with one plane of so many, as its bytes."""
    summary = json.dumps(
        {"MicroManagerVersion": "2", "Prefix": "a", "Frames": n_frames, "Slices": 1}
    ).encode()
    page = 40 + len(summary)
    tags = {256: SIDE, 257: SIDE, 258: 8, 259: 1, 262: 1, 273: page + 162, 277: 1, 278: SIDE, 279: SIDE**2}
    entries = [struct.pack("<HHII", tag, 4, 1, one) for tag, one in tags.items()]
    entries.append(struct.pack("<HHII", 51123, 2, len(summary), 40))
    directory = struct.pack("<H", len(entries)) + b"".join(entries)
    pixels = bytes([value]) * SIDE**2
    ends = [page + 162 + len(pixels) + length for length in (0, 28, 38)]
    head = (54773648, ends[0], 483765892, ends[1], 99384722, ends[2], 2355492, len(summary))
    index = struct.pack("<7I", 3453623, 1, 0, 0, 0, 0, page)
    start = b"II*\0" + struct.pack("<9I", page, *head) + summary
    settings = b"".join(struct.pack("<II", kind, 2) + b"{}" for kind in (347834724, 84720485))
    return start + directory.ljust(162, b"\0") + pixels + index + settings


def test_files_of_micro_manager_give_their_own_planes(tmp_path):
    for number in (0, 1):
        (tmp_path / f"a_MMStack_{number}.tif").write_bytes(micro_manager(number + 5, n_frames=2))
    with pytest.warns(UserWarning, match="one file of a set of Micro-Manager: its own planes are read"):
        assert values(tmp_path / "a_MMStack_1.tif") == [6]
    whole = tmp_path / "b_MMStack.tif"
    whole.write_bytes(micro_manager(7, n_frames=1))
    assert values(whole) == [7]
    whole.write_bytes(micro_manager(7, n_frames=10**9))
    with pytest.warns(UserWarning, match="its own planes are read"):
        assert values(whole) == [7]
