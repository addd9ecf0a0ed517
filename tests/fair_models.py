"""A model that decides by group."""

from some_models import some_model

from synthfair.postprocess import GroupDecision

KEY = "ab" * 32


MIXED = {"notion": "equalized_odds", "alpha": 0.0, "n_bins": 10, "key": KEY,
         "steps": (((2, 0.25), (7, 1.0)), ((5, 0.5),))}  # fmt: skip


CERTAIN = MIXED | {"key": None, "steps": (((6, 1.0),), ())}


def fair_model(**changes):
    return some_model().model_copy(update={"decision": GroupDecision(**(MIXED | changes))})
