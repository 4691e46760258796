"""Which features to keep: by conditional covariance, or by how far they hold the classes apart."""

from segkit.selection.covariance import EXACT_UP_TO, ConditionalCovarianceSelector
from segkit.selection.discrepancy import MMDSelector

__all__ = ["EXACT_UP_TO", "ConditionalCovarianceSelector", "MMDSelector"]
