"""Table 2 of Wu, Curtis and Robinson (2024): accuracy and SPD for three tasks, two sizes, rho_o."""
