"""Guarantees and disclosures in words: files hold codes and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synthfair.report.text_table import Table
from synthfair.settings import SurrogateConfig

if TYPE_CHECKING:
    from synthfair.postprocess.histogram import Origin
    from synthfair.privacy.guarantee import Guarantee
    from synthfair.release.format import Header
    from synthfair.secure.task import Task
    from synthfair.settings import DistillConfig

ADVERSARIES = {
    "anyone": None,
    "sees_sums": "everyone who sees the noisy sums, and nothing else of the reports",
    "sees_uploads": "everyone who sees what clients send in the rounds, and the model: the server,"
    " and the other clients",
    "all_but_one": "all aggregators but one, together with everyone who sees the noisy sums",
}

CONDITIONS = {
    "teacher": "Conditional on the phase-1 teacher, which was trained on the same rows without"
    " noise: not an end-to-end guarantee. One row can change every label that phase 2 learns, and"
    " no noise hides that.",
}

_IN_WORDS = {"epsilon", "delta", "unit", "adversary", "condition", "simulated"}
"""Fields of a guarantee that other facts say."""

_ALWAYS = (
    "What was decided by looking at private data: settings tried before, the schema, that a table"
    " is refused for being empty or not fitting the schema.",
    "The settings, delta among them: they are published, and must not be computed from the table.",
    "Timing, memory and files on the machines of all who take part.",
    "Other releases about the same persons; the client's ledger adds up those that it knows of.",
)
"""Limits of every guarantee."""

_TESTING = "Rows kept for testing: metrics are computed of them without noise."

_SIMULATED = "That all ran in one process, a simulation, which saw everything."

_DEPLOYED = (
    "What a machine sees that computes: whoever can read a site's memory and files sees its rows,"
    " and whoever can read the server's sees what sites send, and noise that the server draws."
)

_COLLUDING = (
    "Aggregators that all collude: they see every client's part. All but one see only noise."
)

_FALSE = "False inputs: a client can send any; only totals that cannot be are refused."

_FLOATING = (
    "Attacks on floating-point arithmetic (Mironov 2012), or on a generator of 64 bits of key: the"
    " noise is not discrete, and is drawn by JAX."
)

_ROUNDS = {
    "sees_sums": (
        "Who took part in a round: assumed to be known to nobody who sees the sums; whoever knows"
        " it learns more than epsilon says.",
        "A server, or a third party that sums up, that sees single reports: summing them up"
        " securely is assumed.",
        _FLOATING,
    ),
    "sees_uploads": (
        "Which rows were in a batch: assumed to be known to nobody but the client; whoever knows it"
        " learns more than epsilon says.",
        "How many rows a client has: the number is public, as it sets the chance of a row to be in"
        " a batch and the client's weight in the mean.",
        _FLOATING,
    ),
    "all_but_one": (
        "Who was drawn: users who were not must send shares of zeros in that round, so that no"
        " aggregator can tell; whoever knows it learns more than epsilon says.",
        _COLLUDING,
        _FALSE,
    ),
}
"""Limits of guarantees for rounds, by adversary."""

_SHARES = (
    _COLLUDING,
    _FALSE,
    "A false total: a single aggregator can falsify it, though not learn parts.",
    "Who takes part, how many clients there are, and when: the list of clients is public.",
    "That a table is refused for its number of rows: its client is then not on the list.",
    "A user's rows at several clients: they are bounded at each client by itself.",
)
"""Limits of guarantees for sums by shares."""


def limits(guarantee: Guarantee) -> tuple[str, ...]:
    """Return all that a guarantee does not cover."""
    lines = (*_ALWAYS, *[_SIMULATED] * guarantee.simulated)
    if guarantee.aggregators:
        return lines + _SHARES
    if guarantee.samples:
        lines += (*[_DEPLOYED] * (not guarantee.simulated), _TESTING)
        lines += _ROUNDS[guarantee.adversary]
    return (*lines, _COLLUDING, _FALSE) if guarantee.counts_epsilon else lines


def claim(guarantee: Guarantee | None) -> str:
    """Return in a line how much privacy there is, and whose."""
    if guarantee is None:
        return "none"
    unit = {"row": "one row", "user": "one user, with all its rows"}[guarantee.unit]
    unit += " of one client" * (guarantee.adversary == "sees_uploads")
    budget = f"epsilon = {guarantee.epsilon:g}, delta = {guarantee.delta:g}"
    return f"({budget})-differential privacy of {unit}"


def guarantee_facts(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee of differential privacy in full."""
    given = {"privacy": claim(guarantee)} | guarantee.model_dump(exclude=_IN_WORDS)
    against, condition = ADVERSARIES[guarantee.adversary], guarantee.condition
    if guarantee.aggregators and not guarantee.mechanisms:
        given["noise"] = f"discrete Laplace of scale {guarantee.scale}, by each aggregator"
    if guarantee.counts_epsilon:
        against = f"{against}; of the counts, {ADVERSARIES['all_but_one']}"
    return given | {
        "condition": condition and CONDITIONS[condition],
        "holds_against": against,
        "not_covered": limits(guarantee),
    }


def sum_table(task: Task, clients: int | str = "") -> Table:
    """Return a table of what is guaranteed of a sum over rows, of so many clients if known."""
    clients = clients or f"{task.least_clients} to {len(task.clients)}"
    return Table.of_facts(guarantee_facts(task.guarantee) | {"clients": clients})


def origin_facts(origin: Origin) -> dict[str, Any]:
    """Return whose rows were counted, and what protects them."""
    asked = f"records of {origin.clients} surrogates by their weights; no client was asked again"
    if origin.unpaired:
        asked += f"; in {origin.unpaired} of them it is made up which label goes with which group"
    counted = asked if origin.surrogates else f"rows of {origin.clients} clients"
    facts = {"counted": counted, "privacy": [claim(one) for one in origin.guarantees]}
    own = None if origin.surrogates else origin.guarantees[0]
    return facts | guarantee_facts(own) if own else facts


def header_facts(header: Header) -> dict[str, Any]:
    """Return the guarantee of a release, if it has one, and what it discloses."""
    facts = guarantee_facts(header.guarantee) if header.guarantee else {}
    private, hides_pairs = header.guarantee is not None, header.hides_pairs
    return facts | {"discloses": disclosures(header.config, private, hides_pairs)}


def disclosures(
    config: DistillConfig | SurrogateConfig, private: bool, hides_pairs: bool = False
) -> tuple[str, ...]:
    """Return what a release made with these settings discloses about the real rows.

    Args:
        config: its settings.
        private: whether noise protects the rows; not so if it came from a fixed seed.
        hides_pairs: whether sums by label and by group stand in place of those of some pairs.
    """
    # Noise that protects bounds what can be learned, whatever the kind.
    is_surrogate = isinstance(config, SurrogateConfig)
    records = (
        "The rows are distilled from private records: those of a surrogate with the same epsilon,"
        f" delta and k_min = {config.k_min}."
    )
    made_of = () if is_surrogate else (records,)
    pairs = f"each pair of group and label with at least {config.k_min} real rows"
    fewer = "Which pairs are missing: they have fewer rows, or none, or protect such a pair."
    if private:
        return (
            *made_of,
            "What rows have in common; about any one row, at most what differential privacy with"
            f" epsilon = {config.epsilon:g} and delta = {config.delta:g} allows.",
        )
    if config.epsilon is not None:
        return (
            *made_of,
            f"Of {pairs}, with noise: how many they are, how each column is distributed, and"
            " about how columns depend on each other.",
            "The noise came from a fixed seed, for tests: anybody can subtract it.",
            fewer,
        )
    if is_surrogate:
        hidden = (
            "Some pairs have fewer rows. These, and others that would tell of them, have no sums of"
            " their own, but sums by label and by group over all of them, from which how often each"
            " occurs is estimated."
        )
        return (
            f"Of {pairs}: how many they are; how each column is distributed; two-way tables of as"
            " many pairs of columns as connect all of them; means and products of numbers; and"
            " averages of smooth functions along models of the rows. All are sums over rows that"
            " are rounded to multiples of 5 rows. No differential privacy is claimed; not"
            " anonymous.",
            fewer,
            *[hidden] * hides_pairs,
        )
    # A fair release without a guarantee, by its settings.
    lines = [
        "The synthetic rows fix a model trained on the real rows, and its curvature: they tell"
        " at least as much as publishing that model. No differential privacy is claimed; not"
        " anonymous."
    ]
    if config.labels == "proportional":
        part = "pair of group and label" if config.group_input else "label"
        lines.append(f"The share of each {part} among the real rows.")
    if config.labels == "copy":
        part = "group and the label" if config.group_input else "label"
        lines.append(f"The {part} of every real row, in order, and the number of real rows.")
    if config.start == "normal":
        lines.append("Traces of the mean and the variance of each real feature, where it started.")
    if config.start == "real":
        lines.append("Real rows: it started at them, and some may be unchanged or nearly so.")
    return tuple(lines)
