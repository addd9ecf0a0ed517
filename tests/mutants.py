"""Wrong behaviour that a named test must notice: ``python -m pytest tests/mutants.py``.

Each mutant puts a wrong function in the place of one of the package, everywhere where it is
imported, and runs its test, which must fail. The file is not collected by itself.
"""

import html
import importlib
import sys
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from synthfair.privacy.ledger import Limit


class Mutant(NamedTuple):
    """A function ``room.module:name`` of the package, how it goes wrong, and the test that fails.

    ``wrong`` takes the real function and returns the wrong one.
    """

    target: str
    wrong: Callable[[Any], Any]
    test: str


def nothing(_real):
    """A check that passes everything."""
    return lambda *_, **__: None


def always(value):
    return lambda _real: lambda *_, **__: value


def times(factor):
    return lambda real: lambda *args, **more: factor * real(*args, **more)


def first_as_it_is(_real):
    """What should change its first argument returns it."""
    return lambda value, *_, **__: value


MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(target, wrong, f"tests/{test}")
    for target, wrong, test in (
        # Noise and its accounts
        ("privacy.mechanism:sensitivity",
         lambda real: lambda bound, _relation, **more: real(bound, "add_or_remove", **more),
         "privacy/test_guarantee.py::test_training_uses_up_its_budget_with_the_noise_of_its_relation"),
        ("privacy.mechanism:rounded_norm", first_as_it_is,
         "privacy/test_mechanism.py::test_sensitivity_has_the_rounding_in_it"),
        ("privacy.noise:discrete_gaussian",
         lambda real: lambda variance, *args, **more: real(variance / 4, *args, **more),
         "statistics/test_noise.py::test_noise_has_its_distribution"),
        ("privacy.noise:discrete_laplace",
         lambda real: lambda scale, *args, **more: real(scale / 2, *args, **more),
         "statistics/test_noise.py::test_noise_has_its_distribution"),
        ("privacy.noise:exponential_choice",
         lambda _real: lambda scores, *_, **__: int(np.argmax(scores)),
         "statistics/test_noise.py::test_choice_is_as_likely_as_the_exponential_of_its_score"),
        ("privacy.accounting:mu_of_choice", times(0.5),
         "surrogate/test_guarantee.py::test_choice_costs_what_the_worst_pair_does"),
        ("privacy.accounting:epsilon_of", times(0.9),
         "privacy/test_accounting.py::test_budget_is_used_up_and_never_exceeded"),
        ("privacy.accounting:delta_of", times(0.5),
         "privacy/test_accounting.py::test_delta_is_the_closed_form_by_scipy"),
        ("privacy.accounting:common_noise", times(0.9),
         "privacy/test_accounting.py::test_noise_of_sampled_sums_is_the_least"),
        ("surrogate.sums:on_grid", first_as_it_is,
         "surrogate/test_sums.py::test_sum_is_that_of_a_loop_and_adds_up_over_batches"),
        ("secure.summands:GroupCounts.noise",
         lambda real: lambda self, *args: real(self, *args) // 2,
         "statistics/test_secure_noise.py::test_opened_sum_has_the_noise_of_every_aggregator"),
        ("secure.shares:Sharing._expanded",
         lambda _real: lambda self, *_: np.zeros(self.length, np.uint64),
         "secure/test_shares.py::test_share_says_nothing_of_the_vector"),
        ("measure.mechanisms:RandomizedGroup.respond", lambda _real: lambda _, group, __: group,
         "measure/test_mechanisms.py::test_reports_are_drawn_with_their_probabilities"),
        ("federated.users:Cohorts.draw", lambda _real: lambda self, *_: np.arange(self.size),
         "federated/test_users.py::test_cohorts_hold_each_user_with_the_same_chance"),
        # What may leave, and what it is booked as
        ("privacy.ledger:Ledger.set_limit",
         lambda _real: lambda self, epsilon, delta: self._append(
             Limit(epsilon=epsilon, delta=delta)
         ),
         "privacy/test_ledger_file.py::test_ledger_locked_by_another_is_not_written"),
        ("privacy.ledger:Ledger.buy",
         lambda _real: lambda _self, _purchase, compute, **_: compute(),
         "privacy/test_ledger_buy.py::test_purchase_is_computed_and_booked_once"),
        ("privacy.ledger:Ledger.require", nothing,
         "privacy/test_ledger.py::test_limit_refuses_what_would_pass_it_and_books_nothing"),
        ("privacy.ledger:Ledger.book", nothing,
         "privacy/test_ledger.py::test_releases_add_up_as_independent_gaussians"),
        ("privacy.ledger:Ledger.answers_seen", always(0),
         "privacy/test_ledger.py::test_answers_that_a_server_sees_are_counted_but_for_this_very_one"),
        ("privacy.ledger:Ledger._locked", lambda _real: lambda _self: nullcontext(),
         "privacy/test_ledger_file.py::test_ledger_is_locked_from_the_check_of_its_limit_to_the_line"),
        ("privacy.guarantee:require_true", nothing,
         "privacy/test_guarantee.py::test_guarantee_that_settings_and_schema_do_not_imply_is_refused"),
        ("privacy.ledger:compute_once",
         lambda _real: lambda _path, _digest, compute, **_: compute(),
         "secure/test_aggregator.py::test_task_is_answered_once_and_another_anew"),
        ("task.limits:Limits.require", nothing,
         "task/test_limits.py::test_limits_hold_at_the_border"),
        ("deploy.site_sums:_require_allowed", nothing,
         "deploy/test_site_sums.py::test_aggregator_limits_sums_at_the_border"),
        ("deploy.kit:differences", always(()),
         "deploy/test_check.py::test_difference_is_named_wherever_it_is"),
        ("client.fair_task:check_copies", nothing,
         "client/test_fair_task.py::test_copies_are_counted_wherever_they_are"),
        ("client.fair_task:require_rows", nothing,
         "client/test_fair_task.py::test_rows_that_cannot_be_compared_are_refused_by_column_and_value"),
        ("surrogate.tables:make_strata",
         lambda real: lambda rows, k_min, *args, **more: real(rows, k_min - 1, *args, **more),
         "surrogate/test_strata.py::test_strata_at_the_border_of_k_min"),
        ("privacy.mechanism:clip_rows", first_as_it_is,
         "surrogate/test_private.py::test_sensitivity_holds_whatever_a_row_has"),
        ("surrogate.tables:round_to", first_as_it_is,
         "surrogate/test_records.py::test_surrogate_depends_on_rounded_sums_alone"),
        ("surrogate.records:tells", always(False),
         "surrogate/test_strata.py::test_levels_tell_a_hidden_cell_that_may_have_fewer_than_half_of_k_min"),
        ("federated.single_rows:require_alike", nothing,
         "federated/test_single_rows.py::test_exact_sums_tell_the_record_of_who_alone_has_a_value"),
        ("federated.engine:clip_report", first_as_it_is,
         "federated/test_engine.py::test_clip_is_of_a_report_as_one_vector_and_0_of_one_without_a_norm"),
        ("federated.engine:add_noise", first_as_it_is,
         "federated/test_engine.py::test_noise_has_the_stated_standard_deviation"),
        ("federated.clipping:clipped_gradients",
         lambda real: lambda model, params, rows, loss, _clip: real(
             model, params, rows, loss, np.inf
         ),
         "federated/test_clipping.py::test_clipped_gradients_move_by_the_clip_at_most_whatever_a_row_holds"),
        ("federated.clipping:poisson_sum",
         lambda _real: lambda function, rows, *_: function(rows),
         "federated/test_clipping.py::test_poisson_batches_hold_each_row_with_the_same_chance"),
        ("data.draft:round_bounds", lambda _real: lambda low, high: (low, high),
         "data/test_draft.py::test_draft_holds_no_number_of_the_rows"),
        # Who is believed
        ("release.keys:is_signed", always(True),
         "release/test_keys.py::test_signature_that_is_wrong_is_refused_without_keys_too"),
        ("release.keys:require_signer", lambda _real: lambda _, keys, **__: next(iter(keys)),
         "release/test_keys.py::test_signature_that_no_key_knows_is_refused_where_keys_are_given"),
        ("release.format:_require_values", nothing,
         "release/test_format.py::test_release_that_none_can_be_is_refused_by_its_place"),
        ("release.format:require_fit", nothing,
         "release/test_format.py::test_release_of_another_schema_is_refused_by_column"),
        ("server.review:refuse_influence", nothing,
         "server/test_review.py::test_influence_above_a_limit_is_refused_by_its_setting"),
        ("server.trust:learn_weights", lambda _real: lambda _, parts, *__, **___: np.ones(len(parts)),
         "server/test_trust.py::test_clients_that_are_bad_hardly_count"),
        ("server.pooling:_weights", lambda real: lambda releases, _: real(releases, 1e9),
         "server/test_pooling.py::test_weights_of_a_client_are_capped_at_twenty_lower_medians"),
        ("secure.summands:GroupCounts.require_part", nothing,
         "secure/test_summands.py::test_part_beyond_its_bounds_is_neither_summed_nor_sent"),
        ("secure.aggregator:_verify", nothing,
         "secure/test_aggregator.py::test_sums_of_other_aggregators_or_another_task_are_not_opened"),
        ("files:require_free", nothing,
         "package/test_files.py::test_output_that_is_no_regular_file_is_not_replaced"),
        ("release.format:_content_digest", always(b"\0" * 32),
         "release/test_format.py::test_release_that_is_altered_is_refused"),
        # What is computed
        ("distill.problem:implicit_vjp", times(-1),
         "distill/test_hypergradient.py::test_hypergradient_is_the_central_difference"),
        ("distill.problem:implicit_vjp", times(2),
         "distill/test_hypergradient.py::test_hypergradient_is_the_central_difference"),
        ("distill.problem:outer_excess", always(0.0),
         "distill/test_problem.py::test_excess_estimates_how_far_the_optimum_is"),
        ("surrogate.fair:ridge_of", times(2.0),
         "compare/test_compared_methods.py::test_central_refine_and_local_are_ridge_regressions_of_all_and_of_own_rows"),
        ("fairness.intervals:rate_interval",
         lambda real: lambda hits, size: real(4 * hits, 4 * size),
         "fairness/test_intervals.py::test_rate_interval_is_scipys_exact_one"),
        ("fairness.metrics:group_rates", lambda real: lambda rows: real(rows)[::-1],
         "fairness/test_metrics.py::test_group_rates_and_metrics_of_any_rows_are_numpys"),
        ("fairness.metrics:Scored.take",
         lambda real: lambda rows, index: real(rows, index)._replace(probability=None),
         "fairness/test_metrics.py::test_scored_rows_taken_or_regrouped_are_the_rows_themselves"),
        ("fairness.intervals:difference",
         lambda real: lambda first, second, *more: real(second, first, *more),
         "fairness/test_intervals.py::test_intervals_of_two_groups_are_those_of_signed_differences"),
        ("measure.mechanisms:RandomizedValue.epsilon",
         lambda _real: property(lambda self: max(self.epsilon1, self.epsilon2)),
         "measure/test_mechanisms.py::test_randomized_epsilon_is_that_of_all_outputs"),
        ("measure.aggregate:SeenIds.add_new", lambda _real: lambda _, ids: np.full(len(ids), True),
         "measure/test_aggregate.py::test_seen_ids_pass_none_twice"),
        ("fairness.metrics:statistical_parity_difference", times(-1),
         "fairness/test_metrics.py::test_spd_is_of_the_last_group_minus_the_first"),
        ("surrogate.tables:james_stein", first_as_it_is,
         "surrogate/test_tables.py::test_james_stein_moves_what_noise_explains"),
        ("postprocess.histogram:coins", lambda real: lambda _, ids: real("0" * 64, ids),
         "postprocess/test_histogram.py::test_coins_are_the_first_53_bits_of_a_hash"),
        # What is shown
        ("report.words:render",
         lambda real: lambda name, **values: html.unescape(real(name, **values)),
         "report/test_page.py::test_names_that_are_hostile_are_shown_and_not_run"),
        ("report.answer:one_label", always(None),
         "report/test_answer.py::test_model_that_selects_nobody_is_not_usable_and_the_last_choice"),
    )
)  # fmt: skip


@contextmanager
def planted(mutant: Mutant):
    """Replace the function by the wrong one, under all its names in all loaded modules."""
    module, _, path = mutant.target.partition(":")
    owner = importlib.import_module(f"synthfair.{module}")
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    real = vars(owner)[name]
    wrong = mutant.wrong(real)

    def replace(old, new):
        for holder in [owner, *sys.modules.values()]:
            for known, value in list(vars(holder).items()):
                if value is old:
                    setattr(holder, known, new)
        jax.clear_caches()

    replace(real, wrong)
    try:
        yield
    finally:  # also in test modules that were imported meanwhile
        replace(wrong, real)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.target}")
def test_a_test_notices(mutant):
    with planted(mutant):
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", "", mutant.test])
    assert code == pytest.ExitCode.TESTS_FAILED
