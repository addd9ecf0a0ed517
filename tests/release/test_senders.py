"""From keys to the report: who sent what, and how far it moves the model."""

import html
import json

import pytest
from builders import flipped, make_schema, make_table, some_pool
from printed import plain_text
from report_runs import tables

import synthfair as sf
from synthfair.cli import main
from synthfair.report.page import write_report
from synthfair.report.result_tables import MAX_SHOWN_RELEASES, influence_table, outlier_warning
from synthfair.report.results import read_results
from synthfair.server import Influence, Influences


@pytest.fixture
def folder(tmp_path):
    """Four clients' signed releases, and the folder of their public keys."""
    (tmp_path / "schema.json").write_text(make_schema().to_json())
    make_table(seed=9).to_csv(tmp_path / "t.csv", index=False)
    for i, release in enumerate(some_pool().values()):
        sf.release.make_keys(tmp_path / f"lender_{i}.key")
        key = sf.release.read_signing_key(tmp_path / f"lender_{i}.key")
        sf.write_release(release, tmp_path / f"r{i}.parquet", key=key)
    return tmp_path


def serve(folder, *flags):
    releases = map(str, sorted(folder.glob("*.parquet")))
    argv = ["server", *releases, "--schema", f"{folder}/schema.json", "--test", f"{folder}/t.csv"]
    return main([*argv, "--output", f"{folder}/server", *flags])


def metrics(folder):
    return json.loads((folder / "server" / "metrics.json").read_text())


def test_a_client_signs_and_the_server_knows_it(folder, capsys):
    make_table(n=200).to_csv(folder / "d.csv", index=False)
    assert main(["keygen", "--output", f"{folder}/new.key"]) == 0
    assert f"{folder}/new.pub" in capsys.readouterr().out.replace("\n", "")
    argv = ["client", "--data", f"{folder}/d.csv", "--schema", f"{folder}/schema.json"]
    (folder / "few.toml").write_text("n_synthetic = 24\nsteps = 40")
    argv += ["--output", f"{folder}/new.parquet", "--config", f"{folder}/few.toml"]
    assert main([*argv, "--sign", f"{folder}/new.pub"]) == 2
    assert "new.pub: not a private key" in capsys.readouterr().err
    assert main([*argv, "--sign", f"{folder}/new.key"]) == 0
    for path in folder.glob("r*.parquet"):
        path.unlink()
    assert serve(folder, "--keys", str(folder)) == 0
    assert metrics(folder)["signed_by"] == {"new": "new"}


def test_metrics_json_says_who_signed(folder):
    assert serve(folder, "--keys", str(folder)) == 0
    assert metrics(folder)["signed_by"] == {f"r{i}": f"lender_{i}" for i in range(4)}


def test_signatures_are_not_recorded_where_no_keys_say_whose_they_are(folder):
    assert serve(folder) == 0
    assert "signed_by" not in metrics(folder)


def test_an_unknown_client_leaves_nothing(folder, capsys):
    assert serve(folder, "--keys", f"{folder}/lender_0.pub", f"{folder}/lender_1.pub") == 2
    assert "r2.parquet: signed with the unknown key" in capsys.readouterr().err
    assert not (folder / "server").exists()


def test_the_page_shows_the_numbers_of_metrics_json_and_the_terminal_the_largest(folder, capsys):
    assert serve(folder, "--keys", str(folder), "--report") == 0
    said, found = capsys.readouterr().out, metrics(folder)["influence"]
    page = html.unescape((folder / "server" / "report.html").read_text())
    ((_, *rows),) = tables(page, "How far each release moves the model")
    assert {name for name, *_ in rows} == set(found["releases"])
    for name, *cells in rows:
        moved = found["releases"][name]
        values = [moved[key] for key in ("scores", "relative", "spd")]
        assert cells == [f"lender_{name[1:]}", *(f"{value:z.3f}" for value in values)]
    name, most = max(found["releases"].items(), key=lambda item: item[1]["scores"])
    line = f"Without {name} the scores would change the most, by {most['relative']:.2f} of their"
    assert f"No release stands out. {line} size." in said
    assert f"allows a relative change of {metrics(folder)['max_influence']:g}." in page
    assert (
        f"A change of the scores above {found['outliers_above']:.3f} makes a release an outlier"
        in page
    )


def test_an_outlier_is_warned_about(folder, capsys):
    key = sf.release.read_signing_key(folder / "lender_2.key")
    sf.write_release(flipped(some_pool()["c0"], 100), folder / "r2.parquet", key=key)
    (folder / "server.toml").write_text("max_influence = 100")
    config = "--config", str(folder / "server.toml")
    assert serve(folder, "--keys", str(folder), *config, "--report") == 0
    said = capsys.readouterr()
    assert "r2: moves the model much further" in " ".join(said.err.split())
    assert "OUTLIER" in said.out
    page = (folder / "server" / "report.html").read_text()
    ((_, *rows),) = tables(page, "How far each release moves the model")
    (cells,) = (row for row in rows if row[0] == "r2")
    assert cells[-1] == "OUTLIER"


def test_of_many_the_furthest_are_shown():
    moved = Influence(0.0, 0.0, float("nan"), outlier=False)
    many = {f"c{i}": moved._replace(scores=i / 10, outlier=i > 30) for i in range(40)}
    text = plain_text(influence_table(Influences(many, 3.0)))
    assert f"The first {MAX_SHOWN_RELEASES} of 40." in " ".join(text.split())
    assert "c39" in text
    assert "c19 " not in text
    assert "undefined" in text
    assert "and 4 more" in outlier_warning(Influences(many, 3.0))


def test_the_headings_fit_a_terminal_of_80_columns():
    moved = Influence(0.3, 0.9, -0.11, outlier=False)
    text = plain_text(influence_table(Influences({"client_1": moved}, 3.0)), width=80)
    titles = "release", "scores", "relative", "SPD"
    assert all(title in text for title in titles)
    assert "remarks" not in text


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"influence": {"outliers_above": None}}, "influence.releases: missing"),
        ({"influence": {"outliers_above": 1e300, "releases": {}}}, "influence.outliers_above"),
        ({"signed_by": {"r0": "\x1b[2J"}}, "signed_by"),
        ({"max_influence": "much"}, "max_influence"),
    ],
)
def test_damaged_metrics_are_refused(folder, changes, complaint):
    serve(folder)
    path = folder / "server" / "metrics.json"
    path.write_text(json.dumps(metrics(folder) | changes))
    with pytest.raises(sf.InputError, match=complaint):
        read_results([folder / "server"])


def test_hostile_names_are_shown_and_not_run(folder, tmp_path):
    serve(folder)
    found = metrics(folder)
    name, moved = "<script>alert(1)</script>", found["influence"]["releases"]["r0"]
    found["influence"]["releases"] = {name: moved}
    (folder / "server" / "metrics.json").write_text(json.dumps(found | {"signed_by": {name: name}}))
    write_report(folder / "server", tmp_path / "page.html")
    assert "<script>" not in (tmp_path / "page.html").read_text()
