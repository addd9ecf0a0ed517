"""How time and memory grow: rows, inputs, clients, releases."""
