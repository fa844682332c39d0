"""Batches of the trainer: demonstrations read from files, the cuts into optimizer batches, mini-batches and
micro-batches, their tensors, attention over packed sequences, and the last MLP, which runs only on needed tokens.
"""
