"""A question and its answer as bytes: an answer counts for one question of one site."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from synthfair.release.keys import sign_bytes
from synthfair.task import messages
from synthfair.task.limits import RefusedError
from synthfair.task.messages import Answer, Message, Question, make_answer, sha256

KEY = Ed25519PrivateKey.generate()
NORTH = KEY.public_key().public_bytes_raw().hex()
SOUTH = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
QUESTION = Question(
    task="train", job="job-1", round=0, recipient="hub", version="1", schema_hash="0" * 64,
    settings={"seed": 0}, timeout=10, carried=b"state",
)  # fmt: skip
DOCUMENT = json.loads(QUESTION.message.text)
ANSWER = Answer(asked=sha256(QUESTION.message.text), site="north", code="ok", version="1")
SENT = make_answer(ANSWER, b" content", KEY)


def code_of(message, question=QUESTION, site="north", key=NORTH):
    keys = {"north": NORTH, site: key}
    try:
        return messages.read_answer(message, question, site=site, keys=keys).code
    except RefusedError as error:
        return error.code


def refused(text, job="job-1", carried=b""):
    with pytest.raises(RefusedError) as error:
        messages.read_question(Message(text, carried), job)
    return error.value.code == "message"


@pytest.mark.parametrize(
    "change",
    [{"task": "gap"}, {"job": "job-2"}, {"round": 1}, {"recipient": "hub2"},
     {"settings": {"seed": 1}}, {"schema_hash": "1" * 64}],
)  # fmt: skip
def test_answer_counts_for_its_own_question_alone(change):
    assert code_of(SENT) == "ok"
    assert code_of(SENT, QUESTION.model_copy(update=change)) == "signature"


def test_answer_counts_for_its_own_site_alone():
    assert code_of(SENT, site="south", key=SOUTH) == "signature"
    assert code_of(SENT, site="south", key=NORTH) == "signature"
    with pytest.raises(RefusedError, match="signature"):
        messages.read_answer(SENT, QUESTION, site="north", keys={})


@given(part=st.sampled_from(Message._fields), at=st.integers(0), bit=st.integers(0, 7))
def test_answer_altered_in_any_bit_does_not_count(part, at, bit):
    altered = bytearray(getattr(SENT, part))
    altered[at % len(altered)] ^= 1 << bit
    for content in (bytes(altered), b""):
        assert code_of(SENT._replace(**{part: content})) == "signature"
    moved = SENT._replace(text=SENT.text + b" ", carried=b"content")
    assert code_of(moved) == "signature"


def signed(message, domain=messages.ANSWER_DOMAIN):
    digests = messages._digests(message.text, message.carried)
    return message._replace(signature=sign_bytes(domain, digests, KEY))


def test_signature_counts_for_an_answer_alone():
    assert code_of(signed(SENT)) == "ok"
    assert code_of(signed(SENT, b"synthfair-release/1\0")) == "signature"


def test_answer_large_is_carried_and_one_too_large_not_even_hashed(monkeypatch):
    large = make_answer(ANSWER, bytes(50_000_000), KEY)
    assert code_of(large) == "ok"
    monkeypatch.setattr(messages, "MAX_CARRIED_BYTES", len(large.carried) - 1)
    monkeypatch.delattr(messages, "_digests")
    assert code_of(large) == "refused"
    assert refused(QUESTION.message.text, carried=large.carried)
    monkeypatch.setattr(messages, "MAX_QUESTION_BYTES", 99)
    assert code_of(SENT) == "refused"
    assert refused(QUESTION.message.text)


def test_question_comes_as_it_was_asked():
    for version in ("1", "0.0.0"):  # of the package: the format is the same
        asked = QUESTION.model_copy(update={"version": version})
        assert messages.read_question(asked.message, "job-1") == asked


@pytest.mark.parametrize(
    "change",
    [{"format": "synthfair-ask/2"}, {"schema_hash": "0"}, {"job": "job-2"}, {"task": "shell"},
     {"round": -1}, {"extra": 1}],
)  # fmt: skip
def test_question_that_does_not_fit_is_refused(change):
    assert refused(json.dumps(DOCUMENT | change).encode())


def test_question_hostile_or_of_a_job_that_could_be_a_path_is_refused():
    for job in ("", "..", "a/b", "a.b", "a\n", "a" * 65):
        assert refused(json.dumps(DOCUMENT | {"job": job}).encode(), job)
    for text in (b"", b"{", b"[]", b"\xff", b"[" * 10**5, b" " * 200_000):
        assert refused(text)
