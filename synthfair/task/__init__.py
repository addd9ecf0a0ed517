"""A site is asked, and answers: tasks, a site's limits, and the server's questions."""
