"""Segment biomedical images from 1 to 15 annotated ones.

The public names below are imported on first use, so `import segkit` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

_PUBLIC = {
    "LinearMixture": "segkit.kernels",
    "LinearSVM": "segkit.classifier.svm",
    "MixtureRFF": "segkit.kernels",
    "MultiscaleBank": "segkit.features",
    "OrbitAveraged": "segkit.features",
    "OrbitBank": "segkit.features",
    "PositionBank": "segkit.features",
    "ScatteringBank": "segkit.features",
    "Segmenter": "segkit.segmentation.segmenter",
    "StackedBank": "segkit.features",
    "device": "segkit._common.device",
    "load": "segkit.segmentation.segmenter",
    "load_pairs": "segkit.images",
    "memory_limit": "segkit._common.memory",
    "predict_folder": "segkit.segmentation.folders",
    "read_image": "segkit.images",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'segkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
