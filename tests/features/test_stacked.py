import numpy as np
import pytest

from segkit.errors import ConfigError
from segkit.features import (
    ConvNetBank,
    ModuleBank,
    MultiscaleBank,
    OrbitAveraged,
    OrbitBank,
    ScatteringBank,
    StackedBank,
    bank_from_dict,
    bank_to_dict,
)
from segkit.invariance import Rotation

IMAGE = np.random.default_rng(0).random((36, 41)).astype(np.float32)
SCATTERING, MULTISCALE = ScatteringBank(J=2, L=3), MultiscaleBank(sigma_max=4)
NETWORK = ConvNetBank("vgg16", weights="random", layers=["conv1_1", "conv2_1"])


def test_its_maps_are_those_of_its_banks():
    bank = StackedBank([NETWORK, SCATTERING, MULTISCALE])
    expected = np.concatenate([part.dense(IMAGE) for part in bank.banks])
    np.testing.assert_array_equal(bank.dense(IMAGE), expected)


def test_banks_that_are_not_needed_do_not_run(monkeypatch):
    bank = StackedBank([MULTISCALE, NETWORK])
    n_first = len(MULTISCALE.channels(1))
    monkeypatch.setattr(ConvNetBank, "iter_maps", lambda *_: pytest.fail("the network ran"))
    assert bank.dense(IMAGE, np.arange(n_first)).shape == (n_first, 36, 41)


def test_names_do_not_repeat():
    channels = StackedBank([NETWORK, NETWORK]).channels(3)
    assert len({channel.name for channel in channels}) == len(channels)
    assert channels[0].group == "1:conv1_1"
    assert StackedBank([NETWORK, MULTISCALE]).channels(1)[0] == NETWORK.channels(1)[0]


def test_titles_tell_networks_and_averages():
    half = ConvNetBank("vgg16", weights="random", pyramid=[1, 0.5])
    stacked = StackedBank([NETWORK, OrbitAveraged(half), MULTISCALE, SCATTERING])
    assert stacked.label == (
        "vgg16 to conv2_1 + vgg16 at 1, 0.5 averaged over turns and reflections + multiscale + scattering"
    )
    assert OrbitAveraged(StackedBank([SCATTERING, MULTISCALE]), group=Rotation(8)).label == (
        "(scattering + multiscale) averaged over 8 turns"
    )


def test_reach_is_that_of_the_widest():
    bank = StackedBank([NETWORK, MULTISCALE, SCATTERING])
    assert bank.halo == max(part.halo for part in bank.banks)
    assert all(bank.alignment % part.alignment == 0 for part in bank.banks)


def test_weights_go_to_their_banks():
    bank = StackedBank([MULTISCALE, NETWORK])
    wanted = np.array([0, len(MULTISCALE.channels(3)) + 5])
    weights = bank.weights_used(wanted, 3)
    assert all(name.startswith("1/") for name in weights)
    other = StackedBank(
        [MULTISCALE, ConvNetBank("vgg16", weights="nowhere.npz", layers=["conv1_1", "conv2_1"])]
    )
    other.use_weights(weights)
    image = np.stack([IMAGE] * 3, axis=2)
    np.testing.assert_array_equal(other.dense(image, wanted), bank.dense(image, wanted))


def test_a_bank_that_is_stacked_twice_has_two_places():
    bank = StackedBank([NETWORK, NETWORK])
    n = len(NETWORK.channels(3))
    assert {name.partition("/")[0] for name in bank.weights_used(np.array([0, n]), 3)} == {"0", "1"}


def test_the_banks_given_are_left_alone():
    """A stack learns if one of its banks does. Fitting, and giving weights, changes copies only."""
    learner = OrbitBank((5,), n_templates=4, group=Rotation(4), templates="patches")
    bank = StackedBank([MULTISCALE, learner]).fit([IMAGE])
    assert bank.learns_weights
    assert not StackedBank([MULTISCALE, MULTISCALE]).learns_weights
    assert not hasattr(learner, "templates_")
    assert bank.banks[1] is learner
    weights = bank.weights_used(np.arange(bank.n_channels(1)), 1)
    other = StackedBank([MULTISCALE, learner])
    other.use_weights(weights)
    assert not hasattr(learner, "templates_")
    np.testing.assert_array_equal(other.dense(IMAGE), bank.dense(IMAGE))


def test_a_stack_may_hold_another():
    inner = StackedBank([MULTISCALE, NETWORK])
    bank, flat = StackedBank([SCATTERING, inner]), StackedBank([SCATTERING, MULTISCALE, NETWORK])
    np.testing.assert_array_equal(bank.dense(IMAGE), flat.dense(IMAGE))
    channels = np.arange(0, bank.n_channels(1), 3)
    for (part, own), (expected, numbers) in zip(
        *(one.split_by_bank(channels, 1) for one in (bank, flat)), strict=True
    ):
        assert part is expected
        np.testing.assert_array_equal(own, numbers)


@pytest.mark.parametrize(
    "bank",
    [
        StackedBank([MULTISCALE], normalization="set"),
        StackedBank([OrbitAveraged(MULTISCALE)], normalization="set"),
        StackedBank([MULTISCALE, StackedBank([NETWORK], normalization="set")]),
        StackedBank([MULTISCALE, SCATTERING], normalization="set"),
        OrbitAveraged(StackedBank([MULTISCALE, NETWORK], normalization="set")),
        StackedBank([StackedBank([MULTISCALE, NETWORK])], normalization="set"),
        StackedBank([OrbitAveraged(StackedBank([MULTISCALE], normalization="set"))], normalization="set"),
    ],
)
def test_its_normalisation_is_stored(bank):
    again = bank_from_dict(bank_to_dict(bank))
    assert bank_to_dict(again) == bank_to_dict(bank)
    np.testing.assert_array_equal(again.centred(3), bank.centred(3))
    every = np.arange(bank.n_channels(3))
    assert again.weights_used(every, 3).keys() == bank.weights_used(every, 3).keys()


def test_the_normalisation_of_one_bank_is_an_option_of_its_own():
    bank = StackedBank([MULTISCALE], normalization="set")
    assert bank_to_dict(bank) == bank_to_dict(MULTISCALE) | {"normalization": "set"}
    assert bank_to_dict(
        bank_from_dict(bank_to_dict(MULTISCALE) | {"normalization": "image"})
    ) == bank_to_dict(MULTISCALE)


def test_unknown_normalisations_are_refused():
    with pytest.raises(ConfigError, match="normalization='batch': input should be 'image' or 'set'"):
        StackedBank([MULTISCALE], normalization="batch").n_channels()


@pytest.mark.parametrize("averaged", [False, True])
def test_it_can_be_stored(averaged):
    bank = StackedBank([MULTISCALE, ModuleBank()])
    bank = OrbitAveraged(bank) if averaged else bank
    again = bank_from_dict(bank_to_dict(bank))
    assert bank_to_dict(again) == bank_to_dict(bank)
    assert again.channels(1) == bank.channels(1)


@pytest.mark.parametrize("banks", [[], None, [3]])
def test_what_is_no_bank_is_refused(banks):
    with pytest.raises(ConfigError, match="give a list of filter banks"):
        StackedBank(banks).channels()
