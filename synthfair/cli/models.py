"""Commands that use a trained model."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

from synthfair.cli.parameters import Force, Model
from synthfair.cli.show import note, say
from synthfair.errors import InputError
from synthfair.files import require_free, whole_file


def predict(
    *,
    model: Model,
    data: Path,
    id: str | None = None,  # noqa: A002 - the name of the flag
    keep: tuple[str, ...] = (),
    explain: bool = False,
    reference: Path | None = None,
    cutoff: float | None = None,
    most_selected: float | None = None,
    test: tuple[Path, ...] = (),
    output: Path | None = None,
    force: Force = False,
) -> None:
    r"""Score a table with a model that the server trained.

    Writes a CSV, one row for each row of the table, in its order: the columns to --keep; score;
    probability of the positive label; and decision, a value of the label, or positive and negative
    where the label has several of these.

        python -m synthfair predict --model DIR/server/model.json --data new.csv \
            --output scored.csv

    Tables of any size are read in parts. Where a row is refused and there is no --output, the rows
    of earlier parts are written.

    With --explain the output also says which columns moved each score, by how much: the score is
    that of a reference plus the contributions of the columns. The reference is the middle of the
    schema (of numbers that of their bounds; all categories alike), or, with --reference, the mean
    of a table's rows.

    The model decides +1 above a probability of 1/2. Another cutoff, given or chosen so that few are
    selected, has another accuracy and another gap: they are measured on --test rows, and printed.

    Where the model's decisions are drawn by coins (thresholds --randomized), --id names the column
    by which a person is known: the same id gets the same coin, today and tomorrow.

    Args:
        data: The table, CSV or Parquet, or a folder of them. Labels may be absent.
        id: Column of the ids, compared as text; for decisions drawn by coins.
        keep: Columns of the table that are written, too.
        explain: Add the contribution of each column to the score.
        reference: CSV or Parquet; with --explain, the reference is the mean of its rows.
        cutoff: Probability above which a decision is positive; needs --test.
        most_selected: In place of --cutoff: the share of the --test rows that is selected at most.
        test: Tables of labelled test rows, of which accuracy and gap are printed.
        output: CSV to write; standard output if not given.
    """
    from synthfair.data.tables import read_chunks
    from synthfair.trained import mean_inputs, predict_parts, read_model

    if reference and not explain:
        raise InputError("--reference: is for --explain")
    if output:
        require_free(output, inputs=(model, data, reference, *test), force=force)
    trained_model = read_model(model)

    # Another cutoff, never without what it does to the gap.
    if cutoff is not None or most_selected is not None:
        if not test or (cutoff is not None and most_selected is not None):
            raise InputError("--cutoff, --most-selected: give one, and labelled rows by --test")
        from synthfair.evaluation import at_cutoff, evaluate, read_tests
        from synthfair.report.text_table import as_text

        tables = read_tests(test, trained_model.schema_)
        share = 1.0 if most_selected is None else most_selected
        cutoff, changed = at_cutoff(trained_model, tables, cutoff, most_selected=share)
        for name, metrics in (("0.5", evaluate(trained_model, tables)), (f"{cutoff:.3g}", changed)):
            if not metrics.labelled:
                raise InputError("--test: needs labelled rows, to measure accuracy")
            n, rates = metrics.n_test, [r for r in metrics.by_group.values() if r.n]
            selected = sum(r.n * r.selection_rate for r in rates) / n
            note(
                f"cutoff {name}: selects {selected:.1%} of {n:,} test rows, accuracy"
                f" {metrics.accuracy.value:.3f}, gap {as_text(metrics.spd)},"
                f" ratio {as_text(metrics.selection_ratio.value, '.2f')}"
            )
    elif test:
        raise InputError("--test: is for --cutoff or --most-selected")

    # The rows, and that from which contributions are counted.
    parts = read_chunks(data, trained_model.schema_, text=[*keep, id] if id else keep)
    middle = trained_model.middle if explain else None
    if reference:
        rows = read_chunks(reference, trained_model.schema_)
        middle = mean_inputs(trained_model, rows, source=str(reference))

    scores = predict_parts(
        trained_model,
        parts,
        source=str(data),
        id_column=id,
        keep=keep,
        reference=middle,
        cutoff=cutoff,
    )
    with whole_file(output) if output else nullcontext(sys.stdout) as file:
        for i, frame in enumerate(scores):
            frame.to_csv(file, mode="a", index=False, header=i == 0)


def report(
    runs: tuple[Path, ...],
    /,
    *,
    output: Path = Path("report.html"),
    max_gap: float | None = None,
    force: Force = False,
) -> None:
    """Show one run or several as one HTML page with plots.

    The page is self-contained and opens without a network; its plots are files next to it. It
    begins with an answer: whether the gap between groups is within --max-gap, as far as the test
    rows can tell, and what that costs in accuracy. Of several runs the best is judged: of those
    within the limit the most accurate. To see the cost of fair releases, give the same run without
    a penalty, too. Groups are called as the schema's labels say.

        python -m synthfair report DIR/server --max-gap 0.05 --output report.html

    A run is a folder with the metrics.json that the server (or compare, or train) wrote. A folder
    with a gaps.json alone, of gap aggregate or of a deployment's job, is shown as a measurement.

    Args:
        runs: Folders with a metrics.json or a gaps.json each.
        output: The page to write; plots go into a folder next to it.
        max_gap: Gap between groups that is fair enough, above 0, at most 1. Default: the one that
            training aimed at, or else 0.1, a rule of thumb.
    """
    if max_gap is not None and not 0 < max_gap <= 1:
        raise InputError(f"--max-gap: must be above 0, at most 1, and is {max_gap:g}")

    from synthfair.report.page import write_report

    plots = len(write_report(runs, output, max_gap=max_gap, force=force)) - 1
    say(f"Wrote {output} and {plots} plot{'s' * (plots != 1)} next to it.")
