"""The images and the model of the tests of folders."""

from tests.segmentation.conftest import (  # noqa: F401
    cell_images,
    cell_segmenter,
    cells,
    contents,
    make_cell_images,
)
