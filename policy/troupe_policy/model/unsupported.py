"""The error for a model whose architecture an engine or a trainer cannot run."""


class UnsupportedModel(RuntimeError):
    """The model computes something that our code does not; the message names it."""
