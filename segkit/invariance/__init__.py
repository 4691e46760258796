"""Groups of transformations, and the kernels and features that are invariant to them.

References
----------
Y. Mroueh, S. Voinea, T. Poggio, Learning with group invariant features: a kernel perspective, 2015.
A. Raj et al., Local group invariant representations via orbit embeddings, 2017.
T. Liu et al., Learning from few samples: transformation-invariant SVMs with composition and locality at multiple scales,
2022.
"""

from segkit.invariance.bestfit import average_fit, best_fit, largest_pd_n, smallest_eigenvalue
from segkit.invariance.cdf import GroupCDF
from segkit.invariance.embeddings import FourierEmbedding, StepEmbedding
from segkit.invariance.groups import Composition, Group, Identity, draw_elements, virtual_samples
from segkit.invariance.laws import Law, LogNormal, Normal, Uniform, VonMises
from segkit.invariance.local import LocalPolynomialKernel
from segkit.invariance.orbit import OrbitFourier, OrbitNystroem
from segkit.invariance.permutations import NormSortedPermutation, Permutation
from segkit.invariance.spatial import Affine, Dihedral, Reflection, Rotation, Scaling, Translation
from segkit.invariance.tangent import tangent_distances

__all__ = [
    "Affine",
    "Composition",
    "Dihedral",
    "FourierEmbedding",
    "Group",
    "GroupCDF",
    "Identity",
    "Law",
    "LocalPolynomialKernel",
    "LogNormal",
    "NormSortedPermutation",
    "Normal",
    "OrbitFourier",
    "OrbitNystroem",
    "Permutation",
    "Reflection",
    "Rotation",
    "Scaling",
    "StepEmbedding",
    "Translation",
    "Uniform",
    "VonMises",
    "average_fit",
    "best_fit",
    "draw_elements",
    "largest_pd_n",
    "smallest_eigenvalue",
    "tangent_distances",
    "virtual_samples",
]
