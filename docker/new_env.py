"""Make `.env` for docker-compose.yml: `.env.example` with a random value for each empty setting.

    python3 docker/new_env.py

Standard library only. A `.env` that is there is never touched: its secrets belong to the volumes.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import sys
from pathlib import Path

BYTES = {"AIRFLOW_JWT_SECRET": 64}
"""Of random; Airflow signs by HMAC-SHA512, whose keys are as long as its hash. Else 32, as Fernet demands of its keys."""
EXAMPLE = Path(__file__).with_name(".env.example")
TARGET = Path(__file__).resolve().parents[1] / ".env"


def filled(example: str) -> str:
    """The example with a new random value for each empty setting, in the form that Fernet demands of its keys."""

    def value(found: re.Match[str]) -> str:
        return f"{found[0]}{base64.urlsafe_b64encode(secrets.token_bytes(BYTES.get(found[1], 32))).decode()}"

    return re.sub(r"(?m)^([A-Z_]+)=$", value, example)


def main() -> int:
    """Write `.env`, readable by its owner only."""
    try:
        target = os.open(TARGET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        sys.stderr.write(f"{TARGET} is there already; its secrets belong to the volumes, so it stays as it is\n")
        return 1
    with os.fdopen(target, "w", encoding="utf-8") as out:
        out.write(filled(EXAMPLE.read_text(encoding="utf-8")))
    sys.stderr.write(f"{TARGET} has new secrets; the login of Airflow is admin, with AIRFLOW_ADMIN_PASSWORD from it\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
