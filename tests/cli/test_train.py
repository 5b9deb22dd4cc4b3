"""`cimtool train`: what it writes and says, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cimtool.cli import run
from cimtool.demo.data import DemoFiles
from cimtool.loading.embeddings import read_embeddings

Printed = pytest.CaptureFixture[str]
SIZES = [f"--set=model.{one}" for one in ("hidden=16", "width=8", "linear=false")]
SMALL = {"--batch": "16", "--epochs": "2"}


def unless_given(usual: dict[str, str], more: tuple[str, ...]) -> list[str]:
    """The usual options without those that `more` gives, which take one value, and `more`."""
    kept = [part for option in usual.items() if option[0] not in more for part in option]
    return [*kept, *more]


def train(data: Path, output: Path, *more: str) -> int:
    files = ["train", "--data", str(data), "-o", str(output), *SIZES]
    return run([*files, *unless_given(SMALL, more)])


def test_it_trains_and_says_what_comes_next(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed
) -> None:
    folder = tmp_path / "run"
    assert train(small_trunk.calibration, folder, "--validation", str(small_trunk.eval)) == 0
    printed = capsys.readouterr().out
    assert "Best of 2 epochs is " in printed
    next_ = f"next: cimtool teacher --projectors {folder / 'model.pth'} --data NPZ --a A --b B\n"
    assert next_ in printed
    on = ["--start", str(small_trunk.projectors), "--poly", str(small_trunk.poly), "--json"]
    assert run(["train", "--data", str(small_trunk.calibration), "-o", str(tmp_path / "on"),
                "--batch", "16", "--epochs", "1", *on]) == 0  # fmt: skip
    values = json.loads(capsys.readouterr().out)
    assert [epoch["number"] for epoch in values["epochs"]] == [0, 1]
    assert values["written"][0] == str(tmp_path / "on" / "model.pth")


def test_the_best_checkpoint_may_be_named(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    best = Path("best_projectors.pth")
    assert train(small_trunk.calibration, best) == 0
    printed = capsys.readouterr().out
    assert "wrote best_projectors.pth, last.pth, history.json, training.html\n" in printed
    assert "next: cimtool teacher --projectors best_projectors.pth " in printed
    assert train(small_trunk.calibration, best) == 2
    assert "holds best_projectors.pth, last.pth, history.json of" in capsys.readouterr().err
    assert train(small_trunk.calibration, best, "--resume", "--epochs", "3") == 0
    assert train(small_trunk.calibration, Path("run/best.pth"), "--epochs", "3") == 0
    for one, other in (("run/best.pth", best), ("run/last.pth", Path("last.pth"))):
        assert Path(one).read_bytes() == other.read_bytes()
    assert train(small_trunk.calibration, Path("run")) == 2, "last.pth is of the run of best.pth"
    assert train(small_trunk.calibration, Path("last.pth")) == 2
    expected = "last.pth: is the name of the last epoch; expected another name"
    assert expected in capsys.readouterr().err
    Path("folder.pth").mkdir()
    assert train(small_trunk.calibration, Path("folder.pth")) == 0
    assert Path("folder.pth/model.pth").is_file()


def test_rows_are_set_aside_and_stand_beside_the_raw_ones(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed
) -> None:
    folder = tmp_path / "run"
    assert train(small_trunk.calibration, folder, "--epochs", "1", "--test", "0.2") == 0
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if "this run did not see" in line)
    command = line.partition(": cimtool ")[2]
    assert (
        command == f"evaluate {folder / 'model.pth'} --head euclidean --data {folder / 'test.npz'}"
    )
    assert run([*command.split(), "--resamples", "2"]) == 0
    table = capsys.readouterr().out
    assert "(embeddings," in table
    assert "was trained on" not in table
    others = folder / "calibration.npz"
    assert f"next: cimtool teacher --projectors {folder / 'model.pth'} --data {others}" in printed
    given, aside, kept = (
        read_embeddings(file) for file in (small_trunk.calibration, folder / "test.npz", others)
    )
    assert len(aside.text) > 0
    assert len(kept.text) == len(given.text) - len(aside.text)
    assert not {row.tobytes() for row in aside.text} & {row.tobytes() for row in kept.text}


def test_data_on_a_hub_are_refused_with_the_command_that_fetches_them(
    tmp_path: Path, capsys: Printed
) -> None:
    assert run(["train", "--data", "hf://a/b", "-o", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("such as `hf download a/b --local-dir b` makes")
    assert not list(tmp_path.iterdir())


def test_a_loss_that_diverges_is_a_failed_check(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed
) -> None:
    folder = tmp_path / "run"
    assert train(small_trunk.calibration, folder, "--learning-rate", "1e6") == 1
    *epochs, error = capsys.readouterr().err.splitlines()
    assert len(epochs) == 1, "the start"
    assert "training diverged: the loss is" in error
    assert f"{folder / 'model.pth'} keeps the start, the best before" in error


@pytest.mark.parametrize(("end", "share"), [(1e6, None), (1e-3, "100.0%")])
def test_a_model_that_has_left_the_band_of_its_polynomial(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed, end: float, share: str | None
) -> None:
    domain = {"ed": [0, end], "vd_line": [0, 0], "vd_beside_line": [0, 1e6]}
    poly, folder = tmp_path / "poly.json", tmp_path / "run"
    values = {"degree": 1, "coeff": [-0.1, 0.0], "bias": 0.0, "domain": domain}
    poly.write_text(json.dumps(values))
    assert train(small_trunk.calibration, folder, "--poly", str(poly)) == 0
    printed = capsys.readouterr().out
    name = folder / "model.pth"
    if share is None:
        assert "beyond the band" not in printed
        assert f"next: cimtool compile --projectors {name}" in printed
    else:
        assert f"{share} of all held-out pairs lie beyond the band that the polynomial" in printed
        assert f"next: cimtool teacher --projectors {name} --data NPZ" in printed
    history = json.loads((folder / "history.json").read_text())
    held = [epoch["watched"]["outside held out"] for epoch in history["epochs"]]
    assert held == [0.0 if share is None else 1.0] * 3


def test_scores_that_are_not_finite_before_any_training(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed
) -> None:
    with np.load(small_trunk.calibration) as held:
        rows = {name: 1e30 * held[name] for name in ("text", "video")}
    huge = tmp_path / "huge.npz"
    np.savez(huge, **rows)
    assert train(huge, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert f"{huge}: the model gives scores that are not finite before any training" in error
    start = ["--start", str(small_trunk.projectors), "--poly", str(small_trunk.poly)]
    given = ["--data", str(huge), "-o", str(tmp_path / "run"), "--batch", "16"]
    assert run(["train", *given, *start]) == 2
    error = capsys.readouterr().err
    assert f"{huge}: {small_trunk.projectors} gives scores that are not finite" in error
    assert "another --start" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--model", "trunc"], 'did you mean "trunk"?'),
        (["--set", "loss.tau"], '--set "loss.tau": expected model.KEY=VALUE or loss.KEY=VALUE'),
        (["--batch", "600"], "--batch is 600, but only 86 pairs"),
        (["--set", "model.hidden=100000000000"], "does not fit in memory; expected smaller"),
        (["--set", "model.hidden=1e20"], "model.hidden is 1e20; expected an integer of 64 bits"),
        (["--loss", "info-nce-poly"], "expected --poly FILE, as `cimtool fit` writes it"),
    ],
)
def test_bad_input_is_one_sentence(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed, more: list[str], message: str
) -> None:
    assert train(small_trunk.calibration, tmp_path / "run", *more) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_polynomial_without_a_domain_needs_a_start(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed
) -> None:
    values = json.loads(small_trunk.poly.read_text())
    del values["domain"]
    poly = tmp_path / "poly.json"
    poly.write_text(json.dumps(values))
    more = "--poly", str(poly)
    assert train(small_trunk.calibration, tmp_path / "run", *more) == 2
    assert "the polynomial has no domain, and it is meaningless" in capsys.readouterr().err


HARDWARE = {
    "--hardware": "isaac-rram-128",
    "--weight-bits": "3",
    "--batch": "16",
    "--epochs": "1",
}


def fine_tune(files: DemoFiles, output: Path, *more: str) -> int:
    given = {"--data": files.calibration, "--start": files.projectors, "--poly": files.poly}
    words = [str(word) for pair in given.items() for word in pair]
    calibration = ["--calibration", str(files.calibration)]
    options = unless_given(HARDWARE, more)
    return run(["train", *words, *calibration, "-o", str(output), *options])


def test_fine_tuning_writes_a_folder_that_compiles(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed
) -> None:
    folder, bundle = tmp_path / "tuned", tmp_path / "bundle"
    assert fine_tune(small_trunk, folder, "--json", "--learning-rate", "1e-3") == 0
    values = json.loads(capsys.readouterr().out)
    assert [epoch["number"] for epoch in values["epochs"]] == [0, 1]
    assert sorted(map(str, folder.iterdir())) == sorted(values["written"])
    history = json.loads((folder / "history.json").read_text())
    assert history["epochs"] == values["epochs"]
    assert history["settings"]["weight_bits"] == 3
    assert "compiled centred logit RMSE" in (folder / "training.html").read_text()
    assert run(["compile", "--projectors", str(folder / "model.pth"), "--target", "isaac-rram-128",
                "--poly", str(small_trunk.poly), "--calibration", str(small_trunk.calibration),
                "-o", str(bundle)]) == 0  # fmt: skip
    assert fine_tune(small_trunk, folder) == 2
    assert "holds model.pth, history.json of an earlier run" in capsys.readouterr().err


def test_fine_tuning_that_diverges_is_a_failed_check(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed
) -> None:
    folder = tmp_path / "tuned"
    assert fine_tune(small_trunk, folder, "--learning-rate", "1e30") == 1
    *epochs, error = capsys.readouterr().err.splitlines()
    assert len(epochs) == 1, "the start"
    assert f"{folder / 'model.pth'} keeps the start, the best before" in error
    assert json.loads((folder / "history.json").read_text())["stopped"] in error


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--loss", "info-nce"], "--loss does not apply to --hardware"),
        (["--set", "loss.tau=1"], "--set does not apply to --hardware"),
        (
            ["--noise-model", "neurram"],
            "--noise-model applies only to dies; expected --noise with it",
        ),
        (["--noise"], '"isaac-rram-128" has no [noise]'),
        (["--hardware", "isaac"], 'did you mean "isaac-rram-128"?'),
        (["--weight-bits", "40"], "error: --weight-bits is 40; expected an integer from 2 to 16"),
        (["--batch", "600"], "--batch is 600 but only 87 texts are for training"),
    ],
)
def test_bad_input_of_fine_tuning_is_one_sentence(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed, more: list[str], message: str
) -> None:
    assert fine_tune(small_trunk, tmp_path / "tuned", *more) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--weight-bits", "4"], "--weight-bits applies only to the hardware; expected --hardware"),
        (["--noise"], "--noise applies only to the hardware; expected --hardware with it"),
        (["--hardware", "ideal"], "--start is missing; expected it with --hardware"),
    ],
)
def test_options_of_the_hardware_belong_together(
    small_trunk: DemoFiles, tmp_path: Path, capsys: Printed, more: list[str], message: str
) -> None:
    given = ["--data", str(small_trunk.calibration), "-o", str(tmp_path / "run")]
    assert run(["train", *given, *more]) == 2
    assert message in capsys.readouterr().err
