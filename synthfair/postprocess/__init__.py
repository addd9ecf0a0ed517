"""Fairness after or before training, from counts over all clients: thresholds and weights."""
