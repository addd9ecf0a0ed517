"""The same client and server between real organisations, on NVIDIA FLARE, which only carries bytes."""
