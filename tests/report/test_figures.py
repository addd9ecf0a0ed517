"""Figures show their numbers; bytes are stable."""

import numpy as np

from synthfair.fairness.metrics import Metric
from synthfair.metrics_file import Evaluation, Metrics
from synthfair.report.figures import Series, draw, draw_columns, plot_tradeoff, svg_text

NAN = float("nan")


def test_figure_has_marks_and_intervals_and_leaves_out_what_is_undefined():
    x = Metric(0.5, 0.2, 0.6), Metric(NAN, NAN, NAN)
    figure = draw([Series("one", x, [Metric(0.4, 0.3, 1.0), 0.1])])
    across, down = (lines.get_segments()[0] for lines in figure.axes[0].collections)
    np.testing.assert_allclose(across, [(0.2, 0.4), (0.6, 0.4)])
    np.testing.assert_allclose(down, [(0.5, 0.3), (0.5, 1.0)])
    assert figure.axes[0].lines[0].get_xydata()[0].tolist() == [0.5, 0.4]
    assert "nan" not in svg_text(figure).lower()


def test_figure_of_columns_has_rows_as_bars_and_records_as_points():
    (axes,) = draw_columns({"age": np.array([[0.7, 0.3], [0.6, 0.4]])}).axes
    assert [bar.get_height() for bar in axes.patches] == [0.7, 0.3]
    assert axes.lines[0].get_ydata().tolist() == [0.6, 0.4]


def test_tradeoff_has_the_size_of_the_gap_of_its_notion_and_the_limit():
    metrics = dict.fromkeys(Metrics.model_fields, Metric(0.7, 0.5, 0.8))
    metrics["equal_opportunity_difference"] = Metric(-0.2, -0.3, -0.1)
    run = Evaluation.model_construct(constant_classifier={"accuracy": 0.6}, **metrics)
    axes = plot_tradeoff({"one": run}, "equal_opportunity", max_gap=0.05).axes[0]
    points = [tuple(map(list, line.get_data())) for line in axes.lines if line.get_marker() in "os"]
    assert points == [([0.2], [0.7]), ([0.0], [0.6])]
    assert [0.05, 0.05] in [list(line.get_xdata()) for line in axes.lines]


def test_figure_of_the_same_numbers_has_the_same_bytes():
    """No name in the file is random, or of a count of what was drawn before."""
    series = Series("one", [0.1, 0.2], [0.3, 0.4], line=True), Series("two", [0.1], [0.3])
    once = svg_text(draw(series, limit=0.5))
    svg_text(draw([]))
    assert svg_text(draw(series, limit=0.5)) == once
