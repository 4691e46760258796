"""Objects as GeoJSON, in the form that QuPath reads and writes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from segkit.errors import InputError, printable
from segkit.images.outlines import IGNORED, REGION, Outline, Outlines, check_label_image
from segkit.images.polygons import Polygon, trace
from segkit.images.write import save_as

# Types of objects of QuPath up to version 0.2, where they are the id of the feature.
_OLD_TYPES = {f"Path{kind}Object": kind.lower() for kind in ("Annotation", "Detection", "Cell", "Tile")}
_LONGEST_KIND = 40  # letters of a geometry's type in a message


def outlines_from_geojson(content: Any, *, name: str = "GeoJSON") -> Outlines:
    """Read the objects of parsed GeoJSON; annotations of QuPath beside detections are regions it looked for them in."""
    features = _features(content, name)
    try:
        return _outlines(features)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"not GeoJSON ({error}), expected features with geometry and properties: export it again",
            source=name,
        ) from error


def _outlines(features: Iterable[Mapping[str, Any]]) -> Outlines:
    outlines: list[tuple[str, Outline]] = []
    left_out: Counter[str] = Counter()
    for feature in features:
        geometry = feature.get("geometry") or {}
        properties = feature.get("properties") or {}
        if not (polygons := _polygons(geometry)):
            left_out[_kind(geometry)] += 1
            continue
        outline = Outline(
            polygons,
            _text(properties.get("name")),
            _class_name(properties),
            _plane(geometry.get("plane")),
        )
        role = _role(feature, properties, outline)
        outlines.append((role, outline._replace(class_name=REGION) if role == "region" else outline))
    has_detections = any(role in ("detection", "cell") for role, _ in outlines)
    has_annotations = any(role == "annotation" for role, _ in outlines)
    no_objects = ("region", "ignored", "annotation") if has_detections else ("region", "ignored")
    return Outlines(
        [outline for role, outline in outlines if role not in no_objects],
        left_out,
        regions=[outline for role, outline in outlines if role in no_objects and role != "ignored"],
        ignored=[outline for role, outline in outlines if role == "ignored"],
        kind="detections" if has_detections else "annotations" if has_annotations else "",
    )


def _kind(geometry: Mapping[str, Any]) -> str:
    """Name the kind of a geometry that has no area."""
    kind = geometry.get("type") or "without geometry"
    if not isinstance(kind, str):
        raise TypeError(f"the type of a geometry is a {type(kind).__name__}")
    return printable(kind[:_LONGEST_KIND])


def _polygons(geometry: Mapping[str, Any]) -> list[Any]:
    """Return the polygons of a geometry, those of its parts if it is a collection."""
    kind, coordinates = geometry.get("type"), geometry.get("coordinates") or []
    if kind == "GeometryCollection":
        return [polygon for part in geometry.get("geometries") or [] for polygon in _polygons(part)]
    if kind == "Polygon" and coordinates:
        return [coordinates]
    return list(coordinates) if kind == "MultiPolygon" else []


def _role(feature: Mapping[str, Any], properties: Mapping[str, Any], outline: Outline) -> str:
    """Return what QuPath says an outline is; "" of other programs."""
    kind = _text(properties.get("objectType") or properties.get("object_type")).lower()
    if outline.class_name == IGNORED:
        return "ignored"
    if outline.class_name == REGION or kind == "tmacore":
        return "region"
    return kind or _OLD_TYPES.get(_text(feature.get("id")), "")


def _plane(plane: Any) -> str:
    """Return the plane of a stack, the first where the file does not tell."""
    plane = plane if isinstance(plane, dict) else {}
    return f"z {plane.get('z', 0)}, t {plane.get('t', 0)}"


def write_geojson(
    path: str | Path,
    labels: ArrayLike,
    class_names: Mapping[int, str] | None = None,
) -> None:
    """Write objects as GeoJSON that QuPath opens.

    Parameters
    ----------
    path : str or Path
        A ``.geojson`` or ``.json`` file; missing folders are made, an existing file is replaced.
    labels : array-like of shape (H, W), int
        0 for background, the id of an object elsewhere.
    class_names : mapping of int to str, optional
        The class of each object, by id.

    Raises
    ------
    InputError
        If there are negative ids, or no whole numbers of shape (H, W).
    OutputError
        If the extension is another one, or the file cannot be written.

    Notes
    -----
    Outlines follow the edges of pixels, so that `read_instances` gives the same label image. The name of an object is
    its id. Pieces that touch by corners only are polygons of one MultiPolygon.
    """
    names = class_names or {}
    write_features(
        path,
        (
            (object_id, polygons, names.get(object_id))
            for object_id, polygons in trace(check_label_image(labels, name=str(path))).items()
        ),
    )


def write_features(path: str | Path, objects: Iterable[tuple[int, list[Polygon], str | None]]) -> None:
    """Write objects one after the other, each by its id, its outlines, and its class, if it has one."""

    def save(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.write('{"type":"FeatureCollection","features":[')
            for number, given in enumerate(objects):
                file.write("," * (number > 0) + json.dumps(_feature(*given), separators=(",", ":")))
            file.write("]}\n")

    save_as(path, (".geojson", ".json"), save)


def _feature(object_id: int, polygons: list[Polygon], class_name: str | None) -> dict[str, Any]:
    properties: dict[str, Any] = {"objectType": "detection", "name": str(object_id)}
    if class_name is not None:
        properties["classification"] = {"name": class_name}
    return {"type": "Feature", "geometry": _geometry(polygons), "properties": properties}


def _geometry(polygons: list[Polygon]) -> dict[str, Any]:
    closed = [[[*ring.tolist(), ring[0].tolist()] for ring in rings] for rings in polygons]
    if len(closed) == 1:
        return {"type": "Polygon", "coordinates": closed[0]}
    return {"type": "MultiPolygon", "coordinates": closed}


def _features(content: Any, name: str) -> list[dict[str, Any]]:
    if isinstance(content, dict):
        content = content.get("features") if content.get("type") == "FeatureCollection" else [content]
    if not isinstance(content, list) or not all(
        isinstance(feature, dict) and feature.get("type") == "Feature" for feature in content
    ):
        raise InputError(
            "neither GeoJSON nor COCO, expected a FeatureCollection, a list of Features, or images and "
            "annotations: export the objects as GeoJSON",
            source=name,
        )
    return content


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _class_name(properties: Mapping[str, Any]) -> str:
    """Return the class as QuPath shows it: "Tumor", or "Tumor: Positive" of a derived class."""
    classification = properties.get("classification") or {}
    if isinstance(classification, str):
        return classification
    return ": ".join(classification.get("names") or [_text(classification.get("name"))])
