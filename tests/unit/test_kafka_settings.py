"""Laws of one connection feeding two clients."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import ConfigError
from tidegate.kafka.settings import is_secret, planning_client, redact, spark_client

PLAIN = {"bootstrap.servers": "h:9092"}


def java(extra: Mapping[str, object]) -> dict[str, str]:
    return spark_client(extra, connection="c", client_id="me").settings


def test_a_plain_connection_needs_only_its_servers() -> None:
    """The client id tells who asks."""
    assert planning_client(PLAIN, connection="c", client_id="me").settings == {"client.id": "me", "bootstrap.servers": "h:9092"}
    assert java(PLAIN) == {"kafka.client.id": "me", "kafka.bootstrap.servers": "h:9092"}


@pytest.mark.parametrize("extra", [{}, {"bootstrap.servers": ""}])
def test_a_connection_without_servers_is_refused(extra: dict[str, object]) -> None:
    """With an example of what to write."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        planning_client(extra, connection="c", client_id="me")


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize("servers", ["me:pa55@h:9092", "h:9092,SASL_SSL://me:pa55@h:9093", "me:pa55,x@h:9092", "pa55@h"])
def test_a_login_among_the_servers_is_refused_and_not_shown(name: str, servers: str) -> None:
    """No client takes one there, while errors, logs and pages name the brokers."""
    for client in (planning_client, spark_client):
        with pytest.raises(ConfigError, match="contains a login") as refusal:
            client({name: servers}, connection="c", client_id="me")
        assert "pa55" not in f"{refusal.value!r} {refusal.value} {refusal.value.fix}"


def test_a_login_in_a_url_is_not_shown() -> None:
    """Whatever setting it is in: a proxy, a token endpoint, a trust store's address."""
    assert redact("cannot reach https://me:pa55@idp/token?x=a@b", {}) == "cannot reach https://***@idp/token?x=a@b"


def test_settings_that_would_move_on_by_themselves_are_left_out() -> None:
    """A plan says what is read: no group, no reset, no commit."""
    extra = {**PLAIN, "group.id": "g", "auto.offset.reset": "latest", "enable.auto.commit": True}
    assert planning_client(extra, connection="c", client_id="me").settings.keys() == {"client.id", "bootstrap.servers"}


@pytest.mark.parametrize(
    ("mechanism", "module", "password", "escaped"),
    [
        ("PLAIN", "plain.PlainLoginModule", 'p"\\x', 'p\\"\\\\x'),
        ("SCRAM-SHA-512", "scram.ScramLoginModule", "a\nb\r", "a\\nb\\r"),
    ],
)
def test_sasl_becomes_a_jaas_line_with_quotes_and_line_ends_escaped(
    mechanism: str, module: str, password: str, escaped: str
) -> None:
    """One client has user and password, the other a login module. The end of a line cannot end a password."""
    login = {"security.protocol": "sasl_ssl", "sasl.mechanisms": mechanism, "sasl.username": "u", "sasl.password": password}
    settings = java({**PLAIN, **login})
    assert settings["kafka.security.protocol"] == "SASL_SSL"
    assert settings["kafka.sasl.mechanism"] == mechanism
    assert settings["kafka.sasl.jaas.config"].endswith(f'{module} required username="u" password="{escaped}";')


def test_pem_files_travel_by_content(tmp_path: Path) -> None:
    """The driver may run where the file is not."""
    ca, cert, key = (tmp_path / name for name in ("ca", "cert", "key"))
    for file in (ca, cert, key):
        file.write_text(f"-----BEGIN PRIVATE KEY----- {file.name}")
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
    assert settings["kafka.ssl.truststore.certificates"] == "-----BEGIN PRIVATE KEY----- ca"
    assert settings["kafka.ssl.keystore.certificate.chain"] == "-----BEGIN PRIVATE KEY----- cert"
    assert settings["kafka.ssl.keystore.key"] == "-----BEGIN PRIVATE KEY----- key"
    assert settings["kafka.ssl.truststore.type"] == settings["kafka.ssl.keystore.type"] == "PEM"
    assert settings["kafka.ssl.endpoint.identification.algorithm"] == ""
    with pytest.raises(ConfigError, match="cannot be read"):
        java({**PLAIN, "ssl.ca.location": str(tmp_path / "none")})
    ca.write_bytes(b"\x30\x82\xff")  # a DER file is a usual mistake
    with pytest.raises(ConfigError, match="it is not a text file"):
        java({**PLAIN, "ssl.ca.location": str(ca)})


def test_settings_of_one_client_only_are_left_out_of_the_other() -> None:
    """And renamed where both have them."""
    settings = java({"metadata.broker.list": "h:1", "socket.timeout.ms": 5000, "statistics.interval.ms": 5})
    assert settings == {"kafka.client.id": "me", "kafka.bootstrap.servers": "h:1", "kafka.request.timeout.ms": "5000"}


OIDC = {
    **PLAIN,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": 's"',
    "sasl.oauthbearer.token.endpoint.url": "https://login/token",
}
KEY, LOCKED = "-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----"
# the beginning of what `openssl pkcs8 -topk8` writes
MODERN = f"{LOCKED}\nMFwGCSqGSIb3DQEFDTBPMC4G\n-----END ENCRYPTED PRIVATE KEY-----\n"


def test_oidc_becomes_a_login_module_a_handler_and_a_token_endpoint() -> None:
    """Scope and extensions are optional."""
    settings = java(OIDC)
    assert settings["kafka.sasl.mechanism"] == "OAUTHBEARER"
    assert settings["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login/token"
    assert settings["kafka.sasl.login.callback.handler.class"].endswith("oauthbearer.OAuthBearerLoginCallbackHandler")
    assert settings["kafka.sasl.jaas.config"].endswith('OAuthBearerLoginModule required clientId="me" clientSecret="s\\"";')
    more = {**OIDC, "sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "cluster=lkc,pool=p=1"}
    assert java(more)["kafka.sasl.jaas.config"].endswith(' scope="kafka" extension_cluster="lkc" extension_pool="p=1";')


def test_an_unsecured_token_becomes_the_login_modules_claims() -> None:
    """For brokers on trial: principal, scope, life and extensions, under the names that the claims are given."""
    extra = {**PLAIN, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    extra = {**extra, "enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=me"}
    assert java(extra)["kafka.sasl.jaas.config"].endswith(
        'OAuthBearerLoginModule required unsecuredLoginPrincipalClaimName="sub" unsecuredLoginScopeClaimName="scope"'
        ' unsecuredLoginStringClaim_sub="me";'
    )
    assert "kafka.sasl.login.callback.handler.class" not in java(extra)
    more = "scope=a,b principal=me principalClaimName=who scopeClaimName=may lifeSeconds=60 extension_x=1"
    assert java({**extra, "sasl.oauthbearer.config": more})["kafka.sasl.jaas.config"].endswith(
        'unsecuredLoginPrincipalClaimName="who" unsecuredLoginScopeClaimName="may" unsecuredLoginListClaim_may=",a,b"'
        ' unsecuredLoginStringClaim_who="me" unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_x="1";'
    )


UNSECURED = {"sasl.oauthbearer.method": "default", "enable.sasl.oauthbearer.unsecure.jwt": True}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sasl.oauthbearer.method": "default"}, "method to oidc"),
        ({**UNSECURED}, "no principal.*principal=NAME"),
        ({**UNSECURED, "sasl.oauthbearer.config": "principal="}, "no principal"),
        ({**UNSECURED, "sasl.oauthbearer.config": "principal=a role=b"}, "an unknown setting"),
        ({**UNSECURED, "sasl.oauthbearer.config": "principal=a extension_x1=b"}, "an unknown setting"),
        ({"sasl.oauthbearer.client.secret": ""}, r"needs sasl\.oauthbearer\.client\.secret"),
        ({"sasl.oauthbearer.extensions": "a"}, "list of name=value"),
        ({"sasl.mechanism": "PLAIN"}, r"sasl\.username and sasl\.password"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"enable.ssl.certificate.verification": False}, r"ssl\.ca\.location"),
        ({"ssl.crl.location": "x"}, "revocation"),
        ({"https.ca.pem": "x"}, "token endpoint"),
        ({"ssl.key.pem": KEY}, "certificate .* is missing"),
        ({"ssl.certificate.pem": "c"}, "key .* is missing"),
        ({"ssl.certificate.pem": "c", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"}, "openssl pkcs8"),
        ({"ssl.certificate.pem": "c", "ssl.key.pem": LOCKED}, r"ssl\.key\.password"),
        ({"ssl.certificate.pem": "c", "ssl.key.pem": MODERN, "ssl.key.password": "p"}, "PBES2, .* Java 17"),
        ({"ssl.keystore.location": "k", "ssl.certificate.pem": "c", "ssl.key.pem": KEY}, "one of the two"),
        ({"ssl.key.location": KEY}, r"into ssl\.key\.pem"),
        ({"client.rack": ["a"]}, "is a list"),
        ({"client.rack": {"a": 1}}, "is an object"),
        ({"client.rack": b"a"}, "of another kind"),
    ],
)
def test_what_one_client_would_obey_and_the_other_not_is_refused(change: dict[str, object], named: str) -> None:
    """Never dropped, never half."""
    with pytest.raises(ConfigError, match=named):
        java({**OIDC, **change})


def test_keys_travel_inline_encrypted_or_in_a_store() -> None:
    """The password keeps its name; a key store stays where it is."""
    pems = {**PLAIN, "ssl.ca.pem": "ca", "ssl.certificate.pem": "c", "ssl.key.pem": f"{LOCKED}\nx", "ssl.key.password": "p"}
    settings = java(pems)
    assert settings["kafka.ssl.keystore.key"] == f"{LOCKED}\nx"
    assert settings["kafka.ssl.key.password"] == "p"
    assert settings["kafka.ssl.keystore.type"] == settings["kafka.ssl.truststore.type"] == "PEM"
    store = java({**PLAIN, "ssl.keystore.location": "k.p12", "ssl.keystore.password": "p"})
    assert store["kafka.ssl.keystore.type"] == "PKCS12"
    assert store["kafka.ssl.keystore.location"] == "k.p12"


def test_timeouts_and_idle_times_mean_the_same_in_both_clients() -> None:
    """Java's admin client refuses an API timeout below the request's; "never" is another number."""
    extra = {**PLAIN, "socket.timeout.ms": 60_000, "connections.max.idle.ms": 0}
    settings = java(extra)
    assert settings["kafka.default.api.timeout.ms"] == settings["kafka.request.timeout.ms"] == "60000"
    assert settings["kafka.connections.max.idle.ms"] == "-1"


def test_every_change_is_told_by_name() -> None:
    """What is left out, renamed or rewritten; nothing else."""
    extra = {
        **PLAIN,
        "group.id": "g",
        "error_cb": "my.module.fail",
        "client.rack": None,
        "statistics.interval.ms": 5,
        "socket.timeout.ms": 60_000,
        "connections.max.idle.ms": 0,
        "ssl.ca.location": "probe",
        "ssl.endpoint.identification.algorithm": "none",
    }
    planning = planning_client(extra, connection="c", client_id="me")
    assert [note.split(" ")[0] for note in planning.notes] == ["group.id", "error_cb", "client.rack"]
    spark = spark_client(extra, connection="c", client_id="me")
    assert {note.split(" ")[0].split("=")[0].rstrip(":") for note in spark.notes} == {
        *extra.keys() - PLAIN.keys(),
        "default.api.timeout.ms",
    }
    assert planning_client(PLAIN, connection="c", client_id="me").notes == ()
    assert spark_client(PLAIN, connection="c", client_id="me").notes == ()


SECRETS = st.text(st.characters(codec="utf-8"), min_size=8).map(lambda text: f"§{text}§")


@given(
    st.fixed_dictionaries(
        {
            "sasl.password": SECRETS,
            "sasl.oauthbearer.client.secret": SECRETS,
            "ssl.key.pem": SECRETS.map(lambda text: text + LOCKED),
            "ssl.key.password": SECRETS,
            "ssl.key.location": SECRETS.map(lambda text: text + KEY),
        }
    ),
    st.sampled_from(["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]),
    st.sets(st.sampled_from(["ssl.key.pem", "ssl.key.location", "ssl.key.password", "ssl.certificate.pem", "sasl.username"])),
)
def test_no_secret_is_told(secrets: dict[str, str], mechanism: str, left_out: set[str]) -> None:
    """Not by a note, not by a repr, not by an error."""
    extra = {**OIDC, "sasl.mechanism": mechanism, "sasl.username": "u", "ssl.certificate.pem": "c", **secrets}
    extra = {name: value for name, value in extra.items() if name not in left_out}
    told = []
    for client in (planning_client, spark_client):
        try:
            made = client(extra, connection="c", client_id="me")
        except ConfigError as error:
            told += [str(error), repr(error), str(error.to_dict()), str(error.__cause__), str(error.__context__)]
        else:
            told += [repr(made), str(made), *made.notes]
    assert not [text for text in told for value in secrets.values() if value in text or repr(value)[1:-1] in text]


def test_secrets_are_told_apart_by_name_and_taken_out_of_texts() -> None:
    """Of either client's settings."""
    assert is_secret("kafka.sasl.jaas.config")
    assert is_secret("ssl.keystore.key")
    assert not is_secret("ssl.key.location")
    settings = {"sasl.password": "abc", "ssl.key.password": "abcdef", "sasl.username": "u", "ssl.keystore.password": ""}
    assert redact("u: abcdef, abc", settings) == "u: ***, ***"
