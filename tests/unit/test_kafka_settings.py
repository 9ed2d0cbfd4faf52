"""Laws of one connection feeding two clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.errors import ConfigError
from tidegate.kafka.settings import for_planning, for_spark

PLAIN = {"bootstrap.servers": "h:9092"}


def java(extra: dict[str, object]) -> dict[str, str]:
    return for_spark(extra, connection="c", client_id="me")


def test_a_plain_connection_needs_only_its_servers() -> None:
    """The client id tells who asks."""
    assert for_planning(PLAIN, connection="c", client_id="me") == {"client.id": "me", "bootstrap.servers": "h:9092"}
    assert java(PLAIN) == {"kafka.client.id": "me", "kafka.bootstrap.servers": "h:9092"}


@pytest.mark.parametrize("extra", [{}, {"bootstrap.servers": ""}])
def test_a_connection_without_servers_is_refused(extra: dict[str, object]) -> None:
    """With an example of what to write."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        for_planning(extra, connection="c", client_id="me")


def test_settings_that_would_move_on_by_themselves_are_left_out() -> None:
    """A plan says what is read: no group, no reset, no commit."""
    extra = {**PLAIN, "group.id": "g", "auto.offset.reset": "latest", "enable.auto.commit": True}
    assert for_planning(extra, connection="c", client_id="me").keys() == {"client.id", "bootstrap.servers"}


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")]
)
def test_sasl_becomes_a_jaas_line_with_quotes_escaped(mechanism: str, module: str) -> None:
    """One client has user and password, the other a login module."""
    settings = java(
        {**PLAIN, "security.protocol": "sasl_ssl", "sasl.mechanisms": mechanism, "sasl.username": "u", "sasl.password": 'p"\\x'}
    )
    assert settings["kafka.security.protocol"] == "SASL_SSL"
    assert settings["kafka.sasl.mechanism"] == mechanism
    assert settings["kafka.sasl.jaas.config"].endswith(f'{module} required username="u" password="p\\"\\\\x";')


def test_a_mechanism_without_translation_is_refused_by_name() -> None:
    """Not passed on half."""
    with pytest.raises(ConfigError, match="GSSAPI"):
        java({**PLAIN, "security.protocol": "SASL_PLAINTEXT"})


def test_pem_files_travel_by_content(tmp_path: Path) -> None:
    """The driver may run where the file is not."""
    ca, cert, key = (tmp_path / name for name in ("ca", "cert", "key"))
    for file in (ca, cert, key):
        file.write_text(f"PEM {file.name}")
    settings = java(
        {
            **PLAIN,
            "security.protocol": "SSL",
            "ssl.ca.location": str(ca),
            "ssl.certificate.location": str(cert),
            "ssl.key.location": str(key),
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert settings["kafka.ssl.truststore.certificates"] == "PEM ca"
    assert settings["kafka.ssl.keystore.certificate.chain"] == "PEM cert"
    assert settings["kafka.ssl.keystore.key"] == "PEM key"
    assert settings["kafka.ssl.truststore.type"] == settings["kafka.ssl.keystore.type"] == "PEM"
    assert settings["kafka.ssl.endpoint.identification.algorithm"] == ""
    with pytest.raises(ConfigError, match="cannot be read"):
        java({**PLAIN, "ssl.ca.location": str(tmp_path / "none")})


def test_an_unverified_connection_is_refused_rather_than_half_translated() -> None:
    """Java has no such switch."""
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location"):
        java({**PLAIN, "enable.ssl.certificate.verification": False})


def test_settings_of_one_client_only_are_left_out_of_the_other() -> None:
    """And renamed where both have them."""
    settings = java({"metadata.broker.list": "h:1", "socket.timeout.ms": 5000, "statistics.interval.ms": 5})
    assert settings == {"kafka.client.id": "me", "kafka.bootstrap.servers": "h:1", "kafka.request.timeout.ms": "5000"}
