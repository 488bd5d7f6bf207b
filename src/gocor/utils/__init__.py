"""Helpers that know nothing about matching: argument checks, files, timing, numerical precision."""
