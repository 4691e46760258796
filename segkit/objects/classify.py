"""Classes of objects, learnt from a few objects that were named: a linear SVM on their measurements."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from segkit._common.files import safe_cell, saving
from segkit.classifier import LinearSVM
from segkit.errors import InputError, count, first_few, one_line
from segkit.images.masks import open_objects
from segkit.images.outlines import Outlines
from segkit.images.outputs import is_same, refuse_existing, refuse_unwritable
from segkit.images.record import made_aside
from segkit.images.stems import name_of
from segkit.objects.tables import IMAGES_FILE, OBJECTS_FILE, four_digits

_KEY = ["image", "label"]
# Columns that say which object it is, or where; those of pixels give way to their like in micrometres.
_NO_FEATURES = ("label", "class", "pixel_class", "class_probability")
_PLACES = ("centroid", "bbox")
_LENGTHS = ("area", "perimeter", "axis_major_length", "axis_minor_length", "nearest_distance")
# What people and spreadsheets make of yes.
_YES = ("yes", "true", "1")
# Held out are a fifth of the images or objects, or more where a class has few.
_N_FOLDS = 5

Splits = list[tuple[NDArray[np.intp], NDArray[np.intp]]]


@dataclass(frozen=True, eq=False)
class ClassifiedObjects:
    """Classes of all objects, and how many named ones held-out predictions got right.

    Parameters
    ----------
    table : pandas.DataFrame
        The objects with columns ``class`` and ``class_probability``.
    features : list of str
        The measurements that decide.
    n_named : dict of str to int
        Number of named objects of each class.
    n_right : int or None
        Number of named objects whose class was predicted without them; None if a class has a single object.
    by : {"images", "objects"}
        What was held out.
    """

    table: pd.DataFrame
    features: list[str]
    n_named: dict[str, int]
    n_right: int | None
    by: str

    def describe(self) -> list[str]:
        """Describe the classes, and how far to trust them."""
        counts = Counter(self.table["class"])
        n_all, n_named = len(self.table), sum(self.n_named.values())
        told = [
            f"{count(n_all, 'object')}: "
            + ", ".join(f"{name} {counts[name]:,} ({counts[name] / n_all:.0%})" for name in self.n_named)
        ]
        if self.n_right is None:
            return [*told, "How many are right is not known: name two objects of each class or more."]
        low, high = binomtest(self.n_right, n_named).proportion_ci(method="wilson")
        where = "in images held out" if self.by == "images" else "held out"
        return [
            *told,
            f"Of {count(n_named, 'named object')} {where}, {self.n_right} ({self.n_right / n_named:.0%}, 95 % interval "
            f"{low:.0%} to {high:.0%}) got their class.",
        ]

    @property
    def decided_by(self) -> str:
        """The measurements that decide, in a sentence."""
        return f"Decided by {first_few(self.features, most=100)}."


def classify_objects(objects: pd.DataFrame, named: pd.DataFrame) -> ClassifiedObjects:
    """Learn classes from a few named objects, and give each object one.

    Parameters
    ----------
    objects : pandas.DataFrame
        A row for each object, as in ``objects.csv``: ``image``, ``label`` and measurements. Columns of numbers decide, but
        for places; lengths and areas do in micrometres where all are known.
    named : pandas.DataFrame
        ``image``, ``label`` and ``class`` of some of the objects, of two classes or more.

    Returns
    -------
    ClassifiedObjects
        The table with ``class`` and ``class_probability``. A column ``class`` that it had before, of pixels, is called
        ``pixel_class``.

    Raises
    ------
    InputError
        If columns are missing, an object is named that is not there or is named twice, or there are not two classes.

    Notes
    -----
    The classifier is `segkit.classifier.LinearSVM` with balanced classes, on measurements of mean 0 and standard deviation
    1. Decisions become probabilities by a logistic curve that is fitted to held-out decisions (J. Platt, 1999); without
    any, ``class_probability`` is empty. It is that of the class which is given. A named object keeps the class of its name,
    however probable. Balanced classes find objects of a rare class, at the price of others that are taken for them: then it
    may be below one half.
    """
    _check_columns(objects, _KEY, "the table of objects")
    _check_columns(named, [*_KEY, "class"], "the table of named objects")
    keys = pd.MultiIndex.from_frame(_as_text(objects, _KEY))
    names = _names(named, keys)
    rows = keys.get_indexer(pd.MultiIndex.from_tuples(list(names)))
    y = np.array(list(names.values()))
    features = _features(objects)
    X = objects[features].to_numpy(dtype=np.float64, copy=True)
    X[~np.isfinite(X)] = np.nan
    vary = np.array([np.unique(column[~np.isnan(column)]).size > 1 for column in X[rows].T], dtype=bool)
    X, features = X[:, vary], [name for name, varies in zip(features, vary, strict=True) if varies]
    if not features:
        raise InputError(
            "the table of objects has no measurements that differ between named objects: give objects.csv as segkit wrote "
            "it, or name other objects"
        )
    splits, by = _hold_out(X[rows], y, keys.get_level_values(0)[rows])
    machine: Any = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True),
        StandardScaler(),
        LinearSVM(class_weight="balanced"),
    )
    n_right, likely = None, np.full(len(X), np.nan)
    if splits:
        n_right = int((cross_val_predict(machine, X[rows], y, cv=splits) == y).sum())
        machine = CalibratedClassifierCV(machine, cv=splits, ensemble=False)
    machine.fit(X[rows], y)
    # the class is that of the machine whose errors were counted, also where another one is more probable; names are facts
    found = (machine.calibrated_classifiers_[0].estimator if splits else machine).predict(X)
    found[rows] = y
    if splits:
        likely = machine.predict_proba(X)[np.arange(len(X)), np.searchsorted(machine.classes_, found)]
    # classes that were learnt before make room; those of pixels are kept
    learnt = "class_probability" in objects or "pixel_class" in objects
    rest = objects.drop(columns=["class", "class_probability"] if learnt else [], errors="ignore")
    rest = rest.rename(columns={"class": "pixel_class"})
    rest.insert(2, "class", found)
    rest.insert(3, "class_probability", likely)
    return ClassifiedObjects(rest, features, dict(sorted(Counter(y.tolist()).items())), n_right, by)


def classify_table(
    objects: str | Path, named: str | Path, output: str | Path, *, overwrite: bool = False
) -> ClassifiedObjects:
    """Classify the objects of a CSV file by those named in a file; write ``objects.csv`` and ``images.csv`` to a folder.

    Names are in another CSV file, or are the classes that objects were given in QuPath: GeoJSON, of an image or a folder.
    Of a table with a column ``checked``, as that of an annotation session, the objects that a person checked are named.
    """
    output, places = Path(output), [Path(OBJECTS_FILE), Path(IMAGES_FILE)]
    files = [output / place for place in places]
    for file, given in itertools.product(files, (objects, named)):
        if is_same(file, Path(given)):
            raise InputError(f"{given} would be replaced: give another folder for the results")
    refuse_existing(files, overwrite=overwrite)
    for file in files:
        refuse_unwritable(file, within=output)
    text = _read(objects)
    found = classify_objects(_as_numbers(text), _read_names(Path(named), text))
    table = found.table.copy()
    for name in table.columns.difference(["class", "class_probability"]):
        table[name] = text[name if name in text else "class"]  # as it was written
    table["class"] = table["class"].map(safe_cell)
    table["class_probability"] = table["class_probability"].map(four_digits, na_action="ignore")
    names = list(found.n_named)
    counts = pd.crosstab(found.table["image"], found.table["class"])
    counts = counts.reindex(index=found.table["image"].unique(), columns=names, fill_value=0)
    counts.columns = [safe_cell(f"count_{name}") for name in names]
    counts.insert(0, "count", counts.sum(axis=1))
    with made_aside(output, "classified", places) as aside:
        _write(aside / OBJECTS_FILE, table)
        _write(aside / IMAGES_FILE, counts.reset_index(names="image"))
    return found


def _read(path: str | Path) -> pd.DataFrame:
    """Read a table as text."""
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is no table ({one_line(str(error))}): give a CSV file in UTF-8, with commas and a first line of names"
        ) from error
    table.columns = table.columns.str.strip()
    return table[(table != "").any(axis=1)].reset_index(drop=True)


def _read_names(path: Path, objects: pd.DataFrame) -> pd.DataFrame:
    """Read the classes of named objects from a table, or from GeoJSON."""
    if path.is_dir():
        files = {name_of(file.relative_to(path)): file for file in sorted(path.rglob("*.geojson"))}
        if not files:
            raise InputError(f"{path} holds no GeoJSON: give a folder of NAME.geojson, or a CSV file")
    elif path.suffix.lower() in (".geojson", ".json"):
        files = {name_of(Path(path.name)): path}
    else:
        return _checked(_read(path), path)
    given = [
        (image, outline.name.strip(), outline.class_name.strip())
        for image, file in files.items()
        for outline in _outlines(file).objects
    ]
    named = pd.DataFrame(given, columns=[*_KEY, "class"], dtype=str)
    if unnumbered := int((named["label"] == "").sum()):
        raise InputError(
            f"{path}: {count(unnumbered, 'object')} without a name, expected its number in objects.csv: give classes to the "
            "objects that segkit wrote as GeoJSON, and export them with their names"
        )
    # the class that segkit wrote is that of the pixels
    column = next((name for name in ("pixel_class", "class") if name in objects), None)
    if column is None:
        return named
    written = pd.MultiIndex.from_frame(_as_text(objects, [*_KEY, column]))
    return named[~pd.MultiIndex.from_frame(_as_text(named, [*_KEY, "class"])).isin(written)]


def _checked(named: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Keep the objects that a person checked, if the table says which."""
    if "checked" not in named:
        return named
    is_checked = named["checked"].str.strip().str.casefold().isin(_YES)
    if not is_checked.any():
        raise InputError(
            f"{path}: no object has yes in the column checked, so none is named: write yes there, or leave the column out"
        )
    return named[is_checked]


def _outlines(path: Path) -> Outlines:
    outlines = open_objects(path)
    if not isinstance(outlines, Outlines):
        raise InputError(f"{path} is no GeoJSON: export the objects from QuPath as GeoJSON")
    return outlines


def _write(path: Path, table: pd.DataFrame) -> None:
    with saving(path) as temporary:
        # a file name that is no valid text holds lone surrogates, which UTF-8 cannot encode
        table.to_csv(
            temporary, index=False, encoding="utf-8", errors="backslashreplace", lineterminator="\r\n"
        )


def _as_numbers(text: pd.DataFrame) -> pd.DataFrame:
    """Read the columns of numbers; cells without one are NaN."""
    table = text.copy()
    for name in table.columns.difference([*_KEY, *_NO_FEATURES]):
        numbers = pd.to_numeric(text[name], errors="coerce")
        is_empty = text[name].str.strip().str.lower().isin(["", "nan", "na"])
        wrong = text[name][numbers.isna() & ~is_empty]
        if numbers.notna().any() and wrong.size:
            raise InputError(
                f"column {name} of the table of objects holds {one_line(wrong.iloc[0])}, which is no number: write numbers "
                "with a point, or leave the column out"
            )
        if not wrong.size:
            table[name] = numbers
    return table


def _check_columns(table: pd.DataFrame, needed: Sequence[str], what: str) -> None:
    if missing := [name for name in needed if name not in table]:
        raise InputError(
            f"{what} has no column {', '.join(missing)}: give {', '.join(needed)} in its first line, with "
            "commas between them"
        )


def _as_text(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    return table[list(names)].convert_dtypes().astype(str).apply(lambda column: column.str.strip())


def _names(named: pd.DataFrame, keys: pd.MultiIndex) -> dict[tuple[str, str], str]:
    """Return the class of each named object."""
    if keys.has_duplicates:
        raise InputError(
            f"object {_shown(keys[keys.duplicated()][0])} is in the table of objects twice: leave one out"
        )
    found: dict[tuple[str, str], str] = {}
    for image, label, name in _as_text(named.dropna(subset=["class"]), [*_KEY, "class"]).itertuples(
        index=False
    ):
        if not name:
            continue
        if found.setdefault((image, label), name) != name:
            raise InputError(
                f"object {_shown((image, label))} is named {found[image, label]} and {name}: leave one out"
            )
    if unknown := [_shown(key) for key in found if key not in keys]:
        raise InputError(
            f"named objects that are not in the table of objects: {first_few(unknown)}; give image and label as they stand "
            "there"
        )
    classes = sorted(set(found.values()))
    alike: dict[str, str] = {}
    for name in classes:
        if (other := alike.setdefault(name.casefold(), name)) != name:
            raise InputError(f"classes {other} and {name} differ in capital letters only: write both alike")
    if len(classes) < 2:
        raise InputError(
            f"the named objects are of {count(len(classes), 'class', 'classes')}{': ' if classes else ''}"
            f"{', '.join(classes)}; name some of two classes or more"
        )
    return found


def _shown(key: Any) -> str:
    return f"{key[1]} of {key[0]}"


def _features(objects: pd.DataFrame) -> list[str]:
    """List the measurements that decide."""
    numbers = [
        name
        for name in objects.select_dtypes("number").columns
        if name not in _NO_FEATURES and not name.startswith((*_PLACES, "Unnamed:"))
    ]
    physical = [name for name in numbers if name.endswith(("_um", "_um2"))]
    if "area_um2" in physical and objects["area_um2"].notna().all():
        return [name for name in numbers if name not in _LENGTHS]
    return [name for name in numbers if name not in physical]


def _hold_out(X: NDArray[np.float64], y: NDArray[Any], images: Any) -> tuple[Splits, str]:
    """Split named objects, by images if all classes are learnt without each; no splits if a class has a single object."""
    of_classes = [np.unique(images[y == name]).size for name in np.unique(y)]
    if (n_folds := min(_N_FOLDS, *of_classes)) > 1:
        splits = list(StratifiedGroupKFold(n_folds).split(X, y, images))
        if all(np.unique(y[learnt]).size == np.unique(y).size for learnt, _ in splits):
            return splits, "images"
    n_folds = min(_N_FOLDS, *Counter(y.tolist()).values())
    return (list(StratifiedKFold(n_folds).split(X, y)) if n_folds > 1 else []), "objects"
