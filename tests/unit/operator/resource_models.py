"""The models that a resource's model is made of."""

from collections.abc import Iterator

from msgspec import structs

from ottla_operator.resources.model import Model
from ottla_operator.resources.schema import nested_model


def models_within(model: type[Model]) -> Iterator[type[Model]]:
    """The model and every model in its fields, each once."""
    seen: set[type[Model]] = set()
    waiting = [model]
    while waiting:
        if (current := waiting.pop()) not in seen:
            seen.add(current)
            yield current
            waiting += [nested for field in structs.fields(current) if (nested := nested_model(field.type)[0])]
