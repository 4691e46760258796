"""Segment biomedical images from 1 to 15 annotated ones.

The public names below are imported on first use, so `import segkit` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

_PUBLIC = {
    "ConditionalCovarianceSelector": "segkit.selection",
    "ConvNetBank": "segkit.features",
    "LinearGaussianMixture": "segkit.kernels",
    "LinearMixture": "segkit.kernels",
    "LinearSVM": "segkit.classifier.svm",
    "MMDSelector": "segkit.selection",
    "MixtureRFF": "segkit.kernels",
    "ModuleBank": "segkit.features",
    "OrbitBank": "segkit.features",
    "ScatteringBank": "segkit.features",
    "Segmenter": "segkit.segmentation.segmenter",
    "StackedBank": "segkit.features",
    "TimmBank": "segkit.features",
    "device": "segkit._device",
    "load": "segkit.segmentation.segmenter",
    "memory_limit": "segkit._memory",
    "predict_folder": "segkit.segmentation.folders",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'segkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
