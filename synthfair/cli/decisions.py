"""The command that uses counts: thresholds by group, or weights of rows."""

from __future__ import annotations

from pathlib import Path

from synthfair import postprocess
from synthfair.cli.parameters import Force
from synthfair.cli.show import say, warn
from synthfair.errors import InputError
from synthfair.files import require_free
from synthfair.settings import Notion, WeightMethod


def thresholds(
    counts: tuple[Path, ...],
    /,
    *,
    notion: Notion | None = None,
    alpha: float = 0.02,
    randomized: bool = False,
    model: Path | None = None,
    weights: WeightMethod | None = None,
    output: Path,
    force: Force = False,
) -> None:
    r"""Choose a model's thresholds by group, or weights of rows, from counts.

    Thresholds are of a histogram of the model's scores, or of surrogates. Decisions are then as
    accurate as can be while the groups' rates differ by at most alpha; with --randomized there is a
    mixture of thresholds for each group, whose coins are keyed by a row's id. All that is read of
    the rows is the histogram of secure open, which may have noise in it; the guarantee of the
    histogram is that of the thresholds, and stands in the model file. A person's group is an input
    of such decisions. Count rows that the model was not trained on: of others, accuracy and gap
    look better than they are.

        python -m synthfair thresholds histogram.json --notion equalized_odds \
            --alpha 0.02 --model model.json --output fair_model.json

    Where clients have sent surrogates, nobody need be asked again: their records are scored and
    counted by their weights, and the guarantees of the releases are those of the thresholds.

        python -m synthfair thresholds DIR/*.parquet --notion statistical_parity \
            --alpha 0.02 --model model.json --output fair_model.json

    predict, evaluate, gap and report use the new file as any other model.

    With --weights, losses of rows are multiplied by weights in training, which follow from counts C
    by group and label alone. published: every pair of group and label weighs the same in all,
    N / (2 G C(s, y)). kamiran_calders: group and label become independent, N_s N_y / (N C(s, y)).

        python -m synthfair thresholds counts.json --weights kamiran_calders \
            --output weights.json
        python -m synthfair train adult --method fedavg --weights weights.json \
            --output fair

    Args:
        counts: Counts by group, label and score of this very model; or surrogates, .parquet, one a
            client. For weights, counts of secure open, or a histogram, whose bins are summed.
        notion: Rates that are compared.
        alpha: Most by which a rate may differ between two groups, as estimated.
        randomized: Allow decisions that are drawn by coins.
        model: model.json, whose scores were counted.
        weights: How weights of rows are made; then there are no thresholds.
        output: The model file to write, or the weights.
    """
    from synthfair.report.privacy_words import origin_facts
    from synthfair.report.result_tables import alpha_warning, decision_tables
    from synthfair.report.text_table import Table
    from synthfair.trained import read_model, write_model

    require_free(output, inputs=(*counts, model), force=force)
    first, *more = counts
    if weights and not (more or notion or model):
        made = postprocess.make_weights(postprocess.ScoreHistogram.read(first), weights)
        made.write(output)
        rows = [(group, *pair) for group, pair in zip(made.groups, made.weights, strict=True)]
        title = f"weights of rows, {weights}"
        say(Table(("group", "label -1", "label +1"), rows, title, form=".4g"))
        return
    if weights or not (notion and model):
        raise InputError("flags: give --notion and --model, or one file of counts and --weights")
    trained_model = read_model(model)
    if more or first.suffix == ".parquet":
        histogram = postprocess.surrogate_histogram(counts, trained_model)
    else:
        histogram = postprocess.ScoreHistogram.read(first)
    trained_model.require_counted(histogram)
    choice = postprocess.choose_decision(histogram, notion, alpha, randomized=randomized)
    write_model(trained_model.model_copy(update={"decision": choice.decision}), output)
    say(decision_tables(choice, histogram))
    warn(alpha_warning(choice))
    if choice.decision.origin:
        say(Table.of_facts(origin_facts(choice.decision.origin)))
    say(f"Wrote {output}.")
