"""Which settings of librdkafka the Java client has, and under which name.

`tidegate.kafka.settings` translates a connection by these tables.
"""

from __future__ import annotations

LEFT_OUT = (
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "auto.offset.reset",
    "enable.auto.commit",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "allow.auto.create.topics",
    "key.deserializer",
    "value.deserializer",
    "interceptor.classes",
)
"""Left out of both clients: groups, resets and commits, since a plan names all offsets, and what changes records on the way."""

CALLBACKS = ("error_cb", "throttle_cb", "stats_cb", "oauth_cb", "on_commit", "logger")
"""Functions that the Kafka provider calls in the Airflow process. Neither of these clients can call them."""

SAME_NAME = {
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "security.protocol",
    "isolation.level",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "check.crcs",
    "enable.metrics.push",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "socket.connection.setup.timeout.ms",
}
"""Settings that have one name in both clients."""

OTHER_NAME = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keystore.location": "ssl.keystore.location",
    "ssl.keystore.password": "ssl.keystore.password",
}
"""The Java client's name of a setting, by librdkafka's."""

PEM_FILES = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
"""The Java client's setting that holds the content of a file, by librdkafka's setting that names the file."""

TRANSLATED_APART = {
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.config",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "enable.ssl.certificate.verification",
}
"""Settings that are part of a login or of TLS, and are translated together (`tidegate.kafka.security`)."""

NO_EQUIVALENT = {
    "ssl.crl.location": "The Java client reads no revocation list; leave it out, or check revocation in the JVM's own settings",
    "ssl.engine.location": "Give certificate and key as PEM",
    "ssl.engine.id": "Give certificate and key as PEM",
    "ssl.ca.certificate.stores": "Give the CA as PEM",
    "https.ca.location": "Put the CA of the token endpoint into the JVM's trust store and the system's",
    "https.ca.pem": "Put the CA of the token endpoint into the JVM's trust store and the system's",
}
"""Security settings that only one of the clients would obey. They are refused; the text is the fix."""

SECRET_WORDS = ("password", "passphrase", "secret", "private.key", "key.pem", "keystore.key", "jaas", "sasl.oauthbearer.config")
"""Parts of the names of settings, of either client, whose values are never shown."""
