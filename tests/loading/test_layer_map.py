from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cimtool.base.errors import CimError
from cimtool.ir.source import BatchNorm
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.layer_map import read_layer_map
from cimtool.loading.source import ModelSource
from cimtool.loading.weights import find_weights
from cimtool.training.towers import TwoTower

NAMES = {"trunk.0": "zz", "trunk.1": "norm_y", "trunk.3": "aa", "trunk.4": "norm_x"}
ROLES = 'fc1 = "zz"\nbn1 = "norm_y"\nfc2 = "aa"\nbn2 = "norm_x"\n'
HEADS = {"mu": "head_a", "logvar": "head_b"}
HEAD_ROLES = 'mu = "head_a"\nlogvar = "head_b"\n'


def renamed(module: nn.Module, names: dict[str, str]) -> dict[str, torch.Tensor]:
    state = {}
    for key, value in module.state_dict().items():
        layer, _, parameter = key.rpartition(".")
        state[f"{names.get(layer, layer)}.{parameter}"] = value
    return state


def constants(path: Path, poly: Path, layer_map: Path | None = None) -> list[bytes]:
    program = ModelSource(path, poly, layer_map=layer_map).load().program
    return [
        (value.weight if hasattr(value, "weight") else value.mean).tobytes()
        for graph in (program.text, program.video)
        for value in (node.op for node in graph.nodes)
        if hasattr(value, "weight") or isinstance(value, BatchNorm)
    ]


def test_odd_names_need_no_map_where_order_tells(
    tmp_path: Path, trunks: TwoTower, poly_file: Path
) -> None:
    torch.save(trunks.state_dict(), tmp_path / "plain.pth")
    state = {p: renamed(getattr(trunks, p), NAMES) for p in ("text_proj", "video_proj")}
    torch.save(state, tmp_path / "odd.pth")
    wanted = constants(tmp_path / "plain.pth", poly_file)
    assert constants(tmp_path / "odd.pth", poly_file) == wanted


def test_a_map_names_heads_and_prefixes(tmp_path: Path, trunks: TwoTower, poly_file: Path) -> None:
    torch.save(trunks.state_dict(), tmp_path / "plain.pth")
    towers = {
        "left": renamed(trunks.text_proj, HEADS),
        "right": {"net": renamed(trunks.video_proj, HEADS)},
    }
    torch.save(towers, tmp_path / "odd.pth")
    with pytest.raises(CimError, match=r"keys start with left, right; .*layer_map"):
        ModelSource(tmp_path / "odd.pth", poly_file).load()
    prefixes = '[text]\nprefix = "left"\n{}[video]\nprefix = "right.net."\n{}'
    file = tmp_path / "map.toml"
    file.write_text(prefixes.format("", ""))
    with pytest.raises(CimError, match=r"which Linear under left is mu is not clear.*layer_map"):
        ModelSource(tmp_path / "odd.pth", poly_file, layer_map=file).load()
    file.write_text(prefixes.format(HEAD_ROLES, HEAD_ROLES))
    wanted = constants(tmp_path / "plain.pth", poly_file)
    assert constants(tmp_path / "odd.pth", poly_file, file) == wanted
    assert ModelSource(tmp_path / "odd.pth", poly_file, layer_map=file).load().files[2][0] == str(
        file
    )


def square(towers: TwoTower) -> dict[str, torch.Tensor]:
    """A text trunk of one width throughout, whose shapes tell nothing."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4)]
    names = ["zz", "norm_y", "aa", "norm_x"]
    heads = {"mu": nn.Linear(4, 5), "logvar": nn.Linear(4, 5)}
    state = {
        f"text.{name}.{key}": value
        for name, layer in [*zip(names, layers, strict=True), *heads.items()]
        for key, value in layer.state_dict().items()
    }
    video = {f"video.{key}": value for key, value in towers.video_proj.state_dict().items()}
    return state | video


def test_safetensors_lose_the_order_and_say_so(
    tmp_path: Path, trunks: TwoTower, poly_file: Path
) -> None:
    state = square(trunks)
    torch.save(state, tmp_path / "odd.pth")
    save_file(state, tmp_path / "odd.safetensors")
    with pytest.raises(CimError, match=r"order of the layers under text is not known.*layer_map"):
        ModelSource(tmp_path / "odd.safetensors", poly_file).load()
    (tmp_path / "map.toml").write_text("[text]\n" + ROLES)
    wanted = constants(tmp_path / "odd.pth", poly_file)
    assert constants(tmp_path / "odd.safetensors", poly_file, tmp_path / "map.toml") == wanted


def test_shapes_decide_where_they_can(tmp_path: Path, trunks: TwoTower, poly_file: Path) -> None:
    torch.save(trunks.state_dict(), tmp_path / "plain.pth")
    for part in ("text_proj", "video_proj"):
        state = renamed(getattr(trunks, part), {"trunk.0": "zz", "trunk.3": "aa"})
        (tmp_path / part).mkdir()
        save_file(state, tmp_path / part / "x.safetensors")
    both = {
        f"{part}.{key}": value
        for part in ("text_proj", "video_proj")
        for key, value in renamed(getattr(trunks, part), {"trunk.0": "zz", "trunk.3": "aa"}).items()
    }
    save_file(both, tmp_path / "odd.safetensors")  # aa before zz, but 9 x 9 cannot come first
    wanted = constants(tmp_path / "plain.pth", poly_file)
    assert constants(tmp_path / "odd.safetensors", poly_file) == wanted


def test_eps_comes_from_the_map(tmp_path: Path, trunks: TwoTower, poly_file: Path) -> None:
    torch.save(trunks.state_dict(), tmp_path / "net.pth")
    (tmp_path / "map.toml").write_text("[text]\neps = 1e-3\n")
    program = (
        ModelSource(tmp_path / "net.pth", poly_file, layer_map=tmp_path / "map.toml").load().program
    )
    text, video = program.text.by_name["bn1"].op, program.video.by_name["bn1"].op
    assert isinstance(text, BatchNorm)
    assert isinstance(video, BatchNorm)
    assert (text.eps, video.eps) == (1e-3, 1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[text]\nprefix = "txt_proj"\n',
            r'under "txt_proj."; its keys .*; did you mean "text_proj"',
        ),
        ("[txt]\n", r'map\.toml: unknown key "txt"; .*; did you mean "text"'),
        ('activation = "tanh"\n', 'unknown key "activation"; expected the tables text and video$'),
        ("text = 3\n", r"map\.toml: text = 3: must be a table"),
        ("[text]\neps = 0\n", r"text\.eps = 0: must be a number above 0"),
        ("[text]\nfc1 = 3\n", r"text\.fc1 = 3: must be the name of a layer"),
        ("[text]\nepss = 1e-3\n", r'text\.epss = 0\.001: must be .*; did you mean "eps"'),
        ("[text]\nslope = 0.2\n", r"text\.slope = 0\.2: must be .*; .*, negative_slope"),
        ("[text]\nprefix = 3\n", r"text\.prefix = 3: must be a text$"),
        ('[text]\nprefix = ""\n', r"text\.prefix = '': must be the start of .*, or no prefix$"),
        ('[text]\nprefix = "."\n', r"text\.prefix = '\.': must be the start of .*, or no prefix$"),
        ("[text\n", r"map\.toml: not valid TOML"),
        ('[text]\nfc1 = "trunk.O"\n', r'text\.fc1 = "trunk\.O" is not a layer under text_proj of'),
        ('[text]\nbn3 = "trunk.0"\n', r'unknown key "bn3" in \[text\]; .*; did you mean "bn2"'),
        ('[text]\nprefx = "left"\n', r'unknown key "prefx" in \[text\]; .*; did you mean "prefix"'),
        (
            '[video]\nln = "trunk.1"\n',
            r'video\.ln is not a layer of layout "trunk", which .*net\.pth has; expected fc1, bn1, '
            r"fc2, bn2, mu, logvar",
        ),
        (
            '[text]\n"mu_proj.0" = "mu"\n',
            r'map\.toml: text\.mu_proj\.0 is not a layer of layout "trunk", which .*net\.pth has; '
            r'expected fc1, bn1, fc2, bn2, mu, logvar; did you mean "mu"\?',
        ),
        (
            '[text]\nactivaton = "tanh"\n',
            r"; expected prefix, eps, activation, output_activation, negative_slope, tokens, "
            r"alpha_max, beta_min, or a layer of the checkpoint's layout \(.*trunk: fc1, bn1.*\); "
            r'did you mean "activation"',
        ),
        (
            '[text]\nactivation = "tanh"\nnegative_slope = 0.5\n',
            r"map\.toml: negative_slope = 0\.5: no activation of .* is leaky-relu; expected",
        ),
    ],
)
def test_mistakes_in_a_map(
    tmp_path: Path, trunks: TwoTower, poly_file: Path, text: str, message: str
) -> None:
    torch.save(trunks.state_dict(), tmp_path / "net.pth")
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(CimError, match=message):
        ModelSource(tmp_path / "net.pth", poly_file, layer_map=tmp_path / "map.toml").load()


def test_an_absent_map(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="there is no such file"):
        read_layer_map(tmp_path / "map.toml")


def test_a_layer_that_plays_two_parts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[text]\nmu = "head_b"\nlogvar = "head_b"\n')
    with pytest.raises(
        CimError,
        match=r"map\.toml: text\.mu and text\.logvar both name head_b; expected a layer for each",
    ):
        read_layer_map(tmp_path / "map.toml")


def test_the_keys_that_are_said_stand_behind_wrappers(tmp_path: Path) -> None:
    weights = {"state_dict": {"net.fc.weight": torch.ones(2, 2)}}
    torch.save(weights, tmp_path / "lightning.pth")
    with pytest.raises(CimError, match="its keys start with net; name them"):
        find_weights(read_checkpoint(tmp_path / "lightning.pth"))


@pytest.mark.parametrize("wrapper", ["_fsdp_wrapped_module", "_orig_mod"])
def test_wrappers_of_parts_of_a_model_are_left_out(
    tmp_path: Path, trunks: TwoTower, poly_file: Path, wrapper: str
) -> None:
    torch.save(trunks.state_dict(), tmp_path / "plain.pth")
    state = {
        f"base_model.model.{key.replace('trunk.', f'{wrapper}.trunk.{wrapper}.')}": value
        for key, value in trunks.state_dict().items()
    }
    torch.save({"state_dict": state}, tmp_path / "wrapped.ckpt")
    wanted = constants(tmp_path / "plain.pth", poly_file)
    assert constants(tmp_path / "wrapped.ckpt", poly_file) == wanted
    twice = {f"{wrapper}.{key}": value for key, value in trunks.state_dict().items()}
    torch.save(trunks.state_dict() | twice, tmp_path / "twice.pth")
    with pytest.raises(
        CimError,
        match=rf"twice\.pth: text_proj\.(.*) and {wrapper}\.text_proj\.\1 are the same parameter "
        rf"if wrappers in their names \(.*{wrapper}.*; expected one of them",
    ):
        ModelSource(tmp_path / "twice.pth", poly_file).load()


def test_a_matrix_with_and_without_a_wrapper_is_told(tmp_path: Path) -> None:
    weights = {key: torch.ones(2, 2) for key in ("text_projection", "_orig_mod.text_projection")}
    torch.save(weights, tmp_path / "twice.pth")
    with pytest.raises(CimError, match=r"text_projection and _orig_mod\.text_projection are the "):
        find_weights(read_checkpoint(tmp_path / "twice.pth"))


def test_the_prefix_that_a_map_needs_is_named(
    tmp_path: Path, trunks: TwoTower, poly_file: Path
) -> None:
    torch.save(trunks.state_dict(), tmp_path / "plain.pth")
    state = {f"net.{key}": value for key, value in trunks.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "lightning.ckpt")
    with pytest.raises(CimError, match=r'start with net; .*\(\[text\] prefix = "net\.text_proj"\)'):
        ModelSource(tmp_path / "lightning.ckpt", poly_file).load()
    file = tmp_path / "map.toml"
    file.write_text('[text]\nprefix = "net.text_proj"\n[video]\nprefix = "net.video_proj"\n')
    wanted = constants(tmp_path / "plain.pth", poly_file)
    assert constants(tmp_path / "lightning.ckpt", poly_file, file) == wanted
