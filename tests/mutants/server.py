"""Bugs in what a server pools, measures and reports."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "settings of a search cannot be read again",
        "config/server.py",
        'unused = {"rho"} if self.max_gap is not None else set()',
        "unused: set[str] = set()",
        "test_surrogate_release.py",
    ),
    Mutant(
        "nobody is alone with a group and label",
        "server/influence.py",
        "(owners[pairs] == 1).any()",
        "(owners[pairs] == 0).any()",
        "test_surrogate_release.py",
    ),
    Mutant(
        "SPD has the other sign",
        "fairness/metrics.py",
        "return rates[1] - rates[0]",
        "return rates[0] - rates[1]",
        "test_metrics.py",
    ),
    Mutant(
        "true and false positive rates are swapped",
        "fairness/metrics.py",
        "mine[y > 0], mine[y < 0]",
        "mine[y < 0], mine[y > 0]",
        "test_metrics.py",
    ),
    Mutant(
        "equalized odds is the smaller difference",
        "fairness/metrics.py",
        "np.max(np.abs(of_label))",
        "np.min(np.abs(of_label))",
        "test_metrics.py",
    ),
    Mutant(
        "influence on accuracy has the other sign",
        "server/changes.py",
        "Decisions(*(a - b for a, b in zip(self, others, strict=True)))",
        "Decisions(*(b - a for a, b in zip(self, others, strict=True)))",
        "test_stand_out.py",
    ),
    Mutant(
        "nobody stands out by metrics",
        "server/outliers.py",
        "found[removed] = True",
        "found[removed] = False",
        "test_stand_out.py",
    ),
    Mutant(
        "the test is one-sided and of one value",
        "server/outliers.py",
        "chance / (2 * k)",
        "chance",
        "test_stand_out.py",
    ),
    Mutant(
        "accuracy is the share of wrong decisions",
        "server/changes.py",
        "selected == positive[:, None]",
        "selected != positive[:, None]",
        "test_stand_out.py",
    ),
    Mutant(
        "a release's own gradient stays in the sum",
        "server/influence.py",
        "g = (gradient - mine.T @ slopes[part]) / others",
        "g = gradient / others",
        "test_influence.py",
    ),
    Mutant(
        "the same release may come twice",
        "server/pooling.py",
        "if str(path) in releases or before != path:",
        "if str(path) in releases:",
        "test_server.py",
    ),
]
