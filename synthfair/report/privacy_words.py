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

_IN_WORDS = {"epsilon", "delta", "unit", "adversary", "condition", "simulated"}
"""Fields of a guarantee that other facts say."""


def claim(guarantee: Guarantee | None) -> str:
    """Return in a line how much privacy there is, and whose."""
    return render("claim.txt.j2", guarantee=guarantee)


def guarantee_facts(guarantee: Guarantee) -> dict[str, Any]:
    """Return a guarantee of differential privacy in full."""
    given = {"privacy": claim(guarantee)} | guarantee.model_dump(exclude=_IN_WORDS)
    if guarantee.aggregators and not guarantee.mechanisms:
        given["noise"] = f"discrete Laplace of scale {guarantee.scale}, by each aggregator"
    return given | {
        "condition": render("condition.txt.j2", guarantee=guarantee) or None,
        "holds_against": render("holds_against.txt.j2", guarantee=guarantee) or None,
        "not_covered": render("not_covered.txt.j2", guarantee=guarantee).splitlines(),
    }


def sum_table(task: SumTask, clients: int | str = "") -> Table:
    """Return a table of what is guaranteed of a sum over rows, of so many clients if known."""
    clients = clients or f"{task.least_clients} to {len(task.clients)}"
    return Table.of_facts(guarantee_facts(task.guarantee) | {"clients": clients})


def origin_facts(origin: Origin) -> dict[str, Any]:
    """Return whose rows were counted, and what protects them."""
    counted = render("counted.txt.j2", origin=origin)
    facts = {"counted": counted, "privacy": [claim(guarantee) for guarantee in origin.guarantees]}
    guarantee = None if origin.surrogates else origin.guarantees[0]
    return facts | guarantee_facts(guarantee) if guarantee else facts


def header_facts(header: Header) -> dict[str, Any]:
    """Return the guarantee of a release, if it has one, and what it discloses."""
    return release_facts(header.config, header.guarantee, header.hides_pairs)


def release_facts(
    config: DistillConfig | SurrogateConfig, guarantee: Guarantee | None, hides_pairs: bool
) -> dict[str, Any]:
    """Return the same from what metrics.json has of a release.

    Args:
        config: its settings.
        guarantee: None where no noise protects the rows, or noise that came from a fixed seed.
        hides_pairs: whether sums by label and by group stand in place of those of some pairs.
    """
    facts = guarantee_facts(guarantee) if guarantee else {}
    kind = {"is_surrogate": isinstance(config, SurrogateConfig), "private": guarantee is not None}
    discloses = render("disclosures.txt.j2", config=config, hides_pairs=hides_pairs, **kind)
    return facts | {"discloses": discloses.splitlines()}
