"""The whole platform, driven as users drive it."""
