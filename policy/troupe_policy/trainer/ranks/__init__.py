"""Runs one trainer as several processes (ranks)."""
