"""The source and the sink on a listener of Apache Kafka with TLS and SASL, by the options of Spark's connector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.kafka_peer import missing_peers
from support.clients.secured_kafka import KEY_PASSWORD, PASSWORD, PROTOCOLS, SecuredKafka
from support.fixtures.certificates import missing_openssl
from tidelog.spark.cluster import RealCluster
from tidelog.spark.options import source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULES = "org.apache.kafka.common.security"
MODULE = f"{MODULES}.plain.PlainLoginModule"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[SecuredKafka]:
    if (reason := missing_peers() or missing_openssl()) is not None:
        pytest.skip(reason)
    secured = SecuredKafka(tmp_path)
    try:
        secured.peer.start()
        yield secured
    finally:
        secured.peer.close()


@pytest.mark.timeout(240)
def test_tls_and_sasl(spark: SparkSession, kafka: SecuredKafka, tmp_path: Path) -> None:
    def options(password: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": kafka.bootstrap("SASL_SSL"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(kafka.authority.certificate),
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{MODULE} required username="alice" password="{password}";',
        }

    rows = spark.range(10).selectExpr("cast(id as string) as value")
    rows.write.format("tidelog").options(**options(PASSWORD)).option("topic", "written").mode("append").save()
    stream = spark.readStream.format("tidelog").options(**options(PASSWORD)).option("subscribePattern", r"wr\p{Alpha}*")
    copy = (
        stream.option("startingOffsets", "earliest")
        .option("includeLeaderEpoch", "true")
        .load()
        .writeStream.format("tidelog")
        .options(**options(PASSWORD), topic="copied", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    copy.awaitTermination()
    found = spark.read.format("tidelog").options(**options(PASSWORD), subscribe="copied").load()
    assert sorted(int(row.value) for row in found.collect()) == list(range(10))
    with pytest.raises(Exception, match="SASL PLAIN failed, as user 'alice'") as error:
        spark.read.format("tidelog").options(**options("not-this-one"), subscribe="copied").load().count()
    assert "not-this-one" not in str(error.value)

    # The other ways, as a planner goes them.
    certificate = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(kafka.client.both),
        "ssl.key.password": KEY_PASSWORD,
    }
    token = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="a";',
    }
    for listener, more in (("MTLS", certificate), ("SASL_SSL", token)):
        given = {
            "bootstrap.servers": kafka.bootstrap(listener),
            "security.protocol": PROTOCOLS[listener],
            "ssl.truststore.certificates": kafka.authority.certificate.read_text(encoding="utf-8"),
            **more,
        }
        parsed = source_options(
            {"subscribe": "copied", **{f"kafka.{key}": given[key] for key in given}}, streaming=True
        )
        with closing(RealCluster(parsed)) as cluster:
            assert {str(key): now.end_offset for key, now in cluster.facts().partitions.items()} == {"copied-0": 10}
