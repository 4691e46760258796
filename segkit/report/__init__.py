"""The report: what a benchmark or an evaluation found, as one page that needs nothing else."""

from segkit.report.page import write_report
from segkit.report.pictures import Picture, Pictures

__all__ = ["Picture", "Pictures", "write_report"]
