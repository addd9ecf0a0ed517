"""A client's part of a sum of counts."""

from types import SimpleNamespace

import numpy as np
import pytest
from builders import SCHEMA, SCHEMA_OF_3, make_table
from secure_task import PLAIN, ROWS, parties

import synthfair as sf
from synthfair.data.encode import Clipping
from synthfair.errors import InputError
from synthfair.secure import GroupCounts, SumTask, count_table, read_upload
from synthfair.secure.part import part_task
from synthfair.secure.upload import upload_bytes
from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Run

WHAT = PLAIN | {"schema_hash": SCHEMA.hash, "groups": ("a", "b")}
TABLE = make_table(50)


def counted(table=TABLE, *, user_column=None, **changes):
    what = GroupCounts(**WHAT | changes)
    return count_table(what, table, SCHEMA, user_column=user_column, source="rows.csv")


def test_rows_are_counted_by_group_and_label():
    assert counted().tolist() == TABLE.groupby(["town", "paid"]).size().tolist()


def test_scores_are_binned_by_the_model_of_the_task():
    model = SimpleNamespace(sha256="1" * 64, scores=lambda x, s: np.where(s == 1, 5.0, -5.0))
    what = GroupCounts(**WHAT | {"model": "1" * 64, "bins": 10})
    counts = count_table(what, TABLE, SCHEMA, model=model).reshape(2, 2, 10)
    assert counts[0, :, 0].sum() + counts[1, :, 9].sum() == 50
    with pytest.raises(InputError, match=r"model \(none\); .* 1111"):
        count_table(what, TABLE, SCHEMA)


def test_rows_of_a_user_beyond_the_limit_are_left_out_whatever_the_order():
    table = TABLE.assign(id=["a"] * 30 + ["b"] * 2 + ["c"] * 18)
    users = {"unit": "user", "rows_per_user": 5, "user_column": "id"}
    counts = counted(table, **users)
    assert counts.sum() == 5 + 2 + 5
    assert counts.tolist() == counted(table.sample(frac=1, random_state=0), **users).tolist()
    own = [counted(rows.drop(columns="id")) for _, rows in table.groupby("id")]
    assert (counts <= np.sum([np.minimum(part, 5) for part in own], axis=0)).all()


REFUSED = [
    ({"schema_hash": "2" * 64}, "schema .* 2222"), ({"rows_per_client": 49}, "50 rows .* 49"),
    ({"groups": ("b", "a")}, r"groups .* \('b', 'a'\)"), ({"groups": ("a", "b", "c")}, "groups"),
    ({"unit": "user"}, "user column"), ({"user_column": "town"}, "user column"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_table_that_does_not_fit_the_task_is_refused(change, said):
    with pytest.raises(InputError, match=f"^rows.csv: .*{said}"):
        counted(**change)


def test_other_rows_by_the_same_seed_get_other_shares():
    """An aggregator that saw two uploads of one sharing could subtract them."""
    sums = parties(GroupCounts(**WHAT))
    again = SumTask.model_validate(sums.task.model_dump() | {"nonce": "5" * 64})

    def nonce_and_share(table=TABLE, seed=bytes(32), task=sums.task):
        rows = ReadRows(sf.encode(table, SCHEMA), "0" * 64)
        upload = part_task(task, sums.keys[0]).answer(rows, seed, Run())[: upload_bytes(task)]
        _, nonce, share = read_upload(upload, task, sums.secrets[0])
        return nonce, share.tobytes()

    others = {"table": TABLE.iloc[1:]}, {"seed": b"1" * 32}, {"task": again}
    found = [nonce_and_share(), *(nonce_and_share(**other) for other in others)]
    assert [len({*values}) for values in zip(*found, strict=True)] == [4, 4]
    assert found[0] == nonce_and_share()
    asked = {part_task(task, key).asked for task in (sums.task, again) for key in sums.keys}
    assert len(asked) == 6  # each is bought


def test_sums_of_a_surrogate_are_bought_once_with_the_guarantee_of_all():
    tables = ROWS.model_copy(update={"name": "tables"})  # which is not the next one
    sums = parties(ROWS, aggregators=3)
    other = SumTask.model_validate(sums.task.model_dump() | {"what": tables.model_dump()})
    for task, number in ((sums.task, 0), (other, 2)):
        one = part_task(task, sums.keys[0])
        assert one.claim == Claim("surrogate", 1.0, 1e-6, k_min=ROWS.config.k_min, number=number)
        assert (one.question, one.guarantee) == (task.id.hex(), ROWS.guarantee(3))
        assert one.asked == part_task(sums.task, sums.keys[0]).asked
    assert (one.guarantee.epsilon, one.guarantee.aggregators) == (1.0, 3)
    for schema, said in ((SCHEMA_OF_3, "another schema"), (SCHEMA, "sum: tables")):
        with pytest.raises(InputError, match=said):
            one.read(SimpleNamespace(schema=schema, data="r.csv"), Clipping())


def test_rows_that_are_counted_are_known_by_all_of_them_and_what_is_clipped_is_seen(tmp_path):
    sums, clipping = parties(GroupCounts(**WHAT)), Clipping()

    def read(table):
        table.to_csv(tmp_path / "r.csv", index=False)
        site = SimpleNamespace(schema=SCHEMA, data=tmp_path / "r.csv")
        return part_task(sums.task, sums.keys[0]).read(site, clipping).sha256

    others = TABLE.assign(paid=TABLE["paid"].to_numpy()[::-1]), TABLE.assign(income=101.0)
    assert len({read(TABLE), *map(read, others)}) == 3
    assert clipping.clipped()["income"].above == pytest.approx(1 / 3)
