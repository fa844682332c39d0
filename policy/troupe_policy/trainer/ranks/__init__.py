"""One trainer over several processes."""
