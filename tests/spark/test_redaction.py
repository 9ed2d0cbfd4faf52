from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from tidegate.spark.settings import OPTION_IN_TEXT, REDACTION, with_ours


def replaced(spark: SparkSession, text: str, pattern: str) -> str:
    """As Java's regular expressions do it, which are what Spark redacts with."""
    row = spark.createDataFrame([(text, pattern)], "text STRING, pattern STRING")
    return str(row.select(F.regexp_replace("text", F.col("pattern"), F.lit("***"))).collect()[0][0])


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "kafka.ssl.keystore.key",
        "kafka.ssl.key.password",
        "kafka.SSL.TrustStore.Password",
        "kafka.sasl.oauthbearer.client.credentials.client.secret",
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_an_options_value_is_gone_whatever_is_in_it(spark: SparkSession, name: str) -> None:
    """Quotes, backslashes, many lines; and not a letter of what follows."""
    value = r"a \"hush\" b;\n\\" + "hush" * 5000
    other = 'options {\n  key: "kafka.max.poll.records"\n  value: "7"\n}\n'
    text = f'{other}options {{\n  key: "{name}"\n  value: "{value}"\n}}\n{other}'
    assert replaced(spark, text, OPTION_IN_TEXT) == f"{other}options {{\n  ***\n}}\n{other}"


def test_names_of_credentials_match_and_others_do_not(spark: SparkSession) -> None:
    """What Spark prints by name."""
    pattern = REDACTION["spark.redaction.regex"]
    for name in ("kafka.sasl.jaas.config", "kafka.ssl.keystore.key", "my.secret", "API_TOKEN", "fs.s3a.access.key"):
        assert "***" in replaced(spark, name, pattern)
    for name in ("kafka.bootstrap.servers", "kafka.client.id", "kafka.isolation.level", "spark.sql.catalog.lake.uri"):
        assert "***" not in replaced(spark, name, pattern)


def test_what_an_operator_redacts_stays_redacted(spark: SparkSession) -> None:
    """Ours is added once."""
    both = with_ours("(?i)iban", OPTION_IN_TEXT)
    assert replaced(spark, 'IBAN key: "a.password" value: "x" z', both) == "*** *** z"
    assert with_ours(both, OPTION_IN_TEXT) == both
    assert with_ours(None, OPTION_IN_TEXT) == OPTION_IN_TEXT
