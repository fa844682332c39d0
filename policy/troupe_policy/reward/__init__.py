"""The reward process: runs a user's own reward function."""
