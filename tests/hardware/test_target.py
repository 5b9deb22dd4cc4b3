"""Targets: the shipped files, inheritance, and one clear sentence for every mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.errors import CimError
from cimtool.base.plugins import targets_folder
from cimtool.base.toml_files import validated
from cimtool.cli.commands.targets import describe
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target, target_names
from cimtool.hardware.target import derived as derived_target
from cimtool.hardware.weight_codes import WeightCode
from cimtool.report.terminal import terminal

SHIPPED = [
    "acim-7nm-tsmc",
    "c2c-22nm-intel",
    "charge-16nm-princeton",
    "charge-65nm-princeton",
    "colonnade-65nm",
    "dcim-22nm-tsmc",
    "dcim-28nm-isscc22",
    "dcim-28nm-isscc23",
    "dirc-rag-40nm",
    "hermes-pcm-14nm",
    "ideal",
    "isaac-rram-128",
    "metis-dcim-12nm",
    "neurram-rram-130nm",
    "prime-rram-256",
    "puma-rram-128",
    "sf-rram-28nm",
    "sonos-40nm",
]


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def derived(folder: Path, text: str, base: str = "isaac-rram-128") -> Path:
    return write(folder, f'name = "mine"\ntitle = "Mine"\nbase = "{base}"\n{text}')


def test_the_shipped_targets_are_found_by_their_file_names() -> None:
    assert target_names() == SHIPPED
    assert all(load_target(name).name == name for name in target_names())


def test_isaac_and_hermes_say_what_their_sources_say() -> None:
    isaac, hermes = load_target("isaac-rram-128"), load_target("hermes-pcm-14nm")
    assert (isaac.array.rows, isaac.array.columns, isaac.keys.adc_bits) == (128, 128, 8)
    assert (isaac.array.cell_bits, isaac.array.encoding) == (2, "offset-flip")
    assert (isaac.input.dac_bits, isaac.input.encoding, isaac.simulated) == (
        1,
        "twos-complement",
        True,
    )
    assert (hermes.array.signed_rows, hermes.array.signed_cols) == (256, 256)
    assert (hermes.input.dac_bits, hermes.input.encoding) == (8, "bipolar")
    assert hermes.class_ == "nominal"


def test_ideal_and_colonnade_lose_nothing_in_converters() -> None:
    assert load_target("ideal").keys.adc_bits is None
    assert load_target("ideal").array.rows is None
    assert load_target("colonnade-65nm").keys.adc_bits is None


@pytest.mark.parametrize("point", ["one-phase", "four-phase"])
def test_hermes_published_figures_follow_from_geometry_and_cycle_time(point: str) -> None:
    target = load_target("hermes-pcm-14nm")
    value = {figure.quantity: figure.value for figure in target.figures if figure.at == point}
    operations = 2 * (target.array.weights_total or 0)
    cores = target.array.arrays or 0
    tops = operations / (value["mvm_latency"] * 1e-9) / 1e12
    tops_per_watt = operations / (cores * value["mvm_energy"] * 1e-9) / 1e12
    assert tops == pytest.approx(value["throughput"], rel=0.02)
    assert tops_per_watt == pytest.approx(value["efficiency"], rel=0.02)


@pytest.mark.parametrize(
    ("name", "rows", "across", "weights"),
    [
        ("neurram-rram-130nm", 128, 256, 1_572_864),
        ("dcim-28nm-isscc23", 128, 8, 8_192),
        ("c2c-22nm-intel", 64, 16, 8_192),
        ("hermes-pcm-14nm", 256, 256, 4_194_304),
    ],
)
def test_signed_geometry_is_as_published(name: str, rows: int, across: int, weights: int) -> None:
    array = load_target(name).array
    assert (array.signed_rows, array.signed_cols, array.weights_total) == (rows, across, weights)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_source_says_where_and_is_no_abbreviation(name: str) -> None:
    text = (targets_folder() / f"{name}.toml").read_text()
    assert not any(mark in text for mark in ("[P]", "[F]", "[D]", "[M]", ".md", "derived: derived"))


def test_isaac_adc_rate_is_its_columns_in_a_read() -> None:
    target = load_target("isaac-rram-128")
    value = {figure.quantity: figure.value for figure in target.figures}
    assert value["adc_rate"] == pytest.approx(
        (target.array.columns or 0) / value["read_latency"], rel=0.02
    )


@pytest.mark.parametrize(
    ("encoding", "bits", "cell_bits", "cells"),
    [
        ("differential", 8, 8, 2),
        ("differential", 8, 4, 4),
        ("differential", 9, 4, 4),
        ("differential", 2, 1, 2),
        ("offset", 8, 2, 4),
        ("offset-flip", 7, 2, 4),
        ("twos-complement", 8, 1, 8),
        ("offset", 4, 8, 1),
    ],
)
def test_cells_of_a_weight(encoding: str, bits: int, cell_bits: int, cells: int) -> None:
    flags = {"encoding": encoding, "weight_bits": bits, "cell_bits": cell_bits}
    assert resolve(load_target("ideal"), None, flags).cells_per_weight == cells


@given(
    bits=st.integers(2, 16),
    cell_bits=st.integers(1, 8),
    encoding=st.sampled_from(["differential", "offset", "offset-flip", "twos-complement"]),
)
def test_slices_hold_the_weight_and_none_is_idle(bits: int, cell_bits: int, encoding: str) -> None:
    stored = bits - (encoding == "differential")
    slices = WeightCode.named(encoding, "encoding")(bits, cell_bits).slices
    assert (slices - 1) * cell_bits < stored <= slices * cell_bits


def test_json_round_trip_and_digest() -> None:
    for name in SHIPPED:
        target = load_target(name)
        again = validated(Target, target.to_json(), "manifest.json")
        assert (again, again.sha256) == (target, target.sha256)
    assert len({load_target(name).sha256 for name in SHIPPED}) == len(SHIPPED)


def test_the_digest_is_of_the_values_not_of_the_text(tmp_path: Path) -> None:
    text = (targets_folder() / "ideal.toml").read_text()
    same = load_target(write(tmp_path, text.replace("\n", "\n\n# a comment\n")))
    other = load_target(write(tmp_path, text.replace("feature_bits = 8", "feature_bits = 9")))
    assert same.sha256 == load_target("ideal").sha256 != other.sha256


def test_a_base_is_inherited_and_overridden(tmp_path: Path) -> None:
    target = load_target(derived(tmp_path, "[adc]\nbits = 6"))
    assert (target.name, target.base, target.keys.adc_bits) == ("mine", "isaac-rram-128", 6)
    assert target.adc is not None
    assert target.adc.rounding == "half-up"
    assert target.array == load_target("isaac-rram-128").array
    assert target.figures == load_target("isaac-rram-128").figures
    assert load_target(derived(tmp_path, "figures = []")).figures == ()
    assert load_target(derived(tmp_path, 'adc = {bits = "lossless"}')).keys.adc_bits is None


def test_a_base_by_path_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    derived(tmp_path, "accumulator = {bits = 24}")
    top = write(tmp_path / "sub", 'name = "top"\ntitle = "Top"\nbase = "../mine.toml"')
    target = load_target(top)
    assert (target.name, target.base, target.accumulator.bits) == ("top", "mine", 24)


def test_base_cycles_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 'name = "a"\ntitle = "a"\nbase = "b.toml"', "a.toml")
    write(tmp_path, 'name = "b"\ntitle = "b"\nbase = "a.toml"', "b.toml")
    with pytest.raises(CimError, match=r"base comes back to itself: a\.toml -> b\.toml -> a\.toml"):
        load_target(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[array]\nrowz = 64", 'unknown key array.rowz; did you mean "rows"?'),
        ("[process]\nfoo = 3", "unknown key process.foo = 3; expected node, voltage, memory"),
        (
            "[array]\nrows = 0",
            "array.rows = 0: must be an integer of at least 1 (leave the key out for unlimited)",
        ),
        ('[array]\nrows = "128"', 'array.rows = "128": must be an integer of at least 1 (leave'),
        ("[array]\ncell_bits = 9", "array.cell_bits = 9: must be an integer from 1 to 8"),
        ("[weights]\nbits = 17", "weights.bits = 17: must be an integer from 2 to 16"),
        ("[weights]\nbits = true", "weights.bits = true: must be an integer from 2 to 16"),
        (
            "[activations]\nfeature_bits = 1",
            "activations.feature_bits = 1: must be an integer from 2 to 16",
        ),
        ("[adc]\nbits = 0", 'adc.bits = 0: must be an integer from 1 to 16 or "lossless"'),
        (
            '[adc]\nrounding = "up"',
            'adc.rounding = "up": must be "half-up" | "half-even" | "floor"',
        ),
        ("[array]\nencodings = 1", 'unknown key array.encodings; did you mean "encoding"?'),
        ("array = 5", "array = 5: must be a table"),
        ("figures = 5", "figures = 5: must be a list of tables"),
        ("simulated = 1", "simulated = 1: must be true or false"),
        ('class = "exact"', 'class = "exact": must be "bit-exact" | "nominal"'),
        (
            "[weights]\nbits = 6",
            'array.cells_per_weight = 4: must be 3, as encoding "offset-flip" needs for 6-bit '
            "weights in 2-bit cells",
        ),
        ("[array]\nsigned_cols = 64", "array.signed_cols = 64: must be 32, by the array's rows"),
        ("[array]\ncolumns = 3", "array.columns = 3: must be at least 4, the cells of one weight"),
        (
            "[array]\nredundant_columns = 125",
            "array.redundant_columns = 125: must be at most 124, as one",
        ),
        (
            "[array]\nredundant_columns = 5",
            "array.signed_cols = 32: must be 30, by the array's rows",
        ),
        (
            "[array]\nweights_total = 4096",
            "array.weights_total = 4096: must be signed_rows x"
            " signed_cols x weight_sets x arrays = 128 x 32 x 1 x not given",
        ),
        (
            '[array]\nencoding = "twos-complement"',
            'adc.bits = 8: an array with array.encoding = "twos-complement" adds digitally',
        ),
        ('[[figures]]\nquantity = "area"', "figures[0].value is missing: must be a number above 0"),
        (
            "[array]\non_off_ratio = inf",
            "array.on_off_ratio = Infinity: must be a finite number above 1",
        ),
    ],
)
def test_mistakes_are_one_sentence_with_file_key_and_value(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = derived(tmp_path, text)
    with pytest.raises(CimError) as caught:
        load_target(file)
    assert str(caught.value).startswith(f"{file}: {sentence}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("adc", "said"),
    [
        (
            {"bits": 2, "kind": "measured", "transfer": [0.5, 1.5, 2.5], "rounding": "floor"},
            'adc: rounding = "floor": expected adc_kind = "formula" with it; a converter of '
            'adc_kind = "measured" has no rounding',
        ),
        (
            {"bits": 2, "kind": "formula", "transfer": [0.5, 1.5, 2.5], "rounding": "floor"},
            'adc: transfer = [0.5, 1.5, 2.5]: expected adc_kind = "measured" with it',
        ),
        (
            {"bits": 2, "kind": "lossless"},
            'adc: adc_kind = "lossless" with adc_bits = 2: expected adc_bits = "lossless" with it',
        ),
        ({"bits": 2, "kind": "measured"}, 'adc: adc_kind = "measured": expected transfer with it'),
        (
            {"bits": 1, "transfer": [0.5], "references": "levels"},
            'adc: references = "levels": thresholds can be set only on a converter of equal steps;',
        ),
        (
            {"bits": 2, "transfer": [0.5]},
            "adc: transfer has 1 thresholds: adc bits = 2 needs 3, one",
        ),
        (
            {"bits": "lossless", "transfer": [0.5]},
            "adc: transfer has 1 thresholds: a lossless converter has none",
        ),
        (
            {"bits": 2, "rounding": "floor", "transfer": [0.5, 1.5, 2.5]},
            "adc: expected either rounding or transfer (a measured table), one of them",
        ),
        (
            {"bits": 2, "kind": "formula", "rounding": "floor", "parameters": {"trim": 5}},
            'adc: adc_parameters.trim: a converter of adc_kind = "formula" has no parameters',
        ),
        (
            {"bits": "lossless", "kind": "formula", "rounding": "floor"},
            'adc: kind = "formula": expected none with bits = "lossless"',
        ),
        (
            {"bits": 2, "transfer": [0.5, 2.5, 1.5]},
            "adc: transfer falls from 2.5 to 1.5 at threshold 2: thresholds must not fall",
        ),
    ],
)
def test_keys_that_describe_no_converter_are_refused(adc: dict[str, object], said: str) -> None:
    base = load_target("isaac-rram-128")
    with pytest.raises(CimError) as caught:
        validated(Target, base.to_json() | {"adc": adc}, "mine.toml")
    assert str(caught.value).startswith(f"mine.toml: {said}")
    with pytest.raises(CimError) as caught:
        derived_target(base, {"name": "mine", "adc": adc})
    assert str(caught.value).startswith(f'target "mine": {said}')


def test_another_kind_takes_none_of_the_base_s_parameters() -> None:
    base, measured = load_target("isaac-rram-128"), {"bits": 2, "transfer": [0.5, 1.5, 2.5]}
    formula = {"kind": "formula", "parameters": {}}
    base = derived_target(base, {"name": "mine", "adc": formula})
    assert base.keys.adc_parameters == {}
    found = derived_target(base, {"name": "mine", "adc": {"kind": "measured", **measured}})
    assert (found.keys.adc_parameters, found.keys.rounding) == (None, None)


def test_an_inherited_rounding_beside_a_kind_without_one_is_no_mistake(tmp_path: Path) -> None:
    found = load_target(derived(tmp_path, '[adc]\nkind = "lossless"\nbits = "lossless"')).keys
    assert (found.adc_kind, found.rounding) == ("lossless", "half-up")


def test_a_misspelt_required_key_is_called_unknown_not_missing(tmp_path: Path) -> None:
    text = (targets_folder() / "ideal.toml").read_text().replace("cell_bits", "cel_bits")
    with pytest.raises(CimError, match=r'unknown key array\.cel_bits; did you mean "cell_bits"'):
        load_target(write(tmp_path, text))


def test_name_and_title_are_never_inherited(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="name is missing: must be a name of letters"):
        load_target(write(tmp_path, 'title = "x"\nbase = "ideal"'))
    with pytest.raises(CimError, match="title is missing: must be a text"):
        load_target(write(tmp_path, 'name = "x"\nbase = "ideal"'))
    with pytest.raises(CimError, match=r'name = "a/b": must be a name of letters'):
        load_target(write(tmp_path, 'name = "a/b"\ntitle = "x"\nbase = "ideal"'))


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(CimError, match=r'target "isaac-ram" is not known: .*mean "isaac-rram-128"'):
        load_target("isaac-ram")


def test_an_unknown_base_names_the_file(tmp_path: Path) -> None:
    file = derived(tmp_path, "", base="hermes")
    with pytest.raises(CimError) as caught:
        load_target(file)
    assert str(caught.value).startswith(f'{file}: base "hermes" is not known: ')
    with pytest.raises(CimError, match=r"mine\.toml: base = 3: must be a text"):
        load_target(write(tmp_path, 'name = "x"\ntitle = "x"\nbase = 3'))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CimError, match=r"none\.toml: there is no such file"):
        load_target(tmp_path / "none.toml")
    with pytest.raises(CimError, match=r"mine\.toml: not valid TOML: .*line 2"):
        load_target(write(tmp_path, 'name = "x"\ntitle = = 3'))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(CimError, match=r"latin\.toml: not a text file in UTF-8: byte 8"):
        load_target(tmp_path / "latin.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(CimError, match=r"folder\.toml: is a folder; expected a file"):
        load_target(tmp_path / "folder.toml")


def test_describe_shows_every_figure_with_its_source() -> None:
    text = terminal(describe(load_target("hermes-pcm-14nm")), wrap=False, verbose=True)
    assert "one-phase: 8-bit input and output, analog weights, one-phase (low precision)" in text
    assert "efficiency 9.76 TOPS/W, chip: at one-phase " in text
    assert "[confirmed: doi 10.1038/s41928-023-01010-1]" in text
    assert "figures: not given" in terminal(
        describe(load_target("ideal")), wrap=False, verbose=True
    )
    assert "array.rows: unlimited" in terminal(
        describe(load_target("ideal")), wrap=False, verbose=True
    )


def test_describe_says_what_is_not_known_and_not_modelled() -> None:
    text = terminal(describe(load_target("neurram-rram-130nm")), wrap=False, verbose=True)
    unconfirmed, _, unmodelled = text.partition("\nnot modelled:")
    assert "cells conduct 1 to 40 uS" in unconfirmed.partition("\nunconfirmed:")[2]
    assert "voltage-mode sensing" in unmodelled
    assert "unconfirmed" not in terminal(describe(load_target("ideal")), wrap=False, verbose=True)


def test_describe_writes_values_as_their_file_does_with_units() -> None:
    lines = terminal(
        describe(load_target("hermes-pcm-14nm")), wrap=False, verbose=True
    ).splitlines()
    assert "noise.g_max: 20.7 uS" in lines
    assert "noise.t0: 300.0 s" in lines
    assert "noise.drift.mean.clamp: [0.072, 0.13]" in lines
    assert "simulated: false" in lines
    assert not any(line.startswith("noise") and "{" in line for line in lines)


@pytest.mark.parametrize(
    ("base", "key", "told"),
    [
        ("hermes-pcm-14nm", "input_bits", 'input.encoding = "bipolar"'),
        ("hermes-pcm-14nm", "weight_bits", 'array.encoding = "differential"'),
    ],
)
def test_an_operating_point_of_signs_alone_is_refused(
    tmp_path: Path, base: str, key: str, told: str
) -> None:
    bits = {"input_bits": 8, "weight_bits": 8} | {key: 1}
    point = f"[[operating_points]]\nname = 'a'\nprecision = 'p'\ninput_bits = {bits['input_bits']}"
    text = f"{point}\nweight_bits = {bits['weight_bits']}"
    with pytest.raises(CimError) as caught:
        load_target(derived(tmp_path, f"figures = []\n{text}", base=base))
    assert f"operating_points[0].{key} = 1: must be at least 2" in str(caught.value)
    assert told in str(caught.value)


def test_a_chip_has_the_arrays_that_the_geometry_says(tmp_path: Path) -> None:
    with pytest.raises(
        CimError, match=r"array\.arrays = 64: must be 32, the arrays of chip\.cores"
    ):
        load_target(derived(tmp_path, "[chip]\ncores = 32", base="hermes-pcm-14nm"))
    assert load_target("hermes-pcm-14nm").hierarchy.arrays == 64
    assert load_target("isaac-rram-128").hierarchy.arrays is None


def test_what_can_be_set_of_converters_is_shown_with_its_source() -> None:
    shown = terminal(describe(load_target("prime-rram-256")), wrap=False, verbose=True)
    assert (
        "references of converters that can be set:\n"
        "  step: one for each slice, 2 settings, +-36.75 and +-2.297, a ratio of 16 "
        "[derived: CrossSim, simulator/configs/PRIME.json]\n"
    ) in shown
    assert "can be set" not in terminal(
        describe(load_target("isaac-rram-128")), wrap=False, verbose=True
    )


@pytest.mark.parametrize(
    ("reference", "more", "said"),
    [
        ("step", "range = [4, 1]", "range = [4, 1]: expected two rising numbers above 0"),
        ("step", "range = [0, 1]", "range = [0, 1]: expected two rising numbers above 0"),
        ("offset", "settings = 9", "settings = 9: expected range = [low, high] with it"),
        ("levels", "settings = 9", "only steps and offsets have settings and a range in digits"),
    ],
)
def test_what_binds_no_reference_is_refused(
    tmp_path: Path, reference: str, more: str, said: str
) -> None:
    table = f'[[adc.settable]]\nreference = "{reference}"\neach = "slice"\n{more}\n'
    with pytest.raises(CimError, match=re.escape(f"adc.settable[0]: {said}")):
        load_target(derived(tmp_path, f'{table}status = "derived"\nsource = "x"\n'))


@pytest.mark.parametrize(
    ("reference", "each", "said"),
    [
        ("gain", "column", '"gain": a gain is a step; expected "step" with each = "column"'),
        ("levels", "column", "the columns of a slice share one table of levels; expected each = "),
    ],
)
def test_levels_of_each_column_and_a_gain_by_another_name_are_refused(
    tmp_path: Path, reference: str, each: str, said: str
) -> None:
    table = f'[[adc.settable]]\nreference = "{reference}"\neach = "{each}"\n'
    with pytest.raises(CimError, match=re.escape(said)) as caught:
        load_target(derived(tmp_path, f'{table}status = "confirmed"\nsource = "x"\n'))
    assert "\n" not in str(caught.value)


def test_a_step_for_each_column_is_a_reference_and_needs_a_range_with_its_settings(
    tmp_path: Path,
) -> None:
    table = '[[adc.settable]]\nreference = "step"\neach = "column"\nsettings = 16\n'
    end = 'status = "confirmed"\nsource = "x"\n'
    (one,) = load_target(derived(tmp_path, f"{table}range = [1, 8]\n{end}")).settable
    assert one.text() == "one for each column, 16 settings, 1 to 8 digits"
    with pytest.raises(CimError, match="settings = 16: expected range = "):
        load_target(derived(tmp_path, f"{table}{end}"))


def test_what_can_be_set_is_one_of_the_parts_of_a_chip(tmp_path: Path) -> None:
    said = '[[adc.settable]]\nreference = "step"\neach = "core"\nstatus = "derived"\nsource = "x"\n'
    with pytest.raises(CimError, match=r"adc\.settable\[0\]\.each"):
        load_target(derived(tmp_path, said))


def test_cells_of_a_weight_follow_if_they_are_not_given(tmp_path: Path) -> None:
    given = (targets_folder() / "charge-65nm-princeton.toml").read_text("utf-8")
    file = tmp_path / "own.toml"
    file.write_text(given.replace("cells_per_weight = 8\n", ""), "utf-8")
    target = load_target(file)
    assert target.array.cells_per_weight is None
    assert target.keys == load_target("charge-65nm-princeton").keys
    assert "cells_per_weight" not in target.to_json()["array"]
