"""The protocol of a server's questions to sites."""
