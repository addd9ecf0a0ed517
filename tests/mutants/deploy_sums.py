"""Bugs in sums by aggregators that are sites of a federation."""

from tests.mutants import Mutant

SUMS, SECURE = "test_deploy_sums.py", "test_deploy_secure_rounds.py"
SUMS_KIT = "test_deploy_sums_kit.py"

MUTANTS = [
    Mutant(
        "a site shares with any aggregators",
        "deploy/site_sums.py",
        "        task.require_agreed(aggregators=list(pinned.values()))\n",
        "        task.require_agreed()\n",
        SUMS,
    ),
    Mutant(
        "counts are not booked",
        "deploy/site_sums.py",
        "    asked.book(booking)\n",
        "",
        SUMS,
    ),
    Mutant(
        "a site's limit of epsilon does not hold for sums",
        "deploy/site_sums.py",
        "    if what.epsilon > (settings.limits.most_epsilon or 0):\n",
        "    if False:\n",
        SUMS,
    ),
    Mutant(
        "an aggregator adds up anybody's shares",
        "deploy/site_sums.py",
        " or not known >= set(task.clients)",
        "",
        SUMS,
    ),
    Mutant(
        "an aggregator adds up shares of one client",
        "deploy/site_sums.py",
        "task.least_clients < limits.least_clients or ",
        "",
        SUMS,
    ),
    Mutant(
        "an aggregator answers any number of tasks",
        "deploy/site_sums.py",
        ">= limits.most_tasks:",
        "< 0:",
        SUMS,
    ),
    Mutant(
        "an aggregator that has answered adds up again",
        "deploy/site_sums.py",
        "        if record.exists():\n",
        "        if False:\n",
        SUMS,
    ),
    Mutant(
        "an aggregator adds up without noise, unasked",
        "deploy/site_sums.py",
        "allowed = limits.without_noise",
        "allowed = True",
        SECURE,
    ),
    Mutant(
        "an aggregator's limit of rho does not hold",
        "deploy/site_sums.py",
        "allowed = what.rho <= (limits.most_rho or 0)",
        "allowed = True",
        SECURE,
    ),
    Mutant(
        "a site answers what an aggregator is asked",
        "deploy/site.py",
        ' or aggregates != (ask.task == "add"):',
        ":",
        SUMS,
    ),
    Mutant(
        "the server forwards uploads of another client",
        "deploy/sums.py",
        " or next(iter(found))[0].hex() != client:",
        ":",
        SUMS,
    ),
    Mutant(
        "a job that goes on asks for other uploads",
        "deploy/sums.py",
        "    if not saved.exists():\n",
        "    if True:\n",
        SECURE,
    ),
    Mutant(
        "a site shares for a sum that it did not plan",
        "deploy/site_training.py",
        "    if task.what != secure.what:\n",
        "    if False:\n",
        SECURE,
    ),
    Mutant(
        "another sum of the same report costs nothing",
        "deploy/site_training.py",
        'sha256(asked.carried + (task.id if task else b""))',
        "sha256(asked.carried)",
        SECURE,
    ),
    Mutant(
        "jobs without an epsilon share their sums",
        "deploy/training.py",
        "federation.job if config.epsilon is None else begun.seed",
        "begun.seed",
        SECURE,
    ),
    Mutant(
        "a guarantee between sites says that it is simulated",
        "privacy/rounds.py",
        'mechanism["shares"]["simulated"] = False\n',
        'mechanism["shares"]["simulated"] = True\n',
        SECURE,
    ),
    Mutant(
        "the noise of shares is added again by the server",
        "deploy/training.py",
        "protection = engine.UNPROTECTED if plan.secure else plan.protection",
        "protection = plan.protection",
        SECURE,
    ),
    Mutant(
        "aggregators may be of one organisation",
        "deploy/project.py",
        "if len(set(orgs)) < len(orgs):",
        "if False:",
        SUMS_KIT,
    ),
    Mutant(
        "others may read an aggregator's key",
        "deploy/check.py",
        '            yield f"{settings.key}: others may read it; chmod 600"\n    read_keys([settings.clients])',
        "            pass\n    read_keys([settings.clients])",
        SUMS_KIT,
    ),
]
