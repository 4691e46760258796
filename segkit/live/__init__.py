"""Annotation while the segmentation follows: strokes in, label maps out, without a window or a server."""

from segkit.live.arrays import ArrayProject
from segkit.live.cache import FeatureCache
from segkit.live.classes import LabelClass
from segkit.live.doubts import Doubt
from segkit.live.drawing import Drawing, Patch
from segkit.live.events import (
    Advised,
    Checked,
    Event,
    Expected,
    ExpectedPoint,
    Failed,
    Labels,
    Network,
    Objects,
    Prediction,
    Run,
    Saved,
    Status,
)
from segkit.live.export import HandOver
from segkit.live.objects import FoundObjects, ObjectEditor
from segkit.live.project import ImageEntry, Project
from segkit.live.session import LiveSession

__all__ = [
    "Advised",
    "ArrayProject",
    "Checked",
    "Doubt",
    "Drawing",
    "Event",
    "Expected",
    "ExpectedPoint",
    "Failed",
    "FeatureCache",
    "FoundObjects",
    "HandOver",
    "ImageEntry",
    "LabelClass",
    "Labels",
    "LiveSession",
    "Network",
    "ObjectEditor",
    "Objects",
    "Patch",
    "Prediction",
    "Project",
    "Run",
    "Saved",
    "Status",
]
