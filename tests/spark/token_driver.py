"""A program of Spark's own, without Ottla's pipelines: it gets a delegation token by Spark's token
provider, and counts a topic's records in an executor that has only the token to log in with.

`python -m tests.spark.token_driver ADDRESS TOPIC USER PASSWORD FOLDER` prints one line of JSON,
then expires the token and counts again, which has to fail. The executor is a process of its own
(`local-cluster`). Spark itself requests tokens only where Hadoop has Kerberos; here they reach the
executor as they do there, in Hadoop's file of tokens.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.conf import SparkConf
from pyspark.context import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ottla_spark import jars

CLUSTER: Final = "spark.kafka.clusters.ottla."
TOKEN_FILE: Final = "HADOOP_TOKEN_FILE_LOCATION"
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1"  # as for pipelines on one machine
LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


def main(address: str, topic: str, user: str, password: str, folder: str) -> None:
    tokens = Path(folder) / "tokens"
    os.environ |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    conf = _spark_conf(address, tokens)
    gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
    user_login = {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{LOGIN_MODULE} required username="{user}" password="{password}";',
    }
    token = _obtain_token(gateway.jvm, conf, user_login, tokens)
    SparkContext._ensure_initialized(gateway=gateway)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    records = _count(spark, address, topic)
    executors: Any = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    print(json.dumps({"records": records, "token": bytes(token.getIdentifier()).decode(), "processes": len(executors)}))
    _expire(gateway.jvm, token, {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", **user_login})
    _count(spark, address, topic)


def _spark_conf(address: str, tokens: Path) -> SparkConf:
    path = os.pathsep.join(map(str, jars.ensure_jars()))
    return (
        SparkConf()
        .setMaster("local-cluster[1,1,1024]")
        .setAppName("tokens")
        .set("spark.driver.extraClassPath", path)
        .set("spark.executor.extraClassPath", path)
        .set("spark.driver.extraJavaOptions", SHORT_LIVED)
        .set("spark.executor.extraJavaOptions", SHORT_LIVED)
        .set("spark.task.maxFailures", "1")
        .set("spark.ui.enabled", "false")
        .set(f"spark.executorEnv.{TOKEN_FILE}", str(tokens))
        .set(f"{CLUSTER}auth.bootstrap.servers", address)
        .set(f"{CLUSTER}security.protocol", "SASL_PLAINTEXT")
        .set(f"{CLUSTER}sasl.token.mechanism", "SCRAM-SHA-512")
    )


def _obtain_token(jvm: Any, conf: SparkConf, user_login: dict[str, str], tokens: Path) -> Any:
    """Hadoop's Token. It is stored for executors, and kept for the driver."""
    with_login = jvm.org.apache.spark.SparkConf(False)
    for name, value in conf.getAll() + [(f"{CLUSTER}kafka.{name}", value) for name, value in user_login.items()]:
        with_login.set(name, value)
    provider = jvm.org.apache.spark.kafka010
    cluster = provider.KafkaTokenSparkConf.getClusterConfig(with_login, "ottla")
    token = provider.KafkaTokenUtil.obtainToken(with_login, cluster)._1()
    credentials = jvm.org.apache.hadoop.security.Credentials()
    credentials.addToken(token.getService(), token)
    file = jvm.org.apache.hadoop.fs.Path(str(tokens))
    credentials.writeTokenStorageFile(file, jvm.org.apache.hadoop.conf.Configuration())
    jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().addCredentials(credentials)
    return token


def _count(spark: SparkSession, address: str, topic: str) -> int:
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "fetchOffset.numRetries": "1"}
    return spark.read.format("kafka").options(**options).load().count()


def _expire(jvm: Any, token: Any, client: dict[str, str]) -> None:
    settings = jvm.java.util.HashMap()
    for name, value in client.items():
        settings.put(name, value)
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    hmac = base64.b64decode(bytes(token.getPassword()))
    options = jvm.org.apache.kafka.clients.admin.ExpireDelegationTokenOptions().expiryTimePeriodMs(-1)
    admin.expireDelegationToken(hmac, options).expiryTimestamp().get()
    admin.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
