"""Objects: told apart, measured, in tables and in pictures."""

from segkit.objects.link import link
from segkit.objects.measure import measure
from segkit.objects.split import Splitter, split

__all__ = ["Splitter", "link", "measure", "split"]
