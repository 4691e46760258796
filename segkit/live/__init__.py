"""Annotation while the segmentation follows: label images on disk, strokes with undo, feature maps kept for reuse."""

from segkit.live.cache import FeatureCache, content_key
from segkit.live.classes import LabelClass
from segkit.live.drawing import Drawing, Patch
from segkit.live.project import ImageEntry, Project

__all__ = [
    "Drawing",
    "FeatureCache",
    "ImageEntry",
    "LabelClass",
    "Patch",
    "Project",
    "content_key",
]
