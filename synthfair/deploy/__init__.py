"""Deployment between organisations: NVIDIA FLARE carries the same client and server."""
