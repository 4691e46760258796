from benchmarks.scores import differences

# Pixels by truth and prediction, row by row; mean IoU 1 and 0.
RIGHT, WRONG = [4, 0, 0, 4], [0, 4, 4, 0]
HALF = [2, 2, 0, 4]  # mean IoU (2 / 4 + 4 / 6) / 2
MINE, RIVAL = "segkit-no-networks", "forest"


def result(name, *runs):
    return {
        "name": f"segmentation-{name}",
        "runs": [
            {"method": method, "n_train": 1, "seed": seed, "images": dict.fromkeys("xyz", counts)}
            for method, seed, counts in runs
        ],
    }


def row_of(table):
    """Cells of the only row."""
    [line] = table.splitlines()[2:]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_sets_have_equal_weight_and_splits_of_one_set_are_not_beside_those_of_two():
    both = (MINE, 0, RIGHT), (RIVAL, 0, HALF)
    one = (MINE, 1, RIGHT), (RIVAL, 1, WRONG)
    table = differences([result("drive", *both), result("isbi2012_em", *both, *one)], MINE)
    less = 1 - (2 / 4 + 4 / 6) / 2
    n_train, rival, gap, splits, sets, runs = row_of(table)
    assert (n_train, rival, sets, runs) == ("1", "pixel forest", "2", "3")
    assert gap.startswith(f"{(less + (less + 1) / 2) / 2:+.3f}")
    assert splits == f"{less:+.3f} to {less:+.3f}"


def test_without_a_split_of_all_sets_no_means_of_splits_are_told():
    table = differences(
        [
            result("drive", (MINE, 0, RIGHT), (RIVAL, 0, HALF)),
            result("isbi2012_em", (MINE, 1, RIGHT), (RIVAL, 1, HALF)),
        ],
        MINE,
    )
    assert row_of(table)[3] == ""


def test_the_method_itself_and_methods_without_common_splits_are_left_out():
    own = result("drive", (MINE, 0, RIGHT), ("fcn", 1, RIGHT))
    assert len(differences([own], MINE).splitlines()) == 2
