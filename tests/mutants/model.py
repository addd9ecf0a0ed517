"""Bugs in the loss, its Hessian and the penalties."""

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "the covariance is not centred",
        "fairness/penalties.py",
        "return _compared(sums - shares * jnp.sum(sums, axis=-1, keepdims=True))",
        "return _compared(sums)",
        "test_penalties.py",
    ),
    Mutant(
        "equal opportunity compares rows with the negative label",
        "fairness/penalties.py",
        '"equal_opportunity": [y > 0],',
        '"equal_opportunity": [y < 0],',
        "test_penalties.py",
    ),
    Mutant(
        "the temperature is ignored",
        "fairness/penalties.py",
        "jax.nn.sigmoid(self.temperature * scores)",
        "jax.nn.sigmoid(scores)",
        "test_penalties.py",
    ),
    Mutant(
        "weights of rows are ignored by penalties",
        "fairness/penalties.py",
        "weights = weights * rows.weight",
        "weights = weights * jnp.ones_like(rows.weight)",
        "test_penalties.py",
    ),
    Mutant(
        "the Hessian lacks the ridge",
        "model.py",
        "return own(params, rows) + ridge * jnp.eye(len(flat), dtype=flat.dtype)",
        "return own(params, rows)",
        "test_model.py",
    ),
    Mutant(
        "the Hessian ignores weights of rows",
        "model.py",
        "weight = weight * rows.weight / jnp.maximum(jnp.sum(rows.weight), tiny)",
        "weight = weight / len(rows.y)",
        "test_model.py",
    ),
    Mutant(
        "the derivative of the logistic loss has the other sign",
        "model.py",
        "return logistic(margin), -_falling(margin) * change",
        "return logistic(margin), _falling(margin) * change",
        "test_model.py",
    ),
    Mutant(
        "a subclass with other scores takes the Hessian of LinearModel",
        "model.py",
        "if scores < hessian and cls.hessian is not None:",
        "if False:",
        "test_model.py",
    ),
]
