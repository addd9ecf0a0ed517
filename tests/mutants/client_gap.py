"""Bugs in what is asked of each client's gap, and told of it."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "sums of a client's own rows are of its share of all rows",
        "fairness/penalties.py",
        "return sums / total, jnp.where(there, shares / total, 1 / n_groups)",
        "return sums, jnp.where(there, shares, 1 / n_groups)",
        "test_penalties.py",
    ),
    Mutant(
        "a client without weight has no gap that is a number",
        "fairness/penalties.py",
        "there = total > 0",
        "there = total >= 0",
        "test_penalties.py",
    ),
    Mutant(
        "all rows together are those of the first client",
        "fairness/penalties.py",
        "everyone = rows._replace(s=rows.s % self.n_groups)",
        "everyone = rows",
        "test_penalties.py",
    ),
    Mutant(
        "of many clients the slopes are those of single scores",
        "surrogate/fair_training.py",
        "gaps(scores(p), rows).ravel())(params)",
        "gaps(scores(0.5 * p), rows).ravel())(params)",
        "test_frontier.py",
    ),
    Mutant(
        "the limit of a client is that of all rows",
        "surrogate/frontier.py",
        "point.client_gap - limits[1]",
        "point.gap - limits[1]",
        "test_frontier.py",
    ),
    Mutant(
        "clients with few rows are compared",
        "server/pooling.py",
        "if fewest(part) >= least",
        "if fewest(part) >= 0",
        "test_client_gap.py",
    ),
    Mutant(
        "rows of clients that are left out are the last one's",
        "server/pooling.py",
        "s += clients * n_groups",
        "s += (clients - 1) * n_groups",
        "test_client_gap.py",
    ),
    Mutant(
        "the own penalty of a release outlives it in the first step",
        "server/influence.py",
        "+= at.rho * np.asarray(own).T",
        "+= 0.0 * np.asarray(own).T",
        "test_client_gap.py",
    ),
    Mutant(
        "the fair table is of other rows than the model",
        "server/routine.py",
        "            pooled.problem.rows,\n",
        "            pooled.rows,\n",
        "test_client_gap.py",
    ),
    Mutant(
        "each client is looked at as if it were the only one",
        "fairness/intervals.py",
        "or [rows], TAIL / together",
        "or [rows], TAIL",
        "test_intervals.py",
    ),
    Mutant(
        "clients that may be unfair are said to be",
        "fairness/intervals.py",
        "if gap.low > limit),",
        "if gap.value > limit),",
        "test_intervals.py",
    ),
    Mutant(
        "a command that is shown again asks for no client's gap",
        "config/loading.py",
        "names = {*GAPS, ",
        "names = {*GAPS[:1], ",
        "test_client_gap.py",
    ),
    Mutant(
        "the page's limit of a client is the rule of thumb",
        "report/page.py",
        "run.asked.client_limit if max_gap is None else max_gap",
        "run.asked.client_limit",
        "test_client_gap.py",
    ),
]
