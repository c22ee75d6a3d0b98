"""Logins by OAUTHBEARER with service account tokens, which a real API server issues to pods."""

import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from tests.brokers import run_ottla_broker
from tests.clients import librdkafka as rd
from tests.clients.sample_messages import messages
from tests.kube.control_plane import ControlPlane
from tests.ports import free_port
from tests.waiting import eventually

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WITHIN_S = 30.0


def request_token(plane: ControlPlane, account: str, *audiences: str) -> str:
    """Requests a service account's token, as the kubelet does for a projected volume. Creates the
    account if it does not exist.
    """
    if plane.admin.get(f"{ACCOUNTS}/{account}") is None:
        plane.admin.request("POST", ACCOUNTS, {"metadata": {"name": account}})
    wanted = {"spec": {"audiences": list(audiences), "expirationSeconds": 600}}
    found = plane.admin.request("POST", f"{ACCOUNTS}/{account}/token", wanted)
    return str(found["status"]["token"])


def oauth_settings(token: str) -> dict[str, Any]:
    """Client properties of a login with the token, as `rd.produce` takes them."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 600),
    }


def test_service_account_logs_in_by_its_token(plane: ControlPlane, tmp_path: Path) -> None:
    eventually(lambda: plane.admin.get("/api/v1/namespaces/default"), within_s=WITHIN_S)
    mounted = tmp_path / "token"
    mounted.write_text(request_token(plane, "broker"))
    login = f"127.0.0.1:{free_port()}"
    with run_ottla_broker(start=False) as broker:
        broker.settings |= {
            "listeners": f"PLAINTEXT://{broker.bootstrap},LOGIN://{login}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.login.oauthbearer.sasl.jaas.config": (
                f'{MODULE} required ssl.truststore.location="{plane.authority.certificate}";'
            ),
            "sasl.oauthbearer.jwks.endpoint.url": f"{plane.url}/openid/v1/jwks",
            "sasl.oauthbearer.jwks.endpoint.token.file": str(mounted),
            "sasl.oauthbearer.expected.issuer": "https://kubernetes.default.svc",
            "sasl.oauthbearer.expected.audience": "kafka",
            "authorizer.class.name": "StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        broker.start()
        rd.create_topic(broker.bootstrap, "orders", 1)
        user, admin = "system:serviceaccount:default:producer", rd.admin_client(broker.bootstrap)
        rd.allow(admin, user, (ResourceType.TOPIC, "orders", AclOperation.WRITE))
        producer = oauth_settings(request_token(plane, "producer", "kafka"))
        assert rd.produce(login, "orders", messages(), **producer) == list(range(50))
        other = oauth_settings(request_token(plane, "other", "kafka"))
        with pytest.raises(ck.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            rd.produce(login, "orders", messages()[:1], **other)
        for_the_api_server = oauth_settings(request_token(plane, "producer"))
        with pytest.raises(ck.KafkaException, match="_MSG_TIMED_OUT"):
            rd.produce(login, "orders", messages()[:1], message_timeout_ms=3000, **for_the_api_server)
        eventually(lambda: "rejecting a token: Audience doesn't match" in broker.log_tail())
