"""Kubernetes' own schemas of resources. Few tests import this, since it takes seconds."""

from typing import Any


def newest(count: int) -> list[str]:
    """The newest versions that have schemas, in rising order."""
    from kubernetes_validate.utils import all_versions

    found = sorted({tuple(map(int, each.split(".")[:2])) for each in all_versions()})
    return [".".join(map(str, each)) for each in found[-count:]]


def mistake(resource: dict[str, Any], version: str) -> str | None:
    """What a version's schemas do not allow in a resource; None if they allow all of it."""
    import kubernetes_validate

    try:
        kubernetes_validate.validate(resource, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return None
