"""Tasks and keys as files: what does not fit together, and what is not as agreed."""

import json

import pytest
from builders import make_schema
from secure_task import COUNTS, PLAIN, parties

import synthfair as sf
from synthfair.errors import InputError
from synthfair.report.privacy_words import guarantee_facts
from synthfair.secure import (
    ClippedVectors,
    RowSums,
    SumTask,
    make_task,
    new_aggregator_secret,
    read_aggregator_keys,
    read_aggregator_secret,
)
from synthfair.secure.task import OWNER, make_aggregator_keys, require_records

VECTORS = ClippedVectors(length=3, clip=1.0, step=0.1, rho=0.25)
ROWS = RowSums(
    config=sf.SurrogateConfig(epsilon=1.0, delta=1e-6), table_schema=make_schema(),
    name="histograms", length=4, clients=3,
)  # fmt: skip
ROWS_OF = ROWS.model_dump(mode="json")


@pytest.fixture(scope="module")
def group():
    return parties()


class TestTask:
    def test_is_read_as_written_and_its_id_is_of_all_of_it(self, tmp_path, group):
        group.task.write(tmp_path / "task.json")
        assert SumTask.read(tmp_path / "task.json") == group.task
        vector = ClippedVectors(length=3, clip=1.0, step=0.1, rho=1.0)
        changes = [
            {"nonce": "1" * 64},
            {"what": vector.model_dump()},
            {"what": COUNTS.model_dump() | {"schema_hash": "3" * 64}},
            {"aggregators": group.task.aggregators[::-1]},
            {"clients": group.task.clients[:2]},
            {"least_clients": 1},
        ]
        others = [SumTask.model_validate(group.task.model_dump() | change) for change in changes]
        assert len({task.id for task in [group.task, *others]}) == len(changes) + 1

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"least_clients": 4}, "least_clients"),
            ({"clients": ["0" * 64] * 2}, "comes twice"),
            ({"clients": ["0" * 63]}, "clients.0"),
            ({"aggregators": []}, "aggregators"),
            ({"what": {"kind": "mean"}}, "what"),
            ({"what": PLAIN | {"kind": "counts", "bins": 2}}, "one bin"),
            ({"what": PLAIN | {"kind": "counts", "epsilon": 0}}, "epsilon"),
            ({"what": PLAIN | {"kind": "counts", "epsilon": "1"}}, "epsilon"),
            ({"what": PLAIN | {"kind": "counts", "rows_per_user": 2}}, "rows_per_user"),
            ({"what": PLAIN | {"kind": "counts", "rows_per_client": 2**40}}, "exact numbers"),
            ({"what": {"kind": "vector", "length": 2, "clip": 1.0, "step": 1e-20, "rho": 1.0}},
             "too fine"),
            ({"what": {"kind": "vector", "length": 2, "clip": 1.0, "step": 0.1, "rho": 1e-320}},
             "too fine"),
            ({"what": {"kind": "vector", "length": 2, "clip": 1.0, "step": 1e308, "rho": 1.0}},
             "step"),
            ({"what": ROWS_OF | {"clients": 4}}, "the sum is of 4, more than may send"),
            ({"what": ROWS_OF | {"config": {"k_min": 50}}}, "epsilon: must be given"),
            ({"what": ROWS_OF | {"name": "trees"}}, "name"),
            ({"what": PLAIN | {"kind": "counts", "groups": ["f", "m", "f"]}}, "name comes twice"),
            ({"more": 1}, "unknown key"),
        ],
    )  # fmt: skip
    def test_files_that_do_not_fit_together(self, tmp_path, group, change, message):
        document = group.task.model_dump(mode="json") | change
        (tmp_path / "task.json").write_text(json.dumps(document))
        with pytest.raises(InputError, match=message):
            SumTask.read(tmp_path / "task.json")

    def test_what_is_refused_is_not_shown_whole(self, group):
        with pytest.raises(InputError) as caught:
            make_task(COUNTS, list(group.task.aggregators), group.task.clients, least_clients=9)
        assert str(caught.value) == "least_clients: only 3 clients may send"

    def test_an_aggregator_twice(self, group):
        one = group.secrets[0].public
        with pytest.raises(InputError, match="keys of its own"):
            make_task(COUNTS, [one, one], group.task.clients, least_clients=1)


class TestAgreement:
    def test_other_aggregators_or_another_order_are_refused(self, group):
        keys = list(group.task.aggregators)
        group.task.require_agreed(keys)
        stranger = new_aggregator_secret().public
        for wrong in (keys[::-1], [keys[0], stranger], keys[:1], [*keys, stranger], []):
            with pytest.raises(InputError, match=f"{group.task.id.hex()}: its aggregators"):
                group.task.require_agreed(wrong)

    def test_more_epsilon_is_refused(self, group):
        group.task.require_within(1.0)
        for most in (0.99, float("nan")):
            with pytest.raises(InputError, match=r"epsilon = 1; must be at most "):
                group.task.require_within(most)

    def test_a_larger_delta_is_refused(self):
        rows = parties(ROWS).task
        rows.require_within(1.0, 1e-6)
        with pytest.raises(InputError, match="delta = 1e-06; must be at most 1e-07"):
            rows.require_within(1.0, 1e-7)

    def test_vectors_have_no_guarantee_of_rows(self):
        with pytest.raises(InputError, match="sums vectors"):
            parties(VECTORS).task.require_within(9.0, 1e-5)

    def test_another_relation_is_refused(self):
        """As the same epsilon with less noise."""
        config = ROWS.config.replace(relation="replace")
        task = parties(ROWS.model_copy(update={"config": config})).task
        with pytest.raises(InputError, match="relation = replace; must be add_or_remove"):
            task.require_within(9.0, 1e-5)

    def test_the_guarantee_holds_against_all_aggregators_but_one(self):
        facts = guarantee_facts(COUNTS.guarantee(3))
        assert facts["holds_against"].startswith("all aggregators but one")
        for words in ("collude", "A false total", "not on the list"):
            assert words in " ".join(facts["not_covered"])


class TestKeys:
    def test_are_read_as_written(self, tmp_path):
        public_path, public = make_aggregator_keys(tmp_path / "a.key")
        assert read_aggregator_secret(tmp_path / "a.key").public == public
        assert read_aggregator_keys(public_path) == public
        assert (tmp_path / "a.key").stat().st_mode & 0o077 == 0
        with pytest.raises(InputError, match="exists"):
            make_aggregator_keys(tmp_path / "a.key")
        with pytest.raises(InputError, match="must end in"):
            make_aggregator_keys(tmp_path / "a.pem")
        old = read_aggregator_secret(tmp_path / "a.key")
        require_records(tmp_path / "a.answers", old)
        make_aggregator_keys(tmp_path / "a.key", force=True)
        require_records(tmp_path / "a.answers", read_aggregator_secret(tmp_path / "a.key"))
        with pytest.raises(InputError, match="not the folder of this key's answers"):
            require_records(tmp_path / "a.answers", old)

    def test_a_folder_of_answers_cannot_be_made_by_hand_from_the_public_keys(self, tmp_path):
        """As whoever has copied a key, and wants it to answer once more, may try."""
        public_path, _ = make_aggregator_keys(tmp_path / "a.key")
        secret, made = read_aggregator_secret(tmp_path / "a.key"), tmp_path / "b.answers"
        made.mkdir()
        (made / OWNER).write_bytes(public_path.read_bytes())
        with pytest.raises(InputError, match="nobody knows what this key has answered"):
            require_records(made, secret)
        assert secret.records not in public_path.read_text()
        assert secret.records not in repr(secret)

    def test_a_private_key_is_not_taken_for_a_public_one_nor_shown(self, tmp_path, group):
        text = group.secrets[0].model_dump_json()
        (tmp_path / "a.key").write_text(text)
        with pytest.raises(InputError, match="private keys, which stay"):
            read_aggregator_keys(tmp_path / "a.key")
        (tmp_path / "a.key").write_text(text.replace('"format"', '"what"'))
        with pytest.raises(InputError, match="not an aggregator's private keys") as caught:
            read_aggregator_secret(tmp_path / "a.key")
        assert group.secrets[0].signature not in str(caught.value)
        assert group.secrets[0].signature not in repr(group.secrets[0])
