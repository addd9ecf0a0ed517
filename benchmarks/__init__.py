"""One script a published table or figure, plus speed and scale; public names only."""
