"""From annotated images to label maps: the pipeline, how it is judged, and its model file."""

from segkit.segmentation.base import BaseSegmenter
from segkit.segmentation.folders import predict_folder
from segkit.segmentation.segmenter import Segmenter, load

__all__ = ["BaseSegmenter", "Segmenter", "load", "predict_folder"]
