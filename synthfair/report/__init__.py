"""Results for people: tables on a terminal, figures, one HTML page."""
