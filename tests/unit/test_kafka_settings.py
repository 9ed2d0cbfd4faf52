"""Laws of one connection feeding two clients."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.model.errors import ConfigError, TidegateError, masked
from tidegate.kafka.settings import is_secret, planning_client, redact, spark_client

PLAIN = {"bootstrap.servers": "h:9092"}
OIDC = {
    **PLAIN,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": 's"',
    "sasl.oauthbearer.token.endpoint.url": "https://login/token",
}
EXAMPLES = re.findall(r"```json\n(.*?)```", (Path(__file__).parents[2] / "docs/connections.md").read_text(), re.DOTALL)
KEY, LOCKED = "-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----"
# the beginning of what `openssl pkcs8 -topk8` writes
MODERN = f"{LOCKED}\nMFwGCSqGSIb3DQEFDTBPMC4G\n-----END ENCRYPTED PRIVATE KEY-----\n"
UNSECURED = {**OIDC, "sasl.oauthbearer.method": "default", "enable.sasl.oauthbearer.unsecure.jwt": True}


def java(extra: Mapping[str, object]) -> dict[str, str]:
    return spark_client(extra, connection="c", client_id="me").settings


LOGIN = "kafka.sasl.jaas.config"
SASL = {"security.protocol": "sasl_ssl", "sasl.username": "u"}


@pytest.mark.parametrize(
    ("extra", "settings"),
    [
        ({}, {"kafka.client.id": "me", "kafka.bootstrap.servers": "h:9092"}),
        ({"statistics.interval.ms": 5}, {"kafka.client.id": "me", "kafka.bootstrap.servers": "h:9092"}),
        ({"socket.timeout.ms": 5000}, {"kafka.request.timeout.ms": "5000", "kafka.default.api.timeout.ms": None}),
        ({"socket.timeout.ms": 60_000}, {"kafka.request.timeout.ms": "60000", "kafka.default.api.timeout.ms": "60000"}),
        ({"connections.max.idle.ms": 0}, {"kafka.connections.max.idle.ms": "-1"}),
        (
            {**SASL, "sasl.mechanisms": "PLAIN", "sasl.password": 'p"\\x'},
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
            | {LOGIN: 'plain.PlainLoginModule required username="u" password="p\\"\\\\x";'},
        ),
        (
            {**SASL, "sasl.mechanisms": "SCRAM-SHA-512", "sasl.password": "a\nb\r"},
            {LOGIN: 'scram.ScramLoginModule required username="u" password="a\\nb\\r";'},
        ),
        (
            {"ssl.ca.pem": "ca", "ssl.certificate.pem": "c", "ssl.key.pem": f"{LOCKED}\nx", "ssl.key.password": "p"},
            {"kafka.ssl.keystore.key": f"{LOCKED}\nx", "kafka.ssl.key.password": "p"}
            | {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.truststore.type": "PEM"},
        ),
        (
            {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "p"},
            {"kafka.ssl.keystore.type": "PKCS12", "kafka.ssl.keystore.location": "k.p12"},
        ),
        (OIDC, {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.oauthbearer.token.endpoint.url": "https://login/token"}),
        (OIDC, {"kafka.sasl.login.callback.handler.class": "oauthbearer.OAuthBearerLoginCallbackHandler"}),
        (OIDC, {LOGIN: 'OAuthBearerLoginModule required clientId="me" clientSecret="s\\"";'}),
        (
            {**OIDC, "sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "cluster=lkc,pool=p=1"},
            {LOGIN: ' scope="kafka" extension_cluster="lkc" extension_pool="p=1";'},
        ),
        (
            {**UNSECURED, "sasl.oauthbearer.config": "principal=me"},
            {
                LOGIN: 'OAuthBearerLoginModule required unsecuredLoginPrincipalClaimName="sub" '
                'unsecuredLoginScopeClaimName="scope" unsecuredLoginStringClaim_sub="me";',
                "kafka.sasl.login.callback.handler.class": None,
            },
        ),
        (
            {**UNSECURED, "sasl.oauthbearer.config": "scope=a,b principal=me principalClaimName=who scopeClaimName=may"},
            {LOGIN: 'ClaimName="who" unsecuredLoginScopeClaimName="may" unsecuredLoginListClaim_may=",a,b" '
             'unsecuredLoginStringClaim_who="me";'},
        ),
        (
            {**UNSECURED, "sasl.oauthbearer.config": "principal=me lifeSeconds=60 extension_x=1"},
            {LOGIN: 'StringClaim_sub="me" unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_x="1";'},
        ),
    ],
)  # fmt: skip
def test_a_connection_means_the_same_to_javas_client(extra: dict[str, object], settings: dict[str, str | None]) -> None:
    """Renamed where both have a setting, left out where one has not; quotes and line ends cannot end a password."""
    made = java({**PLAIN, **extra})
    assert {name: (made.get(name) or "")[-len(value or "") :] or None for name, value in settings.items()} == settings
    assert extra or planning_client(PLAIN, connection="c", client_id="me").settings == {"client.id": "me", **PLAIN}


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize("servers", ["me:pa55@h:9092", "h:9092,SASL_SSL://me:pa55@h:9093", "me:pa55,x@h:9092", "pa55@h", ""])
def test_servers_are_stated_and_a_login_among_them_is_refused_and_not_shown(name: str, servers: str) -> None:
    """No client takes one there, while errors, logs and pages name the brokers."""
    for client in (planning_client, spark_client):
        for extra in ({name: servers}, *([] if servers else [{}])):
            with pytest.raises(ConfigError, match="contains a login" if servers else r"bootstrap\.servers") as refusal:
                client(extra, connection="c", client_id="me")
            assert "pa55" not in f"{refusal.value!r} {refusal.value} {refusal.value.fix}"


def test_pem_files_travel_by_content(tmp_path: Path) -> None:
    """The driver may run where the file is not."""
    files = {name: tmp_path / name for name in ("ca", "certificate", "key")}
    for file in files.values():
        file.write_text(f"-----BEGIN PRIVATE KEY----- {file.name}")
    stated = {f"ssl.{name}.location": str(file) for name, file in files.items()}
    settings = java({**PLAIN, "security.protocol": "SSL", **stated, "ssl.endpoint.identification.algorithm": "none"})
    assert settings["kafka.ssl.truststore.certificates"] == "-----BEGIN PRIVATE KEY----- ca"
    assert settings["kafka.ssl.keystore.certificate.chain"] == "-----BEGIN PRIVATE KEY----- certificate"
    assert settings["kafka.ssl.keystore.key"] == "-----BEGIN PRIVATE KEY----- key"
    assert settings["kafka.ssl.truststore.type"] == settings["kafka.ssl.keystore.type"] == "PEM"
    assert settings["kafka.ssl.endpoint.identification.algorithm"] == ""
    files["ca"].write_bytes(b"\x30\x82\xff")  # a DER file is a usual mistake
    for file, why in ((tmp_path / "none", "cannot be read"), (files["ca"], "it is not a text file")):
        with pytest.raises(ConfigError, match=why):
            java({**PLAIN, "ssl.ca.location": str(file)})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sasl.oauthbearer.method": "default"}, "method to oidc"),
        ({**UNSECURED, "sasl.oauthbearer.config": "principal="}, "no principal.*principal=NAME"),
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
    with pytest.raises(ConfigError, match=named):
        java({**OIDC, **change})


def test_every_change_is_told_by_name() -> None:
    """What is left out, renamed or rewritten; nothing else. No plan has a group, a reset or a commit of its own."""
    of_one: dict[str, object] = {"group.id": "g", "auto.offset.reset": "latest", "enable.auto.commit": True}
    of_one |= {"error_cb": "my.module.fail", "client.rack": None}
    of_both = {
        "statistics.interval.ms": 5,
        "socket.timeout.ms": 60_000,
        "connections.max.idle.ms": 0,
        "ssl.ca.location": "probe",
    }
    extra = {**PLAIN, **of_one, **of_both, "ssl.endpoint.identification.algorithm": "none"}
    planning, spark = (client(extra, connection="c", client_id="me") for client in (planning_client, spark_client))
    assert [note.split(" ")[0] for note in planning.notes] == [*of_one]
    assert planning.settings.keys() == {"client.id", *extra.keys() - of_one.keys()}
    told = {note.split(" ")[0].split("=")[0].rstrip(":") for note in spark.notes}
    assert told == {*extra.keys() - PLAIN.keys(), "default.api.timeout.ms"}
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
    names = ("kafka.sasl.jaas.config", "ssl.keystore.key", "ssl.key.location")
    assert [is_secret(name) for name in names] == [True, True, False]
    settings = {"sasl.password": "abc", "ssl.key.password": "abcdef", "sasl.username": "u", "ssl.keystore.password": ""}
    assert redact("u: abcdef, abc", settings) == "u: ***, ***"


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="HID\\"DEN";'
EXTRA = json.dumps({"bootstrap.servers": "here:9092", "sasl.password": "HIDDEN", "sasl.jaas.config": JAAS, "acks": "all"})


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cannot reach https://me:HIDDEN@idp/token?x=a@b", "cannot reach https://***@idp/token?x=a@b"),
        ("postgresql+psycopg2://lake:HID@DEN@db:5432/lake", "postgresql+psycopg2://***@db:5432/lake"),
        ("postgresql+psycopg2://lake:HID/DEN@db:5432/lake", "postgresql+psycopg2://***@db:5432/lake"),
        ("cannot reach https://here:8443/token?x=a@b", "https://here:8443/token?x=a@b"),
        ("GET https://idp/a?client_secret=HIDDEN&grant=x", "https://idp/a?client_secret=***&grant=x"),
        ("https://lake/f?X-Amz-Credential=HIDDEN&X-Amz-Signature=HIDDEN", "X-Amz-Credential=***&X-Amz-Signature=***"),
        (f"sasl.jaas.config={JAAS}", 'username="ann" password="***"'),
        (EXTRA, '"acks": "all"}'),
        (json.dumps({"conn_type": "kafka", "extra": EXTRA}), "here:9092"),
        (repr({"sasl.password": "HIDDEN", "acks": 1}), "{'sasl.password': '***', 'acks': 1}"),
        ("s3.secret-access-key=HIDDEN s3.region=eu", "s3.secret-access-key=*** s3.region=eu"),
        ('Invalid value "HIDDEN" for configuration property "ssl.key.password"', 'property "ssl.key.password"'),
        ("sasl_ssl://here:9093/bootstrap: ssl.key.password = HIDDEN is wrong", "ssl.key.password = *** is wrong"),
        ('{"password": 8210}', '{"password": ***'),
        ('expected a name without "token": Airflow masks it', 'without "token": Airflow masks it'),
        (
            "Write HOST:PORT alone, and the login into sasl.username and sasl.password",
            "the login into sasl.username and sasl.password",
        ),
    ],
)
def test_an_error_never_holds_a_login(text: str, left: str) -> None:
    """Whatever puts it there, and wherever the error goes: all ways out show the message, the fix, or the fields."""
    secret = {"sasl.password": "HIDDEN"} if text.startswith("Invalid") else {}
    error = ConfigError(redact(text, secret), fix=f"See {redact(text, secret)}", where=redact(text, secret))
    for shown in (str(error), repr(error), json.dumps(error.to_dict()), str(TidegateError.from_dict(error.to_dict()))):
        assert "HID" not in shown
        assert "DEN" not in shown
    assert left in error.message
    assert masked(error.message) == error.message


@pytest.mark.parametrize("extra", EXAMPLES)
def test_what_the_docs_say_of_connections_is_taken_by_both_clients(extra: str, tmp_path: Path) -> None:
    """Each setting that secures a connection reaches Spark's client."""
    for name, text in (("ca.pem", "ca"), ("tidegate.pem", "c"), ("tidegate.key", KEY)):
        (tmp_path / name).write_text(text)
    settings = java(json.loads(extra.replace("/etc/kafka", str(tmp_path))))
    assert settings["kafka.security.protocol"] in ("SSL", "SASL_SSL")
    assert "kafka.ssl.keystore.key" in settings or LOGIN in settings


def test_the_docs_name_the_jars_of_ivy() -> None:
    """In the same versions."""
    root = Path(__file__).parents[2]
    told = re.findall(r"^(org\.apache\S+):(\S+):(\S+)$", (root / "docs/connections.md").read_text(), re.MULTILINE)
    ivy = re.findall(r'org="(\S+)" name="(\S+)" rev="(\S+)" conf="spark', (root / "ivy.xml").read_text())
    assert len(told) == 2
    assert {*told} <= {*ivy}
