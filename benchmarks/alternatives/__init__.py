"""What people would use instead, and how long it takes."""
