"""The classifier of pixels: a linear support vector machine and its probabilities."""

from segkit.classifier.svm import LinearSVM

__all__ = ["LinearSVM"]
