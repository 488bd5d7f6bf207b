"""Helpers that know nothing about matching: errors, argument checks, files, timing, numerical precision."""
