"""Objects on disk have the measurements and outlines of those in memory, wherever blocks cut them."""

from itertools import product

import numpy as np
import pytest
from scipy import ndimage

from segkit.images.polygons import trace
from segkit.objects import measure
from segkit.objects.hills import give_numbers
from segkit.objects.measure_by_block import Pixels, measure_by_block, trace_by_block

SHAPE = (140, 170)


@pytest.fixture
def scene(rng):
    """Blobs with holes, some over many blocks, some touching; an image of two channels, a map, and class ids."""
    blobs = ndimage.gaussian_filter(rng.standard_normal(SHAPE), 4) > 0.01
    blobs &= rng.random(SHAPE) > 0.01
    pieces = ndimage.label(blobs)[0]
    pieces[:, 90:][pieces[:, 90:] > 0] += pieces.max()
    labels = give_numbers(pieces)
    # each in one piece, as those of a splitter
    parts = sum(
        np.where(labels == n, ndimage.label(labels == n)[0] + 1000 * n, 0) for n in range(1, labels.max() + 1)
    )
    labels = give_numbers(parts)
    image = rng.integers(0, 65536, (*SHAPE, 2)).astype(np.uint16)
    image[..., 1] = 60000 + image[..., 1] % 3
    return labels, Pixels(image, rng.random(SHAPE), rng.integers(0, 3, SHAPE).astype(np.uint8))


def blocks(height, width):
    rows, cols = (
        [slice(at, min(at + step, length)) for at in range(0, length, step)]
        for length, step in zip(SHAPE, (height, width), strict=True)
    )
    return list(product(rows, cols))


def looked_at(pixels, region, around):
    return Pixels(pixels.image[around], pixels.probability[region], pixels.classes[region])


def measured(labels, pixels, regions, **options):
    return measure_by_block(
        labels,
        int(labels.max()),
        regions,
        lambda number, around: looked_at(pixels, regions[number], around),
        n_classes=3,
        **options,
    )


@pytest.mark.parametrize(
    "options", [{}, {"pixel_size": (0.5, 0.5), "channels": ("DAPI", "GFP")}, {"pixel_size": (0.5, 0.25)}]
)
@pytest.mark.parametrize("side", [(23, 31), (1, 170), (140, 170)])
def test_measurements_are_those_of_the_whole(scene, side, options):
    labels, pixels = scene
    expected = measure(
        labels, pixels.image, probability=pixels.probability, classes=pixels.classes, **options
    )
    found = measured(labels, pixels, blocks(*side), **options)
    assert labels.max() > 15
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype.kind == values.dtype.kind
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


def test_no_object_has_a_table_of_no_rows(scene):
    labels, pixels = np.zeros(SHAPE, dtype=np.int32), scene[1]
    expected = measure(labels, pixels.image, probability=pixels.probability, classes=pixels.classes)
    found = measured(labels, pixels, blocks(50, 50))
    assert found.keys() <= expected.keys()
    assert all(not len(values) for values in found.values())
    assert list(trace_by_block(labels, found)) == []


def test_only_blocks_with_objects_are_looked_at(scene):
    labels, pixels = scene
    labels = np.where(np.arange(SHAPE[1]) < 50, labels, 0)
    seen, regions = [], blocks(70, 60)

    def look(number, around):
        seen.append(number)
        return looked_at(pixels, regions[number], around)

    measure_by_block(give_numbers(labels), len(np.unique(labels)) - 1, regions, look, n_classes=3)
    assert seen == [0, 3]


@pytest.mark.parametrize("side", [20, 500])
def test_outlines_are_those_of_the_whole(scene, side):
    labels, _ = scene
    found = dict(trace_by_block(labels, measure(labels), side=side))
    expected = trace(labels)
    assert found.keys() == expected.keys()
    for number, polygons in expected.items():
        for ours, theirs in zip(found[number], polygons, strict=True):
            for ring, other in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(ring, other)


def test_an_object_whose_box_memory_does_not_hold_has_no_outline(monkeypatch):
    labels = np.zeros(SHAPE, dtype=np.int32)
    labels[10:14, 10:14], labels[20, 20:160] = 1, 2
    labels[20:130, 20] = 2
    monkeypatch.setattr("segkit.objects.measure_by_block.bytes_left", lambda: 100 * 50 * 50)
    found = dict(trace_by_block(labels, measure(labels), side=200))
    assert found[2] is None
    assert len(found[1]) == 1
