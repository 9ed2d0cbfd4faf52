"""What the CLI and pages show of a pipeline, computed once as values: frozen dataclasses with `to_json()`.

Nothing here prints. A value is made of what was read through the ports. Whoever shows it only formats its fields; `--json`
prints `to_json()`.
"""
