"""Selection of features: by conditional covariance, or by the discrepancy of the classes."""

from segkit.selection.covariance import ConditionalCovarianceSelector
from segkit.selection.discrepancy import MMDSelector

__all__ = ["ConditionalCovarianceSelector", "MMDSelector"]
