"""Bugs of report/, and of the files that it reads."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "names are not escaped: a script in one runs",
        "report/page.py",
        "autoescape=True",
        "autoescape=False",
        "test_report.py",
    ),
    Mutant(
        "SPD read from another metric",
        "report/overview.py",
        '"statistical_parity": "spd"',
        '"statistical_parity": "equal_opportunity_difference"',
        "test_report.py",
    ),
    Mutant(
        "TPR and FPR swapped on the page",
        "report/templates/report.html.j2",
        "{{ r.true_positive_rate | shown }}</td><td>{{ r.false_positive_rate | shown }}",
        "{{ r.false_positive_rate | shown }}</td><td>{{ r.true_positive_rate | shown }}",
        "test_report.py",
    ),
    Mutant(
        "runs of different settings averaged",
        "report/overview.py",
        'for key, value in result.settings.items() if key != "seed"]',
        'for key, value in result.settings.items() if key == "rho_o"]',
        "test_report.py",
    ),
    Mutant(
        "no lower limit of what a hostile metrics.json may hold",
        "run_files.py",
        "least <= value <= most",
        "value <= most",
        "test_report.py",
    ),
    Mutant(
        "the demo's table with SPD where accuracy belongs",
        "report/terminal.py",
        'for name in ("accuracy", "spd"))',
        'for name in ("spd", "accuracy"))',
        "test_compare.py",
    ),
    Mutant(
        "the demo's server asks surrogates for no fairness",
        "compare/demonstration.py",
        '"rho": config.rho_o',
        '"rho": 0.0',
        "test_compare.py",
    ),
    Mutant(
        "1 plots",
        "cli/report.py",
        "'s' * (plots != 1)",
        "'s'",
        "test_report.py",
    ),
]
