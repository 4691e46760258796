import re

import pytest

from benchmarks import overview, readme
from benchmarks.common import RESULTS

# Pixels by truth and prediction, row by row; their mean IoU.
FULL, HALF, NONE = [4, 0, 0, 4], [2, 2, 0, 4], [0, 4, 4, 0]
IOU = {tuple(FULL): 1.0, tuple(HALF): (2 / 4 + 4 / 6) / 2, tuple(NONE): 0.0}


def run(method, counts, n_train=1, seed=0, **more):
    images = dict.fromkeys(("x", "y", "z"), counts)
    known = {"method": method, "n_train": n_train, "seed": seed, "images": images, "device": "cpu"}
    return known | {"budget_limited": None} | more


def development(name, *runs):
    return {"name": f"segmentation-{name}", "runs": list(runs)}


def cells_of(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line]


def every_kind():
    """One development set, one of the first look, one external one: both sizes, all shown methods."""
    counts = {"segkit-no-networks": FULL, "segkit-networks": HALF, "forest": NONE}
    names = {"segkit-no-networks": "none", "segkit-networks": "two", "forest": "forest"}
    seeds = {"drive": 3, "axon_sem": 2, "busi": 1}

    def runs_of(name):
        return [
            run(method, found, n_train, seed)
            for method, found in counts.items()
            for n_train in (1, 5)
            for seed in range(seeds[name])
        ]

    return [
        development("drive", *runs_of("drive")),
        {"name": "axon_sem", "runs": runs_of("axon_sem")},
        {
            "name": "external-x",
            "kinds": {"busi": "breast tumours"},
            "runs": [one | {"set": "busi", "method": names[one["method"]]} for one in runs_of("busi")],
        },
    ]


def test_sets_of_every_kind_stand_in_one_table():
    results = every_kind()
    results[0]["runs"].append(run("segkit-no-networks", NONE, seed=9))  # no other method ran this split
    table = overview.sixteen(results)
    assert re.findall("### (.*)", table) == ["With 1 training image", "With 5 training images"]
    rows = [row for row in cells_of(table) if not row[0].startswith(("set", "---"))]
    half, gap = f"{IOU[tuple(HALF)]:.3f}", "+1.000<br>(+1.000\u00a0to\u00a0+1.000)"
    titles = [
        "drive: vessels of the retina<br>development, 3",
        "axon_sem: myelin and axons, scanning EM, three classes<br>first look, 2",
        "busi: breast tumours<br>external, 1",
    ]
    means = [f"**mean of 1 sets**<br>{kind}" for kind in ("development", "first look", "external")]
    assert [row[0] for row in rows[::2]] == 2 * titles
    assert [row[0] for row in rows[1::2]] == 2 * means
    for of_set, mean in zip(rows[::2], rows[1::2], strict=True):
        alone = "<br>images only" if "busi" in of_set[0] else ""
        assert of_set[1] == mean[1] == gap + alone
        assert [cell.partition("<br>")[0] for cell in of_set[2:]] == mean[2:] == ["1.000", half, "0.000"]


def test_means_give_each_set_the_same_weight():
    methods = ("segkit-no-networks", "segkit-networks", "forest")
    few = development("drive", *(run(method, FULL, size) for method in methods for size in (1, 5)))
    many = development(
        "kvasir_seg_256",
        *(run(method, NONE, size, seed) for method in methods for size in (1, 5) for seed in range(4)),
    )
    rows = cells_of(overview.sixteen([few, many]))
    assert next(row for row in rows if row[0].startswith("**mean of 2 sets**"))[2:] == ["0.500"] * 3


RIVAL = "fcn-vgg19"


def headline_of(paper, rival, n_seeds=2):
    """The paper's recipe scores like `paper`, the FCN like `rival`; all others like `HALF`."""
    counts = {"segkit-paper": paper, RIVAL: rival, "forest": HALF} | dict.fromkeys(
        ("segkit-networks", "segkit-no-networks"), HALF
    )
    runs = [
        run(method, found, seed=seed, budget_limited=seed == 0)
        for method, found in counts.items()
        for seed in range(n_seeds)
    ]
    alone = run("segkit-paper", NONE, seed=9)  # no rival ran this split
    return overview.headline([development("drive", *runs, alone)])


def test_headline_compares_on_splits_that_all_ran():
    table = headline_of(HALF, FULL)
    row = cells_of(table)[2]
    gap = IOU[tuple(HALF)] - 1
    assert row[0] == "1"
    assert [cell[:6] for cell in row[2:5]] == [f"{gap:+.3f}"] * 3
    assert row[1] == "pre-trained FCN-8s: drive (2)"
    assert "1 of 2 runs of this FCN-8s were stopped" in table


@pytest.mark.parametrize(
    ("paper", "rival", "told", "shown"),
    [
        (FULL, HALF, "above the pre-trained FCN-8s with 1 training image, and above the pixel forest", True),
        (
            NONE,
            HALF,
            "below the pre-trained FCN-8s with 1 training image, and below the pixel forest",
            False,
        ),
        (
            HALF,
            HALF,
            "neither above nor below the pre-trained FCN-8s, and neither above nor below the pixel",
            False,
        ),
    ],
)
def test_headline_is_shown_only_beyond_chance(paper, rival, told, shown):
    table = headline_of(paper, rival)
    assert told in table
    assert ("do not show the paper's headline" not in table) == shown
    assert ("may be chance" in " ".join(cells_of(table)[2][2:3])) == (paper == rival)


def test_a_rival_that_shares_no_split_is_left_out():
    runs = [
        run(method, HALF) for method in ("segkit-paper", "segkit-networks", "segkit-no-networks", "forest")
    ]
    rows = cells_of(overview.headline([development("drive", *runs, run(RIVAL, HALF, seed=5))]))
    assert [row[1] for row in rows[2:]] == ["pixel forest: drive (1)"]


def test_recipes_are_beside_the_unet_on_splits_that_all_three_ran():
    ran = [run("smp", FULL), run("segkit-networks", HALF), run("segkit-no-networks", NONE)]
    alone = [run("segkit-networks", NONE, seed=1), run("segkit-networks", NONE, 5)]
    [row] = cells_of(overview.against_unet([development("drive", *ran, *alone)]))[2:]
    half = IOU[tuple(HALF)]
    assert row[:5] == ["1", "drive (1)", "1.000", f"{half:.3f}", "0.000"]
    assert [cell[:6] for cell in row[5:7]] == [f"{half - 1:+.3f}", "-1.000"]


def test_few_runs_are_counted():
    results = every_kind()
    results[0]["runs"] += [run("segkit-paper", HALF), run("segkit-paper", HALF, seed=1)]
    networks = [run("unet", HALF, 1, seed, budget_limited=seed > 0) for seed in range(3)]
    results.append(development("kvasir_seg_256", *networks, run("fcn", HALF, 5, budget_limited=True)))
    results.append(development("isbi2012_em", run("smp", HALF, 5)))
    draws, trained = overview.few_runs(results).splitlines()
    assert "3 on the development sets, 2 on the first look sets and 1 on the external sets" in draws
    assert "of the recipe of the paper 2 on the development sets" in draws
    assert (
        "on a processor: on kvasir_seg_256 with 1 and 5 training images, 1 to 3 splits; on isbi2012_em only U-Net on "
        "MobileNetV2, pre-trained, to early stopping, with 5 training images, 1 split; on drive none."
        in trained
    )
    assert "3 of 5 runs were stopped" in trained


def test_networks_on_every_set_leave_none_out():
    runs = [run(method, HALF) for method in ("segkit-no-networks", "segkit-paper", "unet", "fcn")]
    _, trained = overview.few_runs([development("drive", *runs)]).splitlines()
    assert "on a processor: on drive with 1 training image, 1 split. 0 of 2" in trained


def test_tables_may_have_several_patterns():
    patterns = "segmentation-*.json first-look/*.json external-458efc0.json"
    names = [path.relative_to(RESULTS).as_posix() for path in readme.list_files(patterns)]
    assert len(names) == 4 + 6 + 1
    assert names[0] == "segmentation-drive.json"
    assert names[-1] == "external-458efc0.json"
