"""Code that the processes share: checkpoints, log-probabilities, tokenizers, new model directories."""
