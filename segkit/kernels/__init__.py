"""Kernels: their values, their random features, and mixtures learnt from the labels."""

from segkit.kernels.base import (
    Anova,
    Gaussian,
    Kernel,
    KernelMixture,
    L1Laplacian,
    Laplacian,
    Normalized,
    Polynomial,
    ShiftInvariantKernel,
    median_gamma,
)
from segkit.kernels.fourier import RandomFourierFeatures
from segkit.kernels.linear import LinearMixture
from segkit.kernels.linear_gaussian import LinearGaussianMixture
from segkit.kernels.mixture import MixtureRFF
from segkit.kernels.mmd import alignment, mixture_weights, mmd, mmd_squared, power_criterion
from segkit.kernels.nystrom import NystroemFeatures

__all__ = [
    "Anova",
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
    "Polynomial",
    "RandomFourierFeatures",
    "ShiftInvariantKernel",
    "alignment",
    "median_gamma",
    "mixture_weights",
    "mmd",
    "mmd_squared",
    "power_criterion",
]
