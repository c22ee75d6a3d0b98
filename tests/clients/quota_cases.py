"""Requests about client quotas. Each function of `QUOTA_CASES` is named after an API."""

from typing import Any

from tests.clients.api_session import ApiSession

EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def entity(*parts: tuple[str, str | None]) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts]


def ops(**values: float | None) -> list[dict[str, Any]]:
    """New values by key; None removes the quota."""
    return [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]


async def alter_client_quotas(session: ApiSession) -> None:
    user, client = ("user", session.unique_name("user")), ("client-id", session.unique_name("client"))

    async def ask(case: str, *entries: tuple[list[dict[str, Any]], list[dict[str, Any]]], **more: Any) -> None:
        await session.send_case(case, entries=[{"entity": who, "ops": what} for who, what in entries], **more)

    await ask("nothing")
    await ask("a user", (entity(user), ops(producer_byte_rate=1024.0, consumer_byte_rate=2048.0)))
    await ask("the same again", (entity(user), ops(producer_byte_rate=1024.0)))
    await ask("a client id", (entity(client), ops(request_percentage=12.5)))
    await ask("a user and a client id", (entity(user, client), ops(controller_mutation_rate=0.5)))
    await ask("the other way round", (entity(client, user), ops(controller_mutation_rate=1.5)))
    await ask("an address", (entity(("ip", "10.1.2.3")), ops(connection_creation_rate=5.0)))
    await ask("removed", (entity(user), ops(producer_byte_rate=None)))
    await ask("removed, not set", (entity(user), ops(request_percentage=None)))
    await ask("an unknown key removed", (entity(user), ops(no_such_rate=None)))
    await ask("only validated", (entity(client), ops(producer_byte_rate=1.0)), validate_only=True)
    await ask("only validated, bad", (entity(client), ops(producer_byte_rate=-1.0)), validate_only=True)
    await ask("one good, one bad", (entity(client), ops(producer_byte_rate=5.0)), (entity(user), ops(no_such_rate=1.0)))
    await ask("one value good, one bad", (entity(user), ops(consumer_byte_rate=7.0, no_such_rate=1.0)))
    await ask("no entity", (entity(), ops(producer_byte_rate=1.0)))
    await ask("an unknown type", (entity(("group", "g")), ops(producer_byte_rate=1.0)))
    await ask("an empty name", (entity(("user", "")), ops(producer_byte_rate=1.0)))
    await ask("an address and a user", (entity(("ip", "10.1.2.3"), user), ops(connection_creation_rate=1.0)))
    await ask(
        "a host name that does not resolve", (entity(("ip", "no.such.host.invalid")), ops(connection_creation_rate=1.0))
    )
    await ask("a user's connections", (entity(user), ops(connection_creation_rate=1.0)))
    await ask("an address's bytes", (entity(("ip", "10.1.2.3")), ops(producer_byte_rate=1.0)))
    await ask(
        "zero",
        (
            entity(user),
            ops(request_percentage=1e-320),
        ),
        (entity(client), ops(producer_byte_rate=0.0)),
    )
    await ask("below zero", (entity(user), ops(request_percentage=-5.0)))
    await ask("half a byte", (entity(user), ops(producer_byte_rate=1024.5)))
    await ask("too many bytes", (entity(user), ops(consumer_byte_rate=1e19)))
    await ask("too many connections", (entity(("ip", "10.1.2.3")), ops(connection_creation_rate=3e9)))
    await ask("a key twice", (entity(user), [*ops(request_percentage=1.0), *ops(request_percentage=2.0)]))
    await ask("cleared", (entity(("ip", "10.1.2.3")), ops(connection_creation_rate=None)))


async def describe_client_quotas(session: ApiSession) -> None:
    alice, bob = ("user", session.unique_name("alice")), ("user", session.unique_name("bob"))
    client = ("client-id", session.unique_name("client"))
    default_user, default_client, address = ("user", None), ("client-id", None), ("ip", "10.9.8.7")
    quotas: list[tuple[list[dict[str, Any]], dict[str, float]]] = [
        (entity(alice), {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        (entity(bob), {"consumer_byte_rate": 2048.0}),
        (entity(alice, client), {"controller_mutation_rate": 0.25}),
        (entity(alice, default_client), {"producer_byte_rate": 3.0}),
        (entity(default_user), {"producer_byte_rate": 4.0}),
        (entity(default_user, client), {"producer_byte_rate": 5.0}),
        (entity(default_user, default_client), {"producer_byte_rate": 6.0}),
        (entity(client), {"producer_byte_rate": 7.0}),
        (entity(default_client), {"producer_byte_rate": 8.0}),
        (entity(address), {"connection_creation_rate": 9.0}),
        (entity(("ip", None)), {"connection_creation_rate": 10.0}),
    ]
    await session.send("alter_client_quotas", entries=[{"entity": who, "ops": ops(**values)} for who, values in quotas])

    async def ask(case: str, *components: tuple[str, int, str | None], strict: bool = False) -> None:
        wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        await session.send_case(case, components=wanted, strict=strict)

    await ask("everything")
    await ask("nothing, strictly", strict=True)
    await ask("a user", ("user", EXACT, alice[1]))
    await ask("a user, strictly", ("user", EXACT, alice[1]), strict=True)
    await ask("an unknown user", ("user", EXACT, "nobody"))
    await ask("the default user", ("user", DEFAULT, None))
    await ask("the default user, strictly", ("user", DEFAULT, None), strict=True)
    await ask("every user", ("user", SPECIFIED, None))
    await ask("every user, strictly", ("user", SPECIFIED, None), strict=True)
    await ask("every client", ("client-id", SPECIFIED, None))
    await ask("a user and a client", ("user", EXACT, alice[1]), ("client-id", EXACT, client[1]))
    await ask("a user and every client", ("user", EXACT, alice[1]), ("client-id", SPECIFIED, None), strict=True)
    await ask("an address", ("ip", EXACT, "10.9.8.7"))
    await ask("every address", ("ip", SPECIFIED, None))
    await ask("an address and a user", ("ip", EXACT, "10.9.8.7"), ("user", SPECIFIED, None))
    await ask("an empty type", ("", EXACT, "a"))
    await ask("an unknown type", ("group", EXACT, "a"))
    await ask("a type twice", ("user", EXACT, "a"), ("user", SPECIFIED, None))
    await ask("exactly nobody", ("user", EXACT, None))
    await ask("the default with a name", ("user", DEFAULT, "a"))
    await ask("every user with a name", ("user", SPECIFIED, "a"))
    await ask("an unknown match type", ("user", 7, None))
    cleared = [{"entity": who, "ops": ops(**dict.fromkeys(values))} for who, values in quotas]
    await session.send("alter_client_quotas", entries=cleared)
    await ask("all removed")


QUOTA_CASES = (alter_client_quotas, describe_client_quotas)
