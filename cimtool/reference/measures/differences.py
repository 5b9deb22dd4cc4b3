"""Differences of scores from the reference, the float score, Monte Carlo and the stage before."""

from __future__ import annotations

from cimtool.reference.measures.metric import DifferenceMetric

DIFFERENCES = (
    DifferenceMetric(
        "centred_rmse", "centred logit RMSE", "centred_squares",
        "difference from {reference} without each query's mean difference, which changes no "
        "rank: root mean square, the worse way; ± is its own error",
        lower_is_better=True, heading="centred\nRMSE", pooling="worse root", limit="centred_rmse",
    ),
    DifferenceMetric(
        "relative_centred_rmse", "centred RMSE of spread", "",
        "the same as a share of the spread within a query", lower_is_better=True, share=True,
        heading="% of\nspread",
    ),
    DifferenceMetric(
        "step_centred_rmse", "step", "step_centred_squares",
        "centred RMSE against the row before; * is the largest", lower_is_better=True,
        heading="step", pooling="worse root",
    ),
    DifferenceMetric(
        "float_centred_rmse", "centred vs float", "float_centred_squares",
        "centred RMSE against the float {surrogate}", lower_is_better=True, heading="vs\nfloat",
        pooling="worse root",
    ),
    DifferenceMetric(
        "logit_rmse", "logit RMSE", "logit_squares", "with the mean differences of queries",
        lower_is_better=True, heading="RMSE", pooling="text root", limit="logit_rmse",
    ),
    DifferenceMetric(
        "bias", "bias", "bias", "mean difference", lower_is_better=True, heading="bias",
        essential=False, pooling="text mean",
    ),
    DifferenceMetric(
        "max_abs", "largest difference", "largest", "largest difference", lower_is_better=True,
        heading="max", essential=False, pooling="text largest",
    ),
    DifferenceMetric(
        "monte_carlo_rmse", "RMSE from Monte Carlo", "monte_carlo_squares",
        "from Monte Carlo, with its scatter", lower_is_better=True, heading="RMSE\nvs MC",
        essential=False, pooling="text root",
    ),
    DifferenceMetric(
        "top1_agreement", "top-1 agreement", "same_best",
        "queries with the reference's best item, the worse way", share=True, heading="top-1\n%",
        pooling="worse mean", limit="top1_agreement_loss",
    ),
    DifferenceMetric(
        "float_top1", "top-1 agreement with float", "float_best",
        "the same of the float {surrogate}", share=True, heading="float\ntop-1", essential=False,
        pooling="worse mean",
    ),
    DifferenceMetric(
        "spearman", "rank correlation", "spearman", "Spearman's, mean over queries",
        heading="rank\ncorr.", essential=False, pooling="text mean",
    ),
    DifferenceMetric(
        "float_rmse", "RMSE from float", "float_squares", lower_is_better=True, pooling="text root"
    ),
    DifferenceMetric(
        "step_rmse", "RMSE of the step", "step_squares", lower_is_better=True, pooling="text root"
    ),
    DifferenceMetric("spread", "spread of the reference", "spread", pooling="text mean"),
    DifferenceMetric("video_spread", "the same of a video", "spread", pooling="video mean"),
    DifferenceMetric("own_spread", "spread of the scores", "own_spread", pooling="text mean"),
    DifferenceMetric("own_video_spread", "the same of a video", "own_spread", pooling="video mean"),
)  # fmt: skip
