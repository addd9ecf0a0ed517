"""A table as people have it: marks for missing values, identifiers, codes, constants, three labels."""

import numpy as np
import pandas as pd


def hospital(n: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Stays in hospitals, 50 columns, after the Diabetes 130-US Hospitals table; made up."""
    rng = np.random.default_rng(seed)
    groups = ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other", "?"]
    rare_diagnoses = np.array([f"V{i}" if i % 5 == 0 else f"{i}.{i % 4}" for i in range(700)])
    rank = np.minimum(rng.pareto(0.5, (3, n)) * 3, 699).astype(int)
    age = rng.integers(10, size=n)
    chance = 1 / (1 + np.exp(1.0 - age / 4))
    again = rng.random(n) < chance
    columns = {
        "encounter_id": 12522 + 6 * rng.permutation(n),
        "patient_nbr": rng.integers(100, 100 + 10 * n, n),
        "race": rng.choice(groups, n, p=[0.7, 0.18, 0.04, 0.02, 0.03, 0.03]),
        "age": [f"[{10 * a}-{10 * a + 10})" for a in age],
        "weight": rng.choice(["?", "[50-75)", "[75-100)"], n, p=[0.9, 0.05, 0.05]),
        "admission_type_id": rng.integers(1, 9, n),
        "discharge_id": rng.integers(1, 27, n),
        "days": rng.integers(1, 15, n),
        "lab_tests": rng.integers(1, 110, n),
        "procedures": rng.integers(7, size=n),
        "cost": rng.lognormal(8, 1, n).round(2),
        **{f"diag_{i + 1}": rare_diagnoses[rank[i]] for i in range(3)},
        "glucose": rng.choice(["None", "Norm", ">200", ">300"], n),
        "examide": "No",
        **{f"drug_{i}": rng.choice(["No", "Steady", "Up", "Down"], n) for i in range(33)},
        "readmitted": np.where(again, rng.choice(["<30", ">30"], n), "NO"),
    }
    return pd.DataFrame(columns)
