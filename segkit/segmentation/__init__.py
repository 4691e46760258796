"""From annotated images to label maps: the pipeline, how it is evaluated, and its model file."""

from segkit._common.device import device
from segkit._common.memory import memory_limit
from segkit.segmentation.alarms import ImageCheck
from segkit.segmentation.base import BaseSegmenter, Segmentation
from segkit.segmentation.folders import predict_folder
from segkit.segmentation.segmenter import Segmenter, load

__all__ = [
    "BaseSegmenter",
    "ImageCheck",
    "Segmentation",
    "Segmenter",
    "device",
    "load",
    "memory_limit",
    "predict_folder",
]
