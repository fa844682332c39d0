"""Code that engine, trainer and renderer share (checkpoints, log-probabilities, tokenizers), and two commands:
init_model and entropies."""
