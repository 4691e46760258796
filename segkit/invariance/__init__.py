"""Groups of transformations, and the kernels and features that are invariant to them."""

from segkit.invariance.groups import Composition, Group, Identity, draw_elements
from segkit.invariance.laws import Law, LogNormal, Normal, Uniform, VonMises
from segkit.invariance.permutations import MatrixPermutation, NormSortedPermutation, Permutation
from segkit.invariance.signals import PitchShift, TimeWarp
from segkit.invariance.spatial import (
    Affine,
    Dihedral,
    PolarRotation,
    Rotation,
    Scaling,
    Translation,
    to_polar,
)

__all__ = [
    "Affine",
    "Composition",
    "Dihedral",
    "Group",
    "Identity",
    "Law",
    "LogNormal",
    "MatrixPermutation",
    "NormSortedPermutation",
    "Normal",
    "Permutation",
    "PitchShift",
    "PolarRotation",
    "Rotation",
    "Scaling",
    "TimeWarp",
    "Translation",
    "Uniform",
    "VonMises",
    "draw_elements",
    "to_polar",
]
