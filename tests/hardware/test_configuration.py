from __future__ import annotations

import pytest

from cimtool.base.errors import CimError
from cimtool.hardware.configuration import level_notes, reference_notes
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import derived, load_target

LAYERS = ("text.fc1", "video.fc1")


def notes(target: str, **flags: object) -> list[str]:
    chosen = load_target(target)
    return level_notes(chosen, resolve(chosen, None, flags), LAYERS)


def test_few_levels_of_a_noisy_cell_are_a_warning_that_names_the_setting() -> None:
    (said,) = notes("hermes-pcm-14nm", weight_bits=4)
    assert said.startswith("warning: weight_bits = 4 uses 8 of the 256 levels of a cell")
    assert said.endswith("cell_bits = 3 uses them all")
    assert notes("hermes-pcm-14nm", layers={"text.*": {"weight_bits": 4}}) == [said]


@pytest.mark.parametrize(
    ("target", "flags"),
    [
        ("hermes-pcm-14nm", {}),
        ("hermes-pcm-14nm", {"weight_bits": 4, "cell_bits": 4}),
        ("ideal", {"weight_bits": 4}),  # no noise
        ("isaac-rram-128", {"weight_bits": 4}),  # cells of 2 bits: 3 bits take two
    ],
)
def test_cells_that_are_filled_or_have_no_noise_are_not(target: str, flags: dict[str, int]) -> None:
    assert notes(target, **flags) == []


def test_references_without_a_source_or_by_an_unconfirmed_one_are_noted() -> None:
    def noted(target: str, kind: str) -> list[str]:
        chosen = load_target(target)
        return reference_notes(chosen, resolve(chosen, None, {"references": kind}))

    for name in ("isaac-rram-128", "prime-rram-256"):  # of neither is an offset known
        said = f'references = "slice" is an assumption: no source says so of {name}'
        assert noted(name, "slice") == [said]
    assert noted("isaac-rram-128", "fixed") == []
    assert noted("sonos-40nm", "slice") == []
    assert noted("sonos-40nm", "column")
    (said,) = noted("neurram-rram-130nm", "column")
    assert said.startswith('references = "column" is unconfirmed for neurram-rram-130nm: Nature ')
    # Its gains are trimmed converter by converter, which is no step of a slice.
    assert [one.reference for one in load_target("hermes-pcm-14nm").settable] == ["offset"]
    (said,) = noted("hermes-pcm-14nm", "column")
    assert said == (
        'references = "column" is an assumption: a source says of hermes-pcm-14nm that offsets can '
        "be set, and none says so of steps"
    )


def test_steps_of_each_column_need_a_source_of_their_own() -> None:
    target = load_target("hermes-pcm-14nm")
    (said,) = reference_notes(target, resolve(target, None, {"references": "gain"}))
    assert said == (
        'references = "gain" is an assumption: a source says of hermes-pcm-14nm that offsets can '
        "be set, and none says so of steps of each column"
    )


def test_steps_of_each_column_are_refused_where_only_a_number_of_steps_is_known() -> None:
    target = load_target("prime-rram-256")
    with pytest.raises(CimError, match='references = "gain": the target has 2 settings of a step'):
        resolve(target, None, {"references": "gain"})


@pytest.mark.parametrize("name", ["ideal", "dcim-28nm-isscc23", "colonnade-65nm"])
def test_references_of_no_converter_are_said_to_have_no_effect(name: str) -> None:
    target = load_target(name)
    (said,) = reference_notes(target, resolve(target, None, {"references": "column"}))
    assert said == f'references = "column" has no effect: no converter of {name} rounds'


def test_references_that_the_target_itself_has_are_not_noted() -> None:
    isaac = load_target("isaac-rram-128")
    own = derived(isaac, {"name": "own", "title": "Own", "adc": {"references": "column"}})
    assert reference_notes(own, resolve(own, None, {"references": "slice"})) == []
    assert reference_notes(own, resolve(own, None, {})) == []
