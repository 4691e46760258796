"""Scores: IoU, Dice and others, of pixels and of objects, their intervals, and the scores of folders of masks."""

from segkit.evaluation.folders import compare_folders
from segkit.evaluation.metrics import Scores, score_masks
from segkit.evaluation.object_scores import ObjectScores, score_objects

__all__ = ["ObjectScores", "Scores", "compare_folders", "score_masks", "score_objects"]
