"""A trained model for other libraries."""
