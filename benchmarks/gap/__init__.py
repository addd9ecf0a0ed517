"""Juarez and Korolova (2022), its tables and its figure, with corrected guarantees; and speed."""
