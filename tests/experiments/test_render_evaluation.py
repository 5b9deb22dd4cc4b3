from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cimtool.experiments.evaluate import evaluate_subjects
from cimtool.experiments.options import EvaluateOptions
from cimtool.experiments.render_evaluation import evaluation_table, sentences
from cimtool.experiments.subjects import raw_subject
from cimtool.loading.embeddings import embeddings_of


def rows(n: int = 60, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(n, 8))
    return {"text": text, "video": text + rng.normal(size=text.shape)}


def test_the_table_has_a_line_a_figure_and_stars_what_is_real() -> None:
    near = raw_subject(embeddings_of(rows()), "cosine")
    noise = {**rows(), "video": rows(seed=9)["video"]}
    far = replace(raw_subject(embeddings_of(noise), "euclidean"), name="noise")
    found = evaluate_subjects([near, far], EvaluateOptions(data=rows(), resamples=200))
    table = evaluation_table(found)
    assert [column.title for column in table.columns] == [
        "metric", "embeddings (embeddings, cosine)", "noise (embeddings, euclidean)",
        "less the first",
    ]  # fmt: skip
    lines = [[cell.line for cell in row.cells] for row in table.rows]
    by_label = {line[0]: line[1:] for line in lines}
    assert len(by_label) == 25
    assert by_label["text to video: R@10, %"][2].startswith("-")
    assert by_label["text to video: R@10, %"][2].endswith("] *")
    assert by_label["text to video: mean rank"][2].startswith("+")
    assert any("60 texts and 60 videos are queries" in one for one in sentences(found))


def test_more_than_three_subjects_are_rows_with_the_metric_that_leads() -> None:
    near = raw_subject(embeddings_of(rows()), "cosine")
    others = [replace(near, name=f"other {i}") for i in range(3)]
    found = evaluate_subjects([near, *others], EvaluateOptions(data=rows(), resamples=200))
    table = evaluation_table(found)
    assert [column.title for column in table.columns] == [
        "score", "text to video R@1, %", "less the first", "R@10, %",
        "video to text R@1, %", "less the first", "R@10, %",
    ]  # fmt: skip
    assert [row.cells[0].text for row in table.rows] == [
        "embeddings (embeddings, cosine)", *(f"other {i} (embeddings, cosine)" for i in range(3))
    ]  # fmt: skip
    assert table.rows[1].cells[2].line == "+0.0 [+0.0, +0.0]"
    assert table.rows[0].cells[1].text == f"{100 * found.scores[0].metrics['r1_text_to_video']:.1f}"
