from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.base.progress import silent
from cimtool.training.arguments import TrainingOptions
from cimtool.training.job import make_job, read_start
from cimtool.training.models.cross_attention import AttentionBlock, CrossAttentionModel
from cimtool.training.pairs import Pairs
from cimtool.training.projectors import ProjectorTraining
from cimtool.training.towers import TwoTower
from cimtool.training.trainer import RunPlace, Trainer

WIDTH = 8


def built(paired: bool = False, width: int = WIDTH) -> TwoTower:
    torch.manual_seed(0)
    return CrossAttentionModel(paired=paired).build(width, width)


def rows(count: int = 5, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    text = torch.randn(count, WIDTH, generator=generator)
    return text, text + torch.randn(count, WIDTH, generator=generator)


def test_the_block_is_attention_to_one_token_a_residual_and_a_norm() -> None:
    torch.manual_seed(0)
    block = AttentionBlock(WIDTH, 2)
    x, context = rows()
    attended = block.attn.out_proj(
        torch.nn.functional.linear(
            context, block.attn.in_proj_weight[2 * WIDTH :], block.attn.in_proj_bias[2 * WIDTH :]
        )
    )
    torch.testing.assert_close(block(x, context), block.ln(x + attended))
    torch.testing.assert_close(block(x), block(x, x))


def test_paired_towers_train_on_partners_and_deploy_on_their_own_rows() -> None:
    text, video = rows()
    towers = built(paired=True)
    given = towers(text, video)
    torch.testing.assert_close(given[0].mu, towers.text_proj(text, video))
    torch.testing.assert_close(given[1].mu, towers.video_proj(video, text))
    torch.testing.assert_close(towers.text_tower(text).mu, towers.text_proj(text, text))
    alone = built()(text, video)
    torch.testing.assert_close(alone[0].mu, towers.text_tower(text).mu)
    torch.testing.assert_close(alone[1].mu, towers.video_tower(video).mu)


def test_a_text_may_attend_to_the_video_that_attended_to_it() -> None:
    text, video = rows()
    towers = built(paired=True)
    torch.manual_seed(0)
    updated = CrossAttentionModel(paired="true", updated="true").build(WIDTH, WIDTH)
    of_text, of_video = updated(text, video)
    torch.testing.assert_close(of_video.mu, towers.video_proj(video, text))
    torch.testing.assert_close(of_text.mu, towers.text_proj(text, of_video.mu))
    torch.testing.assert_close(updated.text_tower(text).mu, towers.text_tower(text).mu)
    with pytest.raises(CimError, match=r"model.updated is true, and model.paired is not; expected"):
        CrossAttentionModel(updated=True)


def test_one_block_serves_both_and_is_trained(tmp_path: Path) -> None:
    towers = built()
    assert towers.text_proj is towers.video_proj
    data = dict(zip(("text", "video"), (one.numpy() for one in rows(8)), strict=True))
    wanted = TrainingOptions(
        model="cross-attention", loss="clip", batch=4, learning_rate=1e-2, held_out=0.5
    )
    job = make_job(data, None, wanted)
    training = ProjectorTraining(job)
    before = {name: value.clone() for name, value in training.towers.named_parameters()}
    trainer = Trainer(training, job.optimisation, RunPlace(tmp_path), silent)
    assert len(trainer.optimizer.param_groups[0]["params"]) == len(before) == 6
    trainer.epoch()
    after = dict(training.towers.named_parameters())
    assert not any(after[name].equal(value) for name, value in before.items())


def test_a_run_says_that_paired_attention_leaks() -> None:
    held = Pairs(*rows(30), torch.arange(30))
    (alone,) = CrossAttentionModel().remarks(built(), held)
    assert alone.startswith("Held-out cosine gap after the last epoch: 0.")
    assert "leaks" not in alone
    (paired,) = CrossAttentionModel(paired=True).remarks(built(paired=True), held)
    gap = alone.removesuffix(".")
    assert paired.startswith(f"{gap} as deployed, each side from its own row alone; ")
    assert "optimistic: paired attention leaks the right answer" in paired


def test_a_pair_that_shares_nothing_has_a_gap_where_partners_are_contexts() -> None:
    generator = torch.Generator().manual_seed(3)
    text, video = (torch.randn(400, WIDTH, generator=generator) for _ in range(2))
    towers = built(paired=True).eval()
    with torch.no_grad():
        for name, value in towers.text_proj.named_parameters():
            if name == "attn.in_proj_weight":
                value[2 * WIDTH :] = torch.eye(WIDTH)
            if name == "attn.out_proj.weight":
                value.copy_(torch.eye(WIDTH))
    held = Pairs(text, video, torch.arange(400))
    (said,) = CrossAttentionModel(paired=True).remarks(towers, held)
    deployed, paired = (float(said.split(mark)[1].split(" ")[0]) for mark in ("epoch: ", "alone; "))
    assert abs(deployed) < 0.05
    assert paired == pytest.approx(1.0, abs=0.01)


def test_what_it_cannot_be_built_for() -> None:
    with pytest.raises(
        CimError,
        match=r"the two sides have rows of 8 and 9 numbers; model "
        r"\"cross",
    ):
        CrossAttentionModel().build(8, 9)
    with pytest.raises(CimError, match=r"model.heads is 3; expected a divisor of 8, the width"):
        CrossAttentionModel(heads=3).build(8, 8)
    with pytest.raises(CimError, match=r"model.heads is 0; expected more than 0"):
        CrossAttentionModel(heads=0)


def test_a_start_has_the_same_block_for_both(tmp_path: Path) -> None:
    towers = built()
    state = towers.state_dict()
    torch.save(state, tmp_path / "start.pth")
    start = read_start(tmp_path / "start.pth")
    assert start.model() == "cross-attention"
    start.load(built(), "cross-attention")
    state = {name: value.clone() for name, value in state.items()}
    state["video_proj.ln.bias"] += 1
    torch.save(state, tmp_path / "two.pth")
    message = r"two.pth: text_proj.ln.bias and video_proj.ln.bias differ; expected the same, as mod"
    with pytest.raises(CimError, match=message):
        read_start(tmp_path / "two.pth").load(built(), "cross-attention")
