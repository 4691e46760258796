"""Filter banks: image in, feature maps out."""

from segkit.features.averaged import OrbitAveraged
from segkit.features.base import Channel, FeatureMaps, FilterBank
from segkit.features.convnet import ConvNetBank
from segkit.features.elongated import ElongatedBank
from segkit.features.modules import Module, ModuleBank
from segkit.features.multiscale import MultiscaleBank
from segkit.features.orbit import OrbitBank
from segkit.features.position import PositionBank
from segkit.features.registry import BANKS, bank_from_dict, bank_to_dict
from segkit.features.scattering import ScatteringBank
from segkit.features.stacked import StackedBank
from segkit.features.timm import TimmBank
from segkit.features.tuned import TunedBank
from segkit.features.volume import VolumeBank

__all__ = [
    "BANKS",
    "Channel",
    "ConvNetBank",
    "ElongatedBank",
    "FeatureMaps",
    "FilterBank",
    "Module",
    "ModuleBank",
    "MultiscaleBank",
    "OrbitAveraged",
    "OrbitBank",
    "PositionBank",
    "ScatteringBank",
    "StackedBank",
    "TimmBank",
    "TunedBank",
    "VolumeBank",
    "bank_from_dict",
    "bank_to_dict",
]
