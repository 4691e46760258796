"""The report of a benchmark or an evaluation: one page that needs no other file."""

from segkit.report.page import write_report
from segkit.report.pictures import Picture

__all__ = ["Picture", "write_report"]
