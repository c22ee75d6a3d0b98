"""Settings of security: TLS and SASL of listeners and between brokers, and authorization."""

from ottla_broker.config.security_types import (
    authorizer_name,
    jwks_url,
    login_module,
    mechanisms,
    principal_mapping_rules,
    principals,
    restricted_super_users,
)
from ottla_broker.config.setting import BROKER_SETTINGS, Section, UpdateMode
from ottla_broker.config.value_types import boolean, fixed, integer, list_of, long, one_of, secret, string
from ottla_broker.wire.client_security import MECHANISMS
from ottla_broker.wire.listener_tls import CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED, TLS_VERSIONS

# fmt: off
_tls = Section("TLS of listeners", BROKER_SETTINGS)  # each also as `listener.name.NAME.ssl.…`, NAME in lower case
_STORE = "Java keystores cannot be read; provide keys and certificates as PEM (KIP-651)"
_DIFFERS = "PEM is the only format that Ottla reads"

_tls.row("ssl.keystore.type", fixed(string(), "PEM", _STORE), "PEM", "Format of the keystore.", differs=_DIFFERS)
SSL_KEYSTORE_LOCATION = _tls.row("ssl.keystore.location", string("a file"), None,
    "File with the broker's private key and certificate chain. It is read again when it changes, and so are all files "
    "of certificates: new connections use what is new, without a restart. Alternative: "
    "`ssl.keystore.certificate.chain` and `ssl.keystore.key`.")
SSL_KEYSTORE_CERTIFICATE_CHAIN = _tls.row(
    "ssl.keystore.certificate.chain", secret("certificates in PEM"), None,
    "The broker's certificate, followed by its intermediate certificates.", is_sensitive=True)
SSL_KEYSTORE_KEY = _tls.row("ssl.keystore.key", secret("a private key in PEM"), None,
    "Private key of the certificate.", is_sensitive=True)
SSL_KEY_PASSWORD = _tls.row("ssl.key.password", secret(), None,
    "Password of an encrypted private key.", is_sensitive=True)
_tls.row("ssl.truststore.type", fixed(string(), "PEM", _STORE), "PEM", "Format of the truststore.", differs=_DIFFERS)
SSL_TRUSTSTORE_LOCATION = _tls.row("ssl.truststore.location", string("a file"), None,
    "File with the certificate authorities that sign clients' certificates. Alternative: "
    "`ssl.truststore.certificates`.")
SSL_TRUSTSTORE_CERTIFICATES = _tls.row("ssl.truststore.certificates", secret("certificates in PEM"), None,
    "Certificate authorities that sign clients' certificates.", is_sensitive=True)
SSL_ALLOW_DN_CHANGES = _tls.row("ssl.allow.dn.changes", boolean(), False,
    "Whether a certificate that `listener.name.NAME.ssl.…` sets while the broker runs may have another subject than "
    "the present one. The subject is the broker's principal, if brokers log in by certificates. A file that is "
    "replaced in its place is not compared.")
SSL_ALLOW_SAN_CHANGES = _tls.row("ssl.allow.san.changes", boolean(), False,
    "Whether a certificate that `listener.name.NAME.ssl.…` sets while the broker runs may lack names that the present "
    "one has, by which clients connect.")
SSL_CLIENT_AUTH = _tls.row("ssl.client.auth",
    one_of(CLIENT_AUTH_NONE, CLIENT_AUTH_REQUESTED, CLIENT_AUTH_REQUIRED, any_case=True), CLIENT_AUTH_NONE,
    "Whether clients present certificates. `required`: connections without one are rejected. `requested`: they are "
    "User:ANONYMOUS. The principal is derived from the certificate's subject by `ssl.principal.mapping.rules`.")
SSL_PRINCIPAL_MAPPING_RULES = _tls.row("ssl.principal.mapping.rules", principal_mapping_rules(), "DEFAULT",
    "Rules that derive the name of a client's principal from its certificate's subject, such as CN=alice,O=example. "
    "The first rule whose pattern matches the whole subject applies; `L` and `U` make the name lower or upper case. "
    "DEFAULT is the subject itself. A client that no rule matches is disconnected.")
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = _tls.row(
    "ssl.endpoint.identification.algorithm", one_of("https", "", any_case=True), "https",
    "Whether a broker checks that the certificate of another broker names the host that it connects to. Empty: it does "
    "not.")
SSL_INTER_BROKER_OPTIONAL = _tls.row("ssl.inter.broker.optional", boolean(), False,
    "Whether brokers do without TLS where another broker's inter-broker listener has none, and serve clients of their "
    "own inter-broker listener that do not use it. Set it to true only while the brokers of a running cluster are "
    "given TLS, one restart after the other.", is_ottla_only=True)
SSL_ENABLED_PROTOCOLS = _tls.row("ssl.enabled.protocols", list_of(*TLS_VERSIONS), "TLSv1.2,TLSv1.3",
    "TLS versions that clients may use.")

_sasl = Section("SASL of listeners", BROKER_SETTINGS)  # each also as `listener.name.NAME.…`, NAME in lower case

SASL_ENABLED_MECHANISMS = _sasl.row("sasl.enabled.mechanisms", mechanisms(), "",
    "Mechanisms by which clients may authenticate on listeners with SASL.", UpdateMode.PER_BROKER,
    differs="Kafka's default is GSSAPI, which is not implemented")
SASL_JAAS_CONFIG = _sasl.row("sasl.jaas.config", login_module(), None,
    "Login module of a mechanism, as `listener.name.NAME.MECHANISM.sasl.jaas.config` with both names in lower case. "
    "For PLAIN it is Kafka's PlainLoginModule, whose `user_NAME=\"PASSWORD\"` options are the users; those of SCRAM "
    "are in the metadata log. `username` and `password` are the login of this broker at others. With SCRAM, "
    "`user_NAME` options of the inter-broker listener are users that log in there without a credential in the metadata "
    "log.", UpdateMode.PER_BROKER,
    is_sensitive=True)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = _sasl.row(
    "sasl.mechanism.inter.broker.protocol", one_of(*MECHANISMS), None,
    "Mechanism by which brokers log in to each other, if the inter-broker listener has SASL. Name and password are "
    "those of the mechanism's `sasl.jaas.config`. With SCRAM this login is accepted on the inter-broker listener "
    "without a credential in the metadata log, which no broker can read before it has logged in to another.",
    differs="Kafka's default is GSSAPI, which is not implemented")
SASL_INTER_BROKER_OPTIONAL = _sasl.row("sasl.inter.broker.optional", boolean(), False,
    "Whether brokers do without a login where another broker's inter-broker listener has none, and serve clients of "
    "their own that do not log in, as User:ANONYMOUS. Set it to true only while the brokers of a running cluster "
    "are given a login, one restart after the other.", is_ottla_only=True)
SASL_INTER_BROKER_LOGIN_VERSION = _sasl.row("sasl.inter.broker.login.version", string(), "",
    "Any text that names the login modules that are in use, for those who change them while brokers run: "
    "`${directory:PATH:FILE}` of a file beside that of a login module. A broker reads it again before the login "
    "modules, so DescribeConfigs shows a version only when the broker has its login modules.", is_ottla_only=True)
SASL_SERVER_MAX_RECEIVE_SIZE = _sasl.row("sasl.server.max.receive.size", integer(at_least=1), 524288,
    "Maximum size in bytes of a request of a client that has not authenticated yet.")
CONNECTIONS_MAX_REAUTH_MS = _sasl.row("connections.max.reauth.ms", long(), 0,
    "Lifetime of a session in milliseconds. The broker closes the connection of a client that does not authenticate "
    "again within it (KIP-368). Also as `listener.name.NAME.MECHANISM.connections.max.reauth.ms`. 0 or less: sessions "
    "do not end.")
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = _sasl.row(
    "connection.failed.authentication.delay.ms", integer(at_least=0), 100,
    "Time in milliseconds by which the response to a failed login is delayed.")

_oauth = Section("OAuth tokens", BROKER_SETTINGS)  # each also as `listener.name.NAME.oauthbearer.…`

SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = _oauth.row("sasl.oauthbearer.jwks.endpoint.url", jwks_url(), None,
    "URL of the keys that sign tokens (a JSON Web Key Set). Required for OAUTHBEARER: tokens without a signature are "
    "never accepted. For https the truststore is the `ssl.truststore.location` of the mechanism's login module, or "
    "the system's.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_TOKEN_FILE = _oauth.row(
    "sasl.oauthbearer.jwks.endpoint.token.file", string("a file"), None,
    "File with a bearer token that is sent to the endpoint of the keys, read for each request. The API server of "
    "Kubernetes wants the token of the pod's service account.", is_ottla_only=True)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = _oauth.row(
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", long(at_least=1), 3600000,
    "Time in milliseconds after which the keys are fetched again. They are fetched at once for a token with an "
    "unknown key.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = _oauth.row(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", long(at_least=1), 100,
    "First pause in milliseconds after a failed fetch of the keys; it doubles with each further failure. The keys "
    "stay as they were, and fetching never ends.")
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = _oauth.row(
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", long(at_least=1), 10000,
    "Longest pause in milliseconds after a failed fetch of the keys.")
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = _oauth.row(
    "sasl.oauthbearer.expected.audience", list_of(allowed="names separated by commas", check=bool), None,
    "Audiences (`aud`), one of which a token has to name. Not set: a token that names any is rejected, as by Kafka.")
SASL_OAUTHBEARER_EXPECTED_ISSUER = _oauth.row("sasl.oauthbearer.expected.issuer", string("a text"), None,
    "Issuer (`iss`) that a token has to name. Not set: any.")
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = _oauth.row("sasl.oauthbearer.clock.skew.seconds", integer(at_least=0), 30,
    "Difference in seconds that the clocks of broker and issuer may have.")
SASL_OAUTHBEARER_SUB_CLAIM_NAME = _oauth.row("sasl.oauthbearer.sub.claim.name", string("a name", empty=False), "sub",
    "Claim that names the principal.")
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = _oauth.row(
    "sasl.oauthbearer.scope.claim.name", string("a name", empty=False), "scope",
    "Claim that lists scopes. A token whose scopes are malformed is rejected; they decide nothing else.")

_tokens = Section("Delegation tokens", BROKER_SETTINGS)

DELEGATION_TOKEN_SECRET_KEY = _tokens.row("delegation.token.secret.key", secret(), None,
    "Secret from which delegation tokens are derived, the same on all brokers. Not set: no delegation tokens. "
    "Another secret makes all tokens invalid.", is_sensitive=True)
DELEGATION_TOKEN_MAX_LIFETIME_MS = _tokens.row("delegation.token.max.lifetime.ms", long(at_least=1), 604800000,
    "Time in milliseconds after which a token can no longer be renewed.")
DELEGATION_TOKEN_EXPIRY_TIME_MS = _tokens.row("delegation.token.expiry.time.ms", long(at_least=1), 86400000,
    "Time in milliseconds after which a token expires unless it is renewed.")
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS = _tokens.row(
    "delegation.token.expiry.check.interval.ms", long(at_least=1), 3600000,
    "Interval in milliseconds at which the controller removes tokens that have expired. Brokers refuse an expired "
    "token even before it is removed.")

_authorization = Section("Authorization", BROKER_SETTINGS)

AUTHORIZER_CLASS_NAME = _authorization.row("authorizer.class.name", authorizer_name(), "",
    "Kafka's authorizer, by whose rules access is decided: access control entries in the metadata log, changed with "
    "kafka-acls.sh or any client's admin API. Not set: everything is allowed to everyone.")
SUPER_USERS = _authorization.row("super.users", principals(), "",
    "Principals that may do every operation. The principal of the brokers themselves belongs here: without a login "
    "they are User:ANONYMOUS, like every client of a listener without a login.")
RESTRICTED_SUPER_USERS = _authorization.row("restricted.super.users", restricted_super_users(), "",
    "Principals that may do these operations on every resource of the type, whatever access control entries say: "
    "`User:operator=Cluster:Alter,Topic:Create`, separated by semicolons. Entries decide about all other operations. "
    "Operations imply others as in access control entries. The operator of a Cluster is one.", is_ottla_only=True)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = _authorization.row("allow.everyone.if.no.acl.found", boolean(), False,
    "Whether everything is allowed on a resource that no access control entry matches.")
AUDIT_LOG_PATH = _authorization.row("audit.log.path", string("a file"), None,
    "File to which the broker appends one line of JSON for each refusal, and for each change of access rules, "
    "credentials, quotas, configs, topics and features. It may be renamed while the broker runs, which then creates "
    "another one. Not set: the lines are in the broker's log.", is_ottla_only=True)
AUDIT_TOPIC = _authorization.row("audit.topic", string("a topic", empty=False), None,
    "Topic to which brokers write the lines of the audit log (`audit.log.path`), one in each record. It is created "
    "when the first line is written, by `num.partitions` and `default.replication.factor`. Only principals that may "
    "read it see them.",
    is_ottla_only=True)
