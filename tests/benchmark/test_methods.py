import json
from pathlib import Path

import pytest

from segkit.baselines import FCN, PixelForest, UNet
from segkit.benchmark import DEFAULT_METHODS, load_data, load_methods
from segkit.benchmark.methods import Method
from segkit.config.schema import Config
from segkit.errors import ConfigError
from segkit.features import bank_to_dict
from segkit.segmentation.segmenter import Segmenter


def test_every_default_method_can_be_made():
    kinds = {"segkit": Segmenter, "forest": PixelForest, "fcn": FCN, "unet": UNet}
    for method in load_methods(DEFAULT_METHODS):
        segmenter = method.build(7)
        assert type(segmenter) is kinds[method.kind]
        assert segmenter.random_state == 7


def test_the_shipped_file_describes_methods():
    file = Path(__file__).parents[2] / "configs" / "benchmark.yaml"
    chosen = load_methods(["segkit-vgg", "fcn", "unet", "forest", "forest-vgg"], file)
    assert [method.kind for method in chosen] == ["segkit", "fcn", "unet", "forest", "forest"]
    # where it does not mean to differ, it says what is built in
    for method in chosen:
        assert method == load_methods([method.name])[0]


@pytest.mark.parametrize(
    ("method", "config"),
    [
        ("segkit-networks", "two-networks"),
        ("segkit-tuned", "tuned"),
        ("segkit-tuned-long", "tuned-long"),
    ],
)
def test_networks_are_those_of_the_shipped_config(method, config):
    file = Path(__file__).parents[2] / "configs" / f"{config}.yaml"
    shipped, [ours] = Config.load(file).build(), load_methods([method])
    assert list(map(bank_to_dict, ours.build(0).bank)) == list(map(bank_to_dict, shipped.bank))


def test_options_reach_the_estimators(tmp_path):
    file = tmp_path / "methods.yaml"
    file.write_text(
        "mine: {title: My own, bank: {name: scattering, J: 2}}\nforest: {kind: forest, n_estimators: 9}\n"
    )
    chosen = load_methods(["mine", "forest", "unet", "mine"], file, ["unet.n_filters=8", "mine.svm.C=3"])
    assert [method.name for method in chosen] == ["mine", "forest", "unet"]
    mine, forest, unet = (method.build(0) for method in chosen)
    assert (chosen[0].title, mine.bank.J, mine.svm.C) == ("My own", 2, 3)
    assert forest.n_estimators == 9
    assert unet.n_filters == 8


def test_defaults_are_not_changed_by_overrides():
    before = json.dumps(DEFAULT_METHODS)
    load_methods(["segkit-vgg"], None, ["segkit-vgg.bank.name=vgg19"])
    assert json.dumps(DEFAULT_METHODS) == before


def test_classes_are_named_once_for_all_methods(tmp_path):
    file = tmp_path / "methods.yaml"
    file.write_text("data: {labels: {0: rest, 3: cell}, unlabelled: 9}\nforest: {kind: forest}\n")
    assert load_data(file).labels == {0: "rest", 3: "cell"}
    assert load_data(file, ["data.unlabelled=7", "forest.n_estimators=3"]).unlabelled == 7
    assert load_data().labels is None
    assert [method.name for method in load_methods(["forest"], file, ["data.unlabelled=7"])] == ["forest"]
    with pytest.raises(ConfigError, match="method data: choose among"):
        load_methods(["data"], file)
    with pytest.raises(ConfigError, match=r"unknown key data\.lables: the nearest is data\.labels"):
        load_data(None, ["data.lables=3"])


def test_a_file_of_methods_with_a_number_for_a_name(tmp_path):
    file = tmp_path / "methods.yaml"
    file.write_text("1: {kind: forest}\n")
    with pytest.raises(ConfigError) as caught:
        load_methods(["1"], file)
    assert str(caught.value) == f"configuration {file}: the name of method 1 is not text: put it in quotes"


def test_filters_of_convpaint():
    for name, layers in (("convpaint", ["conv1_1"]), ("convpaint-m", ["conv1_1", "conv1_2", "conv2_1"])):
        bank = load_methods([name])[0].build(0).bank.set_params(weights="random")
        expected = {layer + scale for layer in layers for scale in ("", "@0.5", "@0.25")}
        assert {channel.group for channel in bank.channels()} == expected


def test_classifier_of_convpaint():
    """50 trees of CatBoost of depth 5 on maps read at the nearest cell; segkit's centring and threshold by name only."""
    for name, normalization, threshold in (
        ("convpaint", "set", "zero"),
        ("convpaint-m", "set", "zero"),
        ("convpaint-centred", "image", "quantile+otsu"),
    ):
        forest = load_methods([name])[0].build(0)
        assert (forest.classifier, forest.n_estimators, forest.max_depth) == ("catboost", 50, 5)
        found = (forest.interpolation, forest.normalization, forest.threshold)
        assert found == ("nearest", normalization, threshold)


def test_the_centred_forest_differs_by_centring_and_threshold_alone():
    usual, centred = (load_methods([name])[0].build(0).get_params() for name in ("forest", "forest-centred"))
    changed = {name: value for name, value in centred.items() if usual[name] != value}
    assert changed == {"normalization": "image", "threshold": "quantile+otsu"}


def test_methods_survive_json():
    for method in [*load_methods(DEFAULT_METHODS), *load_methods(["fcn"], None, ["fcn.backbone=resnet50"])]:
        assert Method.from_dict(method.name, json.loads(json.dumps(method.to_dict()))) == method


def test_bad_methods():
    for names, overrides, message in (
        (["nnunet"], [], "method nnunet: choose among segkit-vgg"),
        ([], [], "no method chosen"),
        (["a/b"], ["a/b.kind=forest"], "use letters, digits"),
        (["unet"], ["unte.depth=3"], "--set unte.depth=3: there is no method unte: the nearest is unet"),
        (["fcn", "unet"], ["forest.bank=3"], "--set forest.bank=3: forest is not among --methods fcn,unet"),
        (
            ["fcn"],
            ["fcn.backbone=resnet50", "fcn.n_hidden=512", "fcn.output_stride=16"],
            "method fcn: output_stride=16 does nothing under backbone='resnet50': leave it out, or change backbone",
        ),
        (["mine"], ["mine=3"], "method mine is 3: give a mapping"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_methods(names, None, overrides)
        assert message in str(caught.value)


def test_bad_options_of_a_method():
    for name, option, message in (
        ("unet", "filters=8", "unknown key filters: the nearest is n_filters"),
        ("unet", "n_filters=-1", "n_filters=-1: input should be greater than 0"),
        ("unet", "depth=1000", "depth=1000: input should be less than or equal to 8"),
        ("unet", "kind=resnet", "kind 'resnet' is none of segkit, forest, fcn, unet"),
        ("unet", "learning_rate=[]", "learning_rate"),
        ("segkit-vgg", "svm.los=1", "unknown key svm.los: the nearest is svm.loss"),
        ("segkit-vgg", "seed=3", "seed is the same for all methods: give it by --seeds"),
        ("segkit-vgg", "data.unlabelled=3", "data is the same for all methods: give it beside the methods"),
        ("segkit-vgg", "objects.smallest=3", "objects is for segkit train and predict: leave it out"),
        (
            "fcn-scratch",
            "preprocessing=caffe",
            "preprocessing='caffe' does nothing under weights=None: leave it out, or change weights",
        ),
        (
            "smp",
            "depth=3",
            "depth=3 does nothing under encoder='mobilenet_v2': leave it out, or change encoder",
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            load_methods([name], None, [f"{name}.{option}"])
        assert f"method {name}: {message}" in str(caught.value)


def test_the_recipe_without_networks_is_that_of_train():
    [method] = load_methods(["segkit-no-networks"])
    assert method.options == Config.from_options({})
    assert method.title == "segkit, no networks"


def test_names_of_methods_are_names_of_files(tmp_path):
    file = tmp_path / "methods.yaml"
    for name in ("..", ".hidden", "-n/..", ""):
        file.write_text(json.dumps({name: {"kind": "forest"}}))
        with pytest.raises(ConfigError, match="it names files"):
            load_methods([name], file)
