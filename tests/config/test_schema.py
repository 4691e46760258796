from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field

from segkit.benchmark import load_methods
from segkit.config.banks import BANK_SCHEMAS, schema_of
from segkit.config.schema import Config
from segkit.errors import ConfigError
from segkit.features import (
    BANKS,
    ConvNetBank,
    ModuleBank,
    MultiscaleBank,
    OrbitAveraged,
    OrbitBank,
    PositionBank,
    ScatteringBank,
    StackedBank,
    bank_to_dict,
)
from segkit.features.registry import group_of
from segkit.kernels import LinearGaussianMixture, MixtureRFF
from segkit.segmentation.segmenter import Segmenter, default_bank
from segkit.selection import ConditionalCovarianceSelector, MMDSelector

BENCHMARK = Path(__file__).parents[2] / "configs" / "benchmark.yaml"
# those that train one model; benchmark.yaml describes methods to compare
CONFIGS = sorted(set((Path(__file__).parents[2] / "configs").glob("*.yaml")) - {BENCHMARK})


@pytest.mark.parametrize("given", ["true", "1.5", "2.0", "'2'", "null", "-1", "101"])
def test_a_context_that_is_no_number_of_planes(given):
    told = r"data\.context=.*: give a whole number of planes on either side, 0 to 100"
    with pytest.raises(ConfigError, match=told):
        Config.load(None, [f"data.context={given}"])


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations_build(path):
    segmenter = Config.load(path).build()
    kinds = {
        "modules-shearlet": ModuleBank,
        "scattering": ScatteringBank,
        "fast": StackedBank,
    }
    kinds |= dict.fromkeys(("paper-004", "paper-004-scattering", "paper-004-as-printed"), StackedBank)
    kinds |= dict.fromkeys(("tuned", "tuned-long", "two-networks"), list)
    assert type(segmenter.bank) is kinds.get(path.stem, ConvNetBank)


@pytest.mark.parametrize("name", ["tuned", "tuned-long"])
def test_tuned_networks_are_compared_with_the_default_bank(name):
    tuned, default = Config.load(BENCHMARK.with_name(f"{name}.yaml"), ["bank.0.banks.0.weights=w.npz"]).bank
    networks, fixed = tuned.banks
    assert (networks.name, networks.weights, fixed.name) == ("tuned", "w.npz", "multiscale")
    assert default == Config().bank


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path):
    (tmp_path / "c.yaml").write_text("svm: {C: 3}\nselection: {n_features: 7}\n")
    config = Config.load(tmp_path / "c.yaml", ["svm.C=0.5", "seed=4", "bank={name: scattering, J: [1, 2]}"])
    segmenter = config.build()
    assert segmenter.svm.C == 0.5
    assert segmenter.selector.n_features_to_select == 7
    assert segmenter.alphas is None
    assert segmenter.training_pixels == 20_000
    assert segmenter.random_state == 4
    assert segmenter.bank.J == (1, 2)


def test_values_reach_the_network():
    options = ["bank.name=vgg19", "bank.weights=w.npz", "bank.preprocessing=caffe", "seed=3"]
    bank = Config.load(None, options).build().bank
    given = (bank.network, bank.weights, bank.preprocessing, bank.random_state)
    assert given == ("vgg19", "w.npz", "caffe", 3)
    assert bank.output_stride is None
    options = ["bank.name=mobilenet_v2", "bank.output_stride=8", "bank.layers=[features.17]"]
    dilated = Config.load(None, options).build().bank
    assert (dilated.output_stride, list(dilated.layers)) == (8, ["features.17"])
    with pytest.raises(ConfigError, match="output_stride"):
        Config.load(None, ["bank.name=mobilenet_v2", "bank.output_stride=4"])


@pytest.mark.parametrize(
    ("name", "kind"), [("scattering", ScatteringBank), ("modules", ModuleBank), ("vgg16", ConvNetBank)]
)
@pytest.mark.parametrize("orbit", ["d4", 12])
def test_an_orbit_averages_any_bank(name, kind, orbit):
    options = [f"bank.name={name}", f"bank.orbit={orbit}"]
    bank = Config.load(None, options).build().bank
    assert type(bank) is OrbitAveraged
    assert type(bank.bank) is kind
    assert bank.group == group_of(orbit)


def test_any_bank_may_stay_as_it_is():
    assert not Config.load(None, ["bank.normalization=set"]).build().bank.centred(3).any()
    for options in ([], ["bank.orbit=d4"]):
        bank = Config.load(None, ["bank.name=multiscale", "bank.normalization=set", *options]).build().bank
        assert (type(bank), bank.normalization) == (StackedBank, "set")
    banks = "bank={name: stacked, banks: [{name: multiscale, normalization: set}, {name: scattering}]}"
    first, second = Config.load(None, [banks]).build().bank.banks
    assert (first.normalization, type(second)) == ("set", ScatteringBank)


@pytest.mark.parametrize("options", [[], ["bank={}"], ["bank.orbit=d4"]])
def test_a_bank_without_a_name_is_the_default_one(options):
    bank = Config.load(None, options).build().bank
    if options == ["bank.orbit=d4"]:
        assert type(bank) is OrbitAveraged
        bank = bank.bank
    assert repr(bank) == repr(default_bank())


def test_the_orbit_bank_has_options_of_its_own():
    bank = Config.load(None, ["bank.name=orbit", "bank.patch_sizes=[5]", "seed=7"]).build().bank
    assert bank_to_dict(bank) == bank_to_dict(OrbitBank((5,), random_state=7))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "bank.name=vgg17",
            "bank.name='vgg17': neither one of segkit's banks (scattering, modules, multiscale, elongated, orbit, position, "
            "timm, tuned, volume, stacked) nor a network of torchvision (vgg16, vgg19, squeezenet1_0, resnet18 and more): "
            "the nearest is vgg19",
        ),
        (
            "bank.name=scatering",
            "nor a network of torchvision (vgg16, vgg19, squeezenet1_0, resnet18 and more): the nearest is scattering",
        ),
        ("bank=[{name: multi}, {name: vgg16}]", "bank.0.name='multi': neither one of segkit's banks"),
        ("bank.orbit=d8", "bank.orbit='d8': input should be d4 or a number of angles, 1 to 720"),
        ("bank.orbit=721", "bank.orbit=721: input should be d4 or a number of angles, 1 to 720"),
        ("bank.orbit=true", "bank.orbit=True: input should be d4 or a number of angles, 1 to 720"),
        ("bank.normalization=batch", "bank.normalization='batch': input should be 'image' or 'set'"),
        ("bank.weigths=a", "unknown key bank.weigths: the nearest is bank.weights; there are name, "),
        ("bank.angel=each", "unknown key bank.angel: the nearest is bank.angles; there are name, "),
        (
            "bank.weights=x",
            "bank.weights is no option of bank.name=stacked, but of the convnet, timm, tuned bank: set bank.name too",
        ),
        ("selection.n_feature=3", "unknown key selection.n_feature: the nearest is selection.n_features"),
        ("kernle.gammas=[1]", "unknown key kernle: the nearest is kernel"),
        (
            "bank.0.J=2",
            "bank.0: bank is no list, whose items have numbers: leave the number out, or give bank as",
        ),
        ("svm.C=-1", "svm.C=-1: input should be greater than 0"),
        ("objects.fill_holes=perhaps", "objects.fill_holes='perhaps': give true or false"),
        ("data.labels=3", "data.labels=3: give names and values in braces, such as {0: background, 1: cell}"),
        ("svm.loss=log", "svm.loss='log': input should be 'squared_hinge' or 'hinge'"),
        ("svm.C", "--set svm.C: needed is key=value"),
        ("svm.C={", "--set svm.C={ is not YAML"),
        ("seed.x=1", "seed={'x': 1}"),
        (
            "bank.banks=[{name: multiscale, J: 2}]",
            "bank.banks.0.J is no option of bank.banks.0.name=multiscale, but of the scattering bank: set bank.banks.0.name",
        ),
        ("bank.banks.0.orbit=d4", "bank.banks={'0': {'orbit': 'd4'}}: give a list"),
        ("bank={name: vgg16, wieghts: x}", "unknown key bank.wieghts: the nearest is bank.weights"),
        ("bank.name=[vgg16]", "bank.name=['vgg16']: input should be a valid string"),
        ("bank={name: stacked, banks: []}", "bank.banks"),
        ("bank={name: stacked, banks: [{name: scattering, Q: 1}]}", "Q"),
        ("svm.alphas=[]", "svm.alphas"),
        ("svm.alphas=[0]", "svm.alphas"),
        ("selection.method=lasso", "selection.method"),
        ("bank=[]", "bank=[]: give a bank such as {name: multiscale}, or a list of banks"),
        ("bank=[{name: multiscale, sigma: 3}]", "unknown key bank.0.sigma: the nearest is bank.0.sigma_m"),
        ("bank=[{name: scattering, J: -1}]", "bank.0.J=-1: input should be greater than 0"),
        (
            "bank=[[{name: multiscale}]]",
            "bank.0=[{'name': 'multiscale'}]: give a bank such as {name: multiscale}",
        ),
        ("bank=multiscale", "bank='multiscale': give a bank such as {name: multiscale}, or a list of banks"),
        (
            "bank=[{name: stacked, banks: [{name: stacked}]}]",
            "bank.0.banks.0={'name': 'stacked'}: give a bank such as {name: multiscale}, or a list of banks, none of them",
        ),
        (
            "bank=[{name: stacked, banks: [{name: vgg16}, {name: orbit, thresholds: [1]}]}]",
            "bank.0.banks.1.thresholds=(1.0,) does nothing under bank.0.",
        ),
    ],
)
def test_bad_options_are_one_line(override, message):
    with pytest.raises(ConfigError) as caught:
        Config.load(None, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_option_of_a_bank_in_a_stacked_one_is_named():
    with pytest.raises(ConfigError) as caught:
        Config.load(BENCHMARK.with_name("tuned.yaml"), ["bank.0.weights=w.npz"])
    assert (
        str(caught.value) == "bank.0.weights is no option of bank.0.name=stacked: give bank.0.banks.0.weights"
    )


def test_recipe_of_the_paper_is_kept():
    segmenter = Config.load(BENCHMARK.with_name("paper-004.yaml")).build()
    assert isinstance(segmenter.selector, ConditionalCovarianceSelector)
    assert segmenter.selector.n_features_to_select == 128
    assert isinstance(segmenter.kernels, MixtureRFF)
    assert (segmenter.svm.C, segmenter.alphas, segmenter.bank.normalization) == (1.0, None, "set")


def test_recipe_of_the_paper_as_printed():
    segmenter = Config.load(BENCHMARK.with_name("paper-004-as-printed.yaml")).build()
    assert not segmenter.standardise
    assert segmenter.kernels.criterion == "u_statistic"
    np.testing.assert_allclose(segmenter.kernels.gammas, [10.0 ** (2 * i - 2) for i in range(-4, 5)])
    assert segmenter.svm.loss == "hinge"


@pytest.mark.parametrize("form", ["", "-scattering", "-as-printed"])
def test_benchmarks_know_the_same_recipes_of_the_paper(form):
    shipped = Config.load(BENCHMARK.with_name(f"paper-004{form}.yaml"))
    assert load_methods([f"segkit-paper{form}"])[0].options == shipped


def test_default_recipe_is_that_of_the_segmenter():
    segmenter, default = Config.load().build(), Segmenter()
    assert isinstance(segmenter.selector, MMDSelector)
    assert isinstance(segmenter.kernels, LinearGaussianMixture)
    assert segmenter.kernels.get_params() == LinearGaussianMixture().get_params()
    names = ("alphas", "standardise", "selection_pixels", "training_pixels", "threshold", "probability")
    assert [getattr(segmenter, name) for name in names] == [getattr(default, name) for name in names]
    assert bank_to_dict(segmenter.bank) == bank_to_dict(default_bank())


def test_banks_are_stacked():
    stacked = "bank={name: stacked, banks: [{name: scattering, J: 1}, {name: vgg16, weights: random}]}"
    bank = Config.load(None, [stacked, "seed=3"]).build().bank
    assert [type(part) for part in bank.banks] == [ScatteringBank, ConvNetBank]
    assert bank.banks[1].random_state == 3


class Stripes(PositionBank):
    def __init__(
        self, *, width: Annotated[int, Field(gt=0, le=9)] = 3, side: Literal["left", "right"] = "left"
    ):
        self.width = width
        self.side = side


def test_a_bank_of_the_registry_has_the_options_of_its_constructor(monkeypatch):
    monkeypatch.setitem(BANKS, "stripes", Stripes)
    monkeypatch.setitem(BANK_SCHEMAS, "stripes", schema_of("stripes"))
    bank = Config.load(None, ["bank={banks: [{name: stripes, width: 4}]}"]).build().bank.banks[0]
    assert (type(bank), bank.width, bank.side) == (Stripes, 4, "left")
    with pytest.raises(ConfigError, match=r"^bank.width=10: input should be less than or equal to 9$"):
        Config.load(None, ["bank.name=stripes", "bank.width=10"])
    with pytest.raises(
        ConfigError, match=r"the nearest is bank.side; there are name, normalization, width, side, orbit$"
    ):
        Config.load(None, ["bank.name=stripes", "bank.sides=left"])


def test_items_of_a_list_are_set_by_number():
    path = BENCHMARK.with_name("two-networks.yaml")
    options = ["bank.0.banks.1.weights=s.npz", "bank.0.banks.0.pyramid=[1]"]
    bank, other = Config.load(path, options).build().bank
    assert [part.weights for part in bank.banks[:2]] == ["imagenet", "s.npz"]
    assert bank.banks[0].pyramid == (1.0,)
    assert isinstance(bank.banks[2], OrbitAveraged)
    assert other.banks[0].layers[-1] == "conv3_4"
    for key in ("4.weights", "first.weights", "-1"):
        with pytest.raises(ConfigError, match="banks is a list of 4, whose items are numbered from 0"):
            Config.load(path, [f"bank.0.banks.{key}=x"])


def test_banks_to_choose_from_are_a_list():
    config = Config.load(None, ["bank=[{name: multiscale}, {name: squeezenet1_0}, {}]"])
    assert [type(bank) for bank in config.build().bank] == [MultiscaleBank, ConvNetBank, StackedBank]
    assert Config.from_options(config.model_dump(mode="json")) == config


IDLE = [
    ("kernel.criterion='power'", "kernel.family=linear+gaussian", "kernel.family to gaussian or laplacian"),
    ("kernel.n_components=64", "kernel.family=linear", "kernel.family to gaussian or laplacian"),
    ("kernel.gammas=(2.0,)", "kernel.family=polynomial", "kernel.family to gaussian or laplacian"),
    ("svm.alphas=(0.1, 0.2)", "svm.C=3", "svm.C=null"),
    ("bank.thresholds=(0.0, 0.5)", "bank.nonlinearity=fourier", "bank.nonlinearity=step"),
    ("bank.gamma=2.0", "bank.nonlinearity=step", "bank.nonlinearity=fourier"),
]


@pytest.mark.parametrize(("given", "under", "cure"), IDLE, ids=lambda text: text.partition("=")[0])
def test_options_without_effect_are_refused_by_name(given, under, cure):
    """None of them may be lost in silence."""
    option, reason = given.replace("(", "[").replace(")", "]"), under.replace("null", "")
    kind = ["bank.name=orbit"] if "nonlinearity" in under else []
    with pytest.raises(ConfigError) as raised:
        Config.load(None, [*kind, reason, option])
    assert str(raised.value) == f"{given} does nothing under {under}: leave it out, or set {cure}"


@pytest.mark.parametrize(
    ("overrides", "value"),
    [
        (["kernel.family=laplacian", "kernel.criterion=power"], "power"),
        (["kernel.family=anova", "kernel.gammas=[0.1]"], (0.1,)),
        (["kernel.family=polynomial", "kernel.n_components=64"], 64),
        (["svm.alphas=[0.1]"], (0.1,)),
        (["bank.name=orbit", "bank.nonlinearity=step", "bank.thresholds=[0]"], (0.0,)),
        (["bank.name=orbit", "bank.gamma=2"], 2.0),
    ],
)
def test_the_same_options_are_taken_where_they_have_an_effect(overrides, value):
    section, _, name = overrides[-1].partition("=")[0].partition(".")
    assert getattr(getattr(Config.load(None, overrides), section), name) == value


def test_a_default_may_be_written_out_where_it_has_no_effect():
    """Results of benchmarks list every option, and vgg16.yaml the usual penalties: nothing is lost by them."""
    config = Config.load(BENCHMARK.with_name("vgg16.yaml"), ["svm.C=1", "kernel.criterion=mmd"])
    assert config.svm.C == 1
    assert config.build().alphas is None
    assert Config.from_options(config.model_dump(mode="json")) == config


def test_many_networks_are_checked_as_fast_as_one(monkeypatch):
    """The list of torchvision's networks is made once."""
    from torchvision import models

    Config.from_options({"bank": {"name": "vgg16"}})
    monkeypatch.setattr(models, "get_model_weights", lambda name: pytest.fail("listed again"))
    Config.from_options({"bank": [{"name": "vgg16"}, {"name": "resnet18"}] * 30})


@pytest.mark.parametrize("options", [{None: 1}, {0: 1}, {(1, 2): 3}, {"bank": {None: 1}}, {"data": {1: 2}}])
def test_keys_that_are_no_names_are_refused(options):
    with pytest.raises(ConfigError, match=r"^key .+: keys are names of options, such as bank"):
        Config.from_options(options)


@pytest.mark.parametrize(
    ("option", "most"),
    [
        ("bank={name: scattering, L: 1000}", 64),
        ("bank={name: scattering, J: 1000}", 6),
        ("bank={name: scattering, J: [1, 1000]}", 6),
        ("bank={name: multiscale, sigma_max: 1.0e+9}", 256),
        ("bank={name: orbit, n_angles: 100000}", 720),
        ("bank={name: orbit, n_templates: 1000000000}", 10_000),
        ("bank={name: orbit, patch_sizes: [9, 100001]}", 301),
        ("bank={name: vgg16, pyramid: [1.0e+9]}", 8),
        ("bank={banks: [{name: scattering, L: 1000}]}", 64),
        ("selection.pixels=1000000000000", 10_000_000),
        ("selection.n_features=1000000000", 100_000),
        ("kernel.n_components=1000000000", 100_000),
        ("training.pixels=1000000000000", 10_000_000),
    ],
)
def test_options_have_upper_bounds(option, most):
    """A run would not end, or fill the memory."""
    with pytest.raises(ConfigError, match=rf"=1[0-9e.+]+: input should be less than or equal to {most}$"):
        Config.load(None, [option])


@pytest.mark.parametrize("modules", ["[{n_scales: 1000}]", "[{n_angles: 1000}]"])
def test_modules_have_upper_bounds(modules):
    bank = Config.load(None, [f"bank={{name: modules, modules: {modules}}}"]).bank.build(0)
    with pytest.raises(ConfigError, match=r"=1000: input should be less than or equal to [0-9]+"):
        bank.channels(1)


def test_long_values_are_cut_in_messages():
    with pytest.raises(ConfigError) as refused:
        Config.load(None, [f"seed={'x' * 10_000}"])
    assert len(str(refused.value)) < 300
    with pytest.raises(ConfigError, match=r"seed=\(a very long number\): input should be"):
        Config.load(None, [f"seed=0x{'f' * 6000}"])


@pytest.mark.parametrize(
    ("given", "channels"),
    [
        ("DAPI,GFP", ("DAPI", "GFP")),
        ("1,3", ("1", "3")),
        ("2", ("2",)),
        ("[a, 'b,c']", ("a", "b,c")),
        ("null", ()),
        ("", ()),
    ],
)
def test_channels_are_names_or_numbers(given, channels):
    assert Config.load(None, [f"data.channels={given}"]).data.reading.selected == channels


@pytest.mark.parametrize("given", ["NO", "{a: 1}", "1.5", "[GFP, true]"])
def test_what_is_no_channel_is_refused(given):
    with pytest.raises(ConfigError, match="give names in quotes, or numbers, such as DAPI,GFP or 1,3"):
        Config.load(None, [f"data.channels={given}"])
