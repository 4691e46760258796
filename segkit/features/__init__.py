"""Filter banks: image in, feature maps out."""

from segkit.features.base import Channel, FeatureMaps, FilterBank
from segkit.features.convnet import ConvNetBank
from segkit.features.scattering import ScatteringBank

__all__ = ["Channel", "ConvNetBank", "FeatureMaps", "FilterBank", "ScatteringBank"]
