"""The options of a run: a typed schema, YAML files and ``--set key=value``."""

from segkit.config.read import read_options, shipped
from segkit.config.schema import Config

__all__ = ["Config", "read_options", "shipped"]
