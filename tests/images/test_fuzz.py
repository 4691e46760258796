"""Any bytes called an image, and any array written as one: read as they were, or refused by name."""

import re
import warnings

import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from benchmarks.fuzz import EXTENSIONS, image_seeds, read_image_file
from segkit.errors import SegkitError
from segkit.images import (
    IMAGE_EXTENSIONS,
    inspect_images,
    read_image,
    read_mask,
    read_pages,
    to_float,
    write_labels,
    write_mask,
)

SEEDS = image_seeds()
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(
    content=st.binary(max_size=300), extension=st.sampled_from(IMAGE_EXTENSIONS), start=st.sampled_from(SEEDS)
)
@example(content=b"", extension=".tif", start=SEEDS[0])
def test_any_bytes(tmp_path, content, extension, start):
    kind = bytes([EXTENSIONS.index(extension)]) if extension in EXTENSIONS else start[:1]
    for data in (content, start[1:9] + content, start[1 : len(start) // 2] + content):
        read_image_file(kind + data)
        (tmp_path / f"a{extension}").write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert inspect_images(tmp_path).describe()


DTYPES = st.sampled_from([bool, np.uint8, np.uint16, np.uint32, np.int16, np.int32, np.float32, np.float64])
SHAPES = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3)),
)


@quick
@given(data=st.data(), dtype=DTYPES, shape=SHAPES)
def test_any_array_is_read_as_it_was_written(tmp_path, data, dtype, shape):
    """Values of any type come back; images of types without a range are refused, and so is what is not finite."""
    array = data.draw(arrays.arrays(dtype, shape))
    path = tmp_path / "a.tif"
    # tifffile writes no pages of one bit with colours
    written = array.astype(np.uint8) if dtype is bool else array
    tifffile.imwrite(path, written, photometric="rgb" if len(shape) == 3 else "minisblack")
    [page] = read_pages(path)
    np.testing.assert_array_equal(page, written)
    has_range = written.dtype in (np.uint8, np.uint16)
    is_scaled = written.dtype.kind == "f" and bool(((written >= 0) & (written <= 1)).all())
    if has_range or is_scaled:
        [image] = read_image(path)
        assert image.shape == (*shape, 1)[:3]
        assert image.min() >= 0
        assert image.max() <= 1
        np.testing.assert_array_equal(image.reshape(shape), to_float(written))
    else:
        with pytest.raises(SegkitError, match=f"^{re.escape(str(path))}: "):
            read_image(path)


@quick
@given(
    mask=arrays.arrays(
        st.sampled_from([np.uint8, np.uint16, np.int32, np.int64]),
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
    ),
    extension=st.sampled_from([".png", ".tif"]),
)
def test_any_mask_is_read_as_it_was_written(tmp_path, mask, extension):
    path = tmp_path / f"a{extension}"
    path.unlink(missing_ok=True)
    for write in (write_mask, write_labels):
        try:
            write(path, mask)
        except SegkitError:
            continue
        [read] = read_mask(path)
        np.testing.assert_array_equal(read, mask)
