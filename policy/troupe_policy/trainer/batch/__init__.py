"""Converts sequences into micro-batches of tensors."""
