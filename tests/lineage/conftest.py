"""Most environments lack the provider: there, these tests are not collected."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("openlineage") else ["test_*.py"]
