"""Data that say `image`: every command's tables and sentences do, and a user's own names may."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.loading.embeddings import read_embeddings
from cimtool.simulation.simulator import run_rows
from cimtool.verification.sensitivity import Part, Sensitivity, advice

Run = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
LAYER = re.compile(r"video\.\w+")
SIZES = (
    *(f"--set=model.{one}" for one in ("hidden=16", "width=8", "linear=false")),
    *("--batch", 16, "--epochs", 1),
)


@pytest.fixture
def images(small_trunk: DemoFiles, tmp_path: Path) -> DemoFiles:
    """The small model, with its data under the names text and image."""
    for name in ("calibration", "eval"):
        with np.load(getattr(small_trunk, name)) as data:
            np.savez(tmp_path / f"{name}.npz", text=data["text"], image=data["video"])
    calibration, eval_ = tmp_path / "calibration.npz", tmp_path / "eval.npz"
    return replace(small_trunk, calibration=calibration, eval=eval_)


def require_images(text: str) -> str:
    """The text as one line, which says image and names videos in layers alone."""
    said = " ".join(text.split())
    assert "image" in said
    assert "video" not in LAYER.sub("", said)
    return said


@pytest.fixture
def trained(images: DemoFiles, cimtool: Run, tmp_path: Path) -> Path:
    """A model that was trained on the calibration rows, so that it knows them."""
    run, data = tmp_path / "run", ("--data", images.calibration, "--validation", images.eval)
    assert cimtool("train", *data, "-o", run, *SIZES).status == 0
    return run / "model.pth"


@pytest.fixture
def seen(images: DemoFiles, tmp_path: Path) -> Path:
    """The rows that evaluate after those that calibrate."""
    parts = [np.load(file) for file in (images.calibration, images.eval)]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in ("text", "image")}
    np.savez(tmp_path / "seen.npz", **rows)
    return tmp_path / "seen.npz"


@pytest.mark.thorough("a model of images from the start to its report")
def test_costs_and_reports(images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert cimtool(*compiling(images, bundle, target="isaac-rram-128")).status == 0
    assert "one image" in require_images(cimtool("cost", bundle, "-o", tmp_path).out)
    said = require_images(
        cimtool("verify", bundle, "--data", images.eval, "--report", tmp_path, "-v").out
    )
    assert "40 texts x 40 images of" in said
    assert "t>i" in said
    assert "image to text" in require_images((tmp_path / "report.md").read_text())
    assert json.loads((tmp_path / "report.json").read_text())["modalities"] == ["text", "image"]


def test_a_bundle_that_is_inspected(
    images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    assert cimtool(*compiling(images, bundle)).status == 0
    said = cimtool("inspect", bundle, "--verbose").out
    assert "    image_width: 24\n" in said
    assert "video_width" not in said
    model = cimtool("inspect", bundle, "--json").json["model"]
    assert model["called"] == ["text", "image"]
    assert (model["text_width"], model["video_width"]) == (24, 24)


def test_sweeps(images: DemoFiles, cimtool: Run, tmp_path: Path) -> None:
    swept = cimtool(
        *("sweep", "--projectors", images.projectors, "--poly", images.poly),
        *("--calibration", images.calibration, "--data", images.eval, "--target", "ideal"),
        *("--grid", "weight_bits=8", "--output", tmp_path / "sweep", "--verbose"),
    )
    said = require_images(swept.out)
    assert "40 texts x 40 images of" in said
    assert "image to text" in said
    assert "40 texts x 40 images" in (tmp_path / "sweep" / "pareto.html").read_text()


def test_a_fit(images: DemoFiles, cimtool: Run, trained: Path, seen: Path, tmp_path: Path) -> None:
    teacher, model = tmp_path / "t.npz", ("--projectors", trained, "--data", seen)
    sigmoid = ("--a", 0.1, "--b", 0)
    said = require_images(cimtool("teacher", *model, *sigmoid, "--pairs", 400, "-o", teacher).out)
    assert "trained on 70.6% of the text rows and 70.6% of the image rows" in said
    ran = cimtool("fit", teacher, *model, "--degree", "1,2", "-o", tmp_path / "p.json", "-v")
    said = require_images(ran.out)
    assert re.match(
        r"Polynomial of degree 1.{0,20} for t.npz Raw embeddings retrieve .*: "
        r"R@1 (text to image|image to text) ",
        said,
    )
    assert "R@1 is of 136 texts and 136 images." in said
    assert "training rows: 70.6% of the text rows and 70.6% of the image rows of" in said
    require_images((tmp_path / "p.fit.html").read_text())
    found = api.fit(
        teacher, projectors=trained, data=seen, degree=[1, 2], output=tmp_path / "q.json"
    )
    names = [str(name) for name in found.to_dataframe("degrees").columns]
    assert "R@1 text to image, %" in require_images(" | ".join(names))


@pytest.mark.thorough("a whole tuning; the command's own test is in the first tier")
def test_a_tuning(images: DemoFiles, cimtool: Run, tmp_path: Path) -> None:
    ran = cimtool(
        *("tune", "--projectors", images.projectors, "--poly", images.poly),
        *("--calibration", images.calibration, "--data", images.eval),
        *("--target", "isaac-rram-128", "--budget", "logit_rmse=18"),
        *("--objective", "encoding_energy"),
        *("--weight-bits", 2, "--activation-bits", 2, "-o", tmp_path / "bits.toml", "-v"),
    )
    assert "energy of one text and one image: " in require_images(ran.out)


@pytest.mark.parametrize("kind", ["input", "mu", "s", "s_self", "logvar"])
def test_the_part_that_costs_most(kind: Any) -> None:
    part = Part("video.x", kind, 8, 0.5, 0.9, 0.1, 1.0, "video")
    found = Sensitivity(40, 40, 1.0, 0.9, (part,), part.part, ())
    said = require_images(advice(found, called=("text", "image")))
    assert said.startswith(f"the rounding of {'the ' * (kind == 'input')}image ")


@pytest.mark.thorough("the same by another command or kind of data")
def test_what_to_change_next(
    images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    """Calibrated on one large image, so that four bits hold the others badly."""
    bundle = tmp_path / "bundle"
    with np.load(images.calibration) as data:
        text, image = data["text"], data["image"]
    image[0] *= 10
    np.savez(images.calibration, text=text, image=image)
    assert cimtool(*compiling(images, bundle, input_bits=4)).status == 0
    ran = cimtool("verify", bundle, "--data", images.eval, "--report", tmp_path, "-v")
    assert "the rounding of the image input" in require_images(ran.out)
    for name in ("report.md", "report.html"):
        require_images((tmp_path / name).read_text())


@pytest.mark.thorough("the same by another command or kind of data")
def test_calibration_rows(
    images: DemoFiles, cimtool: Run, compiling: Run, seen: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    assert cimtool(*compiling(images, bundle)).status == 0
    verify = ("verify", bundle, "--data", seen, "--report", tmp_path)
    refused = cimtool(*verify)
    assert (refused.status, refused.out) == (2, "")
    rows = "96 of its 136 text rows (0, 1, 2, 3, 4, ...) and 96 of its 136 image rows (0, "
    assert rows in require_images(refused.sentence)
    said = require_images(cimtool(*verify, "--calibration-rows", "drop", "-v").out)
    assert rows in said
    assert "without them and their pairs 40 texts and 40 images remain, which are" in said
    verify = ("verify", bundle, "--data", images.calibration, "--calibration-rows", "drop")
    assert "0 texts and 0 images remain" in require_images(cimtool(*verify).sentence)


def test_rows_that_were_trained_on(cimtool: Run, trained: Path, seen: Path) -> None:
    ran = cimtool("evaluate", trained, "--head", "euclidean", "--data", seen, "--resamples", 9)
    said = require_images(ran.out)
    assert "on 96 of the 136 text rows and 96 of the 136 image rows, so its figures" in said


def test_a_training(images: DemoFiles, cimtool: Run, tmp_path: Path) -> None:
    with np.load(images.calibration) as data:
        text, image = data["text"], data["image"]
    file, run = tmp_path / "d.npz", tmp_path / "wide"
    np.savez(file, text=text, image=image[:, :20])
    ran = cimtool("train", "--data", file, "-o", run, *SIZES)
    assert "no cosine: text and image rows differ in width." in require_images(ran.out)
    require_images((run / "training.html").read_text())

    def refused(*more: object) -> str:
        said = cimtool("train", "--data", file, "-o", tmp_path / "no", *SIZES, *more)
        assert (said.status, said.out) == (2, "")
        return require_images(said.sentence)

    assert "image rows have 24 numbers; expected 20" in refused("--validation", images.eval)
    np.savez(file, text=text[:3], image=image[:3])
    few = "of 3 images the held-out share of 0.3: 1 pairs validate; expected at least 2 images"
    assert few in refused("--held-out", 0.3)
    assert "of 3 images the share of 0.3 that is set" in refused("--test", 0.3)
    np.savez(file, text=text[:3], image=image[:2])
    missing = "3 texts and 2 images, and text_to_image is missing, which says which image row is"
    assert missing in refused()
    np.savez(file, text=text[:3], image=image[:2], text_to_image=[0, 1, 2])
    assert "row 2 of text_to_image is 2; expected an image row, 0 to 1" in refused()
    right = np.zeros(3, int)
    np.savez(file, text=text[:3], image=image[:1], text_to_image=right, labels=[0, 1, 0])
    assert "texts 0 and 1 belong to image 0, and their labels" in refused()


@pytest.mark.thorough("the same by another command or kind of data")
def test_scores(images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    options = {"target": "hermes-pcm-14nm", "score_mapping": "in-memory", "accumulator_bits": 40}
    assert cimtool(*compiling(images, bundle, **options)).status == 0
    simulate = ("simulate", bundle, "--inputs", images.eval, "-o", tmp_path / "s.npz")
    said = require_images(cimtool(*simulate, "--noise", "--trials", 2).out)
    assert "R@1 text to image: median" in said
    assert "R@1 image to text: median" in said
    refused = cimtool(*simulate, "--top", 3000)
    assert refused.status == 2
    assert "expected 1 to 40, the number of images" in require_images(refused.sentence)
    programmed = tmp_path / "programmed"
    assert cimtool("program", bundle, "--gallery", images.eval, "-o", programmed).status == 0
    said = cimtool("simulate", programmed, *simulate[2:]).out
    assert "images are the 40 items of eval.npz in the memory" in require_images(said)
    refused = cimtool(*("simulate", programmed, "--inputs", images.calibration), "--noise")
    assert "its 96 images are not the gallery" in require_images(refused.sentence)


def test_rows_of_another_width(
    images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    bundle, wide = tmp_path / "bundle", tmp_path / "wide.npz"
    assert cimtool(*compiling(images, bundle, score_mapping="in-memory")).status == 0
    np.savez(wide, text=np.ones((4, 24)), image=np.ones((4, 25)))
    for words in (("simulate", bundle, "--inputs"), ("program", bundle, "--gallery")):
        refused = cimtool(*words, wide)
        assert f"{wide}: image rows have 25 numbers; " in require_images(refused.sentence)


def test_the_example(images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    assert cimtool(*compiling(images, bundle)).status == 0
    script = ROOT / "examples" / "use_the_onnx_files_alone.py"
    done = subprocess.run(
        [sys.executable, script, bundle, images.eval, "-o", tmp_path / "s.npz"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "text 0: image " in require_images(done.stdout)


def test_a_map_may_say_image(
    images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    content = torch.load(images.projectors, weights_only=False)
    names = {"text_proj": "left", "video_proj": "right"}
    for key in list(content):
        top, dot, rest = key.partition(".")
        content[f"{names.get(top, top)}{dot}{rest}"] = content.pop(key)
    torch.save(content, tmp_path / "odd.pth")
    layers, odd = tmp_path / "map.toml", replace(images, projectors=tmp_path / "odd.pth")

    def ran(tables: str) -> Any:
        layers.write_text(tables)
        return cimtool(*compiling(odd, tmp_path / "bundle", map=layers))

    text = '[text]\nprefix = "left"\n'
    made = ran(text + '[image]\nprefix = "right"\n')
    assert (made.status, made.err) == (0, "")
    both = ran(text + '[image]\nprefix = "right"\n[video]\nprefix = "right"\n')
    assert both.status == 2
    assert both.sentence == f"{layers}: holds video and image; expected one of them"
    for role, said in (("moo", 'unknown key "moo" in [image]'), ("mu", 'image.mu = "nowhere" is')):
        refused = ran(f'{text}[image]\nprefix = "right"\n{role} = "nowhere"\n')
        assert refused.status == 2
        assert said in require_images(refused.sentence)


def test_a_map_that_is_missing_has_the_name_of_the_data_or_the_keys(
    images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    content = torch.load(images.projectors, weights_only=False)
    odd, layers = replace(images, projectors=tmp_path / "odd.pth"), tmp_path / "map.toml"

    def refused(name: str, tables: str = "") -> str:
        projector = {k: v for k, v in content.items() if k.startswith("video_proj.")}
        others = {k: v for k, v in content.items() if k not in projector}
        renamed = {k.replace("video_proj", name): v for k, v in projector.items()}
        torch.save(others | renamed, tmp_path / "odd.pth")
        layers.write_text(tables)
        ran = cimtool(*compiling(odd, tmp_path / "bundle", map=layers))
        assert (ran.status, ran.out) == (2, "")
        return str(ran.sentence)

    remedy = "name them with --map ([{}] prefix = "
    said = refused("right")
    assert 'holds no weights under "image_proj."' in require_images(said)
    assert remedy.format("image") in said
    assert remedy.format("image") in require_images(refused("net.image_proj"))
    assert remedy.format("video") in refused("net.video_proj")
    assert remedy.format("video") in refused("right", '[video]\nprefix = "left"\n')
    (tmp_path / "calibration.npz").unlink()
    assert remedy.format("video") in refused("right")


@pytest.mark.thorough("the same by another command or kind of data")
def test_layers_may_be_said_of_images(
    images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    made = {}
    for name in ("image", "video"):
        settings = tmp_path / f"{name}.toml"
        settings.write_text(f'[layers."{name}.mu"]\nweight_bits = 4\n')
        ran = cimtool(*compiling(images, tmp_path / name, settings=settings))
        assert (ran.status, ran.err) == (0, "")
        made[name] = read_bundle(tmp_path / name)
    assert made["image"].settings.of_layer("video.mu").weight_bits == 4
    assert made["image"].settings.of_layer("text.mu").weight_bits != 4
    scores = [api.simulate(one.folder, images.eval)["scores"] for one in made.values()]
    np.testing.assert_array_equal(*scores)
    settings = tmp_path / "no.toml"
    settings.write_text('[layers."image.nu"]\nweight_bits = 4\n')
    ran = cimtool(*compiling(images, tmp_path / "no", settings=settings))
    assert ran.status == 2
    assert 'layers."image.nu" matches no layer of the model, which has' in ran.sentence
    swept = cimtool(
        *("sweep", "--projectors", images.projectors, "--poly", images.poly),
        *("--calibration", images.calibration, "--data", images.eval, "--target", "ideal"),
        *("--grid", 'layers."image.*".weight_bits=4', "--output", tmp_path / "sweep"),
    )
    assert swept.status == 0, swept.err


@pytest.mark.thorough("the same by another command or kind of data")
def test_outputs_of_images_are_compared(
    images: DemoFiles, cimtool: Run, compiling: Run, tmp_path: Path
) -> None:
    rows = read_embeddings(images.eval).video
    graph = api.prepare(
        images.projectors,
        images.poly,
        calibration=images.calibration,
        drift="given",
        target="ideal",
    ).model.towers[1]
    mu, file = run_rows(graph, rows.astype(np.float64))["mu"], tmp_path / "outputs.npz"

    def ran(**arrays: Any) -> Any:
        np.savez(file, **arrays)
        return cimtool(*compiling(images, tmp_path / "bundle", check=file))

    made = ran(image=rows, image_mu=mu)
    assert (made.status, made.err) == (0, "")
    assert f"image_mu of {file}: 40 rows within" in require_images(made.out)
    for more, said in (
        ({"image_moo": mu}, "holds image_moo; expected text, image and text_mu, text_logvar, im"),
        ({"image_mu": mu + 1}, "image_mu holds"),
    ):
        refused = ran(image=rows, **more)
        assert refused.status == 2
        assert said in require_images(refused.sentence)
    assert "has no rows image; expected them beside" in require_images(ran(image_mu=mu).sentence)
    both = ran(image=rows, image_mu=mu, video_mu=mu)
    assert both.status == 2
    assert "holds image; expected text, video and " in both.sentence


def test_gaussians_of_images(cimtool: Run, tmp_path: Path) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "gaussians.npz"
    names = ("text_mu", "text_logvar", "image_mu", "image_logvar")
    arrays = {name: rng.normal(size=(9, 8)) for name in names}

    def ran(**changed: Any) -> Any:
        given = {name: one for name, one in (arrays | changed).items() if one is not None}
        np.savez(file, **given)
        sigmoid = ("--a", 0.1, "--b", 0, "--pairs", 50)
        return cimtool("teacher", "--gaussians", file, *sigmoid, "-o", tmp_path / "t.npz")

    made = ran()
    assert (made.status, made.err) == (0, "")
    for changed, said in (
        ({"image_logvar": None}, "image_logvar is missing; it holds text_mu, text_logvar, image"),
        ({"image_mu": np.ones((9, 7))}, "image_mu has shape [9, 7] and image_logvar [9, 8]"),
        ({"image_logvar": np.full((9, 8), 400.0)}, "image row"),
        ({"text_to_image": [9] * 9}, "row 0 of text_to_image is 9; expected an image row, 0 to 8"),
        ({"text_mu": np.ones((8, 8)), "text_logvar": np.ones((8, 8))},
         "8 texts and 9 images, and text_to_image is missing"),
    ):  # fmt: skip
        refused = ran(**changed)
        assert refused.status == 2
        assert said in require_images(refused.sentence)
    both = ran(video_mu=arrays["image_mu"])
    assert both.status == 2
    assert both.sentence == f"{file}: holds video_mu and image_mu; expected one of them"
    expected = "expected one name of both, as image_mu and image_logvar"
    for changed in ({}, {"image_logvar": None}):
        mixed = ran(video_logvar=arrays["image_logvar"], **changed)
        assert mixed.status == 2
        assert mixed.sentence == f"{file}: holds image_mu and video_logvar; {expected}"
