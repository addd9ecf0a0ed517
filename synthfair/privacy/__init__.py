"""Formal privacy: mechanisms, accounting, the ledger, and the gate in front of a release."""
