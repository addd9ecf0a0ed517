"""Algorithm 1 of Wu, Curtis and Robinson (2024) as people would write it with other packages."""
