"""`ssl.principal.mapping.rules`: the principal's name for a certificate's subject."""

import pytest

from ottla_broker.security.principal import ANONYMOUS, Principal, principal_from_certificate
from ottla_broker.security.principal_mapping import NoMatchingRule, PrincipalMapper

RULES = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun", "DUKE"),
        ("OU=JavaSoft,O=Sun,C=US", "OU=JavaSoft,O=Sun,C=US"),
    ],
)
def test_first_rule_that_matches_the_whole_subject_counts(subject: str, name: str) -> None:
    assert PrincipalMapper.parse(RULES).map_subject(subject) == name


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        (r"RULE:^CN=(a)(b).*$/$2$1$0/", "baCN=ab,O=c"),
        (r"RULE:^CN=(a).*$/$12-$4/", "a2-$4"),  # no group 12: group 1, then 2; no group 4: literal
        (r"RULE:^CN=(?<one>a).*$/${one}\$1\//", "a$1/"),
        (r"RULE:^CN=(x)?a.*$/[$1]/", "[]"),
        (r"RULE:^O=.*$/other/,  ,DEFAULT", "CN=ab,O=c"),
    ],
)
def test_replacements_are_those_of_java(rules: str, name: str) -> None:
    assert PrincipalMapper.parse(rules).map_subject("CN=ab,O=c") == name


def test_commas_in_a_pattern_do_not_end_its_rule() -> None:
    rules = r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT"
    assert PrincipalMapper.parse(rules).map_subject(r"CN=Tkac\, Adam,OU=ITZ") == r"Tkac\, Adam"


@pytest.mark.parametrize("rules", ["", "RULE:^O=.*$/$0/", "RULE:^CN=a$/a/"])
def test_subject_without_a_rule_has_no_principal(rules: str) -> None:
    with pytest.raises(NoMatchingRule, match="CN=ab,O=c"):
        PrincipalMapper.parse(rules).map_subject("CN=ab,O=c")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*$/a/",
        "RULE:^CN=(.*)$/${two}/",
    ],
)
def test_rules_of_another_form_are_rejected(rules: str) -> None:
    with pytest.raises(ValueError, match="rule"):
        PrincipalMapper.parse(rules)


def test_client_without_a_certificate_is_anonymous_under_any_rules() -> None:
    mapper = PrincipalMapper.parse("RULE:^CN=(.*?)$/$1/")
    assert principal_from_certificate(None, mapper) == ANONYMOUS
    subject = {"subject": ((("commonName", "alice"),),)}
    assert principal_from_certificate(subject, mapper) == Principal("User", "alice")
