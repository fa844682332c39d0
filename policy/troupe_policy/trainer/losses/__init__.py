"""Losses and their components: pure functions of tensors."""
