"""Pipeline files: their settings and rules, the JSON Schema and docs page made of them, and conflicts between files."""
