from __future__ import annotations

import pytest

from cimtool.base.errors import CimError
from cimtool.training.losses.info_nce import InfoNce
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.models.two_branch import TwoBranchModel
from cimtool.training.options import Optimisation, by_kind


def test_texts_become_values_of_the_fields() -> None:
    options = by_kind({"loss.tau": "0.5", "model.hidden": "16", "model.dropout": "0"})
    assert InfoNce(**options["loss"]).tau == 0.5
    model = TwoBranchModel(**options["model"])
    assert (model.hidden, model.dropout) == (16, 0.0)
    assert isinstance(model.hidden, int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tau=1", 'option "tau" is not known; expected model.KEY or loss.KEY'),
        ("los.tau=1", 'option "los.tau" is not known'),
        (
            "loss.tao=1",
            'loss.tao is not an option of loss "info-nce": a, tau, variance; did you mean',
        ),
        ("loss.tau=hot", "loss.tau is hot; expected a finite number"),
        ("loss.tau=nan", "loss.tau is nan; expected a finite number"),
        ("loss.tau=0", "loss.tau is 0; expected more than 0"),
        ("loss.variance=-1", "loss.variance is -1; expected 0 or more"),
    ],
)
def test_bad_options(text: str, message: str) -> None:
    with pytest.raises(CimError) as error:
        InfoNce(**by_kind(dict([text.split("=")]))["loss"])
    assert message in str(error.value)


def test_a_fraction_of_a_unit() -> None:
    with pytest.raises(CimError, match=r"model.hidden is 1.5; expected an integer"):
        TwoBranchModel(hidden=1.5)


@pytest.mark.parametrize("value", [None, [1], "many", True, "1_0", "٣"])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(CimError, match=r"model\.hidden is .*; expected an integer of 64 bits"):
        TrunkModel(hidden=value)


def test_an_optimizer_is_one_of_those_that_are_known() -> None:
    with pytest.raises(CimError, match=r'optimizer "sdg" is not known: adamw, sgd; did you mean'):
        Optimisation(optimizer="sdg")


@pytest.mark.parametrize("value", [1, 2.5, "3", True, None])
def test_counts_are_integers(value: object) -> None:
    with pytest.raises(CimError, match=r"batch is .*; expected an integer of at least 2"):
        Optimisation(batch=value)  # type: ignore[arg-type]
