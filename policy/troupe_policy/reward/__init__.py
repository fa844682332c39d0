"""The reward process: a user's own reward function."""
