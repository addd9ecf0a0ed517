"""What five papers claim, next to what comes out here."""
