"""Baselines with the interface of `Segmenter`: networks and the pixel forest."""

from segkit.baselines.fcn import FCN
from segkit.baselines.forest import PixelForest
from segkit.baselines.unet import UNet

__all__ = ["FCN", "PixelForest", "UNet"]
