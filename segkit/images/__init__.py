"""Image and mask files: read, pair, name the classes, write."""

from segkit.images.channels import combine
from segkit.images.geojson import write_geojson
from segkit.images.inspect import Inspection, inspect_images
from segkit.images.labels import UNLABELLED, LabelMap
from segkit.images.masks import read_instances
from segkit.images.matching import Pair, pair
from segkit.images.pairs import Dataset, load_pairs
from segkit.images.pixel_size import PixelSize, read_pixel_size
from segkit.images.read import IMAGE_EXTENSIONS, check_image, read_image, read_mask, read_pages, to_float
from segkit.images.reading import Reading
from segkit.images.rois import write_rois
from segkit.images.stems import list_images
from segkit.images.write import (
    overlay,
    write_image,
    write_labels,
    write_mask,
    write_overlay,
    write_probability,
)

__all__ = [
    "IMAGE_EXTENSIONS",
    "UNLABELLED",
    "Dataset",
    "Inspection",
    "LabelMap",
    "Pair",
    "PixelSize",
    "Reading",
    "check_image",
    "combine",
    "inspect_images",
    "list_images",
    "load_pairs",
    "overlay",
    "pair",
    "read_image",
    "read_instances",
    "read_mask",
    "read_pages",
    "read_pixel_size",
    "to_float",
    "write_geojson",
    "write_image",
    "write_labels",
    "write_mask",
    "write_overlay",
    "write_probability",
    "write_rois",
]
