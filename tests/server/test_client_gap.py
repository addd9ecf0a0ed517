"""A client's own gap: asked for at the server, and told of each client."""

import json

import numpy as np
import pytest
from builders import make_schema, make_table

import synthfair as sf
from synthfair.errors import InputError
from synthfair.release.format import write_release
from synthfair.report.page import write_report
from synthfair.report.results import read_results
from synthfair.server import serve
from synthfair.server.pooling import make_pool, train_pool

SCHEMA, CONFIG = make_schema(), sf.SurrogateConfig(k_min=5)
WIDE = {"max_influence": 1e3, "max_spd_influence": 2.0, "resamples": 5}
ASKED = sf.ServerConfig(max_client_gap=0.1, **WIDE)


def against(group, seed, n=400, share=0.7):
    """A table in which positive labels of one group are denied."""
    table = make_table(n, seed=seed)
    denied = (table["town"] == group) & (table["paid"] == "yes")
    denied &= np.random.default_rng(seed).random(n) < share
    return table.assign(paid=table["paid"].mask(denied, "no"))


TABLES = {
    "north": against("a", 1),
    "south": against("b", 2),
    "east": against("a", 3),
    "small": make_table(40, seed=4),
}


@pytest.fixture(scope="module")
def releases():
    return {k: sf.distill_table(t, SCHEMA, CONFIG).release for k, t in TABLES.items()}


@pytest.fixture(scope="module")
def pooled(releases):
    return make_pool(releases, SCHEMA, ASKED)


@pytest.fixture(scope="module")
def trained(pooled):
    return train_pool(pooled, SCHEMA)


def own_gaps(pooled, model):
    """Gaps between rates of decisions on each client's own rows, in NumPy."""
    rows = pooled.rows
    a, s, w = (np.asarray(part) for part in (rows.a, rows.s, rows.weight))
    selected, gaps = a @ np.array(model.theta) > 0, {}
    for name, part in pooled.parts.items():
        among = [np.arange(len(s))[part][s[part] == g] for g in (0, 1)]
        first, second = (np.average(selected[own], weights=w[own]) for own in among)
        gaps[name] = abs(second - first)
    return gaps


def test_the_largest_gap_of_a_client_is_met_and_one_with_few_rows_is_left_out(
    releases, pooled, trained
):
    model, point = trained
    assert pooled.compared == ("north", "south", "east")
    gaps = own_gaps(pooled, model)
    assert point.client_gap == pytest.approx(max(gaps[name] for name in pooled.compared))
    assert 0.07 < point.client_gap <= 0.1 < gaps["small"]
    # The same limit of all rows together leaves one client above it.
    overall = make_pool(releases, SCHEMA, sf.ServerConfig(max_gap=0.1))
    assert max(own_gaps(overall, train_pool(overall, SCHEMA)[0]).values()) > 0.11
    # Both limits hold at once.
    both = make_pool(releases, SCHEMA, sf.ServerConfig(max_client_gap=0.1, max_gap=0.05))
    strict = train_pool(both, SCHEMA)[1]
    assert strict is not None
    assert strict.gap <= 0.05 < point.gap
    assert strict.client_gap <= 0.1


def test_what_cannot_be_asked_is_refused(releases, fair_release):
    few = {"small": releases["small"]}
    with pytest.raises(InputError, match="max_client_gap: no release stands for 30 rows of each"):
        make_pool(few, SCHEMA, ASKED)
    many = ASKED.model_copy(update={"min_group_rows": 250})
    with pytest.raises(InputError, match="no release stands for 250 rows"):
        make_pool(releases, SCHEMA, many)
    with pytest.raises(InputError, match="max_client_gap takes a penalty of the settings"):
        make_pool(releases, SCHEMA, ASKED, penalty=sf.CovariancePenalty())
    with pytest.raises(InputError, match="max_client_gap: of fair releases that is the"):
        make_pool({"north": fair_release}, SCHEMA, ASKED)
    with pytest.raises(ValueError, match="rho, max_client_gap: give one"):
        sf.ServerConfig(rho=1.0, max_client_gap=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, releases):
    place = tmp_path_factory.mktemp("server")
    (place / "schema.json").write_text(SCHEMA.to_json())
    for i, (name, release) in enumerate(releases.items()):
        write_release(release, place / f"{name}.parquet")
        test = make_table(40 if name == "small" else 2000, seed=20 + i)
        if name == "south":  # its richer people of one town alone: most of them are selected
            test = test[(test["town"] == "a") | (test["income"] > 60)]
        test.to_csv(place / f"{name}_test.csv", index=False)
    return place


@pytest.fixture(scope="module")
def served(folder):
    return serve(
        [folder / f"{name}.parquet" for name in TABLES],
        folder / "schema.json",
        [folder / f"{name}_test.csv" for name in TABLES],
        folder / "out",
        ASKED,
        frontier=True,
    )


def test_a_server_says_who_was_left_out_and_who_is_treated_unfairly(served, folder):
    metrics = json.loads((folder / "out/metrics.json").read_text())
    gaps = metrics["client_gaps"]["spd"]
    assert [*gaps] == ["north_test", "south_test", "east_test"]
    assert gaps["south_test"]["low"] > 0.1
    for name, gap in gaps.items():  # with three clients wider than that of one alone
        alone = metrics["per_client"][name]["spd"]
        assert gap["value"] == alone["value"]
        assert gap["low"] < alone["low"]
    (left_out,) = [said for said in served.warnings if "leaves out" in said]
    assert "small, which stand for fewer than 30 rows" in left_out
    (unfair,) = [said for said in served.warnings if "unfair at" in said]
    value, low, high = (gaps["south_test"][key] for key in ("value", "low", "high"))
    assert f"unfair at 1 of 3 clients with enough test rows: south_test {value:.3f}" in unfair
    assert f"({low:.3f} to {high:.3f}), where at most 0.1 is fair enough" in unfair


def test_metrics_json_says_what_was_asked(served, folder):
    (run,) = read_results([folder / "out"])
    asked = run.metrics.asked
    assert (asked.by, asked.amounts, asked.client_gap) == ("gap", (), 0.1)
    assert (asked.max_gap, asked.client_limit, asked.fairness) == (None, 0.1, True)
    assert run.metrics.server is not None
    assert run.metrics.server.penalty == "selection_rate"


def test_the_page_has_the_gap_at_each_client(served, folder, tmp_path):
    write_report(folder / "out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "gap of each client at most 0.1" in page
    assert "nfair at 1 of 3 clients" in page
    lines = page.split("Is it fair at each client?</h3>")[1].split("</table>")[0].split("<tr>")
    verdicts = {
        name: next(line for line in lines if f"{name}_test" in line).split("<td")[-1]
        for name in TABLES
    }
    assert ">no<" in verdicts["south"]
    assert ">not measured<" in verdicts["small"]
    write_report(folder / "out", tmp_path / "wide.html", max_gap=0.9)
    wide = (tmp_path / "wide.html").read_text()
    assert "0.9 is fair enough" not in wide
    section = wide.split("Is it fair at each client?</h3>")[1].split("</table>")[0]
    assert "at most 0.9?" in section


def test_a_frontier_has_gaps_of_all_rows_whatever_is_asked_of_clients(served, pooled):
    line = next(line for line in served.frontier if line.rho > 1)
    theta = pooled.problem().solve(line.rho).theta
    a, s, w = (np.asarray(part) for part in (pooled.rows.a, pooled.rows.s, pooled.rows.weight))
    rates = [np.average((a @ theta > 0)[s == g], weights=w[s == g]) for g in (0, 1)]
    assert line.gap == pytest.approx(abs(rates[1] - rates[0]), abs=0.01)


def test_who_is_not_trusted_is_not_compared():
    tables = {k: make_table(400, seed=k) for k in range(4)}
    tables[3] = tables[3].assign(paid=tables[3]["paid"].map({"yes": "no", "no": "yes"}))
    releases = {str(k): sf.distill_table(t, SCHEMA, CONFIG).release for k, t in tables.items()}
    pool = make_pool(releases, SCHEMA, ASKED, trusted=make_table(200, seed=9))
    assert pool.compared == ("0", "1", "2")
