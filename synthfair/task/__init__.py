"""A site is asked, and answers: tasks, a site's limits and trace, and the server's questions."""
