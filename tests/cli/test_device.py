import pytest
import torch


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a graphics card")
@pytest.mark.parametrize("command", ["train", "predict"])
def test_a_missing_card_ends_a_command_with_one_line(segkit, tmp_path, command):
    status, _, err = segkit(command, tmp_path, tmp_path, "-o", tmp_path / "out.segkit", "--device", "cuda")
    assert status == 2
    assert err.startswith("segkit: device cuda: torch sees no graphics card")
    assert err.count("\n") == 1


def test_unknown_devices_are_refused(segkit, tmp_path):
    status, _, err = segkit("train", tmp_path, tmp_path, "-o", tmp_path / "out.segkit", "--device", "tpu")
    assert (status, err.strip()) == (2, "segkit: device 'tpu': choose one of auto, cpu, cuda")


def test_workers_compute_on_processors(monkeypatch):
    from segkit.cli.options import spread_over
    from segkit.errors import ConfigError

    monkeypatch.setattr("segkit._device._devices", ["cuda"])
    with (
        pytest.raises(ConfigError, match="--device beside --scheduler or --workers"),
        spread_over("local", None),
    ):
        pass
