"""A site is asked, and answers: what a task is, a site's limits and book, and what carries them."""
