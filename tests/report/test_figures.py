import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from segkit.report import figures
from segkit.report.summary import summarise
from tests.images.conftest import contrast

LOOKS = figures.looks({"a": "First", "b": "$x^2$ <b>\"'&"})
KERNELS = [
    {"name": f"{family} gamma={gamma}", "gamma": gamma, "weight": 0.25, "score": gamma / (1 + gamma)}
    for family in ("gaussian", "laplacian")
    for gamma in (0.01, 1.0)
]


def draw_all(result):
    rows = summarise([record for record in result["records"] if record["seed"] == 0])
    looks = figures.looks({method: entry["title"] for method, entry in result["methods"].items()})
    sums = {"a": {"count": [10, 0, 4], "probability": [1, 0, 3.5], "hits": [2, 0, 3]}}
    panel = {"xy": [[0, 1], [2, 3], [1, 1]], "label": [0, 1, 1]}
    return {
        "key": figures.draw_key(LOOKS["a"]),
        "other key": figures.draw_key(LOOKS["b"]),
        "curve": figures.draw_learning_curve(rows, looks, single_class=("background", 0.4)),
        "object curve": figures.draw_learning_curve(rows, looks, of_objects=True),
        "spread": figures.draw_spread({"a": [0.2, 0.4, 0.9], "b": [0.5]}, LOOKS, low=0.2),
        "other spread": figures.draw_spread({"a": [0.3, 0.4, 0.9], "b": [0.5]}, LOOKS, low=0.2),
        "bars": figures.draw_bars({"conv1": 3, "conv2": 9}, "channels", "Channels"),
        "bandwidths": figures.draw_bandwidth_curve(KERNELS, "MMD", "MMD against gamma"),
        "embedding": figures.draw_embedding(panel, ["background", "$x^2$ <b>\"'&"], "t-SNE"),
        "reliability": figures.draw_reliability(sums, LOOKS),
    }


@pytest.fixture(scope="module")
def drawn(result):
    with matplotlib.rc_context({"font.size": 30, "text.usetex": True, "axes.grid": True}):  # of the caller
        drawn = draw_all(result)
        assert matplotlib.rcParams["font.size"] == 30
    return {name: (svg, ElementTree.fromstring(svg)) for name, svg in drawn.items()}


def texts(root):
    return [element.text for element in root.iter("text")]


@pytest.mark.parametrize(("score", "is_drawn"), [(0.5, True), (0.05, False)])
def test_a_map_of_one_class_is_a_line_where_it_is_in_reach(result, score, is_drawn):
    rows = summarise(result["records"])
    for row in rows:
        row.mean_iou, row.mean_iou_interval = 0.8, (0.7, 0.9)
    looks = figures.looks({method: entry["title"] for method, entry in result["methods"].items()})
    svg = figures.draw_learning_curve(rows, looks, single_class=("sky", score))
    assert ("every pixel" in texts(ElementTree.fromstring(svg))) == is_drawn
    assert ("sky" in texts(ElementTree.fromstring(svg))) == is_drawn


def test_figures_take_the_ink_of_the_page(drawn):
    for name, (svg, root) in drawn.items():
        assert "#010203" not in svg, name
        assert name.endswith("key") or "currentColor" in svg, name
        assert "<metadata" not in svg
        assert "<?xml" not in svg
        assert root.tag == "svg"
        assert (root.get("role"), root.get("aria-hidden")) == (
            (None, "true") if name.endswith("key") else ("img", None)
        )


def test_ids_are_unique_over_figures_and_all_are_used(drawn):
    ids = [element.get("id") for _, root in drawn.values() for element in root.iter() if element.get("id")]
    used = {
        value.split("#")[1].rstrip(")")
        for _, root in drawn.values()
        for element in root.iter()
        for name, value in element.attrib.items()
        if name in ("href", "clip-path")
    }
    assert len(ids) == len(set(ids))
    assert set(ids) == used


def test_names_are_text_and_no_mathematics(drawn):
    assert "$x^2$ <b>\"'&" in texts(drawn["spread"][1])
    assert "$x^2$ <b>\"'&" in texts(drawn["embedding"][1])
    assert "<b>" not in drawn["spread"][0]


def test_ticks_are_plain_numbers(drawn):
    assert {"1", "5", "15"} <= set(texts(drawn["curve"][1]))
    assert {"0.01", "1"} <= set(texts(drawn["bandwidths"][1]))


def test_empty_bins_have_no_marker_and_full_ones_the_largest(drawn):
    _, root = drawn["reliability"]
    style = f"fill: {figures.COLOURS[0]}"
    outlines = [path.get("d") for path in root.iter("path") if style in path.get("style", "")]
    of_ten, of_four = (np.ptp([float(x) for x in re.findall(r"[\d.]+", line)[::2]]) for line in outlines)
    low, high = figures._MARKER_AREAS
    areas = [low + np.sqrt(n / 14) * (high - low) for n in (10, 4)]
    assert of_ten / of_four == pytest.approx(np.sqrt(areas[0] / areas[1]), rel=1e-4)


def test_figures_are_the_same_every_time():
    first, second = (figures.draw_bars({"x": 1.0}, "a", "b") for _ in range(2))
    assert first == second


def test_names_that_do_not_fit_or_print():
    names = {
        "x" * 60: "x" * 23 + "…",
        "bell\x07": "bell�",
        "zero\x00": "zero�",
        "bad \udcff": "bad �",
        "病变": "病变",  # glyphs that matplotlib lacks, without a warning
    }
    shown = texts(ElementTree.fromstring(figures.draw_bars(dict.fromkeys(names, 1.0), "share", "Shares")))
    assert set(names.values()) <= set(shown)


def test_unprintable_titles_do_not_break_the_label():
    svg = figures.draw_spread({"a": [0.5]}, figures.looks({"a": "bell\x07\udcff"}), low=0)
    assert "\x07" not in svg
    assert "\udcff" not in svg


def test_crowds_become_pixels(rng):
    scores = rng.random(2500)
    svg = figures.draw_spread({"a": scores.tolist()}, LOOKS, low=0)
    assert "data:image/png" in svg
    assert len(svg) < 300_000


def test_every_method_has_a_look_of_its_own():
    looks = figures.looks({str(number): "" for number in range(20)}).values()
    assert len({(look.colour, look.marker) for look in looks}) == 20
    assert len({look.colour for look in list(looks)[:7]}) == 7


def test_colours_stand_out_on_light_and_dark():
    for paper in ("#ffffff", "#fcfbf8", "#15181c"):
        for colour in figures.COLOURS:
            first, second = (tuple(bytes.fromhex(text[1:])) for text in (colour, paper))
            assert contrast(first, second) >= 3, (colour, paper)
