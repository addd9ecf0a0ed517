"""The commands that a report shows run it again."""

import html
import json
import re
import shlex

import pytest
from conftest import make_schema, make_table
from report_runs import write_run
from test_help import parsed

import synthfair as sf
from synthfair.cli import main
from synthfair.config import load_distill_config
from synthfair.data.datasets import dataset_schema
from synthfair.report.commands import client_command
from synthfair.report.page import write_report
from synthfair.report.results import read_results


def lenders(folder):
    """Writes the tables of two clients and their schema."""
    (folder / "schema.json").write_text(make_schema().model_dump_json())
    for i in range(2):
        make_table(seed=i).to_csv(folder / f"a b{i}_train.csv", index=False)
        make_table(seed=9 + i).to_csv(folder / f"a b{i}_test.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The folder of two clients and a server that have run."""
    folder = lenders(tmp_path_factory.mktemp("served"))
    schema = ["--schema", str(folder / "schema.json")]
    releases = [str(folder / f"a b{i}.parquet") for i in range(2)]
    for i in range(2):
        argv = ["--data", str(folder / f"a b{i}_train.csv"), "--output", releases[i], *schema]
        assert main(["client", *argv, "--steps", "20", "--rho-o", "5", "--no-intercept"]) == 0
    tests = [str(folder / f"a b{i}_test.csv") for i in range(2)]
    argv = [*releases, *schema, "--seed", "3", "--resamples", "20", "--test", *tests]
    assert main(["server", *argv, "--output", str(folder / "server"), "--report"]) == 0
    return folder


def test_the_commands_run_it_again(served, tmp_path):
    """Those shown for a server's run, typed in again, give the same numbers."""
    again = lenders(tmp_path)
    text = html.unescape((served / "server" / "report.html").read_text())
    commands = re.search(r"<pre>(.*)</pre>", text, re.DOTALL).group(1).splitlines()
    assert len(commands) == 3
    asked = json.loads((served / "server" / "metrics.json").read_text())["asked"]
    assert asked == {"by": "weight", "amounts": [5.0], "client_gap": None}
    for command in commands:
        words = shlex.split(command)[2:]
        paths = [str(again / w) if w.endswith((".csv", ".parquet", ".json", "server")) else w
                 for w in words[1:]]  # fmt: skip
        assert main([words[0].removeprefix("synthfair."), *paths]) == 0
    old, new = ((f / "server" / "metrics.json").read_bytes() for f in (served, again))
    assert old == new


def test_what_is_shown_of_a_comparison_is_its_own_command(tmp_path):
    run = write_run(tmp_path / "run", method="central", rho_o=10.0, seed=1)
    write_report(read_results([run]), tmp_path / "r.html")
    text = html.unescape((tmp_path / "r.html").read_text())
    assert (
        "<pre>python -m synthfair compare small --sensitive town --clients 2 --methods central"
        in text
    )
    assert "--weights 10.0 --seeds 2 " in text
    assert "--optimizer gauss_newton" in text


def test_a_report_is_refused_before_the_server_writes_anything(tmp_path, served):
    argv = ["server", str(served / "a b0.parquet"), "--schema", str(served / "schema.json")]
    argv += ["--test", str(served / "a b0_test.csv"), "--report", "--resamples", "5"]
    for file in ("report_plots/out-groups.svg", "a.history.csv"):
        output = tmp_path / file[0] / "out"
        (output / file).parent.mkdir(parents=True)
        (output / file).write_text("mine")
        assert main([*argv, "--output", str(output)]) == 2
        assert not (output / "metrics.json").exists()
        assert (output / file).read_text() == "mine"


def test_commands_name_all_that_differs_from_the_defaults(tmp_path):
    for settings in (
        {"max_gap": 0.15, "penalty": "covariance", "optimizer": "adam", "steps": 200},
        {"rho_o": 1.2345678901},
        {"intercept": False, "labels": "copy", "inner_tolerance": 1e-9},
    ):
        config = sf.DistillConfig.model_validate(settings)
        *remarks, command = client_command("a b", config).splitlines()
        file = tmp_path / "a b.toml"
        file.write_text("\n".join(line.removeprefix("# a b.toml: ") for line in remarks))
        _, bound, _ = parsed(["client", *shlex.split(command)[3:]])
        in_file = file if "--config" in command else None
        flags = {key: bound.arguments["settings"].get(key) for key in type(config).model_fields}
        assert load_distill_config(in_file, **flags) == config
        assert bound.arguments["without_epsilon"]
    assert "--without-epsilon" not in client_command("a", sf.DistillConfig(epsilon=1, delta=1e-6))


def test_compare_goes_on_where_it_stopped(tmp_path, capsys):
    """The first of two runs is there already; only the second is computed."""
    argv = ["compare", "loanapp", "--methods", "local", "--weights", "0", "10", "--seeds", "1"]
    argv += ["--output", str(tmp_path)]
    config = sf.DistillConfig(rho_o=0).model_dump(mode="json")
    done = write_run(tmp_path / "local-rho_0-seed_0", method="local") / "metrics.json"
    there = json.loads(done.read_text()) | {
        "config": {"client_0": config, "client_1": config},
        "schema_hash": dataset_schema("loanapp").hash,
        "table": {"name": "loanapp", "sensitive": "white", "clients": 2},
    }
    done.write_text(json.dumps(there))
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "Wrote 2 runs" in said
    assert "penalty weight 10" in said
    assert json.loads(done.read_text()) == there
    assert main(["compare", "loanapp", "--methods", "magic", "--output", str(tmp_path)]) == 2
    assert main([*argv, "--lambda-theta", "0.5"]) == 2
    assert "other settings" in capsys.readouterr().err
    (tmp_path / "gap.toml").write_text("max_gap = 0.1")
    assert main([*argv, "--config", str(tmp_path / "gap.toml")]) == 2
    assert "max_gap: compare runs the weights" in capsys.readouterr().err
