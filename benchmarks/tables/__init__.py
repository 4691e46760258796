"""Tables and figures of the papers, measured anew: ``python -m benchmarks.tables NAME [--quick]``."""
