"""Measurements behind the numbers of the pages: `python -m benchmarks --help`."""

# Name of a study, and of its rows in results/ -> its module.
STUDIES: dict[str, str] = {
    "segmentation": "benchmarks.segmentation",
    "tuned": "benchmarks.tuned",
    "attribution": "benchmarks.attribution",
    "objects": "benchmarks.objects",
    "strokes": "benchmarks.strokes",
    "afternoon": "benchmarks.afternoon",
    "napari": "benchmarks.napari_afternoon",
    "advice": "benchmarks.advice",
    "coverage": "benchmarks.coverage",
    "calibration": "benchmarks.calibration",
    "planes": "benchmarks.planes",
    "speed": "benchmarks.speed",
    "large": "benchmarks.large",
    "scale": "benchmarks.scale",
    "figures": "benchmarks.figures",
    "kills": "benchmarks.kills",
    "fuzz": "benchmarks.fuzz",
    "reproducibility": "benchmarks.reproducibility",
    "soak": "benchmarks.soak",
    "cdf": "benchmarks.tables.cdf",
    "orbit_features": "benchmarks.tables.orbit_features",
    "orbit_error": "benchmarks.tables.orbit_error",
    "few_digits": "benchmarks.tables.few_digits",
    "positive_definite": "benchmarks.tables.positive_definite",
    "bandwidths": "benchmarks.tables.bandwidths",
    "asu": "benchmarks.tables.asu",
    "rates": "benchmarks.tables.rates",
    "orbit_segmentation": "benchmarks.orbit_segmentation",
}

# Tables of a study that are in another module.
TABLES_OF = {"segmentation": "benchmarks.comparisons"}
