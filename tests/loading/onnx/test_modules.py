from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.dlpack import from_dlpack, to_dlpack

import cimtool.api as api
from cimtool.base.errors import CimError
from cimtool.ir.source import BatchNorm
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.onnx.export import evaluating
from cimtool.loading.onnx.modules import model_from_modules
from cimtool.loading.score import ScoreOptions
from cimtool.loading.source import ModelSource
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.models.two_branch import TwoBranchProjector
from cimtool.training.towers import TwoTower


def test_modules_without_files(
    trunks: TwoTower, branches: TwoTower, polynomial: Polynomial
) -> None:
    model = model_from_modules(
        trunks.text_proj, trunks.video_proj, ScoreOptions(polynomial=polynomial, a=0.7), name="mine"
    )
    assert (model.name, model.layout, model.files) == ("mine", "trunk", ())
    assert (model.a, model.b, model.samples) == (0.7, 0.5, 10)
    branch = model_from_modules(
        branches.text_proj, branches.video_proj, ScoreOptions(polynomial=polynomial)
    )
    assert (branch.layout, branch.head.polynomial.scale_ed) == ("two-branch", 5.0)


def test_modules_keep_their_mode_and_statistics(trunks: TwoTower, polynomial: Polynomial) -> None:
    trunks.train()
    trunks.text_proj.trunk[1].eval()
    before = {key: value.clone() for key, value in trunks.state_dict().items()}
    model_from_modules(trunks.text_proj, trunks.video_proj, ScoreOptions(polynomial=polynomial))
    assert trunks.text_proj.training
    assert not trunks.text_proj.trunk[1].training
    assert all(torch.equal(before[key], value) for key, value in trunks.state_dict().items())


def test_eps_of_a_module_is_its_own(trunks: TwoTower, polynomial: Polynomial) -> None:
    trunks.text_proj.trunk[1].eps = 0.3
    model = model_from_modules(
        trunks.text_proj, trunks.video_proj, ScoreOptions(polynomial=polynomial)
    )
    text, other = model.program.text.by_name["bn1"].op, model.program.text.by_name["bn2"].op
    assert isinstance(text, BatchNorm)
    assert isinstance(other, BatchNorm)
    assert (text.eps, other.eps) == (0.3, 1e-5)


class Limited(TrunkProjector):
    """A trunk with limits that few normal rows reach."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mu, logvar = super().forward(x)
        return mu.clamp(-50, 50), torch.nn.functional.softplus(logvar)


class Elsewhere(TrunkProjector):
    """A trunk that is exported with another factor than it is called with."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mu, logvar = super().forward(x)
        return mu * (1.0004 if torch.onnx.is_in_onnx_export() else 1.0), logvar


def test_a_module_that_is_exported_as_a_little_else_is_refused(polynomial: Polynomial) -> None:
    torch.manual_seed(0)
    modules = Elsewhere(6, 9, 5).eval(), TrunkProjector(6, 9, 5).eval()
    with pytest.raises(CimError, match=r"text module .* computes another mu \(on a probe"):
        ModelSource(modules, polynomial).load()


@pytest.mark.parametrize("rows", ["a probe of 4 rows", "40 rows of the data"])
@pytest.mark.filterwarnings("error")
def test_a_variance_beyond_float64_is_one_sentence(polynomial: Polynomial, rows: str) -> None:
    torch.manual_seed(0)
    modules = TrunkProjector(6, 9, 5).eval(), TrunkProjector(6, 9, 5).eval()
    with torch.no_grad():
        for module in modules:
            module.logvar.bias += 800
    source = ModelSource(modules, polynomial)
    if rows.startswith("40"):
        data = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
        source = source.for_rows({"text": data, "video": data})
    with pytest.raises(CimError, match=rf"text module gives an exp\(logvar\) .* on {rows}; expec"):
        source.load()


@pytest.mark.filterwarnings("error")
def test_a_module_is_read_for_rows_of_the_data_where_normal_ones_are_too_large(
    polynomial: Polynomial,
) -> None:
    torch.manual_seed(0)
    modules = TrunkProjector(6, 9, 5).eval(), TrunkProjector(6, 9, 5).eval()
    with torch.no_grad():
        for module in modules:
            module.trunk[0].bias.zero_()
            module.logvar.weight *= 50_000
            module.logvar.bias.zero_()
            module.trunk[3].bias.zero_()
    data = 1e-4 * np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    model = ModelSource(modules, polynomial).for_rows({"text": data, "video": data}).load()
    assert model.layout == "trunk"


class MeanOnly(TrunkProjector):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)[0]


def test_another_activation_than_the_layouts_comes_in_by_onnx(
    trunks: TwoTower, polynomial: Polynomial
) -> None:
    trunks.text_proj.trunk[2] = nn.GELU()
    before = {key: value.clone() for key, value in trunks.state_dict().items()}
    trunks.train()
    score = ScoreOptions(polynomial=polynomial)
    model = model_from_modules(trunks.text_proj, trunks.video_proj, score)
    assert (model.name, model.layout, model.files, model.warnings) == ("model", "onnx", (), ())
    assert trunks.text_proj.training
    assert all(torch.equal(before[key], value) for key, value in trunks.state_dict().items())


def test_what_weights_do_not_show_is_found_by_running(
    trunks: TwoTower, polynomial: Polynomial
) -> None:
    score = ScoreOptions(polynomial=polynomial)
    module = Limited(6, 9, 5).eval()
    model = model_from_modules(module, trunks.video_proj, score)
    rows = 1000 * np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    found = model.towers[0].run({"x": rows.astype(np.float64)})
    with torch.no_grad():
        mu, logvar = module(torch.from_numpy(rows))
    np.testing.assert_allclose(found["mu"], mu, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.log(found["s"]), logvar, rtol=1e-3, atol=1e-3)
    assert (model.layout, mu.abs().max()) == ("onnx", 50)
    with pytest.raises(CimError, match=r"needs|logvar|variance"):
        model_from_modules(MeanOnly(6, 9, 5).eval(), trunks.video_proj, score)


@pytest.mark.parametrize(("norm", "layout"), [(1.0, "two-branch"), (3.0, "onnx")])
def test_modules_for_unit_rows_are_compared_on_rows_as_they_come(
    branches: TwoTower, norm: float, layout: str
) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 5))
    rows *= norm / np.linalg.norm(rows, axis=1, keepdims=True)
    source = ModelSource((branches.text_proj, branches.video_proj), head="csd", a=0.3, b=1.0)
    model = source.for_rows({"text": rows, "video": rows}).load()
    assert (model.layout, model.unit_rows) == (layout, layout == "two-branch")
    assert [("rows of unit norm" in text) for text in model.warnings] == [True] * (norm != 1)


class Unclamped(TwoBranchProjector):
    """The layers of layout two-branch without the limits of its logvar."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return nn.functional.normalize(x + self.mu_proj(x), dim=-1), self.logvar_proj(x)


def test_modules_of_a_layouts_layers_that_compute_something_else_are_told() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    source = ModelSource((Unclamped(5, 6).eval(), Unclamped(5, 6).eval()), head="csd", a=0.3, b=1.0)
    model = source.for_rows({"text": rows, "video": rows}).load()
    assert (model.layout, model.unit_rows) == ("onnx", False)
    (said,) = (text for text in model.warnings if "layout two-branch" in text)
    assert said.endswith("they are read as they are, and a polynomial is of ed and vd, undivided")


class Held(nn.Module):
    """A body whose value is returned by a function of it."""

    def __init__(self, body: nn.Module, held: Callable[[Tensor], object]):
        super().__init__()
        self.body, self.held = body, held

    def forward(self, x: Tensor) -> object:
        return self.held(self.body(x))


def body(*inner: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), *inner, nn.Linear(5, 5)).eval()


COSINE = ScoreOptions("cosine")


def test_outputs_may_be_in_a_dictionary(polynomial: Polynomial) -> None:
    module = Held(body(nn.SiLU()), lambda h: {"logvar": 0.1 * h, "mu": h, "raw": 2 * h})
    model = model_from_modules(module, module, ScoreOptions(polynomial=polynomial))
    assert list(model.towers[0].outputs) == ["mu", "s"]


class Exchanged(NamedTuple):
    logvar: Tensor
    mu: Tensor


class Elsenamed(NamedTuple):
    scale: Tensor
    loc: Tensor


class Named(nn.Module):
    """A module in a form that torch.jit.script takes too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Exchanged:
        h = self.layer(x)
        return Exchanged(mu=h, logvar=torch.sigmoid(h))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("is_script", [False, True])
def test_outputs_of_a_named_tuple_are_taken_by_their_names(
    polynomial: Polynomial, is_script: bool
) -> None:
    plain = Named().eval()
    module = torch.jit.script(plain) if is_script else plain
    tower = ModelSource((module, module), polynomial, widths=(6, 6)).load().towers[0]
    rows = torch.randn(9, 6)
    found = tower.run({"x": rows.numpy().astype(np.float64)})
    wanted = plain.layer(rows).detach()
    np.testing.assert_allclose(found["mu"], wanted, atol=1e-5)
    np.testing.assert_allclose(found["s"], wanted.sigmoid().exp(), atol=1e-5)


@pytest.mark.thorough(
    "a module refused by the newer exporter takes seconds", quick=("module0", "module1")
)
@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (
            Held(body(nn.SiLU()), lambda h: Elsenamed(h, 2 * h)),
            r"the text module returns a Elsenamed of \(scale, loc\); expected mu alone, ",
        ),
        (
            Held(body(nn.SiLU()), lambda h: h.reshape(-1, 5, 1).max(2)),
            r"the text module returns a max of \(values, indices\); expected mu alone, a tensor",
        ),
        (
            Held(body(nn.SiLU()), torch.sin),
            r"model: the text module: node_sin \(Sin\): is periodic, which .*; expected ",
        ),
        (
            Held(body(nn.SiLU()), lambda h: (h, h, h)),
            r"model: the text module returns a tuple of 3; expected mu alone, a tensor, \(mu, ",
        ),
        (
            nn.Sequential(nn.Unflatten(0, (7, 3)), nn.Linear(6, 5)),
            r"model: the text module does not run on rows \[n, in\] of floats \(.+\); expected one "
            r"that",
        ),
        (
            Held(body(nn.SiLU()), lambda h: torch.linalg.svdvals(h[:, None])),
            r"model: the text module cannot be exported to ONNX \(.+\); expected operators ",
        ),
    ],
)
def test_a_module_that_cannot_come_in_is_refused_in_a_sentence(
    module: nn.Module, sentence: str
) -> None:
    with pytest.raises(CimError, match=sentence):
        model_from_modules(module, body(nn.SiLU()), COSINE)


@pytest.mark.thorough("torch exports each anew")
def test_an_operator_of_the_newer_exporter_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    module = body(nn.RMSNorm(5))
    found = importlib.util.find_spec("onnxscript")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(CimError, match=r"rms_norm.* or the package onnxscript, with which it"):
            model_from_modules(module, module, COSINE)
    if found is None:
        pytest.skip("there is no onnxscript")
    model = model_from_modules(module, module, COSINE)
    assert "rms_norm" in {node.op.name for node in model.towers[0].nodes}


class InstanceNormed(nn.Module):
    """Statistics that were kept in training, as a batch norm has them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(2, affine=True, track_running_stats=True)
        self.norm.running_mean.copy_(torch.tensor([0.3, -1.0]))
        self.norm.running_var.copy_(torch.tensor([0.5, 2.0]))
        self.out = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(x.view(-1, 2, 3)).flatten(1))


@pytest.mark.thorough("exporters of torch take seconds")
def test_an_instance_norm_with_running_statistics_is_a_batch_norm() -> None:
    if importlib.util.find_spec("onnxscript") is None:
        pytest.skip("there is no onnxscript")
    module = InstanceNormed().eval()
    model = model_from_modules(module, module, COSINE, widths=(6, 6))
    assert len(model.towers[0].operations(BatchNorm)) == 1
    rows = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    with torch.no_grad():
        wanted = module(torch.from_numpy(rows))
    found = model.towers[0].run({"x": rows.astype(np.float64)})["mu"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_compiled_module_is_read_as_the_one_that_it_wraps(
    trunks: TwoTower, polynomial: Polynomial
) -> None:
    model = model_from_modules(
        torch.compile(trunks.text_proj),
        torch.compile(trunks.video_proj),
        ScoreOptions(polynomial=polynomial),
    )
    assert model.layout == "trunk"


class OwnName(nn.Module):
    """A module of another kind with an attribute of the name that torch.compile gives its own."""

    def __init__(self) -> None:
        super().__init__()
        self._orig_mod = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return 3 * self._orig_mod(x)


def test_only_what_torch_compiled_is_unwrapped() -> None:
    module = OwnName().eval()
    model = model_from_modules(module, module, COSINE)
    rows = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    with torch.no_grad():
        wanted = module(torch.from_numpy(rows))
    found = model.towers[0].run({"x": rows.astype(np.float64)})["mu"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def to_prototypes(h: Tensor) -> Tensor:
    prototypes = torch.linspace(-1, 1, 20).cos().reshape(1, 4, 5)
    return nn.functional.cosine_similarity(h[:, None], prototypes, dim=-1)


def test_a_graph_that_is_refused_is_written_by_the_newer_exporter() -> None:
    """The older one multiplies norms by those of constants."""
    module = Held(body(nn.SiLU()), to_prototypes)
    if importlib.util.find_spec("onnxscript") is None:
        pytest.skip("there is no onnxscript")
    model = model_from_modules(module, module, COSINE)
    assert model.layout == "onnx"


@pytest.mark.thorough("exporters of torch take seconds")
def test_exporters_write_nothing_to_standard_output(
    polynomial: Polynomial, capfd: pytest.CaptureFixture[str]
) -> None:
    """The older exporter's C++ code prints the graph at an operator that it does not know."""

    def tower() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.RMSNorm(8), nn.Linear(8, 5))

    model_from_modules(tower(), tower(), ScoreOptions(head="cosine"))
    assert capfd.readouterr() == ("", "")


class Tokens(nn.Module):
    """The mean of a layer over however many tokens a row has, in numbers that tracing fixes."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.linspace(-1, 1, 5))
        self.layer = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.layer(x.view(len(x), -1, 3)).tanh()
        first = self.start.repeat(len(x), 1, 1) + torch.zeros(int(x.shape[0]), 1, 5)
        return torch.cat([first, tokens], dim=1).mean(1)


@pytest.mark.parametrize("width", [3, 12])
def test_a_module_of_any_number_of_tokens_takes_rows_as_wide_as_the_data(width: int) -> None:
    module, rows = Tokens(), np.random.default_rng(0).normal(size=(7, width)).astype(np.float32)
    data = {"text": rows, "video": rows}
    model = ModelSource((module, module), head="cosine").for_rows(data).load()
    found = model.towers[0].run({"x": rows.astype(np.float64)})["mu"]
    with torch.no_grad():
        np.testing.assert_allclose(found, module(torch.from_numpy(rows)), atol=1e-6)
    made = api.prepare(
        (module, module), calibration=data, drift="given", target="ideal", head="cosine"
    )
    assert made.model.text_width == width


def test_without_data_a_module_of_any_number_of_tokens_has_no_width() -> None:
    source = ModelSource((Tokens(), Tokens()), head="cosine")
    with pytest.raises(
        CimError, match=r"text module takes rows of 3 numbers and of 6, .*; expected data that"
    ):
        source.load()
    assert replace(source, widths=(6, 9)).load().video_width == 9


def test_data_that_a_module_does_not_take_are_named() -> None:
    source = ModelSource((Tokens(), Tokens()), head="cosine")
    with pytest.raises(
        CimError, match=r"video module does not run on rows of 4 numbers, which the data have \("
    ):
        source.for_rows({"text": np.ones((2, 3)), "video": np.ones((2, 4))}).load()


class Ranged(nn.Module):
    """Rows of another range are brought to it: one way for all rows of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == 6  # reads extents alone
        return self.layer(torch.tanh(x / 9) if x.abs().max() > 20 else x)


def test_a_choice_in_python_is_compared_on_the_rows_of_the_data() -> None:
    source = ModelSource((Ranged(), body()), head="cosine")
    rows = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    (note,) = source.for_rows({"text": rows, "video": rows}).load().warnings
    assert "text module makes a choice in Python that depends on the input (test_modules" in note
    assert note.endswith("it gives the same on 256 rows of the data")
    with pytest.raises(
        CimError, match=r"256 rows of the data .* a choice in Python .*test_modules"
    ):
        source.for_rows({"text": 100 * rows, "video": rows}).load()


@pytest.mark.parametrize(
    "largest",
    [
        lambda x: x.detach().numpy().max(),
        lambda x: max(x.flatten().tolist()),
        lambda x: np.asarray(x.detach()).max(),
        lambda x: np.asarray(x.data, np.float64).max(),
        lambda x: np.from_dlpack(x.detach()).max(),
        lambda x: np.linalg.norm(x.detach().clone()),
        lambda x: float(x.data.max()),
        lambda x: from_dlpack(to_dlpack(x.detach())).max().item(),
    ],
)
def test_a_choice_by_way_of_numpy_is_told(largest: Callable[[Tensor], float]) -> None:
    chosen = Held(body(), lambda h: 2 * h if largest(h) > 200 else h)
    (note,) = ModelSource((chosen, body()), head="cosine", widths=(6, 6)).load().warnings
    assert "text module makes a choice in Python that depends on the input (test_modules" in note


def test_numbers_that_do_not_depend_on_the_input_are_no_choice() -> None:
    scale = torch.ones(3)
    module = Held(body(), lambda h: h * max(scale.tolist()) * scale.numpy().max())
    model = ModelSource((module, body()), head="cosine", widths=(6, 6)).load()
    assert not model.warnings


class Counting(nn.Module):
    """Keeps a state in every way, on which its outputs do not depend."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = nn.Linear(6, 5), torch.zeros(())
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("centre", torch.zeros(6))
        self.register_buffer("last", torch.zeros(6))
        self.register_buffer("late", None)
        self.weighted, self.log = nn.Parameter(torch.ones(6)), [torch.zeros(6)]

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(0)
        self.seen += len(x)
        self.count += len(x)
        self.centre.mul_(0.9).add_(0.1 * mean)
        self.last = self.last + mean
        self.late = mean
        self.weighted.data.mul_(0.5)
        self.log[0].add_(mean)
        self.log.append(mean)
        return self.layer(x)


class Fading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        self.scale.mul_(0.9)
        return self.layer(x * self.scale)


class Assigning(nn.Module):
    """Counts its calls in a buffer that it assigns anew."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.calls = nn.Buffer(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        return torch.relu(self.fc(x))


def test_the_buffers_of_torchscript_are_left_as_they_were() -> None:
    module = torch.jit.script(Assigning().eval())
    with evaluating(module):
        module(torch.ones(2, 4))
        assert module.calls == 1
    assert module.calls == module.state_dict()["calls"] == 0


def test_a_modules_state_is_left_as_it_was() -> None:
    module = Counting().eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    places = {key: value.data_ptr() for key, value in module.state_dict().items()}
    ModelSource((module, body()), head="cosine", widths=(6, 6)).load()
    after = module.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(before[key], value) for key, value in after.items())
    assert {key: value.data_ptr() for key, value in after.items()} == places
    assert (module.seen, len(module.log), module.late) == (0, 1, None)
    assert not module.log[0].any()


def test_a_module_whose_outputs_depend_on_calls_before_is_refused() -> None:
    with pytest.raises(CimError, match=r"text module gives another mu when called again"):
        ModelSource((Fading(), body()), head="cosine", widths=(6, 6)).load()


class InPlace(nn.Module):
    """Writes over its rows, and returns a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("made", torch.zeros(0, 5))

    def forward(self, x: Tensor) -> Tensor:
        self.made = self.layer(x.mul_(2))
        return self.made


def test_a_module_may_write_over_its_rows_and_return_what_it_keeps() -> None:
    module = InPlace()
    model = ModelSource((module, body()), head="cosine", widths=(6, 6)).load()
    assert (model.warnings, module.made.shape) == ((), (0, 5))


class Unfollowed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("takes no dispatch mode")
        return x * 2


def test_a_module_that_cannot_be_followed_is_still_compared() -> None:
    model = ModelSource((Unfollowed(), body()), head="cosine", widths=(5, 6)).load()
    assert model.warnings == (
        "model: the text module: choices in Python were not looked for (takes no dispatch mode)",
    )


def test_rows_of_zeros_are_not_compared() -> None:
    """Some norms make no number of them."""
    unit = Held(body(), lambda h: h / h.norm(dim=1, keepdim=True))
    unit.body[0].bias, unit.body[1].bias = None, None
    rows = np.zeros((9, 6), np.float32)
    rows[3] = np.arange(6)
    ModelSource((unit, unit), head="cosine").for_rows({"text": rows, "video": rows}).load()


class Buffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("axes", torch.linspace(-1, 1, 30).reshape(6, 5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.axes


class Keeping(nn.Module):
    """Keeps a value of the graph, a lock, and a state beside its tensors: it cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.lock = nn.Linear(6, 5), threading.Lock()

    def get_extra_state(self) -> object:
        return {"version": 1}

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.layer(x)
        return self.kept


def pruned() -> nn.Module:
    module = body(nn.SiLU())
    prune.l1_unstructured(module[0], "weight", 0.5)
    return module


def weight_normed() -> nn.Module:
    module = body(nn.SiLU())
    nn.utils.weight_norm(module[0])
    module(torch.ones(2, 6)).sum().backward()
    return module


def exported() -> nn.Module:
    shapes = ({0: torch.export.Dim("n")},)
    given = (torch.zeros(2, 6),)
    return torch.export.export(body(nn.SiLU()), given, dynamic_shapes=shapes).module()


def program() -> object:
    shapes = ({0: torch.export.Dim("n")},)
    return torch.export.export(body(nn.SiLU()), (torch.zeros(2, 6),), dynamic_shapes=shapes)


@pytest.mark.thorough("exporters of torch take seconds")
def test_an_exported_program_comes_in_as_its_module() -> None:
    if importlib.util.find_spec("onnxscript") is None:
        pytest.skip("there is no onnxscript")
    given = program()
    assert ModelSource((given, given), head="cosine", widths=(6, 6)).load().text_width == 6


def scripted() -> nn.Module:
    return torch.jit.script(body(nn.SiLU()))


@pytest.mark.thorough("torch exports each anew", quick=("Buffers", "pruned"))
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "make", [Buffers, Keeping, nn.Identity, pruned, weight_normed, exported, scripted]
)
def test_modules_that_are_no_plain_parameters(make: Callable[[], nn.Module]) -> None:
    module, rows = make(), np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    if make is exported and importlib.util.find_spec("onnxscript") is None:
        pytest.skip("there is no onnxscript")
    wanted = module(torch.from_numpy(rows)).detach()
    before = {name: id(value) for name, value in vars(module).items()}
    source = ModelSource((module, module), head="cosine")
    tower = source.for_rows({"text": rows, "video": rows}).load().towers[0]
    assert {name: id(value) for name, value in vars(module).items()} == before
    found = tower.run({"x": rows.astype(np.float64)})["mu"]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


class Features(nn.Module):
    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": features["sentence_embedding"] * 2}


def of_two_rows() -> nn.Module:
    return torch.export.export(body(nn.SiLU()), (torch.zeros(2, 6),)).module()


def drawn(h: Tensor) -> object:
    return torch.distributions.Normal(h, 1.0, validate_args=False)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            lambda: body(nn.SiLU()).bfloat16(),
            r"the largest value\): it computes in bfloat16; expected mod",
        ),
        (
            lambda: Held(body(), drawn),
            r"returns a Normal; expected mu alone, a tensor, \(mu, logvar\), or",
        ),
        (
            lambda: nn.LazyLinear(5),
            r"weight belongs to a lazy module that was not called yet; call it once",
        ),
        (Features, r"numbers, which .*; expected one that takes them as a tensor, without the d"),
        (
            of_two_rows,
            r"runs on 2 rows and not on 31 \(.*; expected a module for any number of "
            r"rows \(dynam",
        ),
    ],
)
def test_what_a_module_lacks_is_said(made: Callable[[], nn.Module], sentence: str) -> None:
    module = made()
    with pytest.raises(CimError, match=sentence):
        ModelSource((module, module), head="cosine", widths=(6, 6)).load()


def test_a_module_that_cannot_be_copied_to_float32_is_refused_in_a_sentence() -> None:
    module = Keeping().double()
    with pytest.raises(CimError, match=r"has float64 on cpu and cannot be copied \(cannot pickle"):
        ModelSource((module, module), head="cosine", widths=(6, 6)).load()


class Converting(nn.Module):
    """Converts what goes into each of its layers to that layer's own type."""

    def __init__(self, first: torch.dtype, second: torch.dtype) -> None:
        super().__init__()
        self.second = nn.Linear(8, 5).to(second)
        self.first = nn.Linear(6, 8).to(first)
        self.types = first, second

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.types
        return self.second(self.first(x.to(first)).relu().to(second)).float()


class DoubleThenSingle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 5).double()
        self.first = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu().double())


@pytest.mark.thorough("torch exports each anew", quick=("-6",))
@pytest.mark.parametrize("width", [6, None])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Converting(torch.float64, torch.float32),
        lambda: Converting(torch.float32, torch.float64),
        lambda: Converting(torch.float64, torch.float64),
        DoubleThenSingle,
    ],
)
def test_a_module_that_converts_to_float64_is_read_as_it_is(
    make: Callable[[], nn.Module], width: int | None
) -> None:
    module = make().eval()
    source = ModelSource((module, module), head="cosine", widths=(width, width))
    rows = torch.randn(9, 6)
    found = source.load().towers[0].run({"x": rows.numpy().astype(np.float64)})["mu"]
    np.testing.assert_allclose(found, module(rows).detach(), atol=1e-6)


def test_a_module_that_converts_to_half_precision_is_refused_with_the_reason() -> None:
    module = Converting(torch.bfloat16, torch.float32)
    with pytest.raises(CimError, match=r"converts its rows to bfloat16 and computes in it; expec"):
        ModelSource((module, module), head="cosine", widths=(6, 6)).load()


@pytest.mark.thorough("torch exports each anew", quick=("20",))
@pytest.mark.parametrize(("threshold", "text"), [(20, ""), (5, "chooses by"), (2, "chooses by")])
def test_a_softplus_keeps_its_threshold(threshold: float, text: str) -> None:
    class Softplus(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(12, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.softplus(self.linear(x), beta=3, threshold=threshold)

    module = Softplus()
    if text:
        with pytest.raises(CimError, match=text):
            ModelSource((module, module), head="cosine", widths=(12, 12)).load()
    else:
        assert ModelSource((module, module), head="cosine", widths=(12, 12)).load().layout == "onnx"


class NormedHead(nn.Module):
    """A head whose log-variance is near 0, and within some hundreds at worst."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU())
        self.body = nn.Sequential(nn.LayerNorm(32), *layers)
        self.mu, self.logvar = nn.Linear(64, 6), nn.Linear(64, 6)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        nn.init.normal_(self.logvar.weight, std=0.06)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return self.mu(x), self.logvar(x)


@pytest.mark.thorough("a bundle and a report of rare ranges")
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_variances_whose_product_may_be_beyond_float64_are_compiled_and_verified(
    polynomial: Polynomial, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    modules = NormedHead().eval(), NormedHead().eval()
    rows = np.random.default_rng(0).normal(size=(2, 60, 32)).astype(np.float32)
    data, unseen = ({"text": one, "video": one + 0.1} for one in rows)
    read = ModelSource(modules, polynomial).for_rows(data).load()
    most = read.program.text.types["s"].hi.max()
    assert 1e154 < most < np.inf
    bundle = api.compile(
        modules,
        polynomial,
        calibration=data,
        drift="given",
        target="isaac-rram-128",
        output=tmp_path / "bundle",
    )
    assert api.verify(bundle.folder, data=unseen, samples=2).failures == ()
