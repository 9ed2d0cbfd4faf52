"""Replays: what is asked, which offsets that selects, the chunks they are loaded in, and their run."""
