"""From layers of napari to arrays and back. Label 0 of a Labels layer means that nobody annotated the pixel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from segkit.errors import InputError, count, first_few
from segkit.images import UNLABELLED, LabelMap, to_float
from segkit.segmentation.segmenter import Segmenter

if TYPE_CHECKING:
    from napari.layers import Image, Labels

# A place in a layer: a number for each axis that is not shown, None for the two that are.
Place = tuple[int | None, ...]

BACKGROUND = 1
_GREATEST = UNLABELLED - 1


def labels_shape(image: Image, *, channels: bool = False) -> tuple[int, ...]:
    """Return the shape of a Labels layer of an Image layer, whose first axis may hold channels."""
    shape = tuple(np.shape(_finest(image)))
    shape = shape[:-1] if image.rgb else shape
    shape = shape[1:] if channels else shape
    if len(shape) < 2:
        cure = "say that its first axis holds no channels" if channels else "choose another image layer"
        raise InputError(
            f"{image.name}: {count(len(shape), 'axis', 'axes')} beside channels, expected two or more: {cure}"
        )
    return shape


def image_plane(image: Image, place: Place, *, channels: bool = False) -> NDArray[Any]:
    """Read a plane of an Image layer, (H, W) or (H, W, C), in its own dtype; a fourth colour, alpha, is left out."""
    index, data = index_of(place), _finest(image)
    if channels:
        return np.moveaxis(np.asarray(data[(slice(None), *index)]), 0, -1)
    plane = np.asarray(data[index])
    return plane[..., :3] if image.rgb else plane


def index_of(place: Place) -> tuple[int | slice, ...]:
    """Return the index of a plane in an array."""
    return tuple(slice(None) if at is None else at for at in place)


def labels_plane(labels: Labels, place: Place) -> NDArray[np.uint8]:
    """Read a plane of a Labels layer as labels of segkit: values of classes, 255 for pixels without annotation."""
    plane = np.asarray(_finest(labels)[index_of(place)])
    low, high = (int(plane.min()), int(plane.max())) if plane.size else (0, 0)
    if low < 0 or high > _GREATEST:
        raise InputError(
            f"{labels.name}: labels from {low} to {high}, expected 1 to {_GREATEST}, one for each class, and 0 for no "
            "annotation: paint with small labels"
        )
    return np.where(plane == 0, UNLABELLED, plane).astype(np.uint8)


def class_names(labels: Iterable[int]) -> dict[int, str]:
    """Name the classes of labels: 1 is the background."""
    return {label: "background" if label == BACKGROUND else f"class {label}" for label in sorted(labels)}


def annotated_places(labels: Labels) -> list[Place]:
    """List the planes of a Labels layer with annotation; its last two axes span a plane."""
    data = np.asarray(_finest(labels))
    leading = np.ndindex(*data.shape[:-2])
    return [(*index, None, None) for index in leading if data[index].any()]


def like(image: Image, *, channels: bool = False) -> dict[str, Any]:
    """Return the place in the world of an Image layer, as arguments of another layer over it."""
    shift = 1 if channels else 0
    n_axes = image.ndim - shift
    kept = {"scale": image.scale[shift:], "translate": image.translate[shift:]}
    if not channels:
        kept |= {"rotate": image.rotate, "shear": image.shear, "affine": image.affine.affine_matrix}
    if hasattr(image, "units"):  # from napari 0.5.5 on
        kept["units"] = image.units[-n_axes:]
    return kept


def train_on_layers(
    images: Image | Sequence[Image],
    labels: Labels | Sequence[Labels],
    *,
    segmenter: Segmenter | None = None,
    channels: bool = False,
) -> Segmenter:
    """Learn from Image layers and the Labels layers painted on them.

    Parameters
    ----------
    images : Image or sequence of Image
        Layers of napari. Each plane along the last two axes is an image.
    labels : Labels or sequence of Labels
        One for each image: 1 is the background, 2, 3, ... are further classes, 0 is no annotation. Planes without
        annotation are left out.
    segmenter : Segmenter, optional
        What is fitted; a `Segmenter` with its default options if it is left out.
    channels : bool, default=False
        Whether the first axis of the images holds channels.

    Returns
    -------
    Segmenter
        Fitted; its masks hold the labels of the layers.

    Raises
    ------
    InputError
        If layers do not fit together, or fewer than two classes are annotated.

    Examples
    --------
    With a viewer that has an image ``cells`` and painted labels ``strokes``::

        segmenter = train_on_layers(viewer.layers["cells"], viewer.layers["strokes"])
        viewer.add_layer(predict_layer(segmenter, viewer.layers["cells"]))
        segmenter.save("cells.segkit")
    """
    pairs = list(_pairs(images, labels, channels=channels))
    held = {value for _, mask in pairs for value in np.unique(mask).tolist()} - {UNLABELLED}
    if len(held) < 2:
        told = first_few([str(value) for value in sorted(held)]) or "none"
        raise InputError(
            f"painted labels: {told}, expected two or more: 1 for the background, 2 for an object"
        )
    label_map = LabelMap.infer(held, labels=class_names(held), unlabelled=UNLABELLED)
    fitted = Segmenter() if segmenter is None else segmenter
    return fitted.fit([image for image, _ in pairs], [mask for _, mask in pairs], label_map=label_map)


def predict_layer(segmenter: Segmenter, image: Image, *, channels: bool = False) -> Labels:
    """Segment all planes of an Image layer.

    Parameters
    ----------
    segmenter : Segmenter
        Fitted, by `train_on_layers` or from masks of files.
    image : Image
        A layer of napari.
    channels : bool, default=False
        Whether the first axis of the image holds channels.

    Returns
    -------
    Labels
        A new layer with the values of the masks that were learnt from; no viewer shows it yet.

    Raises
    ------
    InputError
        If the image has other channels than the training images.
    """
    from napari.layers import Labels

    shape = labels_shape(image, channels=channels)
    data = np.zeros(shape, dtype=np.uint8)
    for index in np.ndindex(*shape[:-2]):
        plane = image_plane(image, (*index, None, None), channels=channels)
        data[index] = segmenter.predict(to_float(plane, name=image.name))
    return Labels(data, name=f"{image.name} prediction", **like(image, channels=channels))


def check_shapes(image: Image, labels: Labels, *, channels: bool = False) -> None:
    """Refuse a Labels layer that does not fit an Image layer."""
    needed, given = labels_shape(image, channels=channels), tuple(np.shape(_finest(labels)))
    if given != needed:
        raise InputError(
            f"{labels.name}: labels of shape {given}, the image {image.name} needs {needed}: choose another Labels layer, "
            "or press New"
        )


def _pairs(
    images: Image | Sequence[Image], labels: Labels | Sequence[Labels], *, channels: bool
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.uint8]]]:
    image_list = list(images) if isinstance(images, Sequence) else [images]
    labels_list = list(labels) if isinstance(labels, Sequence) else [labels]
    if len(image_list) != len(labels_list):
        raise InputError(
            f"{count(len(image_list), 'image layer')} and {count(len(labels_list), 'Labels layer')}: give one for each"
        )
    for image, painted in zip(image_list, labels_list, strict=True):
        check_shapes(image, painted, channels=channels)
        for place in annotated_places(painted):
            plane = image_plane(image, place, channels=channels)
            yield to_float(plane, name=image.name), labels_plane(painted, place)


def _finest(layer: Any) -> Any:
    """Return the data of a layer; those of most pixels if it has several resolutions."""
    return layer.data[0] if getattr(layer, "multiscale", False) else layer.data
