"""Kubernetes' own schemas of resources; their import takes seconds, so only some tests do it."""

from typing import Any


def newest(count: int) -> list[str]:
    """The newest versions that there are schemas of, the newest one last."""
    from kubernetes_validate.utils import all_versions

    found = sorted({tuple(map(int, each.split(".")[:2])) for each in all_versions()})
    return [".".join(map(str, each)) for each in found[-count:]]


def mistake(resource: dict[str, Any], version: str) -> str | None:
    """What the schemas of a version do not allow in a resource, None if they allow all of it."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(resource, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return None
