"""Image and mask files: read, pair, name the classes, write."""

from segkit.images.inspect import ImageInspection, Inspection, inspect_images, inspect_pairs
from segkit.images.labels import UNLABELLED, LabelMap
from segkit.images.pairs import Dataset, Pair, load_pairs, pair
from segkit.images.read import IMAGE_EXTENSIONS, check_image, read_image, read_mask, read_pages, to_float
from segkit.images.stems import list_images
from segkit.images.write import overlay, write_image, write_mask, write_overlay, write_probability

__all__ = [
    "IMAGE_EXTENSIONS",
    "UNLABELLED",
    "Dataset",
    "ImageInspection",
    "Inspection",
    "LabelMap",
    "Pair",
    "check_image",
    "inspect_images",
    "inspect_pairs",
    "list_images",
    "load_pairs",
    "overlay",
    "pair",
    "read_image",
    "read_mask",
    "read_pages",
    "to_float",
    "write_image",
    "write_mask",
    "write_overlay",
    "write_probability",
]
