"""A folder segmented by workers is the folder that one process gives, also if a worker is killed in the middle."""

import os
import signal
import threading
import time

import pytest
from threadpoolctl import threadpool_limits

from segkit.errors import ClusterError, OutputError
from segkit.scale import Cluster
from segkit.segmentation.folders import segment_folder

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

ALL = {"probability": True, "overlay": True, "objects": True}


@pytest.fixture
def run(cell_segmenter, cell_images, tmp_path):
    def segment(output, **options):
        with threadpool_limits(1):
            return segment_folder(cell_segmenter, cell_images, tmp_path / output, **(ALL | options))

    return segment


def test_results_are_those_of_one_process(cluster, run, tmp_path, contents):
    plain, spread = run("plain"), run("spread", workers=cluster.spread)
    assert spread.rows == plain.rows
    assert contents(tmp_path / "spread") == contents(tmp_path / "plain")
    assert run("spread", resume=True).n_kept == 3


def test_relative_folders_are_found_by_workers_elsewhere(
    cluster, cell_segmenter, cell_images, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    outcome = segment_folder(cell_segmenter, "images", "out", workers=cluster.spread)
    assert len(outcome.masks) == 3


@pytest.mark.slow(short=True)
def test_a_failing_image_is_one_failed_row(cluster, run, cell_images):
    (cell_images / "bad.png").write_bytes(b"no picture")
    assert [row.image for row in run("out", workers=cluster.spread).failed] == ["bad.png"]


class Deadly:
    """Kills the worker that comes first, in the middle of an image."""

    def __init__(self, make, mark):
        self.make, self.mark = make, mark

    def __call__(self, job):
        if job.name == "stack.tif" and not self.mark.exists():
            self.mark.touch()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
            time.sleep(60)
        return self.make(job)


def test_a_worker_killed_in_the_middle_loses_nothing(run, tmp_path, contents):
    with Cluster(n_workers=2) as own:
        outcome = run("spread", workers=lambda make, jobs: own.spread(Deadly(make, tmp_path / "mark"), jobs))
    assert (tmp_path / "mark").exists()
    assert [row.status for row in outcome.rows] == ["written"] * 3
    run("plain")
    assert contents(tmp_path / "spread") == contents(tmp_path / "plain")


class Full:
    """Finds the disk full at the second image."""

    def __init__(self, make):
        self.make = make

    def __call__(self, job):
        if job.name == "none.tif":
            raise OutputError(f"{job.mask}: the disk is full") from OSError(28, "No space left on device")
        return self.make(job)


def test_a_full_disk_at_a_worker_ends_the_run_and_resume_goes_on(cluster, run, tmp_path, contents):
    with pytest.raises(OutputError, match=r"none\.png: the disk is full.*written; then --resume goes on"):
        run("spread", workers=lambda make, jobs: cluster.spread(Full(make), jobs))
    run("spread", workers=cluster.spread, resume=True)
    run("plain")
    assert contents(tmp_path / "spread") == contents(tmp_path / "plain")


def test_what_is_written_before_the_scheduler_is_lost_stays(cluster, run, tmp_path, contents):
    def lost_after_the_first(make, jobs):
        spread = cluster.spread(make, jobs)
        yield next(spread)
        spread.close()
        raise ClusterError("the scheduler is lost")

    with pytest.raises(ClusterError):
        run("spread", workers=lost_after_the_first)
    assert "not reached" in (tmp_path / "spread" / "summary.csv").read_text()
    assert run("spread", workers=cluster.spread, resume=True).n_kept == 1
    run("plain")
    assert contents(tmp_path / "spread") == contents(tmp_path / "plain")
