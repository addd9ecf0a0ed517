"""Accuracy and gap against epsilon of the two-phase method of Padala, Damle and Gujar (2021)."""
