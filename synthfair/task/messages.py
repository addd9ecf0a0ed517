"""The messages of a server to sites, with their answers: bytes that any engine can carry.

An answer names its sender and, by the sha256 of its text, the question, and is signed with the
site's key over

    ANSWER_DOMAIN | sha256(answer as JSON) | sha256(what it carries).

The question's text holds the job, the round, the settings and the server's name. So the answer
cannot be used again: not in another job or round, not for another server, nor under another name.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from synthfair.files import parse_as
from synthfair.release.keys import Hex32, is_signed, sign_bytes
from synthfair.settings import Checked, Line
from synthfair.task.federation_file import SiteCode
from synthfair.task.limits import RefusedError, refused_as

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ANSWER_DOMAIN = b"synthfair-answer/1\0"
"""The prefix of all that is signed: a signature made for something else never fits."""

MAX_QUESTION_BYTES, MAX_CARRIED_BYTES = 150_000_000, 200_000_000
"""Bytes of a message's text, which may hold the task of a sum, and of what it carries."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.@_-]{0,62}$")]
JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""The engine's name of a job, also in names of files: a UUID, or the simulator's simulate_job."""
Version = Annotated[Line, Field(max_length=40)]
"""A version. ``Line = Field(max_length=40)`` would have the type's own bound alone."""

TaskName = Literal["single_shot", "train", "gap", "privfairfl", "add", "deliver"]


class Question(Checked):
    """A question of the server to sites.

    Attributes:
        format: the version of what server and sites say to each other; a site knows one.
        task: what for.
        job: the engine's name of the job.
        round: from 0.
        recipient: the server's name.
        version: of synthfair at the server.
        schema_hash: of the schema that the server has.
        settings: of the method; the site reads them with its own rules.
        timeout: seconds that the server waits.
        carried: bytes that go with the text, such as the state of a round.
    """

    format: Literal["synthfair-question/1"] = "synthfair-question/1"
    task: TaskName
    job: JobId
    round: int = Field(ge=0, lt=2**31)
    recipient: Name
    version: Version
    schema_hash: Hex32
    settings: dict[str, Any]
    timeout: int = Field(ge=1)
    carried: bytes = Field(default=b"", exclude=True, repr=False)

    @property
    def message(self) -> Message:
        """The message that carries it; the engine's certificates cover it."""
        return Message(self.model_dump_json().encode(), self.carried)


class Answer(Checked):
    """An answer, without what it carries.

    Attributes:
        asked: sha256 of the question's text: its job, its round, its recipient and its settings.
        site: who answers.
        code: how.
        seconds: that it took at the site; None where the answer has a guarantee, as time depends
            on the rows.
        version: of synthfair at the site.
    """

    format: Literal["synthfair-answer/1"] = "synthfair-answer/1"
    asked: Hex32
    site: Name
    code: SiteCode
    seconds: float | None = Field(default=None, ge=0)
    version: Version


class Message(NamedTuple):
    """A question or an answer with the bytes that go with it.

    Attributes:
        text: a question or an answer as JSON.
        carried: bytes that go with it: a release, or the parameters of a round.
        signature: 64 bytes of an answer; none of a question, which the engine's certificates cover.
    """

    text: bytes
    carried: bytes = b""
    signature: bytes = b""


def sha256(content: bytes) -> str:
    """Return the sha256 of the content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def make_answer(answer: Answer, carried: bytes, key: Ed25519PrivateKey) -> Message:
    """Return an answer and what it carries, signed."""
    text = answer.model_dump_json().encode()
    return Message(text, carried, sign_bytes(ANSWER_DOMAIN, _digests(text, carried), key))


def read_question(message: Message, job: str) -> Question:
    """Return the question that a message holds. Raises RefusedError: none, or not of this job."""
    if len(message.text) > MAX_QUESTION_BYTES or len(message.carried) > MAX_CARRIED_BYTES:
        raise RefusedError("message")
    with refused_as("message"):
        question = parse_as(message.text, Question, "question")
    if question.job != job:
        raise RefusedError("message")
    return question.model_copy(update={"carried": message.carried})


def read_answer(message: Message, question: Question, *, site: str, keys: dict[str, str]) -> Answer:
    """Return a verified answer; nothing in it is read before its signature is.

    Args:
        message: as it came.
        question: that was asked.
        site: who the engine says has sent it.
        keys: the sites' public keys in hexadecimal, by name.

    Raises:
        RefusedError: malformed; not signed by that site; or the answer to another question.
    """
    if (
        site not in keys
        or len(message.text) > MAX_QUESTION_BYTES
        or len(message.carried) > MAX_CARRIED_BYTES
    ):
        raise RefusedError("signature" if site not in keys else "refused")
    content = _digests(message.text, message.carried)
    if not is_signed(ANSWER_DOMAIN, content, message.signature, bytes.fromhex(keys[site])):
        raise RefusedError("signature")
    with refused_as("refused"):
        answer = parse_as(message.text, Answer, site)
    if (answer.asked, answer.site) != (sha256(question.message.text), site):
        raise RefusedError("signature")
    return answer


def _digests(text: bytes, carried: bytes) -> bytes:
    return hashlib.sha256(text).digest() + hashlib.sha256(carried).digest()
