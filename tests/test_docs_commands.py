"""Every command of a page runs, on small data, in the order of the page.

A block that cannot be run has a visible line below it, *Not run by the tests of the pages: ...*,
with the reason. Names in capitals are placeholders, and some counts are made smaller.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from c_tools import c_compiler
from public_checkpoints import Shape, matched, paired, probvlm, prolip, siglip
from safetensors.torch import save_file
from tiny_encoders import write_image, write_image_encoder, write_text_encoder

from cimtool import api, cli
from cimtool.demo.data import DemoFiles

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *DOCS.glob("*.md"),
    *ROOT.glob("*.md"),
    *ROOT.glob("[be]*/*.md"),
    *ROOT.glob("examples/*/*.md"),
]
NOT_RUN = "*Not run by the tests of the pages: "
PROGRAMS = ("cimtool", "make", "python", ".venv/bin/python", "pip", "cc", "benchmarks")
RUN_BY = re.compile(r"<!-- [^>]*?\btests/([\w/]+\.py) -->\s*$")
"""The comment above a block that another test runs, with files that stand on the page."""


@dataclass(frozen=True)
class Block:
    """Commands that stand together, why they are not run ("": they are), and by which test."""

    commands: tuple[str, ...]
    reason: str
    test: str


CODE = re.compile(r"^ *```\w*\n(?s:.*?)^ *```$|(?:^ {4,}\S.*\n)+", re.MULTILINE)


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page with a command in them, indented or fenced."""
    for found in CODE.finditer(page):
        text = re.sub(r" *\\\n *", " ", found[0])
        commands = tuple(line for line in map(str.strip, text.splitlines()) if is_command(line))
        if commands:
            below = page[found.end() :].lstrip("\n")
            reason = below.removeprefix(NOT_RUN).partition("*\n")[0]
            elsewhere = RUN_BY.search(page[: found.start()])
            test = elsewhere[1] if elsewhere else ""
            yield Block(commands, reason if below.startswith(NOT_RUN) else "", test)


def is_command(line: str) -> bool:
    return re.match(rf"(\$ )?({'|'.join(map(re.escape, PROGRAMS))})[ /]", line) is not None


FOUND = {
    page.relative_to(ROOT).as_posix(): tuple(blocks(page.read_text("utf-8"))) for page in PAGES
}
RUN = {
    name: [one for block in found if not (block.reason or block.test) for one in block.commands]
    for name, found in FOUND.items()
}

COMMON = "--projectors model.pth --poly poly.json --calibration rows.npz --data eval.npz"
STAND_INS = {
    "NPZ": "eval.npz",
    "FILE": "model.pth",
    "NAME": "isaac-rram-128",
    "GALLERY": "gallery",
    "BUNDLE+GALLERY": "BUNDLE+eval",
}
FEWER = {
    "--trials": "2",
    "--jobs": "1",
    "--epochs": "1",
    "--samples": "2",
    "--pairs": "3000",
    "--shortlist": "10",
    "--shortlist-dimensions": "8",
    "--weight-bits": "2",
    "--activation-bits": "3",
    "--layers": "text.mu",
}
"""Values that options get in place of a page's, so that a command takes a second."""
ALWAYS = {
    "train": ("--epochs",),
    "teacher": ("--pairs",),
    "tune": ("--weight-bits", "--activation-bits"),
}
"""Options that these commands get where the page leaves them to their defaults."""
SOLVED = "model.variance=posterior"
"""The option of a model that takes no epochs."""


def arguments_of(command: str) -> list[str]:
    """The words of a command, with what its placeholders stand for, and less to do."""
    program, *words = [STAND_INS.get(one, one) for one in shlex.split(command, comments=True)]
    if program != "cimtool":
        quick = [one for one in words if one != "-O3"]
        return [program, *quick, *(["CFLAGS=-O0"] if program == "make" else [])]
    if "..." in words:
        place = words.index("...")
        words[place : place + 1] = shlex.split(COMMON)
        for option, value in (("--target", "isaac-rram-128"), ("--grid", "weight_bits=8")):
            words += [] if option in words else [option, value]
    if "handoff" in words and words[0] == "export":
        words += [] if "--layers" in words else ["--layers", ""]
    for option in ALWAYS.get(words[0], ()):
        words += [] if option in words or SOLVED in words else [option, ""]
    return [program, words[0], *map(smaller, words[:-1], words[1:])]


def smaller(name: str, value: str) -> str:
    """The value of an option, or a smaller one: fewer points, dies, epochs, a budget that holds."""
    if name == "--grid":
        key, _, values = value.partition("=")
        return f"{key}={','.join(values.split(',')[:2])}"
    if name == "--budget":
        return f"{value.partition('=')[0]}=99"
    return FEWER.get(name, value)


class Tower(torch.nn.Module):
    """A projector of no layout: a tanh layer, and heads of it."""

    def __init__(self, width_in: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width_in, 16)
        self.mu, self.logvar = torch.nn.Linear(16, 8), torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.layer(x))
        return self.mu(hidden), self.logvar(hidden)


@pytest.fixture(scope="module")
def workshop(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every file that pages take as there: data, models, bundles."""
    folder = tmp_path_factory.mktemp("workshop")
    data(folder, small_trunk)
    models(folder, small_trunk)
    (folder / "docs").mkdir()
    for name in ("examples", "benchmarks", "targets"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def data(folder: Path, files: DemoFiles) -> None:
    """Files of embeddings, by all the names that pages give them."""
    for names, file in (
        ("rows train pairs flickr8k", files.train),
        ("cal calibration", files.calibration),
        ("eval held-out queries items", files.eval),
    ):
        for name in names.split():
            shutil.copy(file, folder / f"{name}.npz")
    with np.load(files.train) as held:
        np.save(folder / "items.npy", held["video"])
        text, video = held["text"], held["video"]
    np.savez(folder / "two.npz", text=text[:2], video=video[:2])
    labels = np.arange(len(text)) % 4
    for name in ("wiki/train", "digits/train"):
        (folder / name).parent.mkdir()
        np.savez(folder / f"{name}.npz", text=text, video=video, labels=labels)
    np.savez(folder / "digits/train.npz", rows=text[:300], labels=labels[:300])
    np.savez(folder / "digits/test.npz", rows=text[300:], labels=labels[300:])
    items = np.arange(300)
    right, wrong = (
        np.stack([items, items ^ 1], axis=1),
        np.stack([items, (items + 7) % 300], axis=1),
    )
    pairs, match = np.concatenate([right, wrong]), np.repeat([1, 0], 300)
    np.savez(folder / "compared.npz", rows=text[:300], pairs=pairs, match=match)
    (folder / "judged.txt").write_text("".join(f"{i} 0 {i} 1\n" for i in range(40)))
    for name, image in (("text", write_text_encoder), ("vision", write_image_encoder)):
        image(folder / "clip", name=f"{name}_model.onnx")
    write_image(folder / "images/a.png", (9, 9, 200))
    (folder / "captions.csv").write_text("file,caption\nimages/a.png,a dog\nimages/a.png,a cat\n")
    (folder / "data.csv").write_text(
        "target,rows,columns,mean,deviation\n10,64,500,641,4.1\n20,64,500,1279,7.9\n30,64,500,1920,9\n"
    )


def models(folder: Path, files: DemoFiles) -> None:
    """Checkpoints, polynomials, ONNX files and bundles."""
    for name in ("model", "demo/model", "teacher/model"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(files.projectors, folder / f"{name}.pth")
    for name in ("poly", "first-poly"):
        shutil.copy(files.poly, folder / f"{name}.json")
    for name in ("teacher", "last"):
        api.teacher(
            files.projectors, files.train, pairs=3000, matched=0.5, a=0.1, b=0.0,
            output=folder / f"{name}.npz",
        )  # fmt: skip
    torch.manual_seed(0)
    rows, outputs = torch.randn(5, 24), {}
    for side in ("text", "video"):
        tower = Tower(24).eval()
        torch.onnx.export(
            tower, (torch.zeros(2, 24),), str(folder / f"{side}.onnx"), input_names=["x"],
            output_names=["mu", "logvar"], dynamic_axes={"x": {0: "n"}}, dynamo=False,
        )  # fmt: skip
        outputs |= {side: rows.numpy(), f"{side}_mu": tower(rows)[0].detach().numpy()}
    np.savez(folder / "outputs.npz", **outputs)
    public(folder)
    noisy = 'name = "noisy"\ntitle = "noisy"\nbase = "isaac-rram-128"\nfigures = []\n'
    (folder / "noisy.toml").write_text(f'{noisy}[noise]\npreset = "pcm-generic"\n')
    (folder / "stuck.toml").write_text(
        "source = 'made up'\ng_max = 40\n[stuck]\np_on = 0.001\np_off = 0.001\n"
    )
    bundles(folder, files)


def public(folder: Path) -> None:
    """Checkpoints in the form of public code, and rows that they read."""
    shape = Shape(text=24, image=20, d=20)
    made = matched(shape, 64)
    save_file(prolip(shape, made), folder / "prolip.safetensors")
    np.savez(folder / "prolip-rows.npz", **made.rows())
    save_file(siglip(shape, made, "transformers", 4.7, -12.9), folder / "siglip.safetensors")
    np.savez(folder / "siglip-rows.npz", **made.rows_of_cls())
    save_file(probvlm(24, 16), folder / "probvlm.safetensors")
    np.savez(folder / "probvlm-rows.npz", **paired(24, 64))


def bundles(folder: Path, files: DemoFiles) -> None:
    """The bundles that pages call BUNDLE, and those that they name."""
    for name, target, mapping, calibration in (
        ("BUNDLE", folder / "noisy.toml", "hybrid", files.train),
        ("exports/model@isaac-rram-128", "isaac-rram-128", "digital", files.calibration),
        ("exports/model@hermes-pcm-14nm", "hermes-pcm-14nm", "digital", files.calibration),
    ):
        api.compile(
            files.projectors, files.poly, calibration=calibration, target=str(target),
            output=folder / name, score_mapping=mapping,
        )  # fmt: skip
    shutil.copytree(folder / "exports/model@isaac-rram-128", folder / "exports/demo@isaac-rram-128")


@pytest.mark.thorough("whole pages and notebooks run in order", quick=("first-bundle",))
@pytest.mark.parametrize("name", [name for name, commands in RUN.items() if commands])
def test_the_commands_of_a_page_run(
    name: str, workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    shutil.copytree(workshop, here, symlinks=True)
    monkeypatch.chdir(here)
    if name == "docs/first-bundle.md":
        run_code(python_of(name)[0])  # its own data, in place of the small ones
    for command in RUN[name]:
        arguments = arguments_of(command)
        status = cli.run(arguments[1:]) if arguments[0] == "cimtool" else outside(arguments, here)
        assert status == 0, f"{name}: {command}"
    if name == "docs/first-bundle.md":
        run_code(python_of(name)[1])


@pytest.mark.thorough("one page stands for the others", quick=("training", "score"))
@pytest.mark.parametrize(
    "name",
    [
        *(f"docs/{page}.md" for page in ("python-api", "score", "your-own-model")),
        "benchmarks/training.md",
    ],
)
def test_the_code_of_a_page_runs(
    name: str,
    workshop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(workshop, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    (code,) = python_of(name)
    assert "matcher.score" in code or "exact(" in code
    run_code(code)
    if name == "docs/score.md":
        assert capsys.readouterr().out.split() == ["[1.6]", "[1.2]", "[[0.37804047]]"]
        assert "the exact one is 0.378" in (ROOT / name).read_text("utf-8")
    if name == "benchmarks/training.md":
        differences = [float(line.split(": ")[1]) for line in capsys.readouterr().out.splitlines()]
        assert differences == pytest.approx([3e-5, 0.15, 0.47], rel=0.15), "as its table says"


def python_of(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)


def run_code(code: str) -> None:
    exec(compile(code, "page", "exec"), {})


def outside(arguments: list[str], here: Path) -> int:
    """Run another program than cimtool; its exit status."""
    if arguments[0] in ("make", "cc"):
        c_compiler("gcc")
    paths = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        shlex.join(arguments).replace("'>'", ">"), shell=True, cwd=here, env=paths, check=False
    )
    return done.returncode


def test_what_is_not_run_says_why() -> None:
    reasons = [block.reason for found in FOUND.values() for block in found if block.reason]
    assert len(reasons) > 5
    assert all(reason.endswith(".") and len(reason) > 10 for reason in reasons)
    assert sum(page.read_text("utf-8").count(NOT_RUN) for page in PAGES) == len(reasons)


def test_the_pages_have_commands_and_most_are_run() -> None:
    blocks_run = [one for found in FOUND.values() for one in found if not one.reason]
    run = sum(len(block.commands) for block in blocks_run)
    every = sum(len(block.commands) for found in FOUND.values() for block in found)
    assert run > 100
    assert run / every > 0.75
    elsewhere = {(page, one.test) for page, found in FOUND.items() for one in found if one.test}
    assert len(elsewhere) == 3
    for page, test in elsewhere:
        assert Path(page).name in (ROOT / "tests" / test).read_text("utf-8")
