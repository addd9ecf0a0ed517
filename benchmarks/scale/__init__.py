"""How far client and server go: many releases, large tables."""
