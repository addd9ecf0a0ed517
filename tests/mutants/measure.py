"""Bugs in the private measurement of gaps."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "de-biasing left out: noisy values are not divided by a gain",
        "measure/estimate.py",
        "pm = t / scale",
        "pm = t",
        "test_gap_estimate.py",
    ),
    Mutant(
        "epsilon of M_R as theorem 4.1 has it, which is too small",
        "measure/mechanisms.py",
        "return max(kept_high, log_change) - min(kept_low, log_change)",
        "return max(self.epsilon1, self.epsilon2)",
        "test_gap_mechanisms.py",
    ),
    Mutant(
        "the value stays where the group changes",
        "measure/mechanisms.py",
        "np.where(reported == group, value, 0.0)",
        "value",
        "test_gap_mechanisms.py",
    ),
    Mutant(
        "noise of the group left out",
        "measure/mechanisms.py",
        "return (group + step.astype(group.dtype)) % self.groups",
        "return group",
        "test_gap_mechanisms.py",
    ),
    Mutant(
        "noise of the value left out",
        "measure/mechanisms.py",
        "return (whole + noise.clip(-largest, largest)) / m",
        "return whole / m",
        "test_gap_mechanisms.py",
    ),
    Mutant(
        "Laplace noise of half the scale",
        "measure/mechanisms.py",
        "discrete_laplace(Fraction(LAPLACE_STEPS), len(value), source)",
        "discrete_laplace(Fraction(LAPLACE_STEPS // 2), len(value), source)",
        "test_gap_mechanisms.py",
    ),
    Mutant(
        "true and false positive rates swapped",
        "measure/reports.py",
        '{"true_positive_rate": 1, "false_positive_rate": -1}',
        '{"true_positive_rate": -1, "false_positive_rate": 1}',
        "test_gap_devices.py",
    ),
    Mutant(
        "repeated report ids across batches are not found",
        "measure/aggregate.py",
        "np.bitwise_or.at(self._words, place[new], bits[new])",
        "pass",
        "test_gap_identifiers.py",
    ),
    Mutant(
        "two-sided intervals with the quantile of one-sided ones",
        "measure/estimate.py",
        "_NORMAL.inv_cdf((1 + confidence) / 2)",
        "_NORMAL.inv_cdf(confidence)",
        "test_gap_estimate.py",
    ),
    Mutant(
        "skewness term of the limits left out",
        "measure/estimate.py",
        "    limit += side * max(z2 - 1 / tally.clients, 0.0) / 6 * skewness / p\n",
        "",
        "test_gap_estimate.py",
    ),
    Mutant(
        "values are rounded to the nearest step",
        "measure/mechanisms.py",
        "whole = low + (uniform(len(value), source) <= m * value - low)",
        "whole = np.rint(m * value)",
        "test_gap_mechanisms.py",
    ),
    Mutant(
        "reports come in the order of their records",
        "measure/reports.py",
        "return sorted(perturb_records(collection, own_groups, own_values, source))",
        "return perturb_records(collection, own_groups, own_values, source)",
        "test_declared.py",
    ),
    Mutant(
        "the rest of a line that is too long is a report",
        "measure/aggregate.py",
        'block[: block.rfind(b"\\n") + 1] + b"a line that is too long\\n"',
        "block",
        "test_gap_reports.py",
    ),
    Mutant(
        "lines of another number of columns count",
        "measure/aggregate.py",
        '    reject("wrong number of columns", batch.size != batch.width, "", "")\n',
        "",
        "test_gap_reports.py",
    ),
]
