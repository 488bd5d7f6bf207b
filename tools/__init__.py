"""Programs for maintainers: lowest versions and the bill of materials."""
