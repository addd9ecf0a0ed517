"""The commands about release files: ``keygen``, ``inspect``, ``ledger``."""

from __future__ import annotations

from pathlib import Path

from synthfair.cli.parameters import Force, SchemaFile
from synthfair.cli.show import say
from synthfair.errors import InputError
from synthfair.files import require_free, write_text


def keygen(*, output: Path, aggregator: bool = False, force: Force = False) -> None:
    """Make the keys of a client, which sign its releases, or of an aggregator of sums.

    They are a pair of Ed25519 keys: NAME.key, which stays with the client and which only its owner
    may read, and NAME.pub, to be handed to whoever runs the server, by a way on which nobody can
    replace it. NAME names the client there. What keys that are overwritten have signed can no
    longer be verified.

        python -m synthfair keygen --output hospital_a.key

    client --sign hospital_a.key signs a release with it, and server --keys hospital_a.pub
    hospital_b.pub takes no other releases than those of these two.

    An aggregator of secure sums has a second pair in its files, to which clients encrypt, and the
    folder NAME.answers, without which secure add does not answer. NAME.pub is for whoever plans the
    sum and for every client. Uploads to keys that are overwritten can no longer be read.

        python -m synthfair keygen --aggregator --output aggregator_0.key

    Args:
        output: The private key to write, NAME.key.
        aggregator: Make the keys of an aggregator.
    """
    from synthfair.release.keys import make_keys

    if aggregator:
        from synthfair.secure.task import make_aggregator_keys

        public_path, _ = make_aggregator_keys(output, force=force)
        say(f"Wrote {output} (keep it secret) and {public_path} (for the planner and clients).")
        return
    public_path, public = make_keys(output, force=force)
    say(f"Wrote {output} (keep it secret) and {public_path} (hand it to the server).")
    say(f"Public key: {public}")


def inspect(
    release: Path,
    /,
    *,
    schema: SchemaFile | None = None,
    keys: tuple[Path, ...] = (),
    data: Path | None = None,
    plot: Path | None = None,
    force: Force = False,
) -> None:
    r"""Show what a release file holds and claims, before it is sent or after, and verify it.

    The sha256 of its content and its signature, if it has one, are verified in any case; the
    schema and the clients' public keys where they are given. Exits with 2 where anything does not
    fit.

        python -m synthfair inspect DIR/client_0.parquet --schema DIR/schema.json

    With --data a client sees, before it sends the file, how good it is on the rows for which it
    stands: the share of rows that lie elsewhere, by column, and loss and gap of a model of the file
    beside one of the rows. These numbers are exact and private.

        python -m synthfair inspect DIR/client_0.parquet --schema DIR/schema.json \
            --data DIR/client_0_train.csv --plot columns.svg

    Args:
        release: The release file.
        keys: Public keys, one of which must have signed it.
        data: The table of which the file was made; needs --schema. It stays in house.
        plot: With --data, a picture of each column to write, SVG.
    """
    from synthfair.data.schema import read_schema
    from synthfair.release.format import inspect_release
    from synthfair.release.keys import read_keys
    from synthfair.report.release_tables import inspection_table

    if (data and not schema) or (plot and not data):
        raise InputError("--data: needs --schema; --plot: needs --data")
    if plot:
        require_free(plot, inputs=[release, data], force=force)
    known = read_schema(schema) if schema else None
    inspection = inspect_release(release, schema=known, keys=read_keys(keys) if keys else None)
    say(inspection_table(inspection, known))
    if inspection.problems:
        raise InputError("\n".join(inspection.problems))
    if data and known:
        from synthfair.client.quality import release_quality
        from synthfair.data.tables import read_table
        from synthfair.report.figures import draw_columns, svg_text
        from synthfair.report.release_tables import quality_tables

        quality = release_quality(inspection.release, read_table(data, known), known)
        say(quality_tables(quality))
        if plot and not quality.columns:
            raise InputError("plot: records of a fair release imitate no rows", "plot")
        if plot:
            write_text(plot, svg_text(draw_columns(quality.columns)))
            say(f"Wrote {plot}. It shows the rows: keep it in house.")


def ledger(
    ledger: Path,
    /,
    *,
    limit_epsilon: float | None = None,
    limit_delta: float | None = None,
) -> None:
    r"""Show the releases booked for a table, and what they add up to; or limit it.

    Each release of the same rows discloses more of them. With a limit, the client refuses a release
    that would pass it, and every release without an epsilon.

        python -m synthfair ledger DIR/client_0_train.csv.ledger.jsonl
        python -m synthfair ledger DIR/client_0_train.csv.ledger.jsonl \
            --limit-epsilon 3 --limit-delta 1e-6

    The ledger is a text file next to the table, one line a release, to which the client adds before
    it spends. It knows of no release made from a copy of the table elsewhere.

    Args:
        ledger: The ledger; with a limit, it may be new.
        limit_epsilon: Most that may be spent in all.
        limit_delta: Goes with it; e.g. 1e-6.
    """
    if (limit_epsilon is None) != (limit_delta is None):
        raise InputError("flags: limit_epsilon and limit_delta go together: give both or neither")

    from synthfair.privacy.ledger import Ledger
    from synthfair.report.release_tables import ledger_table

    book = Ledger(ledger)
    if limit_epsilon is not None and limit_delta is not None:
        book.set_limit(limit_epsilon, limit_delta)
    elif not ledger.exists():
        raise InputError(f"{ledger}: no such file: no release was booked")
    say(ledger_table(book))
