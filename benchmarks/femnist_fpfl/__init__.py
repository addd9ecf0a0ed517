"""Unfair FEMNIST of Rodríguez-Gálvez et al. (2021): digits by writer, in three groups."""
