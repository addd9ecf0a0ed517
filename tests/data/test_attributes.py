"""Several sensitive attributes: groups are their combinations, or those of each by itself."""

import json
from dataclasses import replace

import fairlearn.metrics as fl
import numpy as np
import pandas as pd
import pytest
from builders import make_schema, make_table
from score_rows import metrics

import synthfair as sf
from synthfair.cli import main
from synthfair.data.draft import draft_document
from synthfair.data.encode import encode, records_table
from synthfair.data.schema import Categorical, parse_schema
from synthfair.errors import InputError
from synthfair.evaluation import evaluate_scores
from synthfair.fairness.metrics import Scored
from synthfair.release.format import write_release
from synthfair.server.pooling import compared_groupings
from synthfair.surrogate.fair import WeightedTable
from synthfair.trained import TrainedModel, input_names, predict

HOME = Categorical(categories=("own", "rent", "other"))
SCHEMA = make_schema().model_copy(update={"columns": make_schema().columns | {"home": HOME}})
SCHEMA = SCHEMA.with_sensitive(("town", "home"))
TABLE = make_table(600).assign(home=lambda t: t["home"].fillna("rent"))
ROWS = encode(TABLE, SCHEMA)
BY = tuple(SCHEMA.groupings[name] for name in ("town", "home"))


class TestSchema:
    def test_groups_are_the_combinations_in_the_order_of_the_columns(self):
        assert SCHEMA.groups[:4] == ("a x own", "a x rent", "a x other", "b x own")
        assert SCHEMA.groupings == {
            "town": (0, 0, 0, 1, 1, 1),
            "home": (0, 1, 2, 0, 1, 2),
            "town x home": (0, 1, 2, 3, 4, 5),
        }
        assert set(SCHEMA.features) == {"income", "age"}
        expected = [f"{town} x {home}" for town, home in TABLE[["town", "home"]].to_numpy()]
        assert np.array(SCHEMA.groups)[ROWS.s].tolist() == expected

    def test_a_file_holds_the_columns_as_a_list(self):
        text = SCHEMA.to_json()
        assert json.loads(text)["sensitive"] == ["town", "home"]
        assert parse_schema(text, source="s") == SCHEMA

    @pytest.mark.parametrize(
        ("sensitive", "said"),
        [
            (["town"], "at least 2 items"),
            (["town", "town"], "'town' is given twice"),
            (["town", "paid"], "'paid' is given twice"),
            (["town", "income"], "must be a categorical column"),
            (["town", "nowhere"], "must be a categorical column"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, sensitive, said):
        document = json.loads(make_schema().to_json()) | {"sensitive": sensitive}
        with pytest.raises(InputError, match=said):
            parse_schema(json.dumps(document), source="s")

    def test_too_many_combinations_are_refused(self):
        many = Categorical(categories=tuple(range(300)))
        columns = make_schema().columns | {"one": many, "other": many}
        document = make_schema().model_copy(update={"columns": columns})
        with pytest.raises(InputError, match="sensitive: 90000 groups; at most 1000"):
            document.with_sensitive(("one", "other"))

    def test_small_combinations_are_merged_by_the_first_attribute(self):
        rows = np.array([40, 10, 25, 9, 60, 8])
        groups = SCHEMA.compared(("town x home",), rows, least=30)["town x home"]
        assert groups.grouping == (0, 2, 2, 3, 1, 3)
        large = groups.with_rows(rows, 30)
        assert large.grouping == (0, 2, 2, -1, 1, -1)
        assert large.names == ("town x home=a x own", "town x home=b x rent", "town=a x other")
        assert groups.names == (*large.names, "town=b x other")
        with pytest.raises(InputError, match="groups_by: 'age' must be one of town, home, town x"):
            SCHEMA.compared(("age",), [1] * 6, least=0)

    def test_records_have_a_column_of_each_attribute(self):
        records = np.column_stack([TABLE["income"], TABLE["age"]])
        again = records_table(records, ROWS.s, ROWS.y, SCHEMA)
        columns = ["income", "age", "town", "home", "paid"]
        pd.testing.assert_frame_equal(again[columns], TABLE[columns], check_dtype=False)


@pytest.fixture(scope="module")
def scored():
    score = np.random.default_rng(0).normal(size=len(ROWS.y)) + 0.3 * ROWS.s
    return Scored(ROWS.y, score, ROWS.s, len(SCHEMA.groups))


class TestMetrics:
    @pytest.mark.parametrize(
        "by", [None, ("town",), ("town", "home"), ("home", "town x home")], ids=str
    )
    def test_a_gap_is_the_largest_of_those_asked_for(self, scored, by):
        config = sf.ServerConfig(resamples=2, groups_by=by)
        found = evaluate_scores({"all": scored}, config, schema=SCHEMA)
        columns = {"town": ["town"], "home": ["home"], "town x home": ["town", "home"]}
        sizes = {
            name: fl.demographic_parity_difference(
                ROWS.y > 0, scored.score > 0, sensitive_features=TABLE[columns[name]]
            )
            for name in columns
        }
        assert np.abs(found.overall["spd"].value) == pytest.approx(
            max(sizes[name] for name in by or ("town x home",))
        )
        for name, size in sizes.items():
            assert abs(found.groupings[name].spd.value) == pytest.approx(size)
        assert found.groupings["town"].spd.value == pytest.approx(
            metrics(scored._replace(s=ROWS.s // 3, n_groups=2))["spd"]
        )

    def test_small_groups_are_merged_in_what_is_reported(self, scored):
        config = sf.ServerConfig(resamples=2, min_group_rows=90)
        found = evaluate_scores({"all": scored}, config, schema=SCHEMA)
        assert any(name.endswith("x other") for name in found.by_group)
        assert sum(rates.n for rates in found.by_group.values()) == sum(
            rates.n for rates in found.groupings["town x home"].rates.values()
        )
        document = found.model_dump(mode="json")
        assert set(document["groupings"]) == {"town", "home", "town x home"}
        assert set(document["groupings"]["home"]["rates"]) == {
            "home=own", "home=rent", "home=other"
        }  # fmt: skip


def model_of(schema):
    names = input_names(schema, intercept=True, group_input=True)
    theta = np.random.default_rng(1).normal(size=len(names))
    return TrainedModel(
        schema=schema, version="0", loss="linear, logistic loss", intercept=True, inputs=names,
        group_input=True, theta=tuple(theta.tolist()), gradient_norm=0.0, converged=True,
    )  # fmt: skip


def test_a_pipeline_reads_each_attribute():
    model = model_of(SCHEMA)
    expected = model.scores(ROWS.x, ROWS.s)
    assert model.inputs[-6:-1] == tuple(f"town x home={group}" for group in SCHEMA.groups[1:])
    plain = TABLE.drop(columns="paid")
    pipeline = model.to_sklearn()
    np.testing.assert_allclose(pipeline.decision_function(plain), expected)
    assert pipeline.predict(plain).tolist() == predict(model, plain)["decision"].tolist()


@pytest.fixture(scope="module")
def releases():
    return {
        f"client {i}": sf.distill_table(
            TABLE.iloc[i::2], SCHEMA, sf.SurrogateConfig(k_min=5, seed=i)
        ).release
        for i in range(2)
    }


class TestServer:
    @pytest.mark.parametrize("by", [("town",), ("town", "home"), None], ids=str)
    def test_the_gap_of_what_is_asked_for_is_met(self, releases, by):
        config = sf.ServerConfig(max_gap=0.1, groups_by=by)
        model = sf.pool_and_train(releases, SCHEMA, config)
        rows = {n: sf.pool_records({n: one}, SCHEMA) for n, one in releases.items()}
        table, weight = (
            pd.concat([part for part, _ in rows.values()]),
            np.concatenate([part for _, part in rows.values()]),
        )
        encoded = encode(table, SCHEMA)
        selected = model.scores(encoded.x, encoded.s) > 0
        for name in by or ("town x home",):
            s = np.array(SCHEMA.groupings[name])[encoded.s]
            rates = [np.average(selected[s == g], weights=weight[s == g]) for g in np.unique(s)]
            assert np.ptp(rates) <= 0.1 + 1e-9

    def test_groups_with_few_rows_are_not_compared(self):
        table = WeightedTable(*ROWS, np.where(ROWS.s == 4, 0.1, 1.0))
        (grouping,), left_out = compared_groupings(table, SCHEMA, sf.ServerConfig())
        assert grouping[4] == -1
        assert left_out == ("town=b x other",)
        alone = WeightedTable(*ROWS, np.where(ROWS.s < 3, 0.0, 1.0))
        with pytest.raises(InputError, match="groups by 'town': fewer than two have the 30 rows"):
            compared_groupings(alone, SCHEMA, sf.ServerConfig(groups_by=("town",)))

    def test_who_has_a_combination_of_its_own_is_judged_as_well(self, releases):
        # The second client has rows of no combination that the first lacks but one.
        own = {n: replace(r, s=np.where(r.s == 4, 3, r.s)) for n, r in releases.items()}
        own["client 1"] = replace(own["client 1"], s=releases["client 1"].s)
        model = sf.pool_and_train(own, SCHEMA)
        pooled = sf.server.make_pool(own, SCHEMA)
        found = sf.server.measure_influence(pooled, model, {"t": TABLE}).releases
        assert not any(one.alone for one in found.values())
        assert all(np.isfinite(one.spd) for one in found.values())


class TestRuns:
    @pytest.fixture
    def folder(self, releases, tmp_path):
        """The files of a server and of a client."""
        (tmp_path / "schema.json").write_text(SCHEMA.to_json())
        TABLE.to_csv(tmp_path / "test.csv", index=False)
        for name, release in releases.items():
            write_release(release, tmp_path / f"{name}.parquet")
        return tmp_path

    def serve(self, folder, *flags):
        files = [str(path) for path in folder.glob("client*.parquet")]
        more = ["--schema", str(folder / "schema.json"), "--test", str(folder / "test.csv")]
        return main(["server", *files, *more, "--output", str(folder / "out"), "--force", *flags])

    @pytest.mark.parametrize("by", [["town"], ["town", "home"], []], ids=str)
    def test_a_report_says_what_is_compared(self, folder, by, capsys):
        flags = ["--groups-by", *by] if by else []
        assert self.serve(folder, "--max-gap", "0.1", "--frontier", *flags) == 0
        out = folder / "out"
        document = json.loads((out / "metrics.json").read_text())
        assert document["groups_by"] == (by or ["town x home"])
        largest = max(abs(document["groupings"][n]["spd"]["value"]) for n in document["groups_by"])
        assert abs(document["spd"]["value"]) == pytest.approx(largest)
        lines = pd.read_csv(out / "frontier.csv")
        assert lines["gap"].iloc[-1] < 0.1
        assert main(["report", str(out), "--output", str(out / "report.html")]) == 0
        page = (out / "report.html").read_text()
        names = "town=a and town=b" if by == ["town"] else ", and by ".join(by or ["town x home"])
        assert names in page
        assert "Metrics by attribute" in page
        model = ["--model", str(out / "model.json"), "--data", str(folder / "test.csv")]
        capsys.readouterr()
        assert main(["evaluate", *model, *flags]) == 0
        assert names in " ".join(capsys.readouterr().out.split())

    def test_few_test_rows_are_a_result_with_a_warning(self, folder, capsys):
        TABLE.iloc[:25].to_csv(folder / "test.csv", index=False)
        assert self.serve(folder) == 0
        assert "town=a x other" in capsys.readouterr().err
        assert main(["report", str(folder / "out"), "--output", str(folder / "r.html")]) == 0

    def test_what_is_no_grouping_is_refused(self, folder, capsys):
        assert self.serve(folder, "--groups-by", "age") == 2
        assert "groups_by: 'age' must be one of town, home, town x home" in capsys.readouterr().err
        (folder / "age.toml").write_text("groups_by = ['age']")
        client = ["client", "--data", str(folder / "test.csv"), "--schema"]
        client += [str(folder / "schema.json"), "--output", str(folder / "new.parquet")]
        assert main([*client, "--config", str(folder / "age.toml")]) == 2
        assert "groups_by: 'age' must be one of" in capsys.readouterr().err

    def test_a_fair_release_is_inspected(self, folder, capsys):
        config = sf.DistillConfig(n_synthetic=24, steps=20, groups_by=("town",))
        write_release(sf.distill_table(TABLE, SCHEMA, config).release, folder / "fair.parquet")
        assert main(["inspect", str(folder / "fair.parquet")]) == 0

    def test_a_comparison_goes_on(self, folder):
        compare = ["compare", str(folder / "test.csv"), "--schema", str(folder / "schema.json")]
        compare += ["--methods", "central", "constant", "--weights", "10", "--seeds", "1"]
        compare += ["--groups-by", "town", "home", "--output", str(folder / "comparison")]
        assert main(compare) == 0
        assert main(compare) == 0


def test_fair_releases_compare_by_each_attribute():
    config = sf.DistillConfig(
        n_synthetic=24, steps=60, groups_by=("town", "home"), penalty="selection_rate"
    )
    made = sf.distill_table(TABLE, SCHEMA, config)
    assert "groups_by" in made.release.header.config.model_dump(mode="json")
    few = TABLE[~((TABLE["town"] == "b") & (TABLE["home"] == "own"))]
    sf.distill_table(few, SCHEMA, config)  # each attribute has all its groups
    with pytest.raises(InputError, match="column 'town x home', among all rows, holds only"):
        sf.distill_table(few, SCHEMA, config.model_copy(update={"groups_by": None}))


class TestEstimators:
    X, Y = TABLE[["income", "age"]], TABLE["paid"] == "yes"

    def test_several_columns_are_compared_by_their_combinations_as_in_fairlearn(self):
        model = sf.sklearn.FairLogisticRegression(max_gap=0.08, penalty="selection_rate")
        model.fit(self.X, self.Y, sensitive_features=TABLE[["town", "home"]])
        gap = fl.demographic_parity_difference(
            self.Y, model.predict(self.X), sensitive_features=TABLE[["town", "home"]]
        )
        assert model.gap_ == pytest.approx(gap)
        assert gap <= 0.08
        assert len(model.groups_) == 6

    @pytest.mark.parametrize("array", [False, True])
    def test_or_each_by_itself(self, array):
        features = TABLE[["town", "home"]]
        names = [0, 1] if array else ["town", "home"]
        model = sf.sklearn.FairLogisticRegression(max_gap=0.05, groups_by=names)
        given = features.to_numpy() if array else features
        model.fit(self.X, self.Y, sensitive_features=given)
        gaps = [
            fl.demographic_parity_difference(
                self.Y, model.predict(self.X), sensitive_features=features[name]
            )
            for name in features
        ]
        assert model.gap_ == pytest.approx(max(gaps))
        assert max(gaps) <= 0.05

    def test_a_column_that_is_not_there_is_named(self):
        model = sf.sklearn.FairLogisticRegression(groups_by=["sex"])
        with pytest.raises(InputError, match="groups_by: 'sensitive_features: sex' must be one of"):
            model.fit(self.X, self.Y, sensitive_features=TABLE[["town", "home"]])

    def test_combinations_may_stand_beside_columns(self):
        model = sf.sklearn.FairLogisticRegression(groups_by=["town", "town x home"])
        model.fit(self.X, self.Y, sensitive_features=TABLE[["town", "home"]])
        with pytest.raises(InputError, match="groups_by = 'town': must be a list"):
            sf.sklearn.FairLogisticRegression(groups_by="town").fit(
                self.X, self.Y, sensitive_features=TABLE[["town", "home"]]
            )


def test_a_draft_has_several(tmp_path):
    roles = {"label": "paid", "positive": "yes", "sensitive": ["town", "home"]}
    draft = draft_document(TABLE, "t", **roles)
    del draft["draft"]
    assert parse_schema(json.dumps(draft), source="d").attributes == ("town", "home")
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    flags = ["--label", "paid", "--positive", "yes", "--sensitive", "town", "home"]
    assert main(["schema", str(tmp_path / "t.csv"), *flags, "--output", str(tmp_path / "s")]) == 0
    assert json.loads((tmp_path / "s").read_text())["sensitive"] == ["town", "home"]


def test_the_command_line_takes_several(tmp_path, capsys):
    path, schema = tmp_path / "t.csv", tmp_path / "schema.json"
    TABLE.to_csv(path, index=False)
    one = SCHEMA.with_sensitive("town")
    schema.write_text(one.to_json())
    split = ["split", str(path), "--schema", str(schema), "--sensitive", "town", "home"]
    assert main([*split, "--output", str(tmp_path / "c")]) == 0
    assert parse_schema((tmp_path / "c/schema.json").read_bytes(), source="s") == SCHEMA
    capsys.readouterr()
    assert main([*split[:4], "--sensitive", "town", "town", "--output", str(tmp_path / "d")]) == 2
    assert "'town'" in capsys.readouterr().err
