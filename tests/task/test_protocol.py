"""What a task asks is what is booked for its answer."""

from synthfair.task.limits import Claim
from synthfair.task.protocol import ReadRows, Task


def test_purchase_is_that_of_the_claim_the_question_and_the_rows():
    claim = Claim("training", 2.0, 1e-3, number=4, seen=True)
    rows, task = ReadRows(None, "r" * 64), Task(claim, "all", question="a" * 64)
    booked = task.purchase(rows, "job-1", "lead")
    assert (booked.kind, booked.output, booked.submitter) == ("training", "job-1", "lead")
    assert (booked.round, booked.seen, booked.question) == (4, True, "a" * 64)
    runs = {
        Task(claim, asked).purchase(ReadRows(None, read), "job-1").run
        for asked, read in (("all", "r" * 64), ("all", "s" * 64), ("alls", "s" * 63))
    }
    assert booked.run in runs
    assert len(runs) == 3
    kinds = [Claim(kind, None).purchase_kind for kind in ("fair", "gap", "counts")]
    assert kinds == ["release", "release", "secure_sum"]
