"""Losses and what they are made of: pure functions of tensors."""
