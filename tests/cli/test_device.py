import pytest
import torch

from segkit.cli.options import WORKERS, workers
from segkit.errors import ConfigError


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a graphics card")
@pytest.mark.parametrize("command", ["train", "predict"])
def test_a_missing_card_ends_a_command_with_one_line(segkit, tmp_path, command):
    status, _, err = segkit(command, tmp_path, tmp_path, "-o", tmp_path / "out.segkit", "--device", "cuda")
    assert status == 2
    assert err.startswith("segkit: device cuda: torch sees no graphics card")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device", "tpu", "inspect", "x"], "segkit: device 'tpu': choose one of auto, cpu, cuda"),
        (["inspect", "--device=tpu", "x"], "segkit: device 'tpu': choose one of auto, cpu, cuda"),
        (["inspect", "x", "--device", "tpu", "-q"], "segkit: device 'tpu': choose one of auto, cpu, cuda"),
        (["inspect", "--", "--device"], "segkit: --device: no such file or folder"),
        (["inspect", "x", "--device"], "Option '--device' requires an argument"),
    ],
)
def test_options_of_the_program_stand_before_and_after_the_command(segkit, words, told):
    status, _, err = segkit(*words)
    assert status == 2
    assert told in err


def test_workers_compute_on_processors(monkeypatch):
    monkeypatch.setattr("segkit._common.device._devices", ["cuda"])
    WORKERS.set("local")
    with pytest.raises(ConfigError, match="--device beside --workers"), workers():
        pass
