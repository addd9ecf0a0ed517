"""The protocol between a server, which asks, and sites, which answer within their limits."""
