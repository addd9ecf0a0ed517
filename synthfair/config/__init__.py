"""Settings: one frozen, validated model for each stage, and the notions they share."""
