"""Fairness: what is penalised (JAX), and what is reported (NumPy)."""
