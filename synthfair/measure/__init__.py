"""Gaps between groups, measured without learning anyone's group: local differential privacy."""
