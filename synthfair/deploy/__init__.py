"""The same client and server between organisations, on NVIDIA FLARE, which only carries bytes."""
