"""Decisions at another cutoff, with what it does to the gap."""

import numpy as np
import pandas as pd
import pytest
from builders import fair_model, make_table, some_model
from exported import network

from synthfair.cli import main
from synthfair.errors import InputError
from synthfair.evaluation import at_cutoff
from synthfair.trained import predict, write_model

TABLE = make_table(400)


@pytest.mark.parametrize(
    "model", [some_model(), some_model(intercept=False)], ids=["with", "without"]
)
@pytest.mark.parametrize("cutoff", [0.2, 0.5, 0.9])
def test_cutoff_selects_the_probabilities_above_it(model, cutoff):
    own = predict(model, TABLE)
    scored = predict(model, TABLE, cutoff=cutoff)
    assert (scored["probability"] == own["probability"]).all()
    assert ((scored["decision"] == "yes") == (own["probability"] > cutoff)).all()
    _, evaluation = at_cutoff(model, {"a": TABLE}, cutoff)
    rates = scored["decision"].eq("yes").groupby(TABLE["town"]).mean()
    assert evaluation.spd.value == pytest.approx(rates["b"] - rates["a"])


def test_cutoff_of_a_network_is_its_last_bias():
    model = network()
    x, s = np.random.default_rng(0).random((5, len(model.schema_.encoded_names))), np.zeros(5, int)
    changed = model.with_cutoff(0.9).scores(x, s)
    np.testing.assert_allclose(changed, model.scores(x, s) - np.log(9))


@pytest.mark.parametrize("share", [0.001, 0.1, 0.29, 0.33, 1.0])
def test_cutoff_by_share_selects_at_most_so_many(share):
    model = some_model()
    cutoff, evaluation = at_cutoff(model, {"a": TABLE}, most_selected=share)
    selected = sum(r.n * r.selection_rate for r in evaluation.by_group.values())
    assert round(selected, 9) == int(share * 400 + 1e-9)
    assert (predict(model, TABLE)["probability"] > cutoff).sum() == pytest.approx(selected, abs=1)


@pytest.mark.parametrize("cutoff", [0.0, 1.0, -1.0, float("nan")])
def test_cutoff_that_is_none_is_refused(cutoff):
    with pytest.raises(InputError, match="cutoff"):
        some_model().with_cutoff(cutoff)
    with pytest.raises(InputError, match="by group"):
        fair_model().with_cutoff(0.4)
    with pytest.raises(InputError, match="most_selected"):
        at_cutoff(some_model(), {"a": TABLE}, most_selected=cutoff - 1)


def test_cutoff_by_command_is_told_with_its_gap(tmp_path, capsys):
    write_model(some_model(), tmp_path / "m.json")
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    argv = ["predict", "--model", f"{tmp_path}/m.json", "--data", f"{tmp_path}/t.csv"]
    argv += ["--output", f"{tmp_path}/out.csv", "--force"]
    for flags in (["--cutoff", "0.9"], ["--test", f"{tmp_path}/t.csv"]):
        assert main([*argv, *flags]) == 2
        assert "--test" in capsys.readouterr().err
    assert main([*argv, "--most-selected", "0.1", "--test", f"{tmp_path}/t.csv"]) == 0
    cutoff, evaluation = at_cutoff(some_model(), {"t": TABLE}, most_selected=0.1)
    assert f"cutoff {cutoff:.3g}" in (told := capsys.readouterr().err)
    assert f"gap {abs(evaluation.spd.value):.3f}" in told
    assert pd.read_csv(tmp_path / "out.csv")["decision"].eq("yes").sum() <= 40
    TABLE[TABLE["town"] == "a"].to_csv(tmp_path / "t.csv", index=False)
    assert main([*argv, "--cutoff", "0.5", "--test", f"{tmp_path}/t.csv"]) == 0
    assert "nan" not in capsys.readouterr().err
