"""Comparison of methods on the same few-shot splits of a folder of annotated images."""

from segkit.benchmark.methods import DEFAULT_METHODS, load_data, load_methods
from segkit.benchmark.protocol import few_shot_split
from segkit.benchmark.results import read_results
from segkit.benchmark.runner import Benchmark

__all__ = ["DEFAULT_METHODS", "Benchmark", "few_shot_split", "load_data", "load_methods", "read_results"]
