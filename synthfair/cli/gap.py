r"""Gaps between groups of clients who do not reveal their group.

Measure how a number (a rate, an accuracy, any score) differs between groups of clients, without
learning any client's group or number. Each client sends one noisy report (local differential
privacy); gaps are estimated from many of them.

    # how many clients are needed
    python -m synthfair gap plan --groups female male --epsilon 1 \
        --precision 0.01 --output gap.json
    # on each device
    python -m synthfair gap perturb gap.json --group female --value 0.93
    # the gap with its interval
    python -m synthfair gap aggregate gap.json reports.csv

gap.json is public: it has the groups, the range of the number and the mechanism.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from synthfair import measure
from synthfair.cli.parameters import Force, Model
from synthfair.cli.show import say, warn
from synthfair.errors import InputError
from synthfair.files import parse_as, require_free
from synthfair.settings import Checked

gap = App(name="gap", help=__doc__)

PublicFile = Annotated[Path, Parameter(help="The public file that plan wrote.")]


class GroupValue(Checked):
    """The group and the value of one client."""

    group: str
    value: float


@gap.command
def plan(
    *,
    groups: tuple[str, ...],
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002 - the name of the flag
    epsilon: float | None = None,
    clients: int | None = None,
    precision: float | None = None,
    output: Path | None = None,
    force: Force = False,
    shares: tuple[float, ...] = (),
    confidence: float = 0.95,
    mechanism: Literal["randomized", "laplace"] = "randomized",
) -> None:
    r"""Find the clients, epsilon or precision of a measurement; write its public file.

    Give two of --clients, --epsilon and --precision; the third is computed, for the best split of
    epsilon between group and value, and whatever the clients' values are.

        python -m synthfair gap plan --groups female male --epsilon 1 \
            --precision 0.01
        python -m synthfair gap plan --groups a b c --shares 0.6 0.3 0.1 \
            --range 0 1 --epsilon 1 --clients 1000000 --output gap.json

    epsilon: for any two clients, no report is more than exp(epsilon) times as likely from one as
    from the other. precision: expected half-width of the interval of the gap between the two
    smallest groups, in the value's unit. A group "(no value)" is not compared.

    Args:
        groups: Names of the groups, two or more.
        range: Public range of a client's value.
        epsilon: Of one client's report.
        clients: Number of clients that send a report.
        precision: Wanted half-width of the interval.
        output: The public file to write, e.g. gap.json.
        shares: Rough shares of the groups, of sum 1. Default: equal.
        confidence: Confidence of each interval.
        mechanism: randomized sends one bit of the value, laplace the value with noise. The former
            has the smaller error at every epsilon, unless values are known to lie near the middle
            of their range.
    """
    from synthfair.measure.estimate import require_shares
    from synthfair.report.text_table import Table

    low, high = range
    if output:
        require_free(output, force=force)
    shares = shares or (1 / len(groups),) * len(groups)
    require_shares(shares, len(groups))
    result = measure.plan_gap(
        shares,
        clients=clients,
        epsilon=epsilon,
        precision=precision,
        compared=[i for i, name in enumerate(groups) if name != measure.NO_VALUE],
        confidence=confidence,
        kind=mechanism,
        unit=(high - low) / 2,
    )
    # The public file, and the measurement in words.
    collection = measure.make_collection(groups, result.mechanism, lower=low, upper=high)
    if output:
        collection.write(output)
    kinds = {"randomized": "M_R: one bit of the value", "laplace": "M_L: the value with noise"}
    budget = f"epsilon1 = {collection.epsilon1:.4g}, epsilon2 = {collection.epsilon2:.4g}"
    facts = {
        "groups": ", ".join(collection.groups),
        "epsilon": f"{collection.epsilon:.4g}, of one client's report",
        "mechanism": f"{kinds[collection.mechanism]}; {budget}",
        "clients": result.clients,
        "precision": f"± {result.precision:.4g}, at confidence {confidence:.4g}",
    }
    if result.precision >= 2 * collection.unit:
        facts["but"] = "too few clients to estimate the size of the smallest group"
    say(Table.of_facts(facts))


@gap.command
def perturb(
    collection: PublicFile,
    /,
    *,
    group: str | None = None,
    value: float | None = None,
    model: Model | None = None,
    table: Path | None = None,
    rate: Literal["true_positive_rate", "false_positive_rate"] | None = None,
    one_person: bool = False,
    header: bool = False,
) -> None:
    r"""On a device: replace a person's group and value by a noisy report.

    Prints a report as a line of CSV: a random id, the fingerprint of the public file, a noisy group
    and a noisy value. The randomness is the operating system's. Each report of a person spends the
    epsilon of the public file, so send only one.

        python -m synthfair gap perturb gap.json --group female --value 0.93
        python -m synthfair gap perturb gap.json --header < record.json > report.csv
        python -m synthfair gap perturb gap.json --model model.json \
            --table rows.csv --rate true_positive_rate > reports.csv

    The second form reads {"group": "female", "value": 0.93} from standard input, so that other
    users of the device cannot see it in the list of processes.

    The third form applies a trained model to the rows of a table. Each row is a person, who sends
    one report: 1 if the model selects the row, else 0. A row whose label does not count for the
    rate reports the group "(no value)"; the public file must have it, and the groups of the model's
    schema. If all rows belong to one person, --one-person makes one report of the rate over all of
    them; without it that person would spend epsilon for each row.

    Args:
        group: Group of this client; needs --value.
        value: Value of this client, in the public range.
        model: model.json of a server; needs --table and --rate.
        table: Rows with labels; CSV or Parquet.
        rate: Rate to measure; use one public file for each rate.
        one_person: All rows belong to one person: one report.
        header: Print the columns' names first.
    """
    of_model = [flag is not None for flag in (model, table, rate)]
    if any(of_model) != all(of_model) or (one_person and not model):
        raise InputError("flags: model, table and rate belong together; one-person needs them")
    if (group is None) != (value is None) or (group and model):
        raise InputError("flags: group and value belong together, and are not for a model")

    public = measure.Collection.read(collection)
    if model and table and rate:
        from synthfair.evaluation import encode_tests, pooled_scores, read_tests
        from synthfair.trained import read_model

        trained = read_model(model)
        schema = trained.schema_
        tables = encode_tests(read_tests([table], schema), schema, paths=[table])
        rows = pooled_scores(trained, tables)
        names = tuple(map(str, trained.schema_.groups))
        reports = measure.perturb_rates(public, rows, names, rate, together=one_person)
    else:
        if group is None or value is None:
            if sys.stdin and sys.stdin.isatty():
                print("waiting for a group and a value on standard input", file=sys.stderr)  # noqa: T201
            record = parse_as(sys.stdin.read(10_000), GroupValue, "standard input")
            group, value = record.group, record.value
        reports = measure.perturb_records(public, [group], [value])
    csv.writer(sys.stdout, lineterminator="\n").writerows(
        [*[measure.Report._fields] * header, *reports]
    )


@gap.command
def aggregate(
    collection: PublicFile,
    reports: Annotated[tuple[str, ...], Parameter(allow_leading_hyphen=True)],
    /,
    *,
    confidence: float = 0.95,
    output: Path | None = None,
    force: Force = False,
    no_ids: bool = False,
) -> None:
    r"""Estimate gaps between groups from any number of reports, with intervals.

    Each group's share and mean is estimated, and the gap of every two groups. Files are CSV (with
    or without a header) or Parquet with the columns report, collection, group and value, as perturb
    writes them. Memory does not grow with their number. Reports that the mechanism cannot have
    made, those of another public file and repeated ones are rejected and counted.

        python -m synthfair gap aggregate gap.json reports/*.parquet \
            --confidence 0.99
        zcat reports.csv.gz | python -m synthfair gap aggregate gap.json -

    The groups' shares are estimated, and the intervals include their uncertainty. They are for the
    population of which the clients are a random sample. An invented report that looks like a real
    one cannot be recognised.

    Args:
        reports: Files, or pipes of CSV as the shell makes of <(zcat reports.csv.gz), which are
            waited for until their writers close them; - is CSV from standard input.
        confidence: Confidence of each interval.
        output: JSON file to which the result is written as well; python -m synthfair report shows
            the folder of a gaps.json.
        no_ids: Do not look for repeated reports; the column report may be missing.
    """
    from synthfair.measure.estimate import require_confidence
    from synthfair.report.result_tables import estimate_tables, rejected_warnings

    sources = [sys.stdin.buffer if name == "-" else Path(name) for name in reports]
    if output:
        files = [source for source in sources if isinstance(source, Path)]
        require_free(output, inputs=(collection, *files), force=force)
    public = measure.Collection.read(collection)
    require_confidence(confidence)  # before the reports are read, which may take hours
    sums = measure.aggregate_reports(sources, public, None if no_ids else measure.SeenIds())
    warn(*rejected_warnings(sums, public))
    document = measure.estimate_gaps(sums, public, confidence=confidence)
    for line in document.warnings:
        warn(f"{line}. The reports contradict the public file: the intervals are not valid")
    if output:
        document.write(output)
    say(estimate_tables(document))
