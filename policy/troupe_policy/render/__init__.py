"""The renderer process: text to token ids and back. Runs without torch."""
