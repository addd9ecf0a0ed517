"""Bugs in what a job may hold, in later kits, in epsilons without a bound, and in spent sums."""

from tests.mutants import Mutant

KIT, FILES, LIMITS = "test_deploy_kit.py", "test_deploy_job_files.py", "test_deploy_limits.py"
ROUNDS, SUMS = "test_deploy_training.py", "test_deploy_sums.py"

MUTANTS = [
    Mutant(
        "a job may hold links",
        "deploy/job_files.py",
        "if path.is_symlink() or not (is_folder",
        "if not (is_folder",
        FILES,
    ),
    Mutant(
        "a job may hold other files",
        "deploy/job_files.py",
        "is_file = (name in (SERVER, CLIENT) or path.name in SIGNATURES) and path.is_file()",
        "is_file = path.is_file()",
        FILES,
    ),
    Mutant(
        "a job may tell sites to load something else",
        "deploy/job_files.py",
        "in differences(found, must):",
        "in differences(found, must) if name != CLIENT else ():",
        FILES,
    ),
    Mutant(
        "a job may tell the server to load more",
        "deploy/job_files.py",
        "in differences(found, must):",
        "in differences(found, must) if name != SERVER else ():",
        FILES,
    ),
    Mutant(
        "a job may name variables in a list",
        "deploy/job_files.py",
        "    if isinstance(found, list):\n",
        "    if False:\n",
        FILES,
    ),
    Mutant(
        "a job may name variables as keys",
        "deploy/job_files.py",
        "any(map(_has_braces, (*found, *found.values())))",
        "any(map(_has_braces, found.values()))",
        FILES,
    ),
    Mutant(
        "the engine reads formats that include files",
        "deploy/job_validator.py",
        "if form is not ConfigFormat.JSON:\n",
        "if False:\n",
        FILES,
    ),
    Mutant(
        "a controller asks whatever sites are named",
        "deploy/engine.py",
        "_NAMES.validate_python(sites)",
        "tuple(sites)",
        FILES,
    ),
    Mutant(
        "kits look at no job",
        "deploy/hardened_kit.yml",
        "        app_validator: *validator\n",
        "",
        KIT,
    ),
    Mutant(
        "0 counts for false in settings",
        "deploy/hardening.py",
        "type(value) is type(must) and value == must",
        "value == must",
        KIT,
    ),
    Mutant(
        "a job may have another class loaded",
        "deploy/hardened_kit.yml",
        "        class_allow_list: [*executor]\n",
        "        class_allow_list: [*executor, os.system]\n",
        KIT,
    ),
    Mutant(
        "later kits have another root",
        "deploy/kit.py",
        "        if root:\n",
        "        if False:\n",
        KIT,
    ),
    Mutant(
        "an epsilon needs no limit of all of them",
        "task/site.py",
        "if claim.epsilon is not None and request.ledger.spent().limit is None:",
        "if False:",
        LIMITS,
    ),
    Mutant(
        "a release is made anew, and booked anew, for every job",
        "deploy/single_shot.py",
        "name = request.ask.job if guarantee is None else _fingerprint(request, config)",
        "name = request.ask.job",
        LIMITS,
    ),
    Mutant(
        "an old release stands for a new table",
        "deploy/single_shot.py",
        "(synthfair.__version__, *known, rows)",
        "(synthfair.__version__, *known)",
        LIMITS,
    ),
    Mutant(
        "limits that exclude each other are not named",
        "deploy/check.py",
        "if limits.most_epsilon is not None and limits.without_epsilon:",
        "if False:",
        KIT,
    ),
    Mutant(
        "questions find out the number of rows",
        "task/limits.py",
        "claim.least_rows > (self.least_rows or 0)",
        "False",
        ROUNDS,
    ),
    Mutant(
        "a site may claim any number of rows",
        "deploy/train_job.py",
        "if self.most_rows is None and counts_by_rows(config):",
        "if False:",
        ROUNDS,
    ),
    Mutant(
        "uploads that were refused are sent again",
        "deploy/job_sums.py",
        "            saved.unlink()\n",
        "",
        SUMS,
    ),
    Mutant(
        "a task that is spent is not said to be",
        "deploy/job_sums.py",
        'first = code == "uploads" and role == 0',
        'first = code == "uploads"',
        SUMS,
    ),
]
