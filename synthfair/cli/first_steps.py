"""The commands of first steps: ``demo``, ``split``, ``schema``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from synthfair.cli.parameters import Force, SchemaFile
from synthfair.cli.show import conclude, counting_bar, opening, say, warn
from synthfair.errors import InputError
from synthfair.files import require_free, write_text

if TYPE_CHECKING:
    import pandas as pd

    from synthfair.data.schema import Schema

Table = Annotated[
    str,
    Parameter(
        help="twoyear, loanapp, law_school, dutch, adult or bank, but for the first with _additive"
        " at the end by a schema with basis functions; dutch_numbers, whose codes are numbers; or a"
        " file, CSV or Parquet."
    ),
]
Sensitive = Annotated[
    tuple[str, ...],
    Parameter(
        help="The sensitive attribute, if not the schema's; of several, such as sex race, groups"
        " are all combinations."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Clients:
    """The rule by which a table's rows become clients.

    Attributes:
        clients: Number of clients. Default: 2.
        skew: Unlike clients, by a Dirichlet distribution. Default: alike clients.
        by: One client for each value of this column, instead of --clients.
        min_rows: Leave out clients with fewer rows; with 0, one that is too small for a training
            and a test row is an error.
    """

    clients: int | None = None
    skew: float | None = None
    by: str | None = None
    min_rows: int = 0


ALIKE = Clients()
"""The rule where no flag is given."""


def demo(*, output: Path = Path("synthfair-demo"), force: Force = False) -> None:
    """Run everything on a real table: four regions, one fair model.

    Four regions hold the wages of 6,763 young people (table twoyear). The model says from school,
    college and work experience who earns at least 10 dollars an hour; it does not read who is a
    woman, and yet selects men more often. Each region makes one file that stands in for its rows.
    A server trains on the four files, without a penalty on the difference between women and men
    and with it. A table compares that with training on all rows in one place and with each region
    alone.

        python -m synthfair demo --output synthfair-demo

    Args:
        output: Folder to write to.
    """
    from synthfair.compare import demonstrate
    from synthfair.report.answer import run_sentence
    from synthfair.report.page import write_report
    from synthfair.report.result_tables import outcomes_table

    with counting_bar("demo") as show:
        outcomes = demonstrate(output, show, force=force)
    say(outcomes_table(outcomes))
    page = output / "report.html"
    write_report([output / "server"], page, force=True)
    conclude(
        run_sentence(output / "server"), ["tables, files, model and metrics", page], opening(page)
    )


def split(
    table: Table,
    /,
    *,
    schema: SchemaFile | None = None,
    sensitive: Sensitive | None = None,
    rule: Clients = ALIKE,
    seed: int = 0,
    output: Path,
    force: Force = False,
) -> None:
    r"""Split a table into train and test files for some clients, with the schema.

    Clients are alike, each with a random sample of the rows, unless --skew or --by makes them
    unlike. --skew ALPHA deals the rows of each group and label by shares of their own, drawn from a
    Dirichlet distribution with all parameters ALPHA: at 0.1 clients differ very much, at 100
    hardly. --by COLUMN makes one client of each value, named by it, and one named "missing" of the
    rows without one.

        python -m synthfair split law_school --sensitive race --clients 2 \
            --seed 0 --output DIR
        python -m synthfair split dutch --sensitive sex --clients 4 --skew 0.3 \
            --output DIR
        python -m synthfair split loans.csv --schema schema.json --by region \
            --output DIR

    Tables: twoyear (sensitive: female), loanapp (white), law_school (race, male), dutch (sex),
    adult (sex, race), bank (age_25_to_60); or a file, CSV or Parquet, with --schema. The first two
    come with a dependency. Another is taken from the folder named by SYNTHFAIR_DATA, or from the
    user's cache, to which it is downloaded from its public source where it is in neither. Its
    sha256 is checked.

    Args:
        seed: Seed of the split.
        output: Folder to write to.
    """
    from synthfair.data.partition import Split, write_clients

    split_rule = Split(**vars(rule))
    rows, table_schema = labelled_table(table, schema, sensitive, check=True)
    parts = split_rule.apply(rows, table_schema, seed=seed)
    for path in write_clients(parts, table_schema, output, force=force):
        say(str(path), whole=True)
    warn(split_rule.left_out_warning(rows, parts))


def labelled_table(
    name: str, schema_file: Path | None, sensitive: Sequence[str] | None, *, check: bool = False
) -> tuple[pd.DataFrame, Schema]:
    """Return a table's rows with a label, and its schema, by name or from files.

    What is left out is warned of; with ``check``, also what is clipped, and values that are refused
    are named by row in the file.

    Raises:
        InputError: no such table, or a file without a schema, or one that cannot be read; or,
            with ``check``, rows that do not fit the schema.
    """
    from synthfair.data.datasets import SOURCES, load_dataset
    from synthfair.data.encode import encode_own, labelled
    from synthfair.data.schema import read_schema
    from synthfair.data.tables import read_table

    if name in SOURCES:
        if schema_file is not None:
            raise InputError(f"table {name}: --schema is for files")
        return load_dataset(name, sensitive)
    if schema_file is None:
        raise InputError(
            f"table {name!r}: must be one of {', '.join(SOURCES)}, or a file with --schema"
        )
    schema = read_schema(schema_file)
    schema = schema if sensitive is None else schema.with_sensitive(sensitive)
    table = read_table(Path(name), schema)
    if check:
        encode_own(table, schema, source=name)
    rows = labelled(table, schema)
    if not check and (left_out := len(table) - len(rows)):
        warn(f"{name}: {left_out} rows have no label, and are left out")
    return rows, schema


schema = App(name="schema")


@schema.default
def draft(
    table: Path,
    /,
    *,
    label: str,
    positive: tuple[str, ...],
    sensitive: tuple[str, ...],
    missing: tuple[str, ...] = (),
    additive: bool = False,
    output: Path,
    force: Force = False,
) -> None:
    r"""Draft the schema of a table, as JSON, to be completed by hand.

    The block "draft" at its head says why each column is taken as what it is, and what is open; no
    command accepts the schema before that block is deleted. A schema is public: put into it what a
    codebook says, not what the rows happen to hold.

        python -m synthfair schema loans.csv --label approved --positive yes \
            --sensitive sex --output schema.json

    Args:
        table: The table, CSV or Parquet.
        label: The column with the label.
        positive: The label's values that are positive; of a label of numbers, ">= 10" or "< 10".
        sensitive: The column with the groups; of several, groups are all combinations.
        missing: Texts that mean that a value is missing, beside empty, NA, N/A, NaN, null, ? and a
            dot.
        additive: Give numbers splines, by which a linear model bends.
        output: JSON to write.
    """
    from synthfair.data.draft import draft_document, laid_out
    from synthfair.data.tables import read_raw_table

    require_free(output, inputs=[table], force=force)
    document = draft_document(
        read_raw_table(table), table.name.split(".")[0], label=label, positive=positive,
        sensitive=sensitive, missing=missing, additive=additive,
    )  # fmt: skip
    write_text(output, laid_out(document) + "\n")
    say(f"{output}: a draft; review it as its 'draft' block says, then delete that block")


@schema.command
def merge(*drafts: Path, output: Path | None = None, force: Force = False) -> None:
    r"""Merge several sites' schemas, or drafts, into one that all their tables fit.

    Columns of categories have all sites' categories, and numbers the wider bounds. What differs is
    printed by site, and is in the block "draft" for review. The hash at the end is that of the
    schema without this block: sites that approve the same schema see the same hash. Of one file,
    this prints the hash.

        python -m synthfair schema merge a.json b.json --output schema.json
        python -m synthfair schema merge schema.json

    Args:
        drafts: Each site's schema or draft, which it may publish.
        output: JSON to write. Default: none is written.
    """
    from synthfair.data.draft import laid_out
    from synthfair.data.merge import merge_schemas, read_draft
    from synthfair.data.schema import document_differences

    require_free(*[output] if output else [], inputs=drafts, force=force)
    if not (documents := {str(path): read_draft(path) for path in drafts}):
        raise InputError("schema merge: give one schema or several")
    merged, agreed = merge_schemas(documents)
    for site, document in documents.items():
        lines = document_differences(document, merged, ("here", "in all"), None)
        say(
            f"{site}: "
            + ("as it is" if not lines else f"{len(lines)} change{'s' * (len(lines) > 1)}")
        )
        for line in lines:
            say(f"  {line}", whole=True)
    say(f"ignored in all: {', '.join(merged['ignored']) or 'nothing'}", whole=True)
    if output:
        write_text(output, laid_out(merged) + "\n")
    kind = "a draft; review its 'draft' block, then delete it" if "draft" in merged else "merged"
    say(f"{output or 'in all'}: {kind}")
    say(f"hash of the schema: {agreed.hash}")
