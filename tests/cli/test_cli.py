"""Every command as a user runs it; bad input leaves a clear message and nothing half-written."""

import json
import os
import sys

import pandas as pd
import pytest
from builders import make_schema, make_table

from synthfair.cli import main, show

QUICK = {"n_synthetic": 24, "steps": 60}


@pytest.fixture
def folder(tmp_path, schema):
    for i in range(2):
        make_table(seed=i).to_csv(tmp_path / f"client_{i}_train.csv", index=False)
        make_table(seed=10 + i).to_csv(tmp_path / f"client_{i}_test.csv", index=False)
    (tmp_path / "schema.json").write_text(schema.to_json())
    return tmp_path


def run_client(folder, i=0, *flags, **settings):
    argv = ["--data", f"{folder}/client_{i}_train.csv", "--schema", f"{folder}/schema.json"]
    argv += ["--output", f"{folder}/client_{i}.parquet", *configured(folder, **settings), *flags]
    return main(["client", *argv])


def configured(folder, **settings):
    """Return the flag of a configuration that has these settings."""
    lines = (f"{key} = {value}" for key, value in (QUICK | settings).items())
    (folder / "settings.toml").write_text("\n".join(lines))
    return "--config", f"{folder}/settings.toml"


def run_server(folder, *flags):
    releases = [str(path) for path in sorted(folder.glob("*.parquet"))]
    tests = [str(path) for path in sorted(folder.glob("*_test.csv"))]
    argv = [*releases, "--schema", f"{folder}/schema.json", "--test", *tests]
    return main(["server", *[*argv, "--output", f"{folder}/server", *flags]])


def test_from_tables_to_decisions(folder, capsys):
    assert [run_client(folder, i) for i in range(2)] == [0, 0]
    said = capsys.readouterr().out
    for word in ("objective", "covariance", "bytes", "sha256", "not anonymous"):
        assert word in said
    assert run_server(folder) == 0
    said = capsys.readouterr().out
    for word in ("accuracy", "SPD", "client_0_test", "client_1_test", "metrics.json"):
        assert word in said
    model = f"{folder}/server/model.json"
    new = make_table(seed=20).drop(columns="paid")
    new.to_csv(folder / "new.csv", index=False)
    argv = ["predict", "--model", model, "--data", f"{folder}/new.csv"]
    assert main([*argv, "--output", f"{folder}/scored.csv"]) == 0
    scored = pd.read_csv(folder / "scored.csv")
    assert len(scored) == 120
    assert set(scored["decision"]) == {"yes", "no"}
    assert main(argv) == 0
    assert capsys.readouterr().out == (folder / "scored.csv").read_text()
    argv = ["evaluate", "--model", model, "--data", f"{folder}/client_0_test.csv"]
    assert main([*argv, "--output", f"{folder}/again.json"]) == 0
    assert "accuracy" in capsys.readouterr().out
    served = json.loads((folder / "server" / "metrics.json").read_text())
    again = json.loads((folder / "again.json").read_text())
    assert again["accuracy"] == served["per_client"]["client_0_test"]["accuracy"]
    assert set(served["config"]) == {"client_0", "client_1"}


def test_split_writes_what_client_reads(tmp_path, capsys):
    assert main(["split", "loanapp", "--clients", "3", "--output", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.split()) == 7
    argv = ["--data", f"{tmp_path}/client_2_train.csv", "--schema", f"{tmp_path}/schema.json"]
    argv += ["--output", f"{tmp_path}/r.parquet", *configured(tmp_path, steps=3, n_synthetic=8)]
    assert main(["client", *argv]) == 0


def test_split_makes_unlike_clients_of_a_named_table(tmp_path, capsys):
    argv = ["split", "loanapp", "--clients", "20", "--skew", "0.1", "--output", str(tmp_path)]
    assert main(argv) == 2
    assert "clients 1, 7: cannot be split" in capsys.readouterr().err
    assert main([*argv, "--min-rows", "100"]) == 0
    said = capsys.readouterr()
    assert "clients have at least 100 rows" in said.err
    sizes = [len(pd.read_csv(path)) for path in tmp_path.glob("client_*_train.csv")]
    assert len(said.out.split()) == 2 * len(sizes) + 1
    assert len(set(sizes)) > 1
    assert min(sizes) >= 79


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_split_cuts_a_file_by_a_column(folder, capsys, ending):
    rows = make_table(n=100).assign(region=["north"] * 80 + ["St. Mary"] * 20)
    file = folder / f"loans.{ending}"
    rows.to_csv(file, index=False) if ending == "csv" else rows.to_parquet(file)
    schema = json.loads((folder / "schema.json").read_text()) | {"ignored": ["region"]}
    (folder / "mine.json").write_text(json.dumps(schema))
    argv = ["split", str(file), "--schema", f"{folder}/mine.json", "--output", f"{folder}/cut"]
    assert main([*argv, "--by", "region"]) == 0
    written = [path.split("/")[-1] for path in capsys.readouterr().out.splitlines()]
    assert written == [
        "client_St._Mary_train.csv", "client_St._Mary_test.csv",
        "client_north_train.csv", "client_north_test.csv", "schema.json",
    ]  # fmt: skip
    assert set(pd.read_csv(folder / "cut" / "client_north_train.csv")["region"]) == {"north"}
    argv = [
        "--data",
        f"{folder}/cut/client_north_train.csv",
        "--schema",
        f"{folder}/cut/schema.json",
    ]
    argv += [
        "--output",
        f"{folder}/r.parquet",
        *configured(folder, steps=3),
    ]
    assert main(["client", *argv]) == 0


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["loanapp", "--by", "white", "--clients", "2"], "leave out clients and skew"),
        (["loanapp", "--by", "white", "--skew", "1"], "leave out clients and skew"),
        (["loanapp", "--schema", "SCHEMA"], "--schema is for files"),
        (["loanapp", "--by", "region"], "column 'region': must be one of"),
        (["FILE"], "or a file with --schema"),
        (["FILE", "--schema", "SCHEMA"], "client_0_train.csv: column 'town', row 3: 'z'"),
    ],
)
def test_split_refuses(folder, capsys, flags, complaint):
    file, schema = folder / "client_0_train.csv", folder / "schema.json"
    make_table().assign(town=["a", "b", "z"] * 40).to_csv(file, index=False)
    paths = {"FILE": str(file), "SCHEMA": str(schema)}
    argv = ["split", *(paths.get(flag, flag) for flag in flags), "--output", f"{folder}/cut"]
    assert main(argv) == 2
    assert complaint in capsys.readouterr().err
    assert not (folder / "cut").exists()


def test_a_run_says_whether_it_converged(folder, capsys):
    assert run_client(folder, 0, steps=600) == 0
    said = capsys.readouterr()
    assert "NOT CONVERGED" not in said.out
    assert "converge" not in said.err


@pytest.mark.parametrize(
    ("setting", "problem", "advice"),
    [
        ({"inner_tolerance": 1e-30}, "inner", "lambda_theta"),
        ({"rho_o": 1000}, "outer", "--steps"),
    ],
)
def test_a_warning_ends_a_run_that_did_not_converge(folder, capsys, setting, problem, advice):
    assert run_client(folder, 0, **setting) == 0
    said = capsys.readouterr()
    assert f"{problem} problem  NOT CONVERGED" in said.out
    warning = " ".join(said.err.split())
    assert f"the {problem} problem did not converge" in warning
    assert advice in warning


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--rho-o", "-1"], "flags: rho_o"),
        (["--rho-o", "nan"], "flags: rho_o"),
        (["--steps", "0"], "flags: steps"),
        (["--config", "no.toml"], "no.toml: cannot read"),
        (["--data", "no.csv"], "no.csv: cannot read"),
        (["--schema", "no.json"], "no.json: cannot read"),
        (["--output", "{folder}/settings.toml/r.parquet"], "cannot write here"),
    ],
)
def test_bad_flags_exit_with_2_and_leave_nothing(folder, capsys, flags, complaint):
    configured(folder)
    before = sorted(folder.iterdir())
    assert run_client(folder, 0, *(flag.format(folder=folder) for flag in flags)) == 2
    assert complaint in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_synthetic_rows_that_no_balance_fits_are_refused(folder, capsys):
    assert run_client(folder, 0, n_synthetic=25) == 2
    assert "multiple of 2" in capsys.readouterr().err


def test_bad_rows_are_named(folder, capsys):
    make_table().assign(town="z").to_csv(folder / "client_0_train.csv", index=False)
    assert run_client(folder) == 2
    assert "client_0_train.csv: column 'town', row 1: 'z'" in capsys.readouterr().err


def test_force(folder, capsys):
    assert [run_client(folder), run_client(folder)] == [0, 2]
    assert "--force" in capsys.readouterr().err
    assert run_client(folder, 0, "--force") == 0


def test_inputs_are_never_overwritten(folder, capsys):
    for name in ("client_0_train.csv", "schema.json"):
        before = (folder / name).read_bytes()
        assert run_client(folder, 0, "--force", "--output", f"{folder}/{name}") == 2
        assert "is named twice" in capsys.readouterr().err
        assert (folder / name).read_bytes() == before


def test_one_file_is_not_two_outputs(folder, capsys):
    release = folder / "client_0.parquet"
    config = folder / "release.toml"
    config.write_text("steps = 3")
    assert run_client(folder, 0, "--config", str(config), "--output", str(config), "--force") == 2
    assert config.read_text() == "steps = 3"
    assert not release.exists()


def test_a_report_is_refused_before_the_server_writes_anything(folder):
    assert run_client(folder) == 0
    (folder / "server" / "report_plots").mkdir(parents=True)
    plot = folder / "server" / "report_plots" / "server-groups.svg"
    plot.write_text("mine")
    assert run_server(folder, "--report") == 2
    assert not (folder / "server" / "metrics.json").exists()
    assert plot.read_text() == "mine"


def test_server_refuses_a_damaged_release(folder, capsys):
    run_client(folder)
    (folder / "client_9.parquet").write_bytes((folder / "client_0.parquet").read_bytes()[:500])
    assert run_server(folder) == 2
    assert "client_9.parquet: not a readable Parquet file" in capsys.readouterr().err
    assert not (folder / "server" / "model.json").exists()


def test_server_without_releases(folder, capsys):
    assert run_server(folder) == 2
    assert "pool is empty" in capsys.readouterr().err


@pytest.mark.parametrize("stream", ["pipe", "stdout", "stderr"])
def test_files_are_written_whoever_reads_the_output(folder, monkeypatch, stream):
    """A pipe's reader may have ended; a stream may be closed, and is None then."""
    from builders import some_model

    from synthfair.trained import write_model

    write_model(some_model(), folder / "model.json")
    argv = ["evaluate", "--model", f"{folder}/model.json", "--output", f"{folder}/e.json"]
    argv += ["--data", f"{folder}/client_0_test.csv"]
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe, monkeypatch.context() as patch:
        name, value = ("stdout", pipe) if stream == "pipe" else (stream, None)
        patch.setattr(sys, name, value)
        assert main(argv) == 0
    # Closing the pipe wrote what was left, as the end of a process does.
    assert (folder / "e.json").exists()


def test_a_bad_test_table_is_named_by_its_path(folder, capsys):
    run_client(folder)
    make_table().assign(town="z").to_csv(folder / "client_0_test.csv", index=False)
    assert run_server(folder) == 2
    assert "client_0_test.csv: column 'town', row 1: 'z'" in capsys.readouterr().err


def test_max_gap_says_whether_it_was_met(folder, capsys):
    flags = ["--penalty", "covariance", "--force", "--again", "--steps", "300"]
    assert run_client(folder, 0, *flags, "--max-gap", "0.2") == 0
    assert "gap wanted at most 0.2: met penalty weight" in " ".join(capsys.readouterr().out.split())
    assert run_client(folder, 0, *flags, "--max-gap", "0.99") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "without a penalty gap 0." in said
    assert run_client(folder, 0, *flags, "--max-gap", "1e-6") == 0
    said = capsys.readouterr()
    assert "NOT MET" in " ".join(said.out.split())
    assert "the steps ended before a gap of 1e-06" in " ".join(said.err.split())


def test_public_names_all_exist():
    import synthfair

    for name in synthfair.__all__:
        assert getattr(synthfair, name) is not None
    assert make_schema().hash


def test_names_from_a_file_do_not_steer_the_terminal(capsys):
    show.say("a method called \x1b[2J, in two\nlines")
    show.warn("\x9bnobody", "a name that is no text: \udce9")
    found = capsys.readouterr()
    assert found.out == "a method called \\x1b[2J, in two\nlines\n"
    assert found.err == "warning: \\x9bnobody\nwarning: a name that is no text: \\udce9\n"
