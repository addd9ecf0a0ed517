"""Bugs in the estimators of scikit-learn's idiom."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "coefficients are those of scaled inputs",
        "sklearn/classifiers.py",
        "np.array([[coefficients[name] for name in self.encoded_names_]])",
        "np.array([self.model_.theta[: len(self.encoded_names_)]])",
        "test_sklearn.py",
    ),
    Mutant(
        "the intercept forgets the lower bounds",
        "sklearn/classifiers.py",
        "np.array([coefficients[INTERCEPT]])",
        "np.array([self.model_.theta[-1]])",
        "test_sklearn.py",
    ),
    Mutant(
        "the pool is trained with the group as an input",
        "sklearn/classifiers.py",
        "pool.rows._replace(a=self._codebook.model.blind(pool.rows.a))",
        "pool.rows",
        "test_sklearn.py",
    ),
    Mutant(
        "rows are distilled for a model that reads the group",
        "sklearn/distiller.py",
        "config, model=codebook.model)",
        "config)",
        "test_sklearn.py",
    ),
    Mutant(
        "classes are swapped",
        "sklearn/classifiers.py",
        "self.decision_function(X) > 0",
        "self.decision_function(X) < 0",
        "test_sklearn.py",
    ),
    Mutant(
        "the notion that is asked for is not used",
        "sklearn/distiller.py",
        "    given = {name: getattr(estimator, name) for name in names}",
        "    given = {name: getattr(estimator, name) for name in names}"
        " | {'notion': 'statistical_parity'}",
        "test_sklearn.py",
    ),
    Mutant(
        "each client is given all rows",
        "sklearn/classifiers.py",
        "part[owner == value]",
        "part[owner == owner]",
        "test_sklearn.py",
    ),
    Mutant(
        "learned bounds pass for public",
        "sklearn/codebook.py",
        "if codebook.learned:",
        "if not codebook.learned:",
        "test_sklearn.py",
    ),
    Mutant(
        "synthetic rows stay scaled",
        "sklearn/distiller.py",
        "x = offset + made.x * width",
        "x = made.x",
        "test_sklearn.py",
    ),
    Mutant(
        "weights are of the features alone",
        "sklearn/distiller.py",
        "n = len(offset) + len(self.groups_)",
        "n = len(offset)",
        "test_sklearn.py",
    ),
    Mutant(
        "rows without weight set the bounds",
        "sklearn/codebook.py",
        "counted = weight > 0",
        "counted = weight >= 0",
        "test_sklearn.py",
    ),
    Mutant(
        "a gap that is not met goes without a word",
        "sklearn/classifiers.py",
        "self.gap_ > fairness.max_gap:",
        "self.gap_ < 0:",
        "test_sklearn.py",
    ),
    Mutant(
        "clients without a name are dropped",
        "sklearn/codebook.py",
        "if (missing := pd.isna(found)).any():",
        "if (missing := pd.isna(found)).all():",
        "test_sklearn.py",
    ),
    Mutant(
        "a column of the user's is taken for y",
        "sklearn/codebook.py",
        '{"s", LABEL, GROUP} & set(table.columns)',
        '{"s", LABEL} & set(table.columns)',
        "test_sklearn.py",
    ),
    Mutant(
        "clients are called by their number",
        "sklearn/classifiers.py",
        "distill_clients(parts, codebook.schema",
        "distill_clients([*parts.values()], codebook.schema",
        "test_sklearn.py",
    ),
    Mutant(
        "a gap that releases miss is silent",
        "sklearn/classifiers.py",
        "if fairness.max_gap is not None and self.gap_ > fairness.max_gap:",
        "if point and fairness.max_gap and point.gap > fairness.max_gap:",
        "test_sklearn.py",
    ),
]
