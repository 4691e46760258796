"""Scores: IoU, Dice and others, their intervals, and the scores of folders of masks."""

from segkit.evaluation.folders import compare_folders
from segkit.evaluation.metrics import Scores, score_masks

__all__ = ["Scores", "compare_folders", "score_masks"]
