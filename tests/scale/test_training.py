"""A training whose banks or held-out images are judged on workers gives the model of one process."""

import pytest
from threadpoolctl import threadpool_limits

from segkit import Segmenter
from segkit.features import Module, ModuleBank

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("n_banks", [1, 2])
def test_banks_or_images_judged_on_workers_give_the_same_model(cluster, cells, tmp_path, n_banks):
    images, labels = zip(*(cells(seed) for seed in range(3 if n_banks > 1 else 7)), strict=True)
    masks = [(one > 0).astype(int) for one in labels]
    banks = [ModuleBank((Module(n_scales=n, n_angles=3),)) for n in range(1, n_banks + 1)]
    with threadpool_limits(1):
        for name, options in (("plain", {}), ("spread", {"n_jobs": cluster})):
            segmenter = Segmenter(banks, selection_pixels=300, training_pixels=500)
            segmenter.fit(images, masks, **options).save(tmp_path / f"{name}.segkit")
            assert len(segmenter.held_out_.scores) == len(images)
    assert (tmp_path / "spread.segkit").read_bytes() == (tmp_path / "plain.segkit").read_bytes()
