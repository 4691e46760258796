import pytest
from pydantic import PositiveInt, ValidationError, model_validator

from segkit.config.faults import Section, explain_value, locate


class Shape(Section):
    kind: str = "disc"
    radius: PositiveInt = 3
    side: PositiveInt = 5
    corners: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _fits_kind(self):
        if self.kind == "disc":
            self.refuse_idle(["side", "corners"], under="{at}kind=disc", cure="{at}kind=square")
        return self


def fault(options):
    with pytest.raises(ValidationError) as raised:
        Shape.model_validate(options)
    [error] = raised.value.errors()
    return error


def test_a_fault_is_located_without_the_kinds_that_pydantic_names():
    options = {"bank": [{"name": "stacked", "banks": [{"J": -1}]}]}
    error = {"loc": ("bank", "choice", 0, "stacked", "banks", 0, "scattering", "J", "int")}
    location, within = locate(error, options)
    assert location == ["bank", "0", "banks", "0", "J"]
    assert within[-1] == {"J": -1}
    assert locate({"loc": ("bank", "choice", 7)}, {"bank": {}})[0] == ["bank"]


@pytest.mark.parametrize(
    ("options", "location", "message"),
    [
        ({"radius": 0}, ["radius"], "radius=0: input should be greater than 0"),
        ({"side": 7}, [], "side=7 does nothing under kind=disc: leave it out, or set kind=square"),
        (
            {"side": 7, "corners": [1]},
            ["shapes", "0"],
            "shapes.0.side=7, shapes.0.corners=(1,) do nothing under shapes.0.kind=disc: leave them out, or set "
            "shapes.0.kind=square",
        ),
    ],
)
def test_a_fault_is_one_line(options, location, message):
    assert explain_value(fault(options), location) == message


def test_defaults_are_never_refused_for_nothing_is_lost_by_them():
    assert Shape.model_validate({"kind": "disc", "side": 5, "corners": []}) == Shape()
    assert Shape.model_validate({"kind": "square", "side": 7, "corners": [1, 2]}).corners == (1, 2)
