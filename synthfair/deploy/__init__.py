"""The federation between organisations, which NVIDIA FLARE carries."""
