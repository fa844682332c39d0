"""The engine process: continuous batching of many sequences over one model."""
