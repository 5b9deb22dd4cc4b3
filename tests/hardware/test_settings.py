"""Settings: target, then file, then flags; layers of their own; contradictions refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from target_files import eight_bits_at_most

from cimtool.base.errors import CimError
from cimtool.base.toml_files import validated
from cimtool.hardware.settings import (
    LEFT_OUT,
    ProductBits,
    Settings,
    check_layer_bits,
    check_patterns,
    resolve,
)
from cimtool.hardware.target import load_target, target_names

ISAAC = load_target("isaac-rram-128")
DIGITAL = "dcim-28nm-isscc22"


def settings_file(folder: Path, text: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", target_names())
def test_a_target_alone_decides_everything(name: str) -> None:
    target = load_target(name)
    settings = resolve(target, None, {})
    assert settings.weight_bits == target.weights.bits
    assert (settings.rows, settings.columns) == (target.array.rows, target.array.columns)
    assert settings.cells_per_weight == target.array.cells_per_weight
    assert settings.adc_bits == target.keys.adc_bits
    assert (settings.calibrator, settings.equalise, settings.bias_correction) == (
        "tails",
        True,
        True,
    )


def test_flags_override_the_file_and_the_file_the_target(tmp_path: Path) -> None:
    file = settings_file(tmp_path, 'weight_bits = 6\nadc_bits = 7\narray = "64x32"')
    settings = resolve(ISAAC, file, {"weight_bits": 4, "input_bits": None})
    assert (settings.weight_bits, settings.adc_bits, settings.input_bits) == (4, 7, 8)
    assert (settings.rows, settings.columns) == (64, 32)
    assert (settings.weight_code.slices, settings.cells_per_weight) == (2, 2)


def test_lossless_means_no_converter_and_overrides_too(tmp_path: Path) -> None:
    assert resolve(ISAAC, None, {"adc_bits": "lossless"}).adc_bits is None
    file = settings_file(tmp_path, 'adc_bits = "lossless"')
    assert resolve(ISAAC, file, {"adc_bits": 5}).adc_bits == 5
    assert resolve(load_target("ideal"), None, {"adc_bits": 5}).adc_bits == 5


def test_a_dac_wider_than_the_input_is_no_contradiction() -> None:
    settings = resolve(load_target("hermes-pcm-14nm"), None, {"input_bits": 4})
    assert (settings.input_bits, settings.dac_bits) == (4, 8)


LAYERS = """
[layers."text.*"]
weight_bits = 6
adc_bits = 5
[layers."*.mu"]
adc_bits = "lossless"
activation_bits = 10
"""


def test_layers_have_bits_of_their_own_and_the_last_match_wins(tmp_path: Path) -> None:
    settings = resolve(ISAAC, settings_file(tmp_path, LAYERS), {})

    def bits(name: str) -> tuple[int, int, int, int | None]:
        own = settings.of_layer(name)
        return own.weight_bits, own.input_bits, own.activation_bits, own.adc_bits

    assert bits("video.fc1") == (8, 8, 8, 8)
    assert bits("text.fc1") == (6, 8, 8, 5)
    assert bits("text.mu") == (6, 10, 10, None)
    assert bits("video.mu") == (8, 10, 10, None)
    assert settings.of_layer("text.mu").layers == ()
    assert settings.of_layer("text.fc1").weight_code.slices == 3


def test_flags_leave_a_layer_its_own_bits_and_add_layers_last(tmp_path: Path) -> None:
    flags = {"adc_bits": 7, "layers": {"text.mu": {"adc_bits": 3}}}
    settings = resolve(ISAAC, settings_file(tmp_path, LAYERS), flags)
    adc = [settings.of_layer(name).adc_bits for name in ("video.fc1", "text.fc1", "text.mu")]
    assert adc == [7, 5, 3]


def test_the_order_of_layers_survives_a_manifest_with_sorted_keys(tmp_path: Path) -> None:
    text = '[layers."z*"]\nadc_bits = 3\n[layers."*"]\nadc_bits = 4\n[layers."a*"]\nadc_bits = 5'
    settings = resolve(ISAAC, settings_file(tmp_path, text), {})
    stored = json.loads(json.dumps(settings.to_json(), sort_keys=True))
    again = validated(Settings, stored, "manifest.json")
    assert again == settings
    assert [again.of_layer(name).adc_bits for name in ("z", "m", "a")] == [4, 4, 5]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "weight_bits": st.integers(2, 16),
            "activation_bits": st.integers(2, 16),
            "adc_bits": st.one_of(st.integers(1, 16), st.just("lossless")),
            "cell_bits": st.integers(1, 8),
            "dac_bits": st.integers(1, 16),
            "encoding": st.sampled_from(["offset", "offset-flip", "differential"]),
            "input_encoding": st.sampled_from(["twos-complement", "offset", "bipolar"]),
            "rounding": st.sampled_from(["half-up", "half-even", "floor"]),
            "calibrator": st.sampled_from(["tails", "minmax", "percentile"]),
            "equalise": st.booleans(),
            "array": st.sampled_from(["1x32", "256x256"]),
        },
    )
)
def test_every_allowed_choice_is_kept_and_survives_json(flags: dict[str, object]) -> None:
    settings = resolve(ISAAC, None, flags)
    kept = settings.to_json()
    for name, value in flags.items():
        if name == "array":
            assert f"{kept['rows']}x{kept['columns']}" == value
        else:
            assert kept[name] == (None if value == "lossless" else value)
    assert validated(Settings, kept, "manifest.json") == settings


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("weigth_bits = 4", 'unknown key weigth_bits; did you mean "weight_bits"?'),
        ("weight_bits = 1", "weight_bits = 1: must be an integer from 2 to 16"),
        ('adc_bits = "none"', 'adc_bits = "none": must be an integer from 1 to 16 or "lossless"'),
        ('array = "128"', 'array = "128": must be ROWSxCOLUMNS of physical cells'),
        ('array = "0x128"', 'array = "0x128": must be ROWSxCOLUMNS of physical cells'),
        ('calibrator = "max"', 'calibrator = "max": must be "tails" | "minmax" | "percentile"'),
        ("equalise = 1", "equalise = 1: must be true or false"),
        ("layers = 3", "layers = 3: must be a table"),
        ('[layers]\n"video.mu" = 4', 'layers."video.mu" = 4: must be a table'),
        (
            '[layers."video.mu"]\nadc_bit = 4',
            'unknown key layers."video.mu".adc_bit; did you mean "adc_bits"?',
        ),
        (
            '[layers."video.mu"]\nadc_bits = 40',
            'layers."video.mu".adc_bits = 40: must be an integer from 1 to 16 or "lossless"',
        ),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    file = settings_file(tmp_path, text)
    with pytest.raises(CimError) as caught:
        resolve(ISAAC, file, {})
    assert str(caught.value).startswith(f"{file}: {sentence}")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"adc_bits": 20}, 'adc_bits is 20; expected an integer from 1 to 16 or "lossless"'),
        ({"adc_bitz": 4}, 'unknown key adc_bitz; did you mean "adc_bits"?'),
        ({"layers": {"a.b": {"weight_bits": 1}}}, 'layers."a.b".weight_bits = 1: must be an'),
    ],
)
def test_mistakes_in_flags_are_named_as_flags(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(CimError) as caught:
        resolve(ISAAC, None, flags)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"encoding": "twos-complement"},
            'adc_bits = 8: encoding = "twos-complement" adds digitally and has no converter',
        ),
        (
            {
                "encoding": "twos-complement",
                "adc_bits": "lossless",
                "layers": {"video.mu": {"adc_bits": 6}},
            },
            'layers."video.mu": adc_bits = 6: encoding =',
        ),
        ({"array": "128x3"}, "an array of 3 columns is too narrow: one 8-bit weight takes 4"),
        (
            {"array": "128x4", "layers": {"x[1]": {"weight_bits": 9}}},
            'layers."x[1]": an array of 4 columns is too narrow: one 9-bit weight takes 5',
        ),
        (
            {"adc_kind": "lossless"},
            'adc_kind = "lossless" with adc_bits = 8: expected adc_bits = "lossless" with it',
        ),
        (
            {"adc_kind": "lossless", "adc_bits": "lossless", "rounding": "floor"},
            'rounding = "floor": expected adc_kind = "formula" with it; a converter of adc_kind = '
            '"lossless" has no rounding',
        ),
    ],
)
def test_contradictions_are_refused(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(CimError) as caught:
        resolve(ISAAC, None, flags)
    assert str(caught.value).startswith(f'settings for target "isaac-rram-128": {sentence}')


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"weight_bits": 9}, "weight_bits = 9: the target takes at most 8 (weights.most_bits)"),
        ({"input_bits": 9}, "input_bits = 9: the target takes at most 8 (input.most_bits)"),
        (
            {"layers": {"text.mu": {"activation_bits": 10}}},
            'layers."text.mu": activation_bits = 10: the target takes at most 8 (input.most_bits)',
        ),
    ],
)
def test_no_layer_has_more_bits_than_the_hardware_takes(
    flags: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    limited = load_target(eight_bits_at_most(tmp_path))
    assert resolve(limited, None, {"weight_bits": 4, "activation_bits": 8}).weight_bits == 4
    with pytest.raises(CimError, match=re.escape(sentence)):
        resolve(limited, None, flags)


def test_patterns_that_match_no_layer_are_found(tmp_path: Path) -> None:
    names = ["text.fc1", "text.mu", "video.fc1"]
    settings = resolve(ISAAC, settings_file(tmp_path, LAYERS), {})
    check_patterns(settings, iter(names))
    wrong = resolve(ISAAC, None, {"layers": {"txt.mu": {"adc_bits": 3}, "video.*": {}}})
    with pytest.raises(CimError, match=r'layers\."txt\.mu" matches no layer .*mean "text\.mu"\?'):
        check_patterns(wrong, names)


def test_patterns_by_names_of_modalities_in_other_places_are_refused() -> None:
    settings = resolve(ISAAC, None, {"layers": {"image.*": {"adc_bits": 3}}})
    names = ["text.fc1", "video.fc1"]
    for modalities in (None, ("text", "image")):
        check_patterns(settings, names, modalities)
    with pytest.raises(CimError, match=r'layers\."image\.\*": image is the model\'s first modal'):
        check_patterns(settings, names, ("image", "text"))


MODEL_LAYERS, PRODUCTS = ("text.fc1", "video.fc1"), ("score.mu.mu", "score.s.mu2")


def checked(tmp_path: Path, text: str, mapping: str, products: tuple[str, ...]) -> None:
    file = settings_file(tmp_path, f'score_mapping = "{mapping}"\n{text}')
    check_layer_bits(resolve(ISAAC, file, {}), MODEL_LAYERS, products)


@pytest.mark.parametrize("key", ["weight_bits", "activation_bits"])
def test_bits_of_a_shortlist_are_refused(tmp_path: Path, key: str) -> None:
    given, shortlist = f'[layers."shortlist.*"]\nadc_bits = 9\n{key} = 6\n', ("shortlist.mu.mu",)
    with pytest.raises(CimError, match=rf'layers."shortlist.\*".{key} = 6: .* only adc_bits'):
        checked(tmp_path, given, "hybrid", shortlist)
    checked(tmp_path, '[layers."shortlist.*"]\nadc_bits = 9\n', "hybrid", shortlist)
    checked(tmp_path, f'[layers."*"]\n{key} = 6\n', "hybrid", shortlist)
    checked(tmp_path, f'[layers."score.*"]\n{key} = 6\n', "in-memory", PRODUCTS)


@pytest.mark.parametrize("pattern", ["text.fc1", "*"])
def test_a_layer_of_the_model_is_not_left_out(tmp_path: Path, pattern: str) -> None:
    given = f'[layers."{pattern}"]\nweight_bits = 0\n'
    with pytest.raises(CimError, match=r"weight_bits = 0: text\.fc1 is a layer of the model"):
        checked(tmp_path, given, "in-memory", PRODUCTS)
    checked(tmp_path, given.replace(pattern, "score.*"), "in-memory", PRODUCTS)


def test_bits_of_products(tmp_path: Path) -> None:
    text = '[layers."score.*"]\nweight_bits = 5\n[layers."score.s.*"]\nactivation_bits = 3\n'
    settings = resolve(ISAAC, settings_file(tmp_path, text), {})
    assert settings.product_bits("score.mu.mu") == ProductBits(5, None)
    assert settings.product_bits("score.s.mu2") == ProductBits(5, 3)
    assert settings.product_bits("text.fc1") == ProductBits()
    out = resolve(ISAAC, settings_file(tmp_path, text.replace("= 5", "= 0")), {})
    assert out.product_bits("score.s.mu2") == ProductBits(LEFT_OUT, 3)
    with pytest.raises(CimError, match=r'layers."score.\*".weight_bits = 1'):
        resolve(ISAAC, settings_file(tmp_path, text.replace("= 5", "= 1")), {})


def test_a_stored_setting_that_is_not_valid_names_the_manifest() -> None:
    stored = resolve(ISAAC, None, {}).to_json()
    del stored["rounding"]
    with pytest.raises(CimError, match=r'^manifest\.json: rounding is missing: must be "half-up"'):
        validated(Settings, stored, "manifest.json")


def test_the_examples_of_the_documentation_hold(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "targets.md"
    target_text, _, settings_text = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "own.toml").write_text(target_text)
    target = load_target(tmp_path / "own.toml")
    assert (target.name, target.keys.adc_bits, target.figures) == ("isaac-6bit-adc", 6, ())
    settings = resolve(target, settings_file(tmp_path, settings_text), {})
    assert (settings.weight_bits, settings.adc_bits, settings.rows) == (6, None, 64)
    assert settings.of_layer("video.mu").adc_bits == 6


def test_the_array_model_is_chosen_like_everything_else(tmp_path: Path) -> None:
    file = settings_file(tmp_path, 'rows_active = 16\n[layers."text.*"]\nadc_bits = 5\n')
    settings = resolve(ISAAC, file, {"on_off_ratio": 20, "encoding": "differential"})
    assert (settings.rows_active, settings.on_off_ratio) == (16, 20.0)
    assert settings.of_layer("text.mu").rows_active == 16
    again = validated(Settings, json.loads(json.dumps(settings.to_json())), "manifest.json")
    assert again == settings


def test_a_unit_column_takes_a_column_of_each_array() -> None:
    plain = resolve(ISAAC, None, {"array": "128x16"})
    unit = resolve(ISAAC, None, {"array": "128x16", "offset_sum": "unit-column"})
    assert plain.encoding == "offset-flip"
    assert (plain.unit_columns, plain.weights_across) == (0, 4)
    assert (unit.unit_columns, unit.weights_across) == (1, 3)
    with pytest.raises(CimError, match=r"an array of 4 columns is too narrow: .* takes 5 columns"):
        resolve(ISAAC, None, {"array": "128x4", "offset_sum": "unit-column"})


def test_a_reference_column_takes_a_column_of_each_array() -> None:
    centred = resolve(ISAAC, None, {"array": "128x16", "encoding": "centred"})
    assert (centred.auxiliary_columns, centred.weights_across) == (1, 3)
    beside = resolve(ISAAC, None, {"array": "128x17", "encoding": "centred"})
    assert beside.weights_across == 4
    with pytest.raises(CimError, match=r"an array of 4 columns is too narrow: .* takes 5 columns"):
        resolve(ISAAC, None, {"array": "128x4", "encoding": "centred"})


def test_a_formula_takes_the_place_of_a_measured_table(tmp_path: Path) -> None:
    file = tmp_path / "measured.toml"
    file.write_text(
        'base = "isaac-rram-128"\nname = "measured"\ntitle = "Measured"\nfigures = []\n'
        "[adc]\nbits = 2\ntransfer = [0.4, 1.7, 2.5]\n"
    )
    target = load_target(file)
    measured = resolve(target, None, {})
    assert (measured.rounding, measured.transfer) == (None, (0.4, 1.7, 2.5))
    formula = resolve(target, None, {"rounding": "floor", "adc_bits": 6})
    assert (formula.rounding, formula.transfer) == ("floor", None)
    with pytest.raises(CimError, match="transfer has 3 thresholds: adc bits = 6 needs 63"):
        resolve(target, None, {"adc_bits": 6})


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"rows_active": 129}, "rows_active = 129: must be at most 128"),
        ({"offset_sum": "unit-column", "on_off_ratio": 9}, "a unit column of cells that leak"),
        ({"on_off_ratio": 1}, "a number above 1"),
        (
            {"redundant_columns": 125},
            "redundant_columns = 125: must be at most 124, as one weight takes 4",
        ),
        (
            {"redundant_columns": 124, "offset_sum": "unit-column"},
            "redundant_columns = 124: must be at most 123",
        ),
        (
            {"redundant_columns": 124, "layers": {"x": {"weight_bits": 9}}},
            "layers.x: redundant_columns = 124: must be at most 123, as one weight takes 5",
        ),
        ({"adc_on": "polarity"}, "only a differential pair has polarities"),
        (
            {"encoding": "differential", "offset_sum": "unit-column"},
            "only offset weights need the sum of the inputs",
        ),
        (
            {"encoding": "twos-complement", "adc_bits": "lossless", "shift_add": "analog"},
            'shift_add = "analog": an array with encoding = "twos-complement" adds digitally',
        ),
    ],
)
def test_an_array_that_cannot_be_is_one_sentence(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(CimError, match=sentence):
        resolve(ISAAC, None, flags)


@pytest.mark.parametrize(
    ("target", "flags", "sentence"),
    [
        (
            "isaac-rram-128", {"encoding": "mxint"},
            'settings for target "isaac-rram-128": encoding = "mxint": its arrays convert sums of '
            "what cells conduct, and this code is for digital adders; expected differential, "
            "ternary, offset, offset-flip, centred",
        ),
        (
            "isaac-rram-128", {"encoding": "sign-magnitude", "adc_bits": "lossless"},
            'encoding = "sign-magnitude": its arrays convert',
        ),
        (DIGITAL, {"encoding": "mxfp"}, "weight_bits = 8: .* expected one of 4, 6"),
        (
            DIGITAL, {"encoding": "mxint", "layers": {"x": {"weight_bits": 9}}},
            r"layers\.x: weight_bits = 9: .* expected one of 2, 3, 4, 5, 6, 7, 8",
        ),
        (
            DIGITAL, {"encoding": "mxint", "array": "48x48"},
            'rows = 48: 32 rows share an exponent with encoding = "mxint"; expected a multiple',
        ),
        (
            DIGITAL, {"encoding": "mxint", "rows_active": 8},
            "rows_active = 8: 32 rows share an exponent",
        ),
        (
            DIGITAL, {"encoding": "sign-magnitude", "score_mapping": "in-memory"},
            'score_mapping = "in-memory": .* expected score_mapping = "digital"',
        ),
    ],
)  # fmt: skip
def test_a_code_that_an_array_cannot_hold_is_one_sentence(
    target: str, flags: dict[str, object], sentence: str
) -> None:
    with pytest.raises(CimError, match=sentence):
        resolve(load_target(target), None, flags)
