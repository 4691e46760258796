import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from segkit import Segmenter, load
from segkit.config.recorded import RecordedTraining
from segkit.config.schema import Config
from segkit.errors import ConfigError, InputError, ModelFileError, WeightsError
from segkit.features import TimmBank
from segkit.features import backbone as backbone_module
from segkit.features.base import sample_maps
from segkit.features.tiles import Tile
from segkit.segmentation.model_file import _check_sources, read_model

timm = pytest.importorskip("timm", reason="timm is not installed: pip install segkit-bio[foundation]")

VIT = {"network": "test_vit", "weights": "random", "window": 32}


def noise(height, width, n_channels=3, seed=0):
    return np.random.default_rng(seed).random((height, width, n_channels), dtype=np.float32)


def normalised(image, model):
    found = timm.get_pretrained_cfg(model)
    scaled = (image - np.float32(found.mean)) / np.float32(found.std)
    return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1)))[None]


def state_of(bank, n=None):
    wanted = np.arange(bank.n_channels() if n is None else n)
    return {name: torch.from_numpy(value) for name, value in bank.weights_used(wanted, 3).items()}


@pytest.mark.parametrize(
    ("model", "window", "layers", "options"),
    [
        ("resnet18", 64, [0, 2], {}),
        ("convnext_atto", 64, [1, 2], {}),
        ("vit_tiny_patch16_224", 48, [0, 1], {"norm": True}),
        ("vit_small_patch14_reg4_dinov2", 42, [0, 1], {"norm": True}),
        ("sam2_hiera_tiny", 64, [0, 1], {}),
        ("vit_small_patch16_dinov3", 32, [0], {"norm": True}),
    ],
)
def test_maps_equal_timms_own(model, window, layers, options):
    """Of an image that is one window, the maps are those of the network, made and run by timm alone."""
    bank = TimmBank(model, weights="random", window=window, layers=layers)
    image = noise(window, window)
    fixed = timm.get_pretrained_cfg(model).fixed_input_size
    network = timm.create_model(model, num_classes=0, **({"img_size": window} if fixed else {})).eval()
    loaded = network.load_state_dict(state_of(bank), strict=False)
    assert not loaded.unexpected_keys
    with torch.inference_mode():
        expected = network.forward_intermediates(
            normalised(image, model), indices=layers, intermediates_only=True, output_fmt="NCHW", **options
        )
    stacks = bank.maps(image)
    assert len(stacks) == len(expected)
    for stack, maps in zip(stacks, expected, strict=True):
        np.testing.assert_allclose(stack.values, maps[0].numpy(), rtol=1e-4, atol=1e-4)
        assert stack.stride == window / maps.shape[2]


def test_maps_of_convolutions_equal_those_of_features_only():
    bank = TimmBank("test_resnet", weights="random", window=32, layers=[0, 1])
    network = timm.create_model("test_resnet", features_only=True, out_indices=[0, 1]).eval()
    assert not network.load_state_dict(state_of(bank), strict=False).missing_keys
    image = noise(32, 32)
    with torch.inference_mode():
        expected = network(normalised(image, "test_resnet"))
    for stack, maps in zip(bank.maps(image), expected, strict=True):
        np.testing.assert_allclose(stack.values, maps[0].numpy(), atol=1e-5)


def test_positional_embeddings_are_resized_to_the_window(tmp_path):
    """Weights of windows of 96 pixels, in windows of 64: as timm itself with images of any size."""
    torch.manual_seed(0)
    native = timm.create_model("test_vit", num_classes=0, img_size=96, dynamic_img_size=True).eval()
    torch.nn.init.normal_(native.pos_embed)
    save_file(native.state_dict(), tmp_path / "native.safetensors")
    bank = TimmBank("test_vit", weights=tmp_path / "native.safetensors", window=64, layers=[-1])
    image = noise(64, 64)
    with torch.inference_mode():
        [expected] = native.forward_intermediates(
            normalised(image, "test_vit"), indices=[5], norm=True, intermediates_only=True
        )
    np.testing.assert_allclose(bank.maps(image)[0].values, expected[0].numpy(), atol=1e-4)


def test_weights_of_a_file_are_those_of_timm(tmp_path):
    torch.manual_seed(1)
    network = timm.create_model("test_vit", img_size=32)
    path = tmp_path / "weights.pth"
    torch.save({"state_dict": network.state_dict()}, path)
    bank = TimmBank(**VIT | {"weights": path})
    for name, value in state_of(bank).items():
        torch.testing.assert_close(value, network.state_dict()[name])
    assert bank.weights_origin() == [{"model": "test_vit", "source": str(path), "licence": None}]


def naive(bank, image):
    """The map of the first block, window by window, from a mirrored copy of the image."""
    window, hop, cell = bank.window, bank.window // 2, 16
    numbers = [1 + max(0, -(-(length - window) // hop)) for length in image.shape[:2]]
    firsts = [
        ((n - 1) * hop + window - length) // 2 for n, length in zip(numbers, image.shape[:2], strict=True)
    ]
    padded = np.pad(image, [(first, 2 * window) for first in firsts] + [(0, 0)], mode="reflect")
    weight = np.sin(np.pi * (np.arange(window // cell) + 0.5) / (window // cell)) ** 2
    single = TimmBank(bank.network, weights="random", window=window, layers=bank.layers)
    shape = [((n - 1) * hop + window) // cell for n in numbers]
    sums, weights = np.zeros((single.n_channels(), *shape)), np.zeros(shape)
    for i, j in np.ndindex(*numbers):
        top, left = i * hop, j * hop
        [stack] = single.maps(padded[top : top + window, left : left + window])
        for u, v in np.ndindex(stack.values.shape[1:]):
            row, col = i * hop // cell + u, j * hop // cell + v
            sums[:, row, col] += weight[u] * weight[v] * stack.values[:, u, v]
            weights[row, col] += weight[u] * weight[v]
    return sums / weights, [7.5 - first for first in firsts], cell


@pytest.mark.parametrize("shape", [(40, 53), (19, 64)])
def test_windows_are_blended_as_a_loop_does_it(shape):
    bank = TimmBank(**VIT, layers=[0])
    image = noise(*shape)
    [stack] = bank.maps(image)
    values, origin, stride = naive(bank, image)
    assert stack.stride == stride
    first = [(at - start) / stride for at, start in zip(stack.offset, origin, strict=True)]
    assert first == [round(at) for at in first]
    rows, cols = (slice(int(at), int(at) + n) for at, n in zip(first, stack.values.shape[1:], strict=True))
    np.testing.assert_allclose(stack.values, values[:, rows, cols], atol=1e-4)
    assert bank.dense(image, np.arange(2)).shape == (2, *shape)


@pytest.mark.parametrize(
    "options",
    [{}, {"pyramid": (1, 0.5), "layers": [0]}, {"network": "test_resnet", "layers": [0, 2]}],
    ids=["plain", "pyramid", "convolutions"],
)
def test_tiles_are_parts_of_the_whole(options):
    bank = TimmBank(**VIT | options)
    image = noise(83, 97)
    everywhere = bank.maps(image)
    rows, cols = (at.ravel() for at in np.meshgrid(np.arange(30, 60, 5), np.arange(41, 97, 7), indexing="ij"))
    tile = Tile((slice(30, 60), slice(40, 97)), (slice(20, 70), slice(33, 97)))
    part = sample_maps(bank.tile_maps(image, tile), rows - 20, cols - 33)
    np.testing.assert_array_equal(part, sample_maps(everywhere, rows, cols))


@pytest.mark.parametrize(
    ("model", "offsets"),
    [
        ("test_vit", [7.5]),
        ("vit_small_patch14_dinov2", [6.5]),
        ("convnext_atto", [1.5, 3.5, 7.5, 15.5]),
        ("resnet18", [0, 0, 0, 0, 0]),  # odd kernels: the first cell is centred on the first pixel
        ("vgg11", [0, 0.5, 1.5, 3.5, 7.5, 15.5]),
        ("swin_tiny_patch4_window7_224", [1.5, 3.5, 7.5, 15.5]),
        ("hiera_tiny_224", [0, 2, 6, 14]),  # a stem centred on pixels, then pairs of cells
    ],
)
def test_cells_are_where_they_are_said_to_be(model, offsets):
    blocks = backbone_module.blocks_of(model, backbone_module.usual_window(model))
    assert sorted({block.offset for block in blocks}) == sorted(set(offsets))


def test_wanted_channels_only():
    bank = TimmBank(**VIT, pyramid=(1, 0.5))
    image = noise(40, 64)
    every = bank.dense(image)
    wanted = np.array([130, 3, 200])
    np.testing.assert_allclose(bank.dense(image, wanted), every[wanted], atol=1e-5)
    assert bank.n_channels() == len(bank.channels()) == 256
    np.testing.assert_array_equal(np.unique(bank.strides()), [16, 32])
    shallow = set(bank.weights_used(np.array([3]), 3))
    assert shallow < set(bank.weights_used(np.array([100]), 3))


def test_grey_images_and_channels():
    grey = noise(32, 32, 1)
    bank = TimmBank(**VIT)
    np.testing.assert_array_equal(bank.dense(grey), bank.dense(np.repeat(grey, 3, axis=2)))
    with pytest.raises(InputError, match=r"image with 4 channels .* bank.channel_mode=each"):
        bank.maps(noise(32, 32, 4))
    each = TimmBank(**VIT, channel_mode="each", layers=[0])
    two = noise(32, 32, 2)
    alone = TimmBank(**VIT, layers=[0]).dense(two[:, :, 1])
    np.testing.assert_allclose(each.dense(two)[64:], alone, atol=1e-5)


def test_weights_of_a_file_go_into_a_model_or_stay_beside_it(tmp_path):
    path = tmp_path / "weights.safetensors"
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit", num_classes=0, img_size=32).state_dict(), path)
    mask = np.zeros((48, 48), dtype=np.uint8)
    mask[8:30, 16:40] = 1
    image = noise(48, 48) * (0.3 + 0.7 * mask[:, :, None])
    bank = TimmBank("test_vit", weights=path, window=32, layers=[-1])
    segmenter = Segmenter(bank, training_pixels=400, selection_pixels=200, random_state=0).fit(
        [image], [mask]
    )
    found = segmenter.predict(image)
    for embeds in (True, False):
        segmenter.save(tmp_path / "model.segkit", embed_weights=embeds)
        header, arrays = read_model(tmp_path / "model.segkit")
        assert header["weights_origin"] == [{"model": "test_vit", "source": str(path), "licence": None}]
        assert any(name.startswith("weights.") for name in arrays) == embeds
        np.testing.assert_array_equal(load(tmp_path / "model.segkit").predict(image), found)
    save_file(timm.create_model("test_vit", num_classes=0, img_size=32).state_dict(), path)
    with pytest.raises(ModelFileError, match="its network weights are not those it was trained with"):
        load(tmp_path / "model.segkit")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"network": "vit_smal_patch14_dinov2"}, ConfigError, "the nearest are vit_small_patch14_dinov2, "),
        ({"network": "test_vit.unknown"}, ConfigError, "network 'test_vit.unknown' is not one of timm's"),
        (
            {"window": 40},
            ConfigError,
            "window 40: test_vit needs a multiple of 16, at most 2048, such as 256",
        ),
        ({"overlap": 1}, ConfigError, "overlap=1: input should be less than 1"),
        ({"layers": [6]}, ConfigError, "layers [6]: test_vit has blocks 0 to 5 (or -6 to -1)"),
        ({"pyramid": (0.6,)}, ConfigError, "pyramid=(0.6,): scales should be 1, 1/2"),
        ({"pyramid": (1, 1)}, ConfigError, "pyramid=(1, 1): each value should be given once"),
        ({"pyramid": (3,)}, ConfigError, "give scales above 1 that divide 16"),
        ({"channel_mode": "hsv"}, ConfigError, "channel_mode='hsv': input should be 'rgb', 'each' or 'mean'"),
        ({"weights": "nowhere.pth"}, WeightsError, "weights nowhere.pth: no such file"),
    ],
)
def test_bad_options_are_one_line_with_a_cure(options, error, message):
    bank = TimmBank(**VIT | options)
    with pytest.raises(error) as caught:
        bank.maps(noise(64, 64))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_much_smaller_than_a_window_are_refused():
    bank = TimmBank(**VIT | {"window": 64})
    assert bank.dense(noise(23, 70), np.arange(1)).shape == (1, 23, 70)
    with pytest.raises(
        InputError, match=r"image of 20 x 70 pixels is too small for windows of 64 .*bank.window"
    ):
        bank.maps(noise(20, 70))


def test_weights_of_another_network_are_refused(tmp_path):
    save_file({"conv1.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(
        WeightsError,
        match=r"weights lack .* and \d+ more, which the first layer of test_vit needs; .*timm's names",
    ):
        TimmBank(**VIT | {"weights": tmp_path / "other.safetensors"}).maps(noise(32, 32))
    state = timm.create_model("test_vit", img_size=32).state_dict()
    state["norm.weight"] = torch.zeros(3)
    save_file(state, tmp_path / "cut.safetensors")
    with pytest.raises(
        WeightsError, match=r"weights of norm.weight have shape \(3,\), test_vit needs \(64,\)"
    ):
        TimmBank(**VIT | {"weights": tmp_path / "cut.safetensors"}).maps(noise(32, 32))


def test_files_that_would_execute_code_are_not_opened(tmp_path):
    class Attack:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "attacked",))

    torch.save({"norm.weight": Attack()}, tmp_path / "attack.pth")
    with pytest.raises(WeightsError, match="hold more than arrays and were not opened"):
        TimmBank(**VIT | {"weights": tmp_path / "attack.pth"}).maps(noise(32, 32))
    assert not (tmp_path / "attacked").exists()


def test_without_timm_the_cure_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r'needs timm, .*pip install "segkit-bio\[foundation\]"'):
        TimmBank().channels()


class _Hub(BaseHTTPRequestHandler):
    """What the hub answers for a file: its digest and size, then the file; or that it is gated."""

    data, gated, authorised = b"", False, []

    def do_HEAD(self):
        self._answer()

    def do_GET(self):
        self._answer()
        if not self.gated:
            self.wfile.write(self.data)

    def _answer(self):
        import hashlib

        self.authorised.append("Authorization" in self.headers)
        self.send_response(403 if self.gated else 200)
        if self.gated:
            self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", f'"{hashlib.sha256(self.data).hexdigest()}"')
        self.send_header("Content-Length", str(0 if self.gated else len(self.data)))
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on loopback that has one file, and an empty cache; a token that the user has is on this machine."""
    import huggingface_hub

    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: "secret")

    torch.manual_seed(2)
    save_file(timm.create_model("test_vit", img_size=160).state_dict(), tmp_path / "served.safetensors")
    handler = type("Hub", (_Hub,), {"data": (tmp_path / "served.safetensors").read_bytes(), "authorised": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    download = partial(
        huggingface_hub.hf_hub_download,
        endpoint=f"http://127.0.0.1:{server.server_address[1]}",
        cache_dir=tmp_path / "cache",
    )
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    cached = partial(huggingface_hub.try_to_load_from_cache, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    yield handler, server, tmp_path / "cache"
    server.shutdown()
    server.server_close()


def test_pretrained_weights_are_downloaded_once_and_checked(hub):
    handler, server, cache = hub
    image = noise(32, 32)
    first = TimmBank("test_vit", window=32)
    maps = first.dense(image)
    [origin] = first.weights_origin()
    assert origin["model"] == "test_vit.r160_in1k"
    assert origin["source"] == "https://huggingface.co/timm/test_vit.r160_in1k"
    assert origin["licence"] == "apache-2.0"
    assert handler.authorised
    assert not any(handler.authorised)
    server.shutdown()
    np.testing.assert_array_equal(TimmBank("test_vit", window=32).dense(image), maps)
    [blob] = [path for path in cache.rglob("blobs/*") if path.is_file()]
    blob.write_bytes(blob.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(WeightsError, match=r"are damaged or were replaced \(sha256 .*\): delete"):
        TimmBank("test_vit", window=32).maps(image)


def test_what_a_model_file_names_is_not_downloaded(hub, tmp_path):
    handler, *_ = hub
    settings = Config.from_options({"bank": {"name": "timm", "network": "test_vit", "window": 32}})
    recorded = RecordedTraining(tmp_path / "m.segkit", settings.model_dump(mode="json"), None, {})
    told = (
        r"m\.segkit names test_vit, .* a model file starts no download: .* \(--set bank\.network=test_vit\)"
    )
    with pytest.raises(ConfigError, match=told):
        recorded.configure([])
    stored = {"banks": [{"kind": "timm", "network": "test_vit", "weights": "pretrained"}]}
    told = r"m\.segkit: its network weights are timm's of test_vit, which are not here, and a model file starts no"
    with pytest.raises(ModelFileError, match=told):
        _check_sources(stored, {}, "m.segkit")
    assert not handler.authorised
    assert recorded.configure(["bank.network=test_vit"]) == settings
    TimmBank("test_vit", window=32).maps(noise(32, 32))
    assert recorded.configure([]) == settings  # it is here now
    _check_sources(stored, {}, "m.segkit")


def test_gated_weights_say_how_to_get_them(hub):
    handler, *_ = hub
    handler.gated = True
    with pytest.raises(
        WeightsError, match=r"weights of test_vit are gated .* accept .* download .*, and give the file"
    ):
        TimmBank("test_vit", window=32).maps(noise(32, 32))


def test_without_network_the_cure_is_a_file(hub, monkeypatch):
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_OFFLINE", True
    )  # the hub's own retries take half a minute
    with pytest.raises(WeightsError, match=r"cannot be downloaded .*bank.weights=FILE") as caught:
        TimmBank("test_vit", window=32).maps(noise(32, 32))
    assert "\n" not in str(caught.value)
