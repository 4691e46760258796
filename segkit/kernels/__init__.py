"""Kernels: their values, their random features, and which of them hold the classes apart."""

from segkit.kernels.base import (
    Anova,
    Gaussian,
    Kernel,
    L1Laplacian,
    Laplacian,
    Normalized,
    Polynomial,
    ShiftInvariantKernel,
    gram_matrices,
    kernel_from_dict,
    kernel_to_dict,
    median_gamma,
)
from segkit.kernels.fourier import RandomFourierFeatures, fourier_dot, fourier_map
from segkit.kernels.linear import LinearMixture, columnwise_mmd_squared
from segkit.kernels.linear_gaussian import LinearGaussianMixture
from segkit.kernels.mixture import MixtureRFF
from segkit.kernels.mmd import (
    FeatureSums,
    alignment,
    mixture_weights,
    mmd,
    mmd_squared,
    paired_mmd_squared,
    power_criterion,
)
from segkit.kernels.nystrom import NystroemFeatures, NystroemMap
from segkit.kernels.protocol import KernelMixture

__all__ = [
    "Anova",
    "FeatureSums",
    "Gaussian",
    "Kernel",
    "KernelMixture",
    "L1Laplacian",
    "Laplacian",
    "LinearGaussianMixture",
    "LinearMixture",
    "MixtureRFF",
    "Normalized",
    "NystroemFeatures",
    "NystroemMap",
    "Polynomial",
    "RandomFourierFeatures",
    "ShiftInvariantKernel",
    "alignment",
    "columnwise_mmd_squared",
    "fourier_dot",
    "fourier_map",
    "gram_matrices",
    "kernel_from_dict",
    "kernel_to_dict",
    "median_gamma",
    "mixture_weights",
    "mmd",
    "mmd_squared",
    "paired_mmd_squared",
    "power_criterion",
]
