"""PrivFairFL against what one would otherwise do."""
