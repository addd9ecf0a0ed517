"""Bugs in the private mechanisms, their accounting, the ledger and the gate."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "gradients are not clipped",
        "privacy/queries.py",
        "return clip_rows(slope[:, None] * self._inputs(part), noisy_sum.bound)",
        "return slope[:, None] * self._inputs(part)",
        "test_queries.py",
    ),
    Mutant(
        "no noise is added",
        "privacy/mechanism.py",
        "total + self._mechanism.noise * standard_normal(total.shape, self._source)",
        "total",
        "test_queries.py",
    ),
    Mutant(
        "replacing a row counts as adding one",
        "privacy/mechanism.py",
        "else 2.0 * bound",
        "else bound",
        "test_accounting.py",
    ),
    Mutant(
        "the number of uses does not add to the noise",
        "privacy/statement.py",
        "noise = change * times**0.5 /",
        "noise = change /",
        "test_accounting.py",
    ),
    Mutant(
        "mechanisms together cost as much as the dearest",
        "privacy/accounting.py",
        "return math.hypot(*mus)",
        "return max(mus)",
        "test_accounting.py",
    ),
    Mutant(
        "a claimed sensitivity is not compared",
        "privacy/statement.py",
        "if abs(found.sensitivity / right - 1) > 1e-9 or found.times != times:",
        "if found.times != times:",
        "test_accounting.py",
    ),
    Mutant(
        "one gradient too few",
        "privacy/fit.py",
        'range(guarantee.mechanism("gradients").times)',
        'range(guarantee.mechanism("gradients").times - 1)',
        "test_fit.py",
    ),
    Mutant(
        "a private release is booked only once",
        "privacy/ledger.py",
        "if booking.guarantee or booking not in [",
        "if booking not in [",
        "test_ledger.py",
    ),
    Mutant(
        "the chain of a ledger is not checked",
        "privacy/ledger.py",
        "if entry.previous != previous:",
        "if False:",
        "test_ledger.py",
    ),
    Mutant(
        "copies are not found",
        "privacy/gate.py",
        "[0] < COPY",
        "[0] < 0",
        "test_gate.py",
    ),
]
