"""What an epsilon costs in accuracy and fairness, and why theta is found the way it is."""
