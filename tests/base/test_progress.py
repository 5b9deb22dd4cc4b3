"""Progress of long work tells the time that is left, at the pace so far."""

from __future__ import annotations

import pytest

from cimtool.base.progress import Countdown, PartDone, Sparse, duration, prefixed


def test_the_time_left_follows_the_pace_so_far() -> None:
    now, said = [0.0], list[str]()
    countdown = Countdown(said.append, lambda: now[0])
    for done, at in ((1, 30.0), (2, 90.0), (4, 100.0)):
        now[0] = at
        countdown.tell(f"part {done} of 4", done, 4)
    assert said == [
        "part 1 of 4; about 2 min left",
        "part 2 of 4; about 2 min left",
        "part 4 of 4",
    ]


def test_of_short_work_nothing_is_told() -> None:
    said = list[str]()
    clock = iter([0.0, 0.1])
    Countdown(said.append, lambda: next(clock)).tell("shard 1 of 3", 1, 3)
    assert said == ["shard 1 of 3"]


def test_a_log_has_each_part_and_now_and_then_another_line() -> None:
    now, said = [0.0], list[str]()
    log = Sparse(said.append, 30, lambda: now[0])
    lines = {1: "loading", 2: PartDone("epoch 0"), 31: "soon", 32: "pass", 33: "late", 70: "last"}
    for at, line in lines.items():
        now[0] = at
        log(line)
    assert said == ["epoch 0", "pass", "last"]


def test_a_part_stays_one_with_its_time_left_and_behind_a_prefix() -> None:
    now, said = [0.0], list[str]()
    countdown = Countdown(prefixed(said.append, "point 1"), lambda: now[0])
    now[0] = 30.0
    countdown.tell(PartDone("epoch 1 of 4"), 1, 4)
    countdown.tell("epoch 1 of 4", 1, 4)
    assert said == ["point 1: epoch 1 of 4; about 2 min left"] * 2
    assert [type(one) for one in said] == [PartDone, str]


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_a_duration_has_its_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
