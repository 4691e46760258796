"""Two workers, and the images and the model of the tests of folders."""

from collections.abc import Iterator

import pytest

from segkit.scale import Cluster
from tests.segmentation.conftest import (  # noqa: F401
    cell_images,
    cell_segmenter,
    cells,
    contents,
    make_cell_images,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two workers for all tests of a file; a test that kills workers makes its own."""
    with Cluster(n_workers=2) as opened:
        yield opened
