"""Whatever is done to an output folder, in any order: files of the user and files elsewhere are never touched."""

import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from segkit.errors import OutputError
from segkit.images.record import HIDDEN, ForeignFileError, Permissions, digest_file, results_in

NAMES = ("a", "b", "sub/c")
FOLDERS = ("", "overlay")
PLACES = [Path(folder) / f"{name}.geojson" for name in NAMES for folder in FOLDERS]
TABLE = Path("summary.csv")
SOME_NAMES = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
MODELS = st.sampled_from(["1", "2"])


class KilledError(BaseException):
    """The program ends here."""


def places_of(name):
    return [Path("overlay") / f"{name}.geojson", Path(f"{name}.geojson")]


class AnyOrder(RuleBasedStateMachine):
    """A user, runs that are killed or not, and somebody who forges what segkit keeps about the folder."""

    @initialize()
    def begin(self):
        self.root = Path(tempfile.mkdtemp())
        self.output, self.elsewhere = self.root / "out", self.root / "elsewhere"
        self.elsewhere.mkdir()
        (self.elsewhere / "a.geojson").write_text("elsewhere")
        self.mine = {}

    def teardown(self):
        shutil.rmtree(self.root, ignore_errors=True)

    @rule(
        names=SOME_NAMES,
        model=MODELS,
        allowed=st.sampled_from(
            [Permissions(), *(Permissions(**{name: True}) for name in Permissions._fields)]
        ),
        steps=st.none() | st.integers(0, 12),
    )
    def run(self, names, model, allowed, steps):
        """Segment images, as `segment_folder` records it; after so many files on the disk the program is killed."""
        places = [place for name in names for place in places_of(name)]
        left, made, refused = [steps], [], []

        def count(_):
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise KilledError

        is_there = {place for place in (*places, TABLE) if (self.output / place).exists()}
        try:
            with (
                patch("segkit._common.files._sync", count),
                patch("segkit._common.files._sync_names", lambda _: None),
                results_in(self.output, places, [TABLE], allowed) as record,
            ):
                for name in names:
                    if allowed.resume and record.is_done(name, source="s", made_by=model):
                        made.append(name)
                        continue
                    for place in places_of(name):
                        (record.staging / place).parent.mkdir(parents=True, exist_ok=True)
                        (record.staging / place).write_text(f"{model}:{name}:{place}")
                    try:
                        record.put(name, places_of(name), source="s", made_by=model)
                    except ForeignFileError:
                        refused.append(name)
                    else:
                        made.append(name)
                record.staging.mkdir(parents=True, exist_ok=True)
                (record.staging / TABLE).write_text(model)
                record.put("summary", [TABLE])
        except KilledError:
            left_there = self.output / HIDDEN / "new" / "left"
            left_there.parent.mkdir(parents=True, exist_ok=True)
            left_there.write_text("half")
        except OutputError:
            assert is_there or (self.output / "overlay").is_symlink()
            return
        else:
            assert not (self.output / HIDDEN / "new").exists()
            for name in made:
                for place in places_of(name):
                    assert (self.output / place).read_text() == f"{model}:{name}:{place}"
        if allowed.overwrite_foreign:
            for place in (*places, TABLE):
                if not is_whole(self.output / place, self.mine.get(place)):
                    self.mine.pop(place, None)
        else:
            assert all(not self.mine.keys().isdisjoint(places_of(name)) or self.is_linked for name in refused)

    @property
    def is_linked(self):
        return (self.output / "overlay").is_symlink()

    @rule(
        place=st.sampled_from([*PLACES, TABLE, Path("notes.txt")]), text=st.sampled_from(["mine", "mine too"])
    )
    def write(self, place, text):
        """The user makes a file, or changes one."""
        path = self.output / place
        if not any(folder.is_symlink() for folder in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            self.mine[place] = text

    @rule(place=st.sampled_from([*PLACES, TABLE]))
    def delete(self, place):
        """The user deletes a file."""
        if not any(folder.is_symlink() for folder in (self.output / place).parents):
            with contextlib.suppress(FileNotFoundError):
                (self.output / place).unlink()
            self.mine.pop(place, None)

    @precondition(lambda self: not (self.output / "overlay").exists())
    @rule()
    def link(self):
        """Somebody puts a link to a folder elsewhere in the place of a folder of results."""
        self.output.mkdir(exist_ok=True)
        (self.output / "overlay").symlink_to(self.elsewhere)

    @precondition(lambda self: self.output.exists() and self.is_linked)
    @rule()
    def unlink(self):
        """The link is removed."""
        (self.output / "overlay").unlink()

    @rule(
        place=st.sampled_from(
            ["../elsewhere/a.geojson", "overlay/a.geojson", "/etc/hostname", "x/../../elsewhere/a.geojson"]
        )
    )
    def forge(self, place):
        """Somebody writes a record of files elsewhere, with their digests."""
        folder = self.output / HIDDEN / "record"
        folder.mkdir(parents=True, exist_ok=True)
        listed = {place: digest_file(self.elsewhere / "a.geojson")}
        entry = {"name": "a", "source": "s", "made_by": "1", "row": {}, "outputs": listed, "replaced": listed}
        (folder / "forged.json").write_text(json.dumps(entry))

    @invariant()
    def nothing_elsewhere_is_touched(self):
        if hasattr(self, "root"):
            assert [path.read_text() for path in self.elsewhere.iterdir()] == ["elsewhere"]
            assert {path.name for path in self.root.iterdir()} <= {"out", "elsewhere"}

    @invariant()
    def files_of_the_user_are_as_they_were(self):
        for place, text in getattr(self, "mine", {}).items():
            assert (self.output / place).read_text() == text, place


def is_whole(path, text):
    return path.is_file() and path.read_text() == text


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
