"""Methods compared on the same few-shot splits of a folder of annotated images."""

from segkit.benchmark.methods import DEFAULT_METHODS, Method, load_data, load_methods
from segkit.benchmark.protocol import Split, few_shot_split, read_groups
from segkit.benchmark.results import FORMAT_VERSION, read_results
from segkit.benchmark.runner import Benchmark

__all__ = [
    "DEFAULT_METHODS",
    "FORMAT_VERSION",
    "Benchmark",
    "Method",
    "Split",
    "few_shot_split",
    "load_data",
    "load_methods",
    "read_groups",
    "read_results",
]
