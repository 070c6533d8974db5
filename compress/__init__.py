"""Gradient compression inside the collective."""
