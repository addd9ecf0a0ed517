"""Words for the codes of privacy that files hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synthfair.release.settings import SurrogateConfig
from synthfair.report.text_table import Table
from synthfair.report.words import render

if TYPE_CHECKING:
    from synthfair.postprocess.histogram import Origin
    from synthfair.privacy.guarantee import Guarantee
    from synthfair.release.format import Header
    from synthfair.release.settings import DistillConfig
    from synthfair.secure.task import SumTask

ADVERSARIES = {
    "anyone": None,
    "sees_sums": "everyone who sees the noisy sums, and nothing else of the reports",
    "sees_uploads": "everyone who sees what clients send, and the model: server and other clients",
    "all_but_one": "all aggregators but one, and everyone who sees the noisy sums",
}

CONDITIONS = {
    "teacher": "Conditional on the phase-1 teacher, which was trained on the same rows without"
    " noise: one row can change every label that phase 2 learns.",
}

_IN_WORDS = {"epsilon", "delta", "unit", "adversary", "condition", "simulated"}
"""Fields of a guarantee that other facts say."""

_ALWAYS = (
    "What was decided by looking at the rows: settings tried before, the schema, a refused table.",
    "The settings, delta among them: they are published.",
    "Timing, memory and files on the machines of all who take part.",
    "Other releases about the same persons, but for those in the client's ledger.",
)
"""Limits of every guarantee."""

_TESTING = "Rows kept for testing: their metrics have no noise."

_SIMULATED = "What this one process saw: all ran in it, a simulation."

_DEPLOYED = "Whoever can read a site's memory and files, or read the server's, which draws noise."

_SHARES = (
    "Aggregators that all collude: they see every client's part.",
    "False inputs of clients.",
)

_FLOATING = "Attacks on floating-point arithmetic (Mironov 2012): the noise is not discrete."

_ROUNDS = {
    "sees_sums": (
        "Whoever knows who took part in a round.",
        "Whoever sees single reports: that they are summed up securely is assumed.",
        _FLOATING,
    ),
    "sees_uploads": (
        "Whoever knows which rows were in a batch.",
        "How many rows a client has: the number is public.",
        _FLOATING,
    ),
    "all_but_one": ("Whoever knows who was drawn in a round.", *_SHARES),
}
"""Limits of guarantees for rounds, by adversary."""

_SUMS = (
    *_SHARES,
    "A false total, which a single aggregator can cause.",
    "Who takes part, how many clients there are, and when: the list of clients is public.",
    "That a client is not on the list, as its table has too few rows or too many.",
    "A user's rows at several clients: they are bounded at each by itself.",
)
"""Limits of guarantees for sums by shares."""


def limits(guarantee: Guarantee) -> tuple[str, ...]:
    """Return all that a guarantee does not cover."""
    lines = (*_ALWAYS, *[_SIMULATED] * guarantee.simulated)
    if guarantee.aggregators:
        return lines + _SUMS
    if guarantee.samples:
        lines += (*[_DEPLOYED] * (not guarantee.simulated), _TESTING)
        lines += _ROUNDS[guarantee.adversary]
    return lines + _SHARES if guarantee.counts_epsilon else lines


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


def sum_table(task: SumTask, clients: int | str = "") -> Table:
    """Return a table of what is guaranteed of a sum over rows, of so many clients if known."""
    clients = clients or f"{task.least_clients} to {len(task.clients)}"
    return Table.of_facts(guarantee_facts(task.guarantee) | {"clients": clients})


def origin_facts(origin: Origin) -> dict[str, Any]:
    """Return whose rows were counted, and what protects them."""
    counted = f"records of {origin.clients} surrogates by their weights; no client was asked again"
    if origin.unpaired:
        counted += f"; in {origin.unpaired} of them it is made up which label goes with which group"
    counted = counted if origin.surrogates else f"rows of {origin.clients} clients"
    facts = {"counted": counted, "privacy": [claim(guarantee) for guarantee in origin.guarantees]}
    guarantee = None if origin.surrogates else origin.guarantees[0]
    return facts | guarantee_facts(guarantee) if guarantee else facts


def header_facts(header: Header) -> dict[str, Any]:
    """Return the guarantee of a release, if it has one, and what it discloses."""
    return release_facts(header.config, header.guarantee, header.hides_pairs)


def release_facts(
    config: DistillConfig | SurrogateConfig, guarantee: Guarantee | None, hides_pairs: bool
) -> dict[str, Any]:
    """Return the same from what metrics.json has of a release."""
    facts = guarantee_facts(guarantee) if guarantee else {}
    return facts | {"discloses": disclosures(config, guarantee is not None, hides_pairs)}


def disclosures(
    config: DistillConfig | SurrogateConfig, private: bool, hides_pairs: bool = False
) -> tuple[str, ...]:
    """Return what a release made with these settings discloses about the real rows.

    Args:
        config: its settings.
        private: whether noise protects the rows; not so if it came from a fixed seed.
        hides_pairs: whether sums by label and by group stand in place of those of some pairs.
    """
    values = {"is_surrogate": isinstance(config, SurrogateConfig), "private": private}
    text = render("disclosures.txt.j2", config=config, hides_pairs=hides_pairs, **values)
    return tuple(text.splitlines())
