"""Tables 1 and 2 of Rodríguez-Gálvez et al. (2021): fair and private rounds on Adult."""
