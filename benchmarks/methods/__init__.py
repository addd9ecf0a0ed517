"""One upload or many rounds: all methods on the same splits."""
