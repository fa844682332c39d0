"""The renderer process: text to token ids and back. It runs without torch."""
