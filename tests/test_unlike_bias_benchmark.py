"""The benchmark of clients that are biased differently: what it denies, and what its page says."""

import numpy as np
import pytest
from conftest import invented_rows, make_schema, make_table

import synthfair as sf
from benchmarks import unlike_bias
from benchmarks.runs import Run, Runs
from benchmarks.unlike_bias import METHODS, TABLES, BiasSetting, BiasValues
from synthfair.data.datasets import dataset_schema
from synthfair.data.encode import encode

SETTING = BiasSetting("dutch", "value", "sex", "single shot")
VALUES = BiasValues(0.7, 0.75, 0.04, 0.15, 2, 0.1, 0.2, 1)


def two_seeds(accuracy=0.7, client_gap=0.15, **changed):
    setting = SETTING._replace(**changed)
    values = [VALUES._replace(accuracy=accuracy + i / 100, client_gap=client_gap) for i in (0, 1)]
    return [Run(setting, seed, value) for seed, value in enumerate(values)]


@pytest.mark.parametrize("group", [0, 1])
def test_half_of_the_positive_labels_of_one_group_are_denied(group):
    table, schema = make_table(400), make_schema()
    after = unlike_bias.denied(table, schema, group, seed=0)
    _, s, y = encode(table, schema)
    _, _, now = encode(after, schema)
    changed = y != now
    assert set(s[changed]) == {group}
    assert set(y[changed]) == {1.0}
    assert changed.sum() == round(np.sum((s == group) & (y > 0)) / 2)
    features = [name for name in table if name != schema.label]
    assert after[features].equals(table[features])
    assert not after.equals(unlike_bias.denied(table, schema, group, seed=1))


def invented(name):
    """Return rows like those of a table, and its schema."""
    schema = dataset_schema(name, TABLES[name][0])
    table = invented_rows(schema, 2000)
    if name == "dutch":  # whose file has text
        table["marital_status"] = table["marital_status"].round().astype(int).astype(str)
    return table, schema


@pytest.mark.parametrize("name", TABLES)
def test_each_attribute_has_two_groups_and_no_row_is_lost(name):
    rows, given = invented(name)
    table, schema = unlike_bias.two_groups(rows, given)
    assert len(table) == len(rows)
    for attribute in TABLES[name]:
        groups = encode(table, schema.with_sensitive(attribute)).s
        assert np.bincount(groups, minlength=2).min() > 0.1 * len(table)


def test_clients_are_biased_by_turns(monkeypatch):
    monkeypatch.setattr(sf, "load_dataset", lambda name, _: invented(name))
    for bias, expected in (("attribute", ["sex", "marital_status"]), ("value", ["sex", "sex"])):
        here = unlike_bias.biased.__wrapped__("dutch", bias, seed=0)
        begin = 0
        for i, part in enumerate(here.by["sex"].test):
            before = here.before[begin : begin + len(part.y)]
            begin += len(part.y)
            changed = before != part.y
            groups = here.by[expected[i % 2]].test[i].s[changed]
            assert len(set(groups.tolist())) == 1
            if bias == "value":
                assert groups[0] == i % 2


def test_every_setting_is_there_once():
    settings = unlike_bias.settings_of_all()
    assert len(settings) == len(set(settings)) == 66
    assert {one.method for one in settings} == {*METHODS}
    assert {one.asked for one in settings if one.bias == "value"} == {"sex", "race"}


def test_the_page_has_a_line_for_each_method_and_what_a_limit_on_clients_changes():
    runs = two_seeds() + two_seeds(0.68, 0.06, method="single shot, each client")
    runs += two_seeds(0.695, 0.0, method="constant classifier") + two_seeds(bias="attribute")
    files = unlike_bias.show(Runs(runs))
    first, second = files["unlike_bias.md"].split("## Value bias")
    assert "| dutch | sex | single shot | 0.705 ± 0.007 | 0.750" in first
    lines = second.splitlines()
    (plain,) = [line for line in lines if "| single shot | " in line]
    assert "| 0.040 ± 0.000 / 0.150 ± 0.000 / 2.0 | 0.100 ± 0.000 / 0.200 ± 0.000 / 1.0 |" in plain
    (each,) = [line for line in lines if "| single shot, each client | " in line]
    assert "0.685 ± 0.007 ‡" in each
    assert next(line for line in lines if "| constant classifier" in line).startswith(
        "| dutch | nothing"
    )
    change = "| value | dutch | sex | -0.020 ± 0.000 | +0.000 ± 0.000 | -0.090 ± 0.000 |"
    assert change in lines
    assert "dutch, value bias" in files["unlike_bias.svg"]
