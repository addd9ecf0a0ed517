"""Fair across unlike clients: surrogate releases next to central training and other methods."""
