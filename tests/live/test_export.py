from pathlib import Path

import numpy as np
import pytest

from segkit.config.schema import Config
from segkit.errors import OutputError
from segkit.images import load_pairs
from segkit.live import LiveSession, Objects
from segkit.live.export import training_options
from segkit.segmentation.segmenter import load
from tests.live.conftest import PATIENCE, complaint, draw, learn, listen


@pytest.mark.parametrize(
    "by_hand", [[], ["objects.smallest=90", "objects.depth=0.3"], ["objects.least_probability=0.97"]]
)
def test_the_exported_model_counts_as_the_session_does(project, cache, truth, by_hand):
    quick = Config.load(None, ["training.pixels=2000", "selection.pixels=500", *by_hand])
    with LiveSession(project, cache=cache, config=quick) as session:
        heard = listen(session)
        learn(session, truth)
        for is_whole in (False, True):
            if is_whole:
                session.accept("a")
                assert session.wait(PATIENCE)
            event, done = heard.of(Objects)[-1], session.export()
            model = load(done.model).objects_
            assert event.rule == done.objects == model.rule
            ids, probability = session.predict("a")
            # labels win over what is predicted
            drawn = project.labels("a").labels
            found = model.splitter.split(ids, probability=probability[:, :, 1])
            different = found != event.labels
            assert (drawn[different] == 1).all()
            assert different.sum() < 5
            assert model.source == ("regions" if is_whole else "strokes")
            assert model.is_by_hand == bool(by_hand)
            if len(by_hand) == 2:
                assert (model.splitter.least_area, model.splitter.depth) == (90, 0.3)


@pytest.mark.slow
def test_export_is_what_the_command_line_trains(session, project, truth, monkeypatch, capsys):
    from segkit.cli.commands import main

    for key in "ab":
        draw(session, key, truth[key])
    done = session.export()
    exported = load(done.model)
    images = load_pairs(project.source, done.masks, only_annotated=True, **project.training_options())
    assert images.stems == ["a", "b"]
    expected = exported.predict(images.images)
    probabilities = exported.predict_proba(images.images)
    session.close()
    words = done.command.split()
    assert words[:2] == ["segkit", "train"]
    done.model.unlink()
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    again = load(done.model)
    assert again.label_map_ == exported.label_map_
    # Beside the threads of a session, linear algebra may have fewer of its own, and sums are rounded otherwise.
    for one, other in zip(again.predict_proba(images.images), probabilities, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    for one, other in zip(again.predict(images.images), expected, strict=True):
        assert np.mean(one == other) > 0.999


def test_an_export_replaces_its_own_files_and_no_others(session, project, truth, tmp_path):
    draw(session, "a", truth["a"])
    mine = project.output / "model.segkit"
    mine.write_text("mine")
    told = f"{mine} was not written by segkit, or changed since: move it elsewhere, or choose another folder"
    assert complaint(OutputError, session.export) == told
    assert mine.read_text() == "mine"
    assert not (project.output / "train.yaml").exists()
    mine.unlink()
    for key in "ab":
        draw(session, key, truth[key])
        assert load(session.export().model).classes_.tolist() == [0, 1]
    exported = session.export(model=tmp_path / "elsewhere.segkit").model
    mine.write_bytes(Path(exported).read_bytes()[:-1])
    assert complaint(OutputError, session.export) == told
    # `segkit train`, which the command calls, keeps no record
    load(exported).save(mine, settings={"seed": 1})
    session.export()
    options = project.output / "train.yaml"
    options.write_text("seed: 2")
    assert "train.yaml was not written by segkit, or changed since" in complaint(OutputError, session.export)


def test_a_bank_keeps_its_name_in_the_options_of_an_export(project):
    for bank in ("{name: multiscale}", "{name: stacked, banks: [{name: position}, {name: multiscale}]}"):
        config = Config.load(None, [f"bank={bank}"])
        assert Config.from_options(training_options(project, config)).bank == config.bank
