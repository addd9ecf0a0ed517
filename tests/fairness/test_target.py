import pytest

from synthfair.fairness.target import Target, with_penalty


@pytest.mark.parametrize(("asked", "expected"), [
    (("nothing",), (False, None, 0.1)), (("row_weights",), (True, None, 0.1)),
    (("weight", (0.0,)), (False, None, 0.1)), (("weight", (0.0, 2.0)), (True, None, 0.1)),
    (("tolerance",), (False, None, 0.1)), (("tolerance", (0.0,)), (True, None, 0.1)),
    (("gap", (0.05, 0.02)), (True, 0.02, 0.02)), (("gap", (0.05,), 0.2), (True, 0.05, 0.2)),
    (("gap", (), 0.2), (True, None, 0.2)), (("gap", (), None, 0.8), (True, None, 0.1)),
])  # fmt: skip
def test_target_says_how_much_is_asked(asked, expected):
    target = Target.model_validate(dict(zip(Target.model_fields, asked, strict=False)))
    assert (target.fairness, target.max_gap, target.client_limit) == expected


def test_target_of_several_clients_is_of_those_who_want_a_gap():
    weights = [Target(by="weight", amounts=(rho,)) for rho in (1.0, 0.0, 1.0)]
    assert Target.of(weights) == Target(by="weight", amounts=(1.0, 0.0))
    gaps = [Target(by="gap", amounts=(gap,)) for gap in (0.05, 0.02)]
    assert Target.of([*weights, *gaps]) == Target(by="gap", amounts=(0.05, 0.02))
    assert Target.of([]) == Target(by="nothing")
    for limit in ("max_gap", "max_client_gap", "min_ratio"):
        assert with_penalty({limit: 0.1}) == {"penalty": "selection_rate", limit: 0.1}
        assert with_penalty(own := {"penalty": "covariance", limit: 0.1}) == own


@pytest.mark.parametrize("by", ["weight", "gap", "nothing", "row_weights"])
def test_target_with_amounts_that_do_not_fit_is_refused(by):
    with pytest.raises(ValueError, match="amounts"):
        Target(by=by, amounts=() if by in ("weight", "gap") else (1.0,))
