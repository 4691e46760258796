"""Beyond one process: images, runs and sums spread over the workers of a Dask cluster, here or on many machines."""

from segkit.scale.cluster import Cluster

__all__ = ["Cluster"]
