"""Error for a model whose architecture an engine or a trainer cannot run."""


class UnsupportedModel(RuntimeError):
    """The model uses a computation that our code does not implement; the message says what was found."""
