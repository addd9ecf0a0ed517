"""Tasks and keys as files: what does not fit together, and what is not as agreed."""

import json
import math

import pytest
from secure_task import COUNTS, PLAIN, ROWS, parties

from synthfair import secure
from synthfair.errors import InputError
from synthfair.secure.task import OWNER, make_aggregator_keys, require_records

VECTORS = secure.ClippedVectors(length=3, clip=1.0, step=0.1, rho=0.25)
COUNTED, VECTOR = PLAIN | {"kind": "counts"}, VECTORS.model_dump()
SUMMED = ROWS.model_dump(mode="json")
GROUP = parties()
TASK = GROUP.task
FIRST, SECOND = (keys.model_dump() for keys in TASK.aggregators)


def test_task_is_read_as_written_and_its_id_is_of_all_of_it(tmp_path):
    TASK.write(tmp_path / "task.json")
    assert secure.SumTask.read(tmp_path / "task.json") == TASK
    changes = [{"nonce": "1" * 64}, {"what": VECTOR}, {"what": COUNTED | {"epsilon": 2.0}},
               {"aggregators": TASK.aggregators[::-1]}, {"clients": TASK.clients[:2]},
               {"least_clients": 1}]  # fmt: skip
    others = {secure.SumTask.model_validate(TASK.model_dump() | change).id for change in changes}
    assert len(others - {TASK.id}) == len(changes)


@pytest.mark.parametrize(("change", "key"), [
    ({"least_clients": 4}, "least_clients: only 3"), ({"clients": ["0" * 64] * 2}, "clients: a key"),
    ({"aggregators": [FIRST, SECOND | {"signature": FIRST["signature"]}]}, "aggregators: each"),
    ({"what": SUMMED | {"clients": 1}}, "clients: so many"),
    ({"what": COUNTED | {"bins": 2}}, "one bin"), ({"what": VECTOR | {"step": 1e-20}}, "step"),
    ({"what": COUNTED | {"epsilon": 0}}, "epsilon"), ({"what": VECTOR | {"rho": 1e-320}}, "step"),
    ({"what": COUNTED | {"rows_per_user": 2}}, "rows_per_user"),
    ({"what": COUNTED | {"rows_per_client": 2**40}}, "rows_per_client"),
    ({"what": COUNTED | {"groups": ["f", "m", "f"]}}, "groups"),
    ({"what": SUMMED | {"clients": 4}}, "clients: the sum is of 4"),
    ({"what": SUMMED | {"config": {"k_min": 50}}}, "epsilon"),
    ({"what": SUMMED | {"name": "trees"}}, "name"),
])  # fmt: skip
def test_task_whose_parts_do_not_fit_together_is_refused(tmp_path, change, key):
    path = tmp_path / "task.json"
    path.write_text(json.dumps(TASK.model_dump(mode="json") | change))
    with pytest.raises(InputError, match=f"^{path}.*{key}"):
        secure.SumTask.read(path)


def test_task_of_other_aggregators_or_another_order_is_refused():
    keys, stranger = list(TASK.aggregators), secure.new_aggregator_secret().public
    TASK.require_agreed(keys)
    for wrong in (keys[::-1], [keys[0], stranger], keys[:1], [*keys, stranger], []):
        with pytest.raises(InputError, match=TASK.id.hex()):
            TASK.require_agreed(wrong)


REPLACE = ROWS.model_copy(update={"config": ROWS.config.replace(relation="replace")})


@pytest.mark.parametrize(
    ("what", "most", "beyond", "said"),
    [(COUNTS, (1.0,), (0.99,), "epsilon = 1; .* 0.99"), (COUNTS, (1.0,), (math.nan,), "epsilon"),
     (ROWS, (1.0, 1e-6), (1.0, 1e-7), "delta = 1e-06; .* 1e-07"),
     (REPLACE, None, (9.0, 1e-5), "replace"),  # the same epsilon with less noise
     (VECTORS, None, (9.0, 1e-5), "vectors")],
)  # fmt: skip
def test_task_beyond_what_was_agreed_is_refused(what, most, beyond, said):
    task = parties(what).task
    if most:
        task.require_within(*most)
    with pytest.raises(InputError, match=said):
        task.require_within(*beyond)


def test_keys_are_read_as_written_and_go_with_one_folder_of_answers(tmp_path):
    path, records = tmp_path / "a.key", tmp_path / "a.answers"
    public_path, public = make_aggregator_keys(path)
    old = secure.read_aggregator_secret(path)
    assert old.public == public == secure.read_aggregator_keys(public_path)
    assert not (path.stat().st_mode | (records / OWNER).stat().st_mode) & 0o077
    assert old.records not in public_path.read_text()  # else whoever copied a key could make one
    require_records(records, old)
    for left in (path, public_path, records / OWNER):
        with pytest.raises(InputError, match=f"{left}: exists"):
            make_aggregator_keys(path)
        left.unlink()
    with pytest.raises(InputError, match="a.pem"):
        make_aggregator_keys(tmp_path / "a.pem")
    for _ in range(2):
        make_aggregator_keys(path, force=True)
    require_records(records, secure.read_aggregator_secret(path))
    with pytest.raises(InputError, match=f"{records}: "):
        require_records(records, old)


def test_private_key_is_not_taken_for_a_public_one_nor_shown(tmp_path):
    secret, path = GROUP.secrets[0], tmp_path / "a.key"
    path.write_text(secret.model_dump_json())
    with pytest.raises(InputError, match="private keys"):
        secure.read_aggregator_keys(path)
    path.write_text(secret.model_dump_json().replace('"format"', '"what"'))
    with pytest.raises(InputError, match=f"{path}: ") as error:
        secure.read_aggregator_secret(path)
    for key in (secret.encryption, secret.signature, secret.records):
        assert key not in str(error.value) + repr(secret)
