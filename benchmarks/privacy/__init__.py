"""Accuracy and SPD of private releases against epsilon."""
