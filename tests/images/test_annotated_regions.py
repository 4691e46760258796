"""Crops around the annotated regions of a slide."""

import json

import numpy as np
import pytest
import tifffile

from segkit.images import UNLABELLED
from segkit.images.annotated_regions import MARGIN, read_annotated_regions
from segkit.images.large_image import open_large
from tests.images.conftest import complaint

pytest.importorskip("zarr")
IMAGE = np.random.default_rng(0).integers(0, 255, (600, 800), dtype=np.uint8)


def region(top, left, side, name):
    right, bottom = left + side, top + side
    ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]
    properties = {"objectType": "annotation"} | ({"classification": {"name": name}} if name else {})
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": properties,
    }


@pytest.fixture
def read(tmp_path):
    with tifffile.TiffWriter(tmp_path / "slide.tif") as writer:
        writer.write(IMAGE, tile=(64, 64), subifds=1)
        writer.write(IMAGE[::2, ::2], tile=(64, 64), subfiletype=1)

    def read(*regions, level=0):
        path = tmp_path / "regions.geojson"
        path.write_text(json.dumps({"type": "FeatureCollection", "features": list(regions)}))
        with open_large(tmp_path / "slide.tif", level) as image:
            return read_annotated_regions(image, path)

    return read


def test_a_crop_around_each_region(read):
    data = read(region(100, 120, 40, "tumour"), region(500, 700, 30, "Background"))
    assert data.label_map.names == ("Background", "tumour")
    assert [image.shape for image in data.images] == [
        (40 + 2 * MARGIN, 40 + 2 * MARGIN, 1),
        (158, 158, 1),
    ]
    expected = IMAGE[100 - MARGIN : 140 + MARGIN, 120 - MARGIN : 160 + MARGIN] / np.float32(255)
    np.testing.assert_allclose(data.images[0][:, :, 0], expected)
    mask = data.masks[0]
    assert (mask[MARGIN : MARGIN + 40, MARGIN : MARGIN + 40] == 1).all()
    assert np.count_nonzero(mask != UNLABELLED) == 40 * 40
    assert np.unique(data.masks[1]).tolist() == [0, UNLABELLED]


def test_regions_nearby_share_a_crop(read):
    data = read(region(100, 100, 20, "a"), region(100, 200, 20, "b"), region(500, 600, 20, "b"))
    assert len(data.images) == 2
    assert sorted(np.unique(mask).tolist() for mask in data.masks) == [[0, 1, UNLABELLED], [1, UNLABELLED]]


def test_a_level_has_fewer_pixels(read):
    data = read(region(100, 120, 40, "a"), region(400, 600, 40, "b"), level=1)
    assert np.count_nonzero(data.masks[0] == 0) == 20 * 20


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ([region(0, 0, 9, "a"), region(0, 0, 9, "")], "1 region without a class of 2"),
        ([region(0, 0, 9, "a")], "all regions are a: annotate some of another class"),
        ([], "0 regions without a class of 0"),
        ([region(0, 0, 9, "a"), region(700, 0, 9, "b")], "lies outside of"),
    ],
)
def test_regions_that_do_not_fit(read, regions, message):
    assert message in complaint(read, *regions)


def test_detections_beside_annotations_are_no_regions(read):
    cell = region(110, 130, 5, "tumour")
    cell["properties"]["objectType"] = "detection"
    data = read(region(100, 120, 40, "tumour"), region(500, 700, 30, "background"), cell)
    assert (len(data.images), data.messages[1]) == (2, "1 detection beside annotations left out")
