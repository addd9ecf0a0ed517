"""Guarantees of releases and trainings: what they claim follows from their mechanisms."""

import json

import pytest
from builders import SCHEMA

from synthfair.errors import InputError
from synthfair.federated.engine import shared
from synthfair.files import parse_as
from synthfair.privacy import guarantee
from synthfair.privacy.accounting import SampledSums, discrete_delta_of
from synthfair.privacy.guarantee import Guarantee, make_guarantee, require_true, training_guarantee
from synthfair.release.settings import DistillConfig
from synthfair.settings import Checked

CONFIG = DistillConfig(epsilon=1.0, delta=1e-5)
RIGHT = make_guarantee(CONFIG, SCHEMA)
EVERYONE = SampledSums(50, 50, 20)


def training(sums=EVERYONE, name="reports", **more):
    return training_guarantee({name: (sums, 2.0)}, epsilon=1.0, delta=1e-5, **more)


@pytest.mark.parametrize("relation", ["add_or_remove", "replace"])
def test_release_uses_up_its_budget_in_the_stated_shares(relation):
    shares = guarantee.BUDGET_SHARES
    made = make_guarantee(CONFIG.replace(relation=relation), SCHEMA)
    of_all = sum(shares[mechanism.name] for mechanism in made.mechanisms)
    assert 1 - 1e-4 < discrete_delta_of(made.mu, 1.0) / 1e-5 <= 1
    for mechanism in made.mechanisms:
        wanted = made.mu * (shares[mechanism.name] / of_all) ** 0.5
        assert mechanism.mu == pytest.approx(wanted, rel=1e-4)


fewer_choices = RIGHT.mechanism("tree").model_copy(update={"times": 1})


def third(**change):
    """The mechanisms with another third one, the pairs."""
    first, tree, pairs, *others = RIGHT.mechanisms
    return {"mechanisms": (first, tree, pairs.model_copy(update=change), *others)}


@pytest.mark.parametrize(("change", "said"), [
    ({"mechanisms": RIGHT.mechanisms[:2]}, "must be .'histograms', 'tree'"),
    ({"mechanisms": (*RIGHT.mechanisms, RIGHT.mechanisms[0])}, "claimed"),
    (third(sensitivity=0.5), "pairs: sensitivity 0.5;"),
    (third(sensitivity=2**0.5 * 1.0), "pairs: sensitivity"),  # without rounding
    ({"relation": "replace"}, "relation"), ({"epsilon": 2.0}, "epsilon"),
    ({"epsilon": 0.999}, "1e-05 claimed"), ({"adversary": "sees_sums"}, "settings"),
    ({"condition": "teacher"}, "settings"), ({"unit": "user"}, "one row"),
    ({"delta": 2e-5}, "settings"), ({"simulated": True}, "settings"),
    ({"delta": 1e-310}, "delta"), ({"mechanisms": (), "accountant": None}, "delta"),
    ({"mechanisms": (RIGHT.mechanisms[0], fewer_choices, *RIGHT.mechanisms[2:])}, "tree"),
])  # fmt: skip
def test_guarantee_that_settings_and_schema_do_not_imply_is_refused(change, said):
    claimed = json.dumps(RIGHT.model_dump() | change, default=Checked.model_dump).encode()
    require_true(RIGHT, CONFIG, SCHEMA)
    with pytest.raises((ValueError, InputError), match=said):
        require_true(parse_as(claimed, Guarantee, "header"), CONFIG, SCHEMA)


@pytest.mark.parametrize(("sampling", "factor"), [("poisson", 1), ("fixed", 2)])
def test_training_uses_up_its_budget_with_the_noise_of_its_relation(sampling, factor):
    sums = SampledSums(50, 50, 10, sampling)
    kinds = {"teacher_gradients": (sums, 2.0), "student_gradients": (sums, 3.0)}
    found = training_guarantee(kinds, epsilon=1.0, delta=1e-5)
    assert found.composition.epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)
    for mechanism, clip in zip(found.mechanisms, (2.0, 3.0), strict=True):
        assert mechanism.multiplier == pytest.approx(EVERYONE.noise(1.0, 1e-5))
        assert mechanism.noise == pytest.approx(mechanism.multiplier * factor * clip)


def test_training_protects_users_by_their_sums_and_rows_by_their_uploads():
    users, rows = training(), training(name="gradients", condition="teacher")
    assert (users.unit, users.adversary, users.simulated) == ("user", "sees_sums", True)
    assert (rows.unit, rows.adversary, rows.condition) == ("row", "sees_uploads", "teacher")
    both = rows.model_copy(update={"epsilon": 1.5, "counts_epsilon": 0.5})
    assert both.composition.epsilon(1e-5) == pytest.approx(1.5, rel=1e-5)


def test_training_by_shares_has_noise_of_each_aggregator_for_its_rounded_norm():
    least, step = guarantee.noise_for_shares((EVERYONE,), 1.0, 1e-5), 2.0**-36
    assert 1 < least / EVERYONE.noise(1.0, 1e-5) < 1 + 1e-8
    shares = guarantee.SumOfShares(aggregators=2, length=4, step=step, norm=2 + step)
    noise = least * shares.norm
    found = training(shares=shares, noise=noise)
    assert (found.adversary, found.unit) == ("all_but_one", "user")
    assert found.mechanisms[0].multiplier == pytest.approx(least, rel=1e-13)
    with pytest.raises(InputError, match="noise"):
        training(shares=shares, noise=noise * (1 - 1e-9))
    with pytest.raises(ValueError, match="norm"):  # less than half a step of each number
        training(shares=shares.model_copy(update={"norm": 2 + 0.6 * step}), noise=noise)


def test_guarantee_of_shares_on_a_coarse_grid_or_of_too_many_numbers_is_refused():
    sums = shared(8, clip=0.5, relation="add_or_remove", multiplier=6.0)
    fields = {"name": "reports", "population": 50, "sample": 50, "times": 2, "clip": 0.5,
              "sampling": "poisson", "noise": sums.noise / 2**0.5, "shares": sums.shares}  # fmt: skip
    guarantee.SampledMechanism(**fields)
    with pytest.raises(InputError, match="34 steps"):
        guarantee.SampledMechanism(**fields | {"noise": fields["noise"] / 8})
    with pytest.raises(InputError, match="below 2.32"):
        guarantee.SampledMechanism(**fields | {"times": 2**30})


def test_guarantee_is_of_one_kind_and_relation():
    both = {"mechanisms": (*training().mechanisms, *RIGHT.mechanisms)}
    with pytest.raises(ValueError, match="not both"):
        Guarantee.model_validate(training().model_dump() | both)
    with pytest.raises(ValueError, match="'replace'"):
        Guarantee.model_validate(training().model_dump() | {"relation": "replace"})


def test_scale_is_the_sensitivity_over_epsilon_as_it_is_written():
    assert Guarantee(epsilon=0.1, relation="add_or_remove").scale == 10
    assert Guarantee(epsilon=0.1, relation="replace", rows_per_user=3).scale == 60
