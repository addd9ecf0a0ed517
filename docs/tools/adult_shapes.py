"""The picture of docs/additive.md: ``python docs/tools/adult_shapes.py`` draws it anew."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

import synthfair as sf

TARGET = Path(__file__).parents[1] / "assets" / "adult_shapes.svg"

if __name__ == "__main__":
    table, schema = sf.load_dataset("adult_additive")
    release = sf.distill_table(table, schema, sf.SurrogateConfig(seed=0)).release
    asked = sf.ServerConfig(max_gap=0.05, penalty="selection_rate")
    model = sf.pool_and_train({"survey": release}, schema, asked)
    mpl.rcParams |= {"svg.hashsalt": "synthfair", "svg.fonttype": "none"}
    sf.plot_shapes(model, table).savefig(TARGET, metadata={"Date": None})
