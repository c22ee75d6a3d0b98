"""Errors of the registry, with the codes of Confluent's registry, which clients know."""


class RegistryError(Exception):
    """Why a request is refused. `code`: Confluent's error code, which begins with the HTTP
    status.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        code = self.code
        while code > 999:
            code //= 10
        return code


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: object = "") -> RegistryError:
    return RegistryError(40403, f"Schema {what} not found" if what != "" else "Schema not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def compatibility_not_configured(subject: str) -> RegistryError:
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(message: str) -> RegistryError:
    return RegistryError(409, message)


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {message}")


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_compatibility(level: object) -> RegistryError:
    return RegistryError(
        42203,
        f"Invalid compatibility level {level!r}. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode(mode: object) -> RegistryError:
    return RegistryError(
        42204,
        f"Invalid mode {mode!r}. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD",
    )


def operation_not_permitted(message: str) -> RegistryError:
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(42206, f"One or more references exist to the schema of subject '{subject}' version {version}")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid subject.")


def bad_request(message: str) -> RegistryError:
    return RegistryError(422, message)


def store_error(message: str) -> RegistryError:
    return RegistryError(50001, message)


def operation_timed_out(message: str) -> RegistryError:
    return RegistryError(50002, message)


def forwarding_failed(message: str) -> RegistryError:
    return RegistryError(50003, message)


def unknown_leader(message: str) -> RegistryError:
    return RegistryError(50004, message)
